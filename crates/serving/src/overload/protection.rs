//! The overload protection of the process: the control of admission, its clock, and the tasks that wait.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use admission::memory::{MemoryAccount, MemoryKind};
use admission::{
    AdmissionControl, AdmissionSettings, Decision, Event, LimitBounds, Load, QueueSettings,
    Refusal, Request, Ticket, WaiterId,
};
use clients::workers;
use config::Config;
use config::diagnostic::Diagnostic;
use execute::{ClaimPath, ErrorCode, GraphqlError};
use foldhash::quality::RandomState;
use prepare::OperationRequest;
use tokio::sync::oneshot;

use super::arriving_request::ArrivingRequest;
use super::handshake_pace::HandshakePace;
use super::readiness::ReadinessWatch;
use super::request_classes::RequestClasses;
use super::stats::AdmissionStats;
use super::work_ticket::WorkTicket;
use crate::expression_stats::ExpressionStats;

/// The overload protection of the process.
#[derive(Debug)]
pub struct OverloadProtection {
    state: Mutex<ProtectionState>,
    classes: RequestClasses,
    pub(super) stats: AdmissionStats,
    /// The readiness; `None` if it does not depend on refused requests.
    pub(super) readiness: Option<ReadinessWatch>,
    /// The pace of WebSocket handshakes; `None` if there is no bound.
    pub(super) handshakes: Option<HandshakePace>,
    /// The limit in units of work, as of the last change of the work in flight.
    limit: AtomicU64,
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
            ramp: config.warming.ramp,
        };
        let control = AdmissionControl::new(settings);
        Ok(Some(Arc::new(Self {
            limit: AtomicU64::new(control.limit()),
            state: Mutex::new(ProtectionState { control, waiting: HashMap::new() }),
            classes: RequestClasses::new(config, expressions)?,
            stats: AdmissionStats::default(),
            readiness: ReadinessWatch::new(&config.admission.readiness),
            handshakes: HandshakePace::new(
                config.admission.handshakes_per_core,
                workers::count(config.workers),
            ),
            hasher: RandomState::default(),
            started: Instant::now(),
        })))
    }

    /// Begins the ramp (`warming.ramp`): the router is ready, and its limit grows from now on.
    pub fn begin_ramp(&self) {
        let mut state = self.lock();
        state.control.begin_ramp(self.now());
        self.limit.store(state.control.limit(), Ordering::Relaxed);
    }

    /// Decides about the readiness, and notes the time for the ramp. To be called once a second.
    pub fn update(&self, memory: &MemoryAccount) {
        let mut state = self.lock();
        state.control.advance_ramp(self.now());
        self.limit.store(state.control.limit(), Ordering::Relaxed);
        drop(state);
        if let Some(readiness) = &self.readiness {
            let (admitted, refused) = self.stats.totals_for_readiness();
            let refused = refused + memory.refused(MemoryKind::Operations);
            readiness.update((admitted, refused), memory.excess() > 0, self.now());
        }
    }

    /// Returns the percentage of requests that were refused of late if the router should get no new clients, because it
    /// refuses many requests; `None` if it is ready.
    pub fn unready_percent(&self) -> Option<u32> {
        self.readiness.as_ref()?.unready_percent()
    }

    /// Returns the limit in units of work.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Returns the part of the limit that is in flight: more than 1 if work has the right to exceed it.
    pub fn utilization(&self) -> f64 {
        let load = self.load();
        load.in_flight as f64 / load.limit.max(1) as f64
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

    /// Waits for the turn of a WebSocket handshake.
    ///
    /// # Errors
    /// `OVERLOADED`: too many wait, and the handshake is refused.
    pub(crate) async fn pace_handshake(&self) -> Result<(), GraphqlError> {
        match &self.handshakes {
            Some(pace) => pace.wait().await.map_err(|refusal| overloaded(&refusal)),
            None => Ok(()),
        }
    }

    pub(super) async fn admit_as(
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
    pub(super) fn finish(self: &Arc<Self>, ticket: Ticket, outcome: admission::Outcome) {
        let mut state = self.lock();
        state.control.finish(ticket, outcome, self.now(), fastrand::u64(..));
        self.limit.store(state.control.limit(), Ordering::Relaxed);
        self.announce_decisions(state);
    }

    /// Returns the load at present.
    pub(super) fn load(&self) -> Load {
        self.lock().control.load()
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

#[cfg(test)]
mod tests {
    use clients::authentication::Identity;
    use clients::request_source::{ConnectionOrigin, RequestSource};
    use config::{AdmissionLimit, AdmissionQueue, Expression, PriorityRule, RequestClass};
    use execute::ClientKey;

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
            ..config::Admission::default()
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
                ..RequestSource::of_websocket("/graphql", origin)
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
            assert_eq!(protection.load().waiting, [0, 1, 0]);
            drop(first);
        });
        drop(waited.expect("the other work has ended"));
        assert_eq!(protection.load().in_flight, 0);
    }

    #[tokio::test]
    async fn a_task_that_has_gone_leaves_the_queue() {
        let protection = protection(1, 10);
        let first = admit(&protection, &[]).await.expect("there is room");
        {
            let waiting = std::pin::pin!(admit(&protection, &[]));
            assert!(futures_util::poll!(waiting).is_pending());
            assert_eq!(protection.load().waiting, [0, 1, 0]);
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
            assert_eq!(protection.load().in_flight, 1000);
        }
        assert_eq!(protection.load().in_flight, 0);
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
        assert_eq!(protection.load().clients, 2);
        assert!(admit(&protection, &[("x-tenant", "a")]).await.is_err());
        let critical = admit(&protection, &[("x-tenant", "a"), ("x-class", "critical")]).await;
        let _critical = critical.expect("it may exceed the limit");
        // Without the header that `fair_by` reads, the client counts by its address.
        let other = admit(&protection, &[("x-class", "critical")]).await;
        let _other = other.expect("critical requests fill half of their limit");
        assert_eq!(protection.load().clients, 3);
    }
}
