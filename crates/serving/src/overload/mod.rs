//! Overload protection: each operation that a client sends is admitted before anything is done for it, or waits for a
//! moment, or is refused.
//!
//! The decisions are those of [`admission::AdmissionControl`]. This module joins it with the process: the clock, the
//! tasks that wait, the classes of requests (`request_classes`), and the right to work, which ends when it is dropped
//! ([`work_ticket`]). One control serves all workers behind one lock, which is held for less than a microsecond.

pub mod metrics;
mod request_classes;
pub mod work_ticket;

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use admission::{
    AdmissionControl, AdmissionSettings, Class, Decision, Event, LimitBounds, QueueSettings,
    Refusal, Request, Ticket, WaiterId,
};
use clients::authentication::Identity;
use clients::request_source::RequestSource;
use config::Config;
use config::diagnostic::Diagnostic;
use execute::{ClaimPath, ClientKey, ErrorCode, GraphqlError};
use foldhash::quality::RandomState;
use http::HeaderMap;
use prepare::OperationRequest;
use tokio::sync::oneshot;

use self::metrics::AdmissionStats;
use self::request_classes::RequestClasses;
use self::work_ticket::WorkTicket;
use crate::expression_stats::ExpressionStats;

/// The overload protection of the process.
#[derive(Debug)]
pub struct OverloadProtection {
    state: Mutex<ProtectionState>,
    classes: RequestClasses,
    stats: AdmissionStats,
    /// Hashes what names operations and clients. Randomly seeded: clients cannot choose the results.
    hasher: RandomState,
    started: Instant,
}

#[derive(Debug)]
struct ProtectionState {
    control: AdmissionControl,
    /// The tasks that wait. Each gets its decision once.
    waiting: HashMap<WaiterId, oneshot::Sender<Result<WorkTicket, Refusal>>>,
}

/// The facts about a request that are known before its operation is parsed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivingRequest<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) headers: &'a HeaderMap,
    /// The key of the client's address.
    pub(crate) address: ClientKey,
    pub(crate) source: RequestSource<'a>,
}

impl OverloadProtection {
    /// Creates the protection of a configuration; `None` if it is turned off.
    ///
    /// # Errors
    /// The configuration was not checked, and an expression is not valid.
    pub(crate) fn new(
        config: &Config,
        expressions: &Arc<ExpressionStats>,
    ) -> Result<Option<Arc<Self>>, Box<Diagnostic>> {
        let config::Admission { enabled, limit, queue, .. } = &config.admission;
        if !enabled {
            return Ok(None);
        }
        let settings = AdmissionSettings {
            limit: LimitBounds { initial: limit.initial, min: limit.min, max: limit.max },
            queue: QueueSettings {
                waiting_max: queue.max_waiting,
                target: queue.target,
                interval: queue.interval,
            },
        };
        Ok(Some(Arc::new(Self {
            state: Mutex::new(ProtectionState {
                control: AdmissionControl::new(settings),
                waiting: HashMap::new(),
            }),
            classes: RequestClasses::new(config, expressions)?,
            stats: AdmissionStats::default(),
            hasher: RandomState::default(),
            started: Instant::now(),
        })))
    }

    /// Returns the claims that the conditions read.
    pub(crate) fn claims(&self) -> &[ClaimPath] {
        self.classes.claims()
    }

    /// Admits the operations of one request, which are done as one piece of work: waits in the queue while the limit is
    /// reached, until `deadline` at most. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// `OVERLOADED`: the request is refused, with the time after which the client may try again.
    // hot path: one lock; a refusal takes a few microseconds
    pub(crate) async fn admit(
        self: &Arc<Self>,
        operations: &[OperationRequest],
        request: ArrivingRequest<'_>,
        deadline: Instant,
    ) -> Result<WorkTicket, GraphqlError> {
        let class = self.classes.class(&request);
        let client = match self.classes.client(&request) {
            Some(key) => self.hasher.hash_one(&*key),
            None => {
                let key = request.identity.client_key().unwrap_or(request.address);
                self.hasher.hash_one(key)
            }
        };
        let operation = self.operation_key(operations);
        self.admit_as(Request { client, operation, class }, deadline).await
    }

    async fn admit_as(
        self: &Arc<Self>,
        request: Request,
        deadline: Instant,
    ) -> Result<WorkTicket, GraphqlError> {
        let admitted = self.wait_for_ticket(request, deadline).await;
        admitted.map_err(|refusal| {
            self.stats.count_refused(request.class, refusal.reason);
            overloaded(&refusal)
        })
    }

    /// Returns the hash of what names operations: their texts, or their ids or hashes.
    fn operation_key(&self, operations: &[OperationRequest]) -> u64 {
        let names = operations.iter().map(|it| {
            // Without a text and an id, the operation is named by a hash in the extensions.
            let is_named = !it.query.is_empty() || it.document_id.is_some();
            let extensions = if is_named { &[][..] } else { &*it.extensions };
            self.hasher.hash_one((&*it.query, &it.document_id, &it.operation_name, extensions))
        });
        names.fold(0, |key, name| key.rotate_left(5) ^ name)
    }

    async fn wait_for_ticket(
        self: &Arc<Self>,
        request: Request,
        deadline: Instant,
    ) -> Result<WorkTicket, Refusal> {
        let now = self.now();
        let deadline = deadline.saturating_duration_since(self.started);
        let (id, until, decided) = {
            let mut state = self.lock();
            match state.control.request(request, deadline, now, fastrand::u64(..)) {
                Decision::Admitted(ticket) => {
                    drop(state);
                    return Ok(self.begin_work(ticket, Duration::ZERO));
                }
                Decision::Refused(refusal) => return Err(refusal),
                Decision::Waiting(id, until) => {
                    let (sender, decided) = oneshot::channel();
                    state.waiting.insert(id, sender);
                    self.announce_decisions(state);
                    (id, until, decided)
                }
            }
        };
        let place = WaitingPlace { protection: self, id };
        let mut decided = decided;
        match tokio::time::timeout_at((self.started + until).into(), &mut decided).await {
            Ok(Ok(decision)) => decision,
            Ok(Err(_)) | Err(_) => match place.leave() {
                Some(refusal) => Err(refusal),
                // The decision was made in this moment. It is there, because it is sent before the lock is released to
                // `leave`, or right after.
                None => decided.await.unwrap_or(Err(NOT_DECIDED)),
            },
        }
    }

    fn begin_work(self: &Arc<Self>, ticket: Ticket, waited: Duration) -> WorkTicket {
        self.stats.count_admitted(ticket.request().class, waited);
        WorkTicket::new(Arc::clone(self), ticket)
    }

    /// Sends the decisions that the control has made to the tasks that wait, once the lock is released: a task that has
    /// gone gives its ticket back at once.
    fn announce_decisions(self: &Arc<Self>, mut state: MutexGuard<'_, ProtectionState>) {
        let mut decisions = Vec::new();
        while let Some(event) = state.control.poll_event() {
            let (Event::Admitted(id, ..) | Event::Refused(id, _)) = event;
            decisions.push((state.waiting.remove(&id), event));
        }
        drop(state);
        for (waiter, event) in decisions {
            let decision = match event {
                Event::Admitted(_, ticket, waited) => Ok(self.begin_work(ticket, waited)),
                Event::Refused(_, refusal) => Err(refusal),
            };
            if let Some(waiter) = waiter {
                // A task that has gone needs no decision.
                let _ = waiter.send(decision);
            }
        }
    }

    /// Ends admitted work, and lets others begin.
    fn finish(self: &Arc<Self>, ticket: Ticket, outcome: admission::Outcome) {
        let mut state = self.lock();
        state.control.finish(ticket, outcome, self.now(), fastrand::u64(..));
        self.announce_decisions(state);
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, ProtectionState> {
        // The control makes no calls that could panic half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The decision about a request if its own got lost. It cannot happen: each one is sent once.
const NOT_DECIDED: Refusal =
    Refusal { reason: admission::RefusalReason::WaitedTooLong, retry_after_seconds: 1 };

/// The place of a task in the queue, which it leaves when this is dropped.
struct WaitingPlace<'a> {
    protection: &'a OverloadProtection,
    id: WaiterId,
}

impl WaitingPlace<'_> {
    /// Leaves the queue. `None` if there has been a decision.
    fn leave(&self) -> Option<Refusal> {
        let mut state = self.protection.lock();
        state.waiting.remove(&self.id)?;
        state.control.leave(self.id, self.protection.now(), fastrand::u64(..))
    }
}

impl Drop for WaitingPlace<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Returns the error of a refused request.
fn overloaded(refusal: &Refusal) -> GraphqlError {
    let seconds = refusal.retry_after_seconds;
    let message = format!("the router is overloaded: try again in {seconds} s");
    let mut error = GraphqlError::new(ErrorCode::Overloaded, message);
    error.extensions = Some(format!(r#"{{"retryAfter":{seconds}}}"#).into());
    error.retry_after_seconds = NonZeroU16::new(u16::try_from(seconds).unwrap_or(u16::MAX));
    error
}

/// Returns a class of the control.
fn class_of(class: config::RequestClass) -> Class {
    match class {
        config::RequestClass::Critical => Class::Critical,
        config::RequestClass::Normal => Class::Normal,
        config::RequestClass::Sheddable => Class::Sheddable,
    }
}

#[cfg(test)]
mod tests {
    use clients::request_source::ConnectionOrigin;
    use config::{AdmissionLimit, AdmissionQueue, Expression, PriorityRule, RequestClass};

    use super::*;

    /// Returns a protection with a limit that does not move, and a queue in which requests wait for a minute.
    fn protection(limit: u32, max_waiting: u32) -> Arc<OverloadProtection> {
        let minute = Duration::from_secs(60);
        let admission = config::Admission {
            enabled: true,
            limit: AdmissionLimit { initial: limit, min: limit, max: limit },
            queue: AdmissionQueue { max_waiting, target: minute, interval: minute },
            priority: vec![PriorityRule {
                when: Expression::new("request.headers['x-class'] == 'critical'"),
                class: RequestClass::Critical,
            }],
            fair_by: Some(Expression::new("request.headers['x-tenant']")),
        };
        let config = Config { admission, ..Config::default() };
        OverloadProtection::new(&config, &Arc::default())
            .unwrap_or_else(|error| panic!("{}", error.message))
            .expect("it is turned on")
    }

    async fn admit(
        protection: &Arc<OverloadProtection>,
        headers: &[(&'static str, &'static str)],
    ) -> Result<WorkTicket, GraphqlError> {
        let headers = headers.iter().map(|&(name, value)| {
            (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
        });
        let origin = ConnectionOrigin::default();
        let request = ArrivingRequest {
            identity: &Identity::ANONYMOUS,
            headers: &headers.collect(),
            address: ClientKey::UNKNOWN,
            source: RequestSource {
                method: "POST",
                path: "/graphql",
                origin,
                is_new: true,
                steps: None,
            },
        };
        let operation = OperationRequest { query: "{ a }".into(), ..OperationRequest::default() };
        let deadline = Instant::now() + Duration::from_secs(60);
        protection.admit(&[operation], request, deadline).await
    }

    #[tokio::test]
    async fn work_that_ends_lets_waiting_work_begin() {
        let protection = protection(1, 10);
        let first = admit(&protection, &[]).await.expect("there is room");
        let (waited, ()) = tokio::join!(admit(&protection, &[]), async {
            assert_eq!(protection.lock().control.load().waiting, [0, 1, 0]);
            drop(first);
        });
        drop(waited.expect("the other work has ended"));
        assert_eq!(protection.lock().control.load().in_flight, 0);
    }

    #[tokio::test]
    async fn a_task_that_has_gone_leaves_the_queue() {
        let protection = protection(1, 10);
        let first = admit(&protection, &[]).await.expect("there is room");
        {
            let waiting = std::pin::pin!(admit(&protection, &[]));
            assert!(futures_util::poll!(waiting).is_pending());
            assert_eq!(protection.lock().control.load().waiting, [0, 1, 0]);
        }
        let state = protection.lock();
        assert_eq!((state.control.load().waiting, state.waiting.len()), ([0; 3], 0));
        drop(state);
        drop(first);
    }

    #[tokio::test]
    async fn a_ticket_that_nobody_takes_is_given_back() {
        let protection = protection(1, 10);
        let first = admit(&protection, &[]).await.expect("there is room");
        {
            let waiting = std::pin::pin!(admit(&protection, &[]));
            assert!(futures_util::poll!(waiting).is_pending());
            // The ticket of the waiting task is in its channel when the task is dropped.
            drop(first);
            assert_eq!(protection.lock().control.load().in_flight, 1000);
        }
        assert_eq!(protection.lock().control.load().in_flight, 0);
    }

    #[tokio::test]
    async fn a_refusal_says_when_to_come_back() {
        let protection = protection(1, 0);
        let _first = admit(&protection, &[]).await.expect("there is room");
        let error = admit(&protection, &[]).await.expect_err("there is no room");
        let seconds = error.retry_after_seconds.expect("a time");
        assert_eq!(error.code, ErrorCode::Overloaded);
        assert_eq!(error.extensions.as_deref(), Some(&*format!(r#"{{"retryAfter":{seconds}}}"#)));
    }

    #[tokio::test]
    async fn classes_and_clients_come_from_expressions() {
        let protection = protection(2, 0);
        let _first = admit(&protection, &[("x-tenant", "a")]).await.expect("there is room");
        let _second = admit(&protection, &[("x-tenant", "b")]).await.expect("there is room");
        assert_eq!(protection.lock().control.load().clients, 2);
        assert!(admit(&protection, &[("x-tenant", "a")]).await.is_err());
        let critical = admit(&protection, &[("x-tenant", "a"), ("x-class", "critical")]).await;
        let _critical = critical.expect("it may exceed the limit");
        // Without the header that `fair_by` reads, the client counts by its address.
        let other = admit(&protection, &[("x-class", "critical")]).await;
        let _other = other.expect("critical requests fill half of their limit");
        assert_eq!(protection.lock().control.load().clients, 3);
    }
}
