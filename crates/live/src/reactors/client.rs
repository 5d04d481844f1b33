//! The application's data of each connection beside its socket and machine: as little as its next operation needs.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, Weak};

use clients::authentication::{Fingerprint, Identity, TokenIdentity, client_key_of};
use clients::connections::ConnectionPermit;
use clients::kept_operations::{Amounts, ExistingAmounts, KeptOperation};
use config::Subscriptions;
use execute::{ClientKey, GraphqlError};
use futures_util::future::AbortHandle;
use hub::{GroupId, Subscription};

use super::super::backlog::Backlog;
use super::super::client_context::KeptContext;
use super::super::client_work::ClientWork;
use super::super::sse_single_connection::open_stream::OpenStream;
use crate::metrics::{OpenGauge, Transport};
use crate::operation_start::OperationStart;

/// The data of one connection.
pub(crate) struct Client {
    /// The headers and claims that rules read; shared by all clients with equal ones.
    pub(super) context: Arc<KeptContext>,
    /// The latest token, without its claims. In place: an allocation of its own would take twice as much, with the room
    /// that is lost between small pieces.
    pub(super) token: Option<TokenIdentity>,
    /// The operations in progress.
    pub(super) operations: ClientOperations,
    /// The deliveries that wait for the socket. `None` unless the socket is full or a loss is unannounced.
    pub(super) backlog: Option<Box<Backlog>>,
    /// The started operations and unread responses. `None` if there are neither.
    pub(super) work: Option<Arc<ClientWork>>,
    /// The start of the operation that is stored inline. It takes the place of padding.
    pub(super) first_start: OperationStart,
    pub(super) transport: Transport,
    pub(super) permit: ConnectionPermit,
    #[expect(dead_code, reason = "held for its drop")]
    pub(super) open: OpenGauge,
}

// A part of the memory limit of an idle connection, see `subscription_server`.
const _: () = assert!(size_of::<Client>() <= 152);

/// The operations in progress, by number. Usually there is one, which is stored inline.
#[derive(Default)]
pub(super) enum ClientOperations {
    #[default]
    None,
    /// It began at [`Client::first_start`]: here the time would make each connection larger.
    One(u32, ClientOperation),
    Many(Vec<(u32, OperationStart, ClientOperation)>),
    /// More operations than [`LISTED_MAX`].
    #[expect(
        clippy::box_collection,
        reason = "most connections have one operation, and no room for a map"
    )]
    Map(Box<HashMap<u32, (OperationStart, ClientOperation)>>),
    /// The operations are those of a stream shared by many requests, which keeps them itself.
    SharedStream(Arc<OpenStream>),
}

/// The number of operations above which a map replaces the list.
const LISTED_MAX: usize = 64;

/// An operation in progress.
pub(super) enum ClientOperation {
    /// The task that prepares the operation, joins its group, or executes it (queries).
    Task(AbortHandle),
    /// A live subscription, which unsubscribes when dropped.
    Subscription(
        Subscription,
        #[expect(dead_code, reason = "held for its drop")] OpenGauge,
        KeptOperation,
    ),
}

impl Client {
    /// Returns the key under which work for the client is queued and counted.
    pub(super) fn key(&self) -> ClientKey {
        self.token.as_ref().map_or(self.permit.client(), client_key_of)
    }

    /// Returns the identity with which the client's operations are prepared.
    pub(super) fn identity(&self) -> Identity {
        Identity::of_kept(self.context.claims.as_ref(), self.token.as_ref())
    }

    /// Returns the fingerprint of the client's token; `None` without a token.
    pub(super) fn fingerprint(&self) -> Option<Fingerprint> {
        self.token.as_ref().map(|token| token.fingerprint)
    }

    /// Returns the time at which an operation began.
    pub(super) fn start_of(&self, number: u32) -> Option<OperationStart> {
        self.operations.start_of(number, self.first_start)
    }

    /// True if the operation is in progress.
    pub(super) fn has_operation(&mut self, number: u32) -> bool {
        self.operations.get_mut(number).is_some()
    }

    /// Removes an operation that has ended by itself.
    pub(super) fn forget(&mut self, number: u32) {
        self.operations.remove(number);
    }

    /// Replaces the task of an operation by its live subscription.
    ///
    /// # Errors
    /// The connection may not keep so much; the subscription is dropped.
    pub(super) fn add_live(
        &mut self,
        settings: &Subscriptions,
        number: u32,
        (subscription, open, kept): (Subscription, OpenGauge, KeptOperation),
    ) -> Result<(), GraphqlError> {
        let held = self.operations.kept();
        let Some(entry) = self.operations.get_mut(number) else { return Ok(()) };
        // Other operations may have become live since the check before this one joined its group. The share is `None`:
        // the list of operations counts it.
        let _ = kept.check(settings, &ExistingAmounts::Amounts(held))?;
        *entry = ClientOperation::Subscription(subscription, open, kept);
        Ok(())
    }

    /// Frees the record of operations and responses if it is idle.
    pub(super) fn drop_idle_work(&mut self) {
        if self.work.as_ref().is_some_and(|work| work.is_idle()) {
            self.work = None;
        }
    }

    /// Stops an operation that the client has completed, and drops its deliveries.
    pub(super) fn stop(&mut self, number: u32) {
        if let Some(backlog) = &mut self.backlog {
            backlog.drop_deliveries_of(number);
        }
        if let Some(ClientOperation::Task(task)) = self.operations.remove(number) {
            task.abort();
        }
    }

    /// Stops all operations at the end of the connection.
    pub(super) fn stop_all(&mut self) {
        let stopped = match std::mem::take(&mut self.operations) {
            // Dropping a shared stream ends its operations.
            ClientOperations::None | ClientOperations::SharedStream(_) => Vec::new(),
            ClientOperations::One(_, operation) => vec![operation],
            ClientOperations::Many(list) => list.into_iter().map(|it| it.2).collect(),
            ClientOperations::Map(map) => map.into_values().map(|it| it.1).collect(),
        };
        for operation in stopped {
            if let ClientOperation::Task(task) = operation {
                task.abort();
            }
        }
    }
}

impl ClientOperations {
    /// Adds an operation under a new number. `first_start` is that of the client.
    pub(super) fn add(
        &mut self,
        number: u32,
        operation: ClientOperation,
        first_start: &mut OperationStart,
    ) {
        let start = OperationStart::now();
        *self = match std::mem::take(self) {
            Self::None => {
                *first_start = start;
                Self::One(number, operation)
            }
            Self::One(first, other) => {
                Self::Many(vec![(first, *first_start, other), (number, start, operation)])
            }
            Self::Many(mut list) => {
                list.push((number, start, operation));
                match list.len() {
                    0..=LISTED_MAX => Self::Many(list),
                    _ => {
                        let entries = list.into_iter();
                        let entries = entries.map(|(number, start, it)| (number, (start, it)));
                        Self::Map(Box::new(entries.collect()))
                    }
                }
            }
            Self::Map(mut map) => {
                map.insert(number, (start, operation));
                Self::Map(map)
            }
            shared @ Self::SharedStream(_) => {
                debug_assert!(false, "operations of a shared stream are started by its requests");
                shared
            }
        };
    }

    /// Returns the amounts that the live subscriptions keep. The sum takes some microseconds at most and is needed when
    /// a subscription starts; a field for it would cost each idle connection 8 bytes.
    pub(super) fn kept(&self) -> Amounts {
        let mut kept = Amounts::default();
        let mut count = |operation: &ClientOperation| {
            if let ClientOperation::Subscription(_, _, it) = operation {
                kept.add(it.amounts());
            }
        };
        match self {
            Self::None | Self::SharedStream(_) => {}
            Self::One(_, operation) => count(operation),
            Self::Many(list) => list.iter().for_each(|(_, _, it)| count(it)),
            Self::Map(map) => map.values().for_each(|(_, it)| count(it)),
        }
        kept
    }

    /// Returns the groups of the live subscriptions, and the numbers of the operations that are still starting or
    /// running.
    pub(super) fn live_and_starting(&self) -> (Vec<(u32, GroupId)>, Vec<u32>) {
        let (mut live, mut starting) = (Vec::new(), Vec::new());
        let mut sort = |number: u32, operation: &ClientOperation| match operation {
            ClientOperation::Subscription(subscription, ..) => {
                live.push((number, subscription.group()));
            }
            ClientOperation::Task(_) => starting.push(number),
        };
        match self {
            Self::None | Self::SharedStream(_) => {}
            Self::One(number, operation) => sort(*number, operation),
            Self::Many(list) => list.iter().for_each(|(number, _, it)| sort(*number, it)),
            Self::Map(map) => map.iter().for_each(|(number, (_, it))| sort(*number, it)),
        }
        (live, starting)
    }

    /// Returns the numbers of all operations.
    pub(super) fn numbers(&self) -> Vec<u32> {
        match self {
            Self::None | Self::SharedStream(_) => Vec::new(),
            Self::One(number, ..) => vec![*number],
            Self::Many(list) => list.iter().map(|it| it.0).collect(),
            Self::Map(map) => map.keys().copied().collect(),
        }
    }

    /// Returns the time at which an operation began. `first_start` is that of the client.
    pub(super) fn start_of(
        &self,
        wanted: u32,
        first_start: OperationStart,
    ) -> Option<OperationStart> {
        match self {
            Self::One(number, _) if *number == wanted => Some(first_start),
            Self::None | Self::One(..) | Self::SharedStream(_) => None,
            Self::Many(list) => list.iter().find(|it| it.0 == wanted).map(|it| it.1),
            Self::Map(map) => map.get(&wanted).map(|it| it.0),
        }
    }

    pub(super) fn get_mut(&mut self, wanted: u32) -> Option<&mut ClientOperation> {
        match self {
            Self::One(number, operation) if *number == wanted => Some(operation),
            Self::None | Self::One(..) | Self::SharedStream(_) => None,
            Self::Many(list) => list.iter_mut().find(|it| it.0 == wanted).map(|it| &mut it.2),
            Self::Map(map) => map.get_mut(&wanted).map(|it| &mut it.1),
        }
    }

    fn remove(&mut self, wanted: u32) -> Option<ClientOperation> {
        match std::mem::take(self) {
            Self::One(number, operation) if number == wanted => Some(operation),
            Self::Many(mut list) => {
                let at = list.iter().position(|it| it.0 == wanted);
                let removed = at.map(|at| list.swap_remove(at).2);
                *self = match list.len() {
                    0 => Self::None,
                    _ => Self::Many(list),
                };
                removed
            }
            Self::Map(mut map) => {
                let removed = map.remove(&wanted).map(|it| it.1);
                *self = match map.len() {
                    0 => Self::None,
                    _ => Self::Map(map),
                };
                removed
            }
            other => {
                *self = other;
                None
            }
        }
    }
}

/// The contexts of all clients of a reactor: clients with equal contexts share one. Unused contexts are removed as the
/// list grows.
#[derive(Default)]
pub(super) struct SharedContexts {
    /// The contexts by hash. Of different contexts with the same hash only the first is shared, which costs some
    /// memory.
    known: HashMap<u64, Weak<KeptContext>>,
    hashes: RandomState,
    /// The number of contexts in use after the last sweep.
    used: usize,
}

impl SharedContexts {
    /// Returns a shared context that equals `context`.
    pub(super) fn share(&mut self, context: KeptContext) -> Arc<KeptContext> {
        let hash = self.hash(&context);
        if let Some(known) = self.known.get(&hash).and_then(Weak::upgrade) {
            return if are_equal(&known, &context) { known } else { Arc::new(context) };
        }
        if self.known.len() >= 2 * self.used + SWEPT_FROM {
            self.known.retain(|_, context| context.strong_count() > 0);
            self.known.shrink_to_fit();
            self.used = self.known.len();
        }
        let shared = Arc::new(context);
        self.known.insert(hash, Arc::downgrade(&shared));
        shared
    }

    fn hash(&self, context: &KeptContext) -> u64 {
        let mut hasher = self.hashes.build_hasher();
        (&context.claims, context.origin).hash(&mut hasher);
        for (name, value) in &context.headers {
            (name, value.as_bytes()).hash(&mut hasher);
        }
        hasher.finish()
    }
}

fn are_equal(one: &KeptContext, other: &KeptContext) -> bool {
    one.headers == other.headers && one.origin == other.origin && one.claims == other.claims
}

/// The minimum length of a list of contexts that is swept.
const SWEPT_FROM: usize = 64;

#[cfg(test)]
mod tests {
    use execute::{ClaimPath, Claims};
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let list = list.iter();
        list.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn operations_are_found_by_number_whatever_their_count() {
        let mut operations = ClientOperations::default();
        let mut first = OperationStart::now();
        for count in 1..5 {
            operations.add(count, ClientOperation::Task(AbortHandle::new_pair().0), &mut first);
            assert!((1..=count).all(|number| operations.get_mut(number).is_some()));
            assert!(operations.get_mut(count + 1).is_none());
            assert!((1..=count).all(|number| operations.start_of(number, first).is_some()));
            assert_eq!(
                (operations.numbers().len(), operations.start_of(9, first)),
                (count as usize, None)
            );
        }
        assert!(operations.remove(7).is_none());
        for number in [2, 1, 4, 3] {
            assert!(operations.remove(number).is_some());
            assert!(operations.remove(number).is_none());
        }
        assert!(matches!(operations, ClientOperations::None));
        let many = 0..3 * LISTED_MAX as u32;
        for number in many.clone() {
            operations.add(number, ClientOperation::Task(AbortHandle::new_pair().0), &mut first);
        }
        assert!(many.clone().all(|number| operations.get_mut(number).is_some()));
        assert!(many.clone().all(|number| operations.remove(number).is_some()));
        assert!(matches!(operations, ClientOperations::None));
        operations.add(9, ClientOperation::Task(AbortHandle::new_pair().0), &mut first);
        assert!(operations.remove(8).is_none());
        assert!(operations.get_mut(9).is_some());
    }

    #[test]
    fn equal_headers_are_shared_and_unused_ones_removed() {
        let mut shared = SharedContexts::default();
        let context = |list| KeptContext { headers: headers(list), ..KeptContext::default() };
        let first = shared.share(context(&[("a", "1")]));
        assert!(Arc::ptr_eq(&first, &shared.share(context(&[("a", "1")]))));
        assert!(!Arc::ptr_eq(&first, &shared.share(context(&[("a", "2")]))));
        for _ in 0..10 * SWEPT_FROM {
            let name = HeaderValue::from_str(&format!("{}", shared.known.len())).expect("a number");
            let headers = HeaderMap::from_iter([(http::header::ACCEPT, name)]);
            shared.share(KeptContext { headers, ..KeptContext::default() });
        }
        let claims = |text: &str| {
            let claims = Claims::new(text.to_owned().into()).expect("an object");
            let paths = [ClaimPath::parse("scope").expect("a name")];
            KeptContext { claims: Some(claims.keep(&paths.into())), ..KeptContext::default() }
        };
        let reader = shared.share(claims(r#"{"sub":"a","scope":"read"}"#));
        let other = shared.share(claims(r#"{"sub":"b","scope":"read"}"#));
        assert!(Arc::ptr_eq(&reader, &other), "the subject is not read");
        let writer = shared.share(claims(r#"{"sub":"a","scope":"write"}"#));
        let anonymous = shared.share(KeptContext::default());
        let nothing = shared.share(claims("{}"));
        assert!(!Arc::ptr_eq(&reader, &writer) && !Arc::ptr_eq(&anonymous, &nothing));
        assert!(shared.known.len() <= SWEPT_FROM + 2, "{}", shared.known.len());
        assert!(Arc::ptr_eq(&first, &shared.share(context(&[("a", "1")]))));
    }
}
