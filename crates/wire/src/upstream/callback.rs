//! The HTTP callback protocol 1.0: a server sends the results of a subscription as requests to a URL of the router.
//!
//! [`CallbackTable`] is the state of the router's side. The listener passes it each request and responds with the
//! status that it returns, the header [`PROTOCOL_HEADER`] and no body. The caller sends the request that begins a
//! subscription, with [`CallbackRegistration::extension`] in it and [`ACCEPT`] in its `Accept` header.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use astjson::print_string;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use bytes::Bytes;

use super::callback_message::{CallbackMessage, PROTOCOL_VERSION, is_equal_in_constant_time};
use super::error::OperationError;
use crate::lazy_state::pop_or_release;
use crate::server_message::is_filled_list;

pub use super::callback_message::{CallbackAction, CallbackId, CallbackRejection};

/// The header that every response to a callback has.
pub const PROTOCOL_HEADER: (&str, &str) = ("subscription-protocol", PROTOCOL_VERSION);
/// The `Accept` header of the request that begins a subscription.
pub const ACCEPT: &str = "application/json;callbackSpec=1.0";

/// The number of random bytes in a verifier: as many as in the strongest keys of common ciphers.
const VERIFIER_BYTES: usize = 32;

/// Settings of all subscriptions by callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallbackSettings {
    /// The interval at which a server must send `check`; `None` requests no heartbeats.
    pub heartbeat_interval: Option<Duration>,
    /// The number of heartbeats that may be missing in a row before a subscription fails.
    pub missed_heartbeats_max: u32,
    /// The time from the registration within which the server must send its first message.
    pub first_message_timeout: Duration,
    /// The maximum size of a request in bytes.
    pub body_bytes_max: usize,
    /// The maximum number of subscriptions.
    pub subscriptions_max: usize,
}

impl Default for CallbackSettings {
    /// Returns defaults with these reasons:
    /// - 5 s between heartbeats, as the specification's example and the servers that ignore the interval have it.
    /// - 3 missed heartbeats: a server retries one for a few seconds.
    /// - 30 s to the first message: the default timeout of a request to a subgraph. The message comes before the
    ///   response.
    /// - 64 MiB a request: the default limit of a response from a subgraph.
    /// - 100,000 subscriptions: under 50 MiB, and more than the distinct operations of any graph.
    fn default() -> CallbackSettings {
        CallbackSettings {
            heartbeat_interval: Some(Duration::from_secs(5)),
            missed_heartbeats_max: 3,
            first_message_timeout: Duration::from_secs(30),
            body_bytes_max: 64 * 1024 * 1024,
            subscriptions_max: 100_000,
        }
    }
}

impl CallbackSettings {
    /// Returns the time without a message after which a subscription that has begun fails.
    fn silence_max(&self) -> Option<Duration> {
        self.heartbeat_interval?.checked_mul(self.missed_heartbeats_max.saturating_add(1))
    }
}

/// Random bytes for one subscription. They must not be predictable: the verifier is a secret.
#[derive(Clone, Copy)]
pub struct CallbackEntropy {
    /// The bytes of the id.
    pub id: [u8; 16],
    /// The bytes of the verifier.
    pub verifier: [u8; VERIFIER_BYTES],
}

/// A subscription that was registered.
pub struct CallbackRegistration {
    /// The id of the subscription.
    pub id: CallbackId,
    verifier: Box<str>,
    heartbeat_interval: Option<Duration>,
}

impl CallbackRegistration {
    /// Returns the value of `extensions.subscription` in the request that begins the subscription, a JSON object.
    /// Callbacks go to the id below `public_url`.
    pub fn extension(&self, public_url: &str) -> Bytes {
        let url = format!("{}/{}", public_url.trim_end_matches('/'), self.id);
        let mut text = br#"{"callbackUrl":"#.to_vec();
        print_string(&url, &mut text);
        let interval = self.heartbeat_interval.map_or(0, |interval| interval.as_millis());
        let rest = format!(
            r#","subscriptionId":"{}","verifier":"{}","heartbeatIntervalMs":{interval}}}"#,
            self.id, self.verifier
        );
        text.extend_from_slice(rest.as_bytes());
        text.into()
    }
}

/// There are as many subscriptions by callback as there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{limit} subscriptions by HTTP callback are in progress, the most that there may be")]
pub struct TooManyCallbacks {
    /// The limit.
    pub limit: usize,
}

/// A request to the callback URL. It has no `Debug`, because the body contains the verifier.
#[derive(Clone)]
pub struct CallbackRequest<'a> {
    /// The last segment of the path.
    pub path_id: &'a str,
    /// The value of the `subscription-protocol` header. Servers in use send it with `check` only.
    pub protocol: Option<&'a str>,
    /// The body.
    pub body: Bytes,
}

/// A request to the callback URL that was parsed. Whether it belongs to a subscription is not known yet. It has no
/// `Debug`, because the message contains the verifier.
pub struct ParsedCallback {
    id: CallbackId,
    message: CallbackMessage,
}

impl CallbackRequest<'_> {
    /// Parses the request: the part of [`CallbackTable::receive`] that needs no table, and takes longer for a
    /// larger body.
    pub fn parse(self, settings: &CallbackSettings) -> Result<ParsedCallback, CallbackRejection> {
        let limit = settings.body_bytes_max;
        if self.body.len() > limit {
            return Err(CallbackRejection::TooLarge { limit });
        }
        if self.protocol.is_some_and(|version| version.trim() != PROTOCOL_VERSION) {
            return Err(CallbackRejection::UnsupportedProtocol);
        }
        let message = CallbackMessage::parse(&self.body)?;
        if *message.id != *self.path_id {
            return Err(CallbackRejection::Malformed("`id` is not the one in the path"));
        }
        let id = CallbackId::parse(&message.id).ok_or(CallbackRejection::UnknownSubscription)?;
        Ok(ParsedCallback { id, message })
    }
}

/// A result, or the end of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallbackEvent {
    /// A result.
    Next {
        /// The subscription.
        id: CallbackId,
        /// A JSON object, the GraphQL response: a slice of the body.
        payload: Bytes,
    },
    /// A subscription has ended after its last result.
    Complete {
        /// The subscription.
        id: CallbackId,
    },
    /// A subscription has failed and ended.
    Failed {
        /// The subscription.
        id: CallbackId,
        /// The reason.
        error: OperationError,
    },
}

/// The subscriptions by callback that are in progress.
pub struct CallbackTable {
    settings: CallbackSettings,
    subscriptions: HashMap<CallbackId, CallbackState>,
    /// One time for each subscription that has a deadline, at or before the deadline. A message only moves the
    /// deadline. The time here follows once it has come, so that messages cost no work in this set.
    timers: BTreeSet<(Instant, CallbackId)>,
    events: VecDeque<CallbackEvent>,
}

struct CallbackState {
    verifier: Box<str>,
    deadline: Option<Instant>,
    /// The time in `timers`.
    timer: Option<Instant>,
    /// The length of the silence that ends at the deadline, for the error.
    silence_max: Duration,
}

impl CallbackTable {
    /// Returns a table without subscriptions.
    pub fn new(settings: CallbackSettings) -> CallbackTable {
        CallbackTable {
            settings,
            subscriptions: HashMap::new(),
            timers: BTreeSet::new(),
            events: VecDeque::new(),
        }
    }

    /// Adds a subscription, before the request that begins it is sent: the first callback comes before the response.
    pub fn register(
        &mut self,
        now: Instant,
        entropy: CallbackEntropy,
    ) -> Result<CallbackRegistration, TooManyCallbacks> {
        let limit = self.settings.subscriptions_max;
        if self.subscriptions.len() >= limit {
            return Err(TooManyCallbacks { limit });
        }
        let id = CallbackId::from_entropy(entropy.id);
        let verifier: Box<str> = BASE64.encode(entropy.verifier).into();
        let silence_max = self.settings.first_message_timeout;
        let deadline = now.checked_add(silence_max);
        debug_assert!(!self.subscriptions.contains_key(&id), "the id is not random");
        self.timers.extend(deadline.map(|deadline| (deadline, id)));
        let (kept, timer) = (verifier.clone(), deadline);
        let state = CallbackState { verifier: kept, deadline, timer, silence_max };
        self.subscriptions.insert(id, state);
        let heartbeat_interval = self.settings.heartbeat_interval;
        Ok(CallbackRegistration { id, verifier, heartbeat_interval })
    }

    /// Ends a subscription: the router needs it no more, or the request that should begin it has failed. Returns
    /// whether it was in progress. The server learns of it by the status 404 of its next callback.
    pub fn remove(&mut self, id: CallbackId) -> bool {
        let removed = self.subscriptions.remove(&id);
        if let Some(timer) = removed.as_ref().and_then(|state| state.timer) {
            self.timers.remove(&(timer, id));
        }
        removed.is_some()
    }

    /// Returns the number of subscriptions in progress.
    pub fn in_progress(&self) -> usize {
        self.subscriptions.len()
    }

    /// Takes a request to the callback URL. The result gives the status of the response.
    pub fn receive(
        &mut self,
        now: Instant,
        request: CallbackRequest<'_>,
    ) -> Result<CallbackAction, CallbackRejection> {
        let parsed = request.parse(&self.settings)?;
        self.receive_parsed(now, parsed)
    }

    /// Takes a request that was parsed, like [`CallbackTable::receive`]. It causes one event at most.
    pub fn receive_parsed(
        &mut self,
        now: Instant,
        parsed: ParsedCallback,
    ) -> Result<CallbackAction, CallbackRejection> {
        let ParsedCallback { id, message } = parsed;
        let state =
            self.subscriptions.get_mut(&id).ok_or(CallbackRejection::UnknownSubscription)?;
        if !is_equal_in_constant_time(state.verifier.as_bytes(), message.verifier.as_bytes()) {
            return Err(CallbackRejection::WrongVerifier);
        }
        let silence_max = self.settings.silence_max();
        state.silence_max = silence_max.unwrap_or(state.silence_max);
        state.deadline = silence_max.and_then(|it| now.checked_add(it));
        // The first message may bring the deadline forward.
        if let (Some(timer), Some(deadline)) = (state.timer, state.deadline)
            && deadline < timer
        {
            self.timers.remove(&(timer, id));
            self.timers.insert((deadline, id));
            state.timer = Some(deadline);
        }
        self.take_message(id, message)
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<CallbackEvent> {
        pop_or_release(&mut self.events)
    }

    /// Returns the time at which [`CallbackTable::handle_timeout`] must be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(timer, _)| *timer)
    }

    /// Fails the subscriptions without a message before their deadline. An early call does nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((timer, id)) = self.timers.first().copied().filter(|first| first.0 <= now) {
            self.timers.remove(&(timer, id));
            let Some(state) = self.subscriptions.get_mut(&id) else { continue };
            state.timer = state.deadline;
            match state.deadline {
                Some(deadline) if deadline <= now => {
                    let error = OperationError::Silent(state.silence_max);
                    self.subscriptions.remove(&id);
                    self.events.push_back(CallbackEvent::Failed { id, error });
                }
                Some(deadline) => {
                    self.timers.insert((deadline, id));
                }
                None => {}
            }
        }
    }

    /// Takes a message of the subscription's server.
    fn take_message(
        &mut self,
        id: CallbackId,
        message: CallbackMessage,
    ) -> Result<CallbackAction, CallbackRejection> {
        let is_object = |text: &Bytes| text.starts_with(b"{");
        match message.action {
            CallbackAction::Check => {}
            CallbackAction::Next => match message.payload.filter(is_object) {
                Some(payload) => self.events.push_back(CallbackEvent::Next { id, payload }),
                None => return Err(self.fail_invalid(id, "`payload` must be an object")),
            },
            CallbackAction::Complete => match message.errors {
                Some(errors) if !errors.starts_with(b"[") => {
                    return Err(self.fail_invalid(id, "`errors` must be a list"));
                }
                Some(errors) if is_filled_list(&errors) => {
                    self.remove(id);
                    let error = OperationError::Errors(errors);
                    self.events.push_back(CallbackEvent::Failed { id, error });
                }
                _ => {
                    self.remove(id);
                    self.events.push_back(CallbackEvent::Complete { id });
                }
            },
        }
        Ok(message.action)
    }

    fn fail_invalid(&mut self, id: CallbackId, defect: &'static str) -> CallbackRejection {
        self.remove(id);
        let error = OperationError::InvalidResult(defect.into());
        self.events.push_back(CallbackEvent::Failed { id, error });
        CallbackRejection::InvalidResult(defect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixture {
        table: CallbackTable,
        start: Instant,
        id: CallbackId,
        verifier: Box<str>,
    }

    impl Fixture {
        fn new(settings: CallbackSettings) -> Fixture {
            let (mut table, start) = (CallbackTable::new(settings), Instant::now());
            let entropy = CallbackEntropy { id: [0xff; 16], verifier: [7; VERIFIER_BYTES] };
            let CallbackRegistration { id, verifier, .. } = table.register(start, entropy).unwrap();
            Fixture { table, start, id, verifier }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        /// Sends the right message with this action and these further members; returns the status.
        fn send(&mut self, seconds: u64, action: &str, rest: &str) -> u16 {
            let (id, verifier) = (self.id, &self.verifier);
            let body = format!(
                r#"{{"kind":"subscription","action":"{action}","id":"{id}","verifier":"{verifier}"{rest}}}"#
            );
            self.send_body(seconds, body)
        }

        fn send_body(&mut self, seconds: u64, body: String) -> u16 {
            let path_id = self.id.to_string();
            let request = CallbackRequest {
                path_id: &path_id,
                protocol: Some("callback/1.0"),
                body: body.into(),
            };
            match self.table.receive(self.at(seconds), request) {
                Ok(action) => action.status(),
                Err(rejection) => rejection.status(),
            }
        }

        fn events(&mut self) -> Vec<CallbackEvent> {
            std::iter::from_fn(|| self.table.poll_event()).collect()
        }

        fn failed(&self, error: OperationError) -> CallbackEvent {
            CallbackEvent::Failed { id: self.id, error }
        }
    }

    #[test]
    fn a_registration_has_the_extension_of_the_request() {
        let mut table = CallbackTable::new(CallbackSettings::default());
        let entropy = CallbackEntropy { id: [0xff; 16], verifier: [0; VERIFIER_BYTES] };
        let registration = table.register(Instant::now(), entropy).unwrap();
        let id = "ffffffff-ffff-4fff-bfff-ffffffffffff";
        assert_eq!(registration.id.to_string(), id);
        assert_eq!(CallbackId::parse(id), Some(registration.id));
        assert_eq!(CallbackId::parse(&id.to_uppercase()), None);
        let expected = format!(
            r#"{{"callbackUrl":"http://router/callback/{id}","subscriptionId":"{id}","verifier":"{}","heartbeatIntervalMs":5000}}"#,
            "A".repeat(43)
        );
        assert_eq!(registration.extension("http://router/callback/"), expected);
    }

    #[test]
    fn a_subscription_runs_from_check_to_complete() {
        let mut it = Fixture::new(CallbackSettings::default());
        assert_eq!(it.send(0, "check", ""), 204);
        assert_eq!(it.send(1, "next", r#","payload":{"data":1}"#), 200);
        assert_eq!(it.send(2, "complete", r#","errors":[ ]"#), 202);
        let (id, payload) = (it.id, Bytes::from_static(br#"{"data":1}"#));
        let expected = [CallbackEvent::Next { id, payload }, CallbackEvent::Complete { id }];
        assert_eq!(it.events(), expected);
        assert_eq!(it.send(3, "next", r#","payload":{"data":2}"#), 404);
        assert_eq!((it.events(), it.table.in_progress()), (vec![], 0));
        assert_eq!(it.table.poll_timeout(), None);
    }

    #[test]
    fn a_server_ends_a_subscription_with_errors_or_an_invalid_result() {
        let mut it = Fixture::new(CallbackSettings::default());
        assert_eq!(it.send(1, "complete", r#","errors":[{"message":"no"}]"#), 202);
        let errors = OperationError::Errors(r#"[{"message":"no"}]"#.into());
        assert_eq!(it.events(), [it.failed(errors)]);

        for (action, rest, defect) in [
            ("next", "", "`payload` must be an object"),
            ("next", r#","payload":[]"#, "`payload` must be an object"),
            ("complete", r#","errors":{}"#, "`errors` must be a list"),
        ] {
            let mut it = Fixture::new(CallbackSettings::default());
            assert_eq!(it.send(1, action, rest), 400);
            let error = OperationError::InvalidResult(defect.into());
            assert_eq!((it.events(), it.table.in_progress()), (vec![it.failed(error)], 0));
        }
    }

    #[test]
    fn a_request_of_another_sender_affects_nothing() {
        let settings = CallbackSettings { body_bytes_max: 300, ..CallbackSettings::default() };
        let mut it = Fixture::new(settings);
        let deadline = it.table.poll_timeout();
        let (id, verifier) = (it.id, it.verifier.clone());
        let right = format!(
            r#"{{"kind":"subscription","action":"complete","id":"{id}","verifier":"{verifier}"}}"#
        );
        let other_id = CallbackId::from_entropy([1; 16]).to_string();
        let cases = [
            (right.replace(&*verifier, "x"), 403),
            (right.replace(&*verifier, &verifier.replace('H', "h")), 403),
            (right.replace(&id.to_string(), &other_id), 400),
            (right.replace("complete", "stop"), 400),
            (right.replace("subscription", "query"), 400),
            (right.replace(r#""verifier""#, r#""secret""#), 400),
            (right.replace('}', r#","verifier":"x"}"#), 400),
            (format!("[{right}]"), 400),
            (right.replace('}', ""), 400),
            (right.clone() + &" ".repeat(300), 413),
        ];
        for (body, status) in cases {
            assert_eq!(it.send_body(1, body.clone()), status, "{body}");
        }
        let now = it.at(1);
        let body = Bytes::from(right.clone());
        let path_id = id.to_string();
        let other = CallbackRequest { path_id: &path_id, protocol: Some("callback/2.0"), body };
        let rejection = Err(CallbackRejection::UnsupportedProtocol);
        assert_eq!(it.table.receive(now, other), rejection);
        assert_eq!((it.events(), it.table.poll_timeout()), (vec![], deadline));
        assert_eq!(it.send_body(1, right), 202);
    }

    #[test]
    fn a_server_without_heartbeats_fails_its_subscription() {
        let mut it = Fixture::new(CallbackSettings::default());
        assert_eq!(it.table.poll_timeout(), Some(it.at(30)));
        assert_eq!(it.send(1, "check", ""), 204);
        assert_eq!(it.send(20, "next", r#","payload":{}"#), 200);
        it.events();
        it.table.handle_timeout(it.at(30));
        assert_eq!((it.events(), it.table.poll_timeout()), (vec![], Some(it.at(40))));
        it.table.handle_timeout(it.at(40));
        let silent = it.failed(OperationError::Silent(Duration::from_secs(20)));
        assert_eq!((it.events(), it.table.poll_timeout()), (vec![silent], None));
        assert_eq!(it.send(41, "check", ""), 404);
    }

    #[test]
    fn a_server_that_never_calls_fails_its_subscription() {
        let mut it = Fixture::new(CallbackSettings::default());
        it.table.handle_timeout(it.at(30));
        let silent = it.failed(OperationError::Silent(Duration::from_secs(30)));
        assert_eq!(it.events(), [silent]);
    }

    #[test]
    fn without_heartbeats_a_subscription_has_no_deadline() {
        let settings = CallbackSettings { heartbeat_interval: None, ..CallbackSettings::default() };
        let mut it = Fixture::new(settings);
        assert_eq!(it.send(1, "check", ""), 204);
        it.table.handle_timeout(it.at(30));
        assert_eq!((it.events(), it.table.poll_timeout()), (vec![], None));
        assert!(it.table.remove(it.id) && !it.table.remove(it.id));
        assert_eq!(it.send(100_000, "check", ""), 404);
    }

    #[test]
    fn the_number_of_subscriptions_has_a_limit() {
        let settings = CallbackSettings { subscriptions_max: 1, ..CallbackSettings::default() };
        let mut it = Fixture::new(settings);
        let entropy = CallbackEntropy { id: [3; 16], verifier: [3; VERIFIER_BYTES] };
        let error = it.table.register(it.start, entropy).err();
        assert_eq!(error, Some(TooManyCallbacks { limit: 1 }));
    }
}
