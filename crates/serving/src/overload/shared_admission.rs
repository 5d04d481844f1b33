//! The control of admission as all workers share it: behind a lock, with the clock, the tasks that wait and the
//! counters.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use admission::{
    AdmissionControl, AdmissionSettings, Decision, Event, Load, Outcome, ProcessorLoad, Refusal,
    RefusalReason, Request, Ticket, WaiterId,
};
use clients::idle_turns::idle_turn;
use execute::GraphqlError;
use telemetry::GaugeGuard;
use tokio::sync::oneshot;

use super::bulkheads::WorkCounts;
use super::stats::AdmissionStats;

/// The control of admission of the process.
#[derive(Debug)]
pub(super) struct SharedAdmission {
    state: Mutex<AdmissionState>,
    pub(super) stats: AdmissionStats,
    /// The limit in units of work, as of the last change of the work in flight.
    limit: AtomicU64,
    /// The work that has arrived, and what does not count in the limit.
    pub(super) work: Arc<WorkCounts>,
    started: Instant,
}

#[derive(Debug)]
struct AdmissionState {
    control: AdmissionControl,
    /// The latest time that the control was told, by its clock.
    latest: Duration,
    /// The tasks that wait. Each gets its decision once.
    waiting: HashMap<WaiterId, oneshot::Sender<Result<HeldTicket, Refusal>>>,
}

/// A ticket that is given back when this is dropped: the work has ended, and other work may begin.
pub(super) struct HeldTicket {
    admission: Arc<SharedAdmission>,
    /// `None` while it is dropped only.
    ticket: Option<Ticket>,
    /// The end of the work, if it is dropped now.
    pub(super) outcome: Outcome,
    /// The time at which the work could begin.
    pub(super) began: Instant,
    /// The time at which the work has ended; `None`: it ends when this is dropped.
    pub(super) ended: Option<Instant>,
}

/// The first step of a request: a decision, or giving way.
enum Arrival<'a> {
    Decided(Result<Decided<'a>, Refusal>),
    GivesWay(GivingWay<'a>),
}

/// The decision about a request, if it is not refused.
enum Decided<'a> {
    Admitted(HeldTicket),
    Waiting(WaitingRequest<'a>),
}

/// A request that gives way to those of other clients, until this is dropped.
struct GivingWay<'a> {
    admission: &'a SharedAdmission,
    key: u64,
}

/// A request that waits for its decision.
struct WaitingRequest<'a> {
    place: WaitingPlace<'a>,
    /// The time at which it leaves the queue, by the clock of the control.
    until: Duration,
    decided: oneshot::Receiver<Result<HeldTicket, Refusal>>,
}

impl SharedAdmission {
    pub(super) fn new(settings: AdmissionSettings) -> Self {
        let control = AdmissionControl::new(settings);
        Self {
            limit: AtomicU64::new(control.limit()),
            state: Mutex::new(AdmissionState {
                control,
                latest: Duration::ZERO,
                waiting: HashMap::new(),
            }),
            stats: AdmissionStats::default(),
            work: Arc::default(),
            started: Instant::now(),
        }
    }

    /// Begins the ramp (`warming.ramp`).
    pub(super) fn begin_ramp(&self) {
        let mut state = self.lock();
        let now = state.advance(self.now());
        state.control.begin_ramp(now);
        self.limit.store(state.control.limit(), Ordering::Relaxed);
    }

    /// Notes the time for the ramp, and how busy the processors are.
    pub(super) fn update(&self, processors: ProcessorLoad) {
        let mut state = self.lock();
        let now = state.advance(self.now());
        state.control.set_processor_load(processors, now);
        state.control.advance_ramp(now);
        self.limit.store(state.control.limit(), Ordering::Relaxed);
    }

    /// Returns the limit in units of work.
    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Returns the load at present.
    pub(super) fn load(&self) -> Load {
        self.lock().control.load()
    }

    /// True if work waits for its decision, or is slow already.
    pub(super) fn is_pressed(&self) -> bool {
        self.lock().control.is_pressed()
    }

    /// Notes that a storm of connections makes work slow now and for about a second.
    pub(super) fn note_storm(&self) {
        let mut state = self.lock();
        let now = state.advance(self.now());
        state.control.note_other_work(now);
    }

    /// Returns the time since the creation, which is the clock of the control.
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns a time by the clock of the control.
    fn time_of(&self, time: Instant) -> Duration {
        time.saturating_duration_since(self.started)
    }

    /// Admits work that arrives `now`: waits in the queue while the limit is reached, until `deadline` at most. Work of
    /// a client that has more than its share waits before that until this worker has nothing else to do, if the
    /// processors are busy. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// `OVERLOADED`: the work is refused, with the time after which the client may try again.
    pub(super) async fn admit(
        self: &Arc<Self>,
        request: Request,
        now: Instant,
        deadline: Instant,
    ) -> Result<HeldTicket, GraphqlError> {
        // Boxed, because their states would be moved with that of every request.
        let admitted = match self.begin(request, now, deadline) {
            Arrival::Decided(Ok(Decided::Admitted(held))) => return Ok(held),
            Arrival::Decided(Ok(Decided::Waiting(waiting))) => Box::pin(waiting.decision()).await,
            Arrival::Decided(Err(refusal)) => Err(refusal),
            Arrival::GivesWay(giving_way) => {
                Box::pin(self.admit_later(giving_way, request, now, deadline)).await
            }
        };
        admitted.map_err(|refusal| {
            self.stats.count_refused(request.class, &refusal);
            overloaded(refusal.retry_after_seconds)
        })
    }

    /// Admits work that has arrived at `arrived`, once this worker has nothing else to do.
    async fn admit_later(
        self: &Arc<Self>,
        giving_way: GivingWay<'_>,
        request: Request,
        arrived: Instant,
        deadline: Instant,
    ) -> Result<HeldTicket, Refusal> {
        self.stats.gave_way.fetch_add(1, Ordering::Relaxed);
        let counted = GaugeGuard::up(&self.stats.giving_way);
        idle_turn().await;
        drop((giving_way, counted));
        let now = Instant::now();
        let waited = now.saturating_duration_since(arrived);
        match self.decide(self.lock(), request, Some(waited), now, deadline)? {
            Decided::Admitted(held) => Ok(held),
            Decided::Waiting(waiting) => waiting.decision().await,
        }
    }

    /// Decides about work that arrives `now`, unless it gives way.
    // hot path: one lock, and no reading of the clock
    fn begin(self: &Arc<Self>, request: Request, now: Instant, deadline: Instant) -> Arrival<'_> {
        let mut state = self.lock();
        match state.control.begin_giving_way(&request) {
            Some(key) => Arrival::GivesWay(GivingWay { admission: self, key }),
            None => Arrival::Decided(self.decide(state, request, None, now, deadline)),
        }
    }

    /// Decides about work `now`, or puts it into the queue. `waited` is the time for which it gave way, if it did.
    fn decide<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, AdmissionState>,
        request: Request,
        waited: Option<Duration>,
        now: Instant,
        deadline: Instant,
    ) -> Result<Decided<'a>, Refusal> {
        let time = state.advance(self.time_of(now));
        let deadline = self.time_of(deadline);
        state.control.set_uncounted(self.work.waiting_in_vain());
        match state.control.request(request, deadline, time, fastrand::u64(..)) {
            Decision::Admitted(ticket) => {
                drop(state);
                Ok(Decided::Admitted(self.hold(ticket, waited, now)))
            }
            Decision::Refused(refusal) => Err(refusal),
            Decision::Waiting(id, until) => {
                let (sender, decided) = oneshot::channel();
                state.waiting.insert(id, sender);
                self.announce_decisions(state);
                let place = WaitingPlace { admission: self, id };
                Ok(Decided::Waiting(WaitingRequest { place, until, decided }))
            }
        }
    }

    /// Returns the right to work that could begin at `began`. `waited` is the time in the queue, of work that was
    /// there.
    fn hold(
        self: &Arc<Self>,
        ticket: Ticket,
        waited: Option<Duration>,
        began: Instant,
    ) -> HeldTicket {
        self.stats.count_admitted(ticket.request().class, waited);
        HeldTicket {
            admission: Arc::clone(self),
            ticket: Some(ticket),
            outcome: Outcome::Abandoned { cost: 0 },
            began,
            ended: None,
        }
    }

    /// Sends the decisions that the control has made to the tasks that wait, once the lock is released: a task that has
    /// gone gives its ticket back at once.
    fn announce_decisions(self: &Arc<Self>, mut state: MutexGuard<'_, AdmissionState>) {
        let mut decisions = Vec::new();
        while let Some(event) = state.control.poll_event() {
            let (Event::Admitted(id, ..) | Event::Refused(id, _)) = event;
            decisions.push((state.waiting.remove(&id), event));
        }
        // The task reads the clock itself when it runs.
        let decided = self.started + state.latest;
        drop(state);
        for (waiter, event) in decisions {
            let decision = match event {
                Event::Admitted(_, ticket, waited) => Ok(self.hold(ticket, Some(waited), decided)),
                Event::Refused(_, refusal) => Err(refusal),
            };
            if let Some(waiter) = waiter {
                // A task that has gone needs no decision.
                let _ = waiter.send(decision);
            }
        }
    }

    /// Ends admitted work, which has ended at `ended`, and lets others begin.
    fn finish(self: &Arc<Self>, ticket: Ticket, outcome: Outcome, ended: Instant) {
        let mut state = self.lock();
        let now = state.advance(self.time_of(ended));
        state.control.set_uncounted(self.work.waiting_in_vain());
        state.control.finish(ticket, outcome, now, fastrand::u64(..));
        self.limit.store(state.control.limit(), Ordering::Relaxed);
        self.announce_decisions(state);
    }

    fn lock(&self) -> MutexGuard<'_, AdmissionState> {
        // The control makes no calls that could panic half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AdmissionState {
    /// Returns the time for the control: `now`, which was read before the lock was taken, unless another thread has
    /// told the control a later time meanwhile. Its time must not go back.
    fn advance(&mut self, now: Duration) -> Duration {
        self.latest = self.latest.max(now);
        self.latest
    }
}

impl WaitingRequest<'_> {
    /// Waits for the decision.
    async fn decision(self) -> Result<HeldTicket, Refusal> {
        let Self { place, until, mut decided } = self;
        let until = place.admission.started + until;
        let decision = match tokio::time::timeout_at(until.into(), &mut decided).await {
            Ok(Ok(decision)) => decision,
            Ok(Err(_)) | Err(_) => match place.leave() {
                Some(refusal) => Err(refusal),
                // The decision was made in this moment. It is there, because it is sent before the lock is released to
                // `leave`, or right after.
                None => decided.await.unwrap_or(Err(NOT_DECIDED)),
            },
        };
        let mut held = decision?;
        // The task may have been woken late.
        held.began = Instant::now();
        Ok(held)
    }
}

impl HeldTicket {
    /// Returns the control that has admitted the work.
    pub(super) fn admission(&self) -> &Arc<SharedAdmission> {
        &self.admission
    }

    /// Returns the ticket; `None` while this is dropped only.
    pub(super) fn ticket(&self) -> Option<&Ticket> {
        self.ticket.as_ref()
    }
}

impl Drop for HeldTicket {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let ended = self.ended.unwrap_or_else(Instant::now);
            self.admission.finish(ticket, self.outcome, ended);
        }
    }
}

impl fmt::Debug for HeldTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldTicket").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

/// The decision about a request if its own got lost. It cannot happen: each one is sent once.
const NOT_DECIDED: Refusal =
    Refusal { reason: RefusalReason::WaitedTooLong, retry_after_seconds: 1, opens_stream: false };

impl Drop for GivingWay<'_> {
    fn drop(&mut self) {
        self.admission.lock().control.end_giving_way(self.key);
    }
}

/// The place of a task in the queue, which it leaves when this is dropped.
struct WaitingPlace<'a> {
    admission: &'a Arc<SharedAdmission>,
    id: WaiterId,
}

impl WaitingPlace<'_> {
    /// Leaves the queue, and lets others begin. `None` if there has been a decision.
    fn leave(&self) -> Option<Refusal> {
        let mut state = self.admission.lock();
        state.waiting.remove(&self.id)?;
        let now = state.advance(self.admission.now());
        let refusal = state.control.leave(self.id, now, fastrand::u64(..));
        self.admission.announce_decisions(state);
        refusal
    }
}

impl Drop for WaitingPlace<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Returns the error of a refused request, which the client should send again after this time.
pub(crate) fn overloaded(seconds: u64) -> GraphqlError {
    let message = format!("the router is overloaded: try again in {seconds} s");
    GraphqlError::overloaded(message, seconds)
}

#[cfg(test)]
mod tests {
    use admission::{LimitBounds, QueueSettings};
    use execute::ErrorCode;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Returns a control that admits one piece of work at a time, and in whose queue others wait for a minute.
    fn admission(waiting_max: u32) -> Arc<SharedAdmission> {
        Arc::new(SharedAdmission::new(AdmissionSettings {
            limit: LimitBounds { initial: 1, min: 1, max: 1 },
            queue: QueueSettings { waiting_max, target: MINUTE, interval: MINUTE },
            ramp: Duration::ZERO,
        }))
    }

    async fn admit(admission: &Arc<SharedAdmission>) -> Result<HeldTicket, GraphqlError> {
        let request = Request { client: 1, operation: 1, ..Request::default() };
        let now = Instant::now();
        admission.admit(request, now, now + MINUTE).await
    }

    #[tokio::test]
    async fn work_that_ends_lets_waiting_work_begin() {
        let admission = admission(10);
        let first = admit(&admission).await.expect("there is room");
        let (waited, ()) = tokio::join!(admit(&admission), async {
            assert_eq!((admission.load().waiting, admission.is_pressed()), ([0, 1, 0], true));
            drop(first);
        });
        drop(waited.expect("the other work has ended"));
        assert_eq!(admission.load().in_flight, 0);
    }

    #[tokio::test]
    async fn requests_of_a_greedy_client_give_way_to_others() {
        let admission = Arc::new(SharedAdmission::new(AdmissionSettings {
            limit: LimitBounds { initial: 1000, min: 1000, max: 1000 },
            ..AdmissionSettings::default()
        }));
        let request = |client| Request { client, operation: 1, ..Request::default() };
        let begin = |client| {
            let now = Instant::now();
            admission.begin(request(client), now, now + MINUTE)
        };
        let mut held = Vec::new();
        let clients = [2].repeat(10).into_iter().chain([1].repeat(50));
        for client in clients {
            let Arrival::Decided(Ok(Decided::Admitted(ticket))) = begin(client) else { break };
            held.push(ticket);
        }
        assert!((20..60).contains(&held.len()), "{}", held.len());
        let Arrival::GivesWay(first) = begin(1) else {
            panic!("the client has more than its share")
        };
        assert!(matches!(begin(2), Arrival::Decided(Ok(_))), "the other one has not");
        let of_first = held.split_off(10);
        drop(of_first);
        assert!(matches!(begin(1), Arrival::GivesWay(_)), "an earlier request still gives way");
        drop(first);
        assert!(matches!(begin(1), Arrival::Decided(Ok(_))));
        // Here is no worker, so it does not wait.
        let now = Instant::now();
        admission.admit(request(1), now, now + MINUTE).await.expect("there is room");
        assert_eq!(admission.load().clients, 1);
    }

    #[tokio::test]
    async fn a_task_that_has_gone_leaves_the_queue() {
        let admission = admission(10);
        let first = admit(&admission).await.expect("there is room");
        {
            let waiting = std::pin::pin!(admit(&admission));
            assert!(futures_util::poll!(waiting).is_pending());
            assert_eq!(admission.load().waiting, [0, 1, 0]);
        }
        let state = admission.lock();
        assert_eq!((state.control.load().waiting, state.waiting.len()), ([0; 3], 0));
        drop(state);
        drop(first);
    }

    #[tokio::test]
    async fn a_ticket_that_nobody_takes_is_given_back() {
        let admission = admission(10);
        let first = admit(&admission).await.expect("there is room");
        {
            let waiting = std::pin::pin!(admit(&admission));
            assert!(futures_util::poll!(waiting).is_pending());
            // The ticket of the waiting task is in its channel when the task is dropped.
            drop(first);
            assert_eq!(admission.load().in_flight, 1000);
        }
        assert_eq!(admission.load().in_flight, 0);
    }

    #[tokio::test]
    async fn the_time_of_the_control_does_not_go_back() {
        let admission = admission(0);
        let request = Request { client: 1, operation: 1, ..Request::default() };
        let (before, later) = (admission.started, admission.started + MINUTE);
        let mut held = admission.admit(request, later, later + MINUTE).await.expect("room");
        assert_eq!(held.began, later, "it did not wait");
        // Another thread has read the clock before, and takes the lock now.
        held.ended = Some(before);
        drop(held);
        assert_eq!(admission.lock().latest, MINUTE);
        let _second = admission.admit(request, before, later).await.expect("the first has ended");
        assert_eq!(admission.lock().latest, MINUTE);
    }

    #[tokio::test]
    async fn a_refusal_says_when_to_come_back() {
        let admission = admission(0);
        let _first = admit(&admission).await.expect("there is room");
        let error = admit(&admission).await.expect_err("there is no room");
        let seconds = error.retry_after_seconds.expect("a time");
        assert_eq!(error.code, ErrorCode::Overloaded);
        assert_eq!(error.extensions.as_deref(), Some(&*format!(r#"{{"retryAfter":{seconds}}}"#)));
    }
}
