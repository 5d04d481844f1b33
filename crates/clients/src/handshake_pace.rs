//! The pace of WebSocket handshakes. When a router or a network has failed, all clients return at once: their
//! handshakes and first operations would take all CPU time for seconds. At an even pace they take a part of it, and
//! queries keep their latency.
//!
//! The handshakes that wait are in a queue in which clients take turns (`handshake_queue`), so that a client
//! with thousands of them does not keep others out. A handshake that leaves costs no turn.
//!
//! While operations wait for admission, or more of them are in flight than usual, handshakes have their turns at a part
//! of the pace: a processor that has too much to do does not take further work, and the subscriptions of those that
//! have had their turns come before those of others. They have the rest of the pace in moments in which a worker has
//! nothing else to do ([`crate::idle_turns`]).
//!
//! A handshake that waits has a connection of HTTP, with memory and CPU time of its own. So only a few wait here: while
//! they do, listeners park further handshakes, or leave connections in the kernel where they cannot know what those are
//! for. Both are cheap, and first come, first served: there a client with very many connections does delay those of
//! others. `http.max_connections_per_ip` bounds the connections of one address.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use admission::Pace;
use admission::memory::{MemoryAccount, OPERATION_BYTES};
use config::Admission;
use telemetry::{Metric, read};
use tokio::sync::oneshot;
use tokio::time::Instant;

pub use crate::handshake_queue::{HandshakeClient, HandshakeRank};
use crate::handshake_queue::{HandshakePlace, HandshakeQueue};
use crate::idle_turns::idle_turn;

/// The part of the pace (one in this number) at which handshakes have their turns while operations are slow. It is not
/// zero, because a saturated router always has some that wait.
const PRESSED_PART: u32 = 4;

/// The longest wait of a handshake. Clients and load balancers give up after some more seconds, and each one that waits
/// has a connection of HTTP, which needs more memory than one with subscriptions.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The part of the memory for work (one in this number) that handshakes may take while they wait. Each counts as an
/// operation: its connection has the buffers of HTTP, and often those of TLS. The longest wait alone would admit
/// 375 MiB for each core, and a small container would refuse large bodies meanwhile.
const MEMORY_PART: u64 = 8;

/// The handshakes of this part of a second (one in this number) may wait before listeners accept slowly. They are
/// enough for the turns while the others are accepted.
const WAITING_PART: u64 = 8;

/// The connections that each core accepts in a second while many handshakes wait: some of them may be for requests, and
/// a low pace of handshakes must not keep those out.
const ACCEPTED_PER_CORE_MIN: u64 = 600;

/// The least time between two looks at the turns that are due while handshakes wait. Those turns are handed out
/// together: clients that connect one at a time cost the router up to half as much CPU time again as those that connect
/// together, for switches between threads and for memory that is no longer in the caches of the processor.
const TICK: Duration = Duration::from_millis(20);

/// The turns that are handed out in one moment in which a worker has nothing else to do, and the least time between two
/// such moments.
const IDLE_TURNS: u32 = 4;
const IDLE_TICK: Duration = Duration::from_millis(3);

/// The metrics of the pace of handshakes.
pub const HANDSHAKE_METRICS: &[Metric<HandshakePace>] = &[
    Metric::gauge(
        "starling_admission_handshakes_waiting",
        "WebSocket handshakes that wait for their turn",
        |it| read(&it.waiting),
    ),
    Metric::counter(
        "starling_admission_handshakes_refused",
        "WebSocket handshakes refused because they would have waited too long for their turn, or too many waited",
        |it| read(&it.refused),
    ),
];

/// The operations of clients, to which handshakes give way.
pub trait OperationLoad {
    /// True if operations wait for admission or are slow already.
    fn is_pressed(&self) -> bool;

    /// Notes that handshakes come faster than their pace, or that very many connections begin or end, and make
    /// operations slow now and for about a second.
    fn note_storm(&self);
}

/// The pace of handshakes.
#[derive(Debug)]
pub struct HandshakePace {
    turns: Mutex<Turns>,
    /// Held by the waiting handshake that hands out turns when they are due. When it leaves, another one does.
    timekeeper: tokio::sync::Mutex<()>,
    started: Instant,
    /// The number that wait now.
    waiting: AtomicU64,
    /// The number that may wait: as many as have their turns within [`WAIT_MAX`].
    waiting_max: u64,
    /// The number that may wait before listeners accept slowly.
    waiting_enough: u64,
    /// The pace at which listeners accept then.
    accepting: Mutex<Pace>,
    /// The number since the start that were refused because they would have waited for too long, or too many waited.
    refused: AtomicU64,
}

/// The refusal of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandshakeRefusal {
    /// The whole seconds after which the client should try again.
    pub retry_after_seconds: u64,
}

impl HandshakeRefusal {
    /// Creates a refusal with a random time to return, so that clients come back spread out.
    fn new() -> Self {
        let most = WAIT_MAX.as_secs();
        Self { retry_after_seconds: fastrand::u64(most..=2 * most) }
    }
}

/// The turns, and the handshakes that wait for them. Each gets its decision once.
#[derive(Debug)]
struct Turns {
    /// The pace at present: a part of the whole while operations are slow.
    pace: Pace,
    /// The whole pace, of which workers without other work hand out the rest.
    whole_pace: Pace,
    /// The time before which turns are not handed out again.
    next_look: Duration,
    queue: HandshakeQueue<oneshot::Sender<Result<(), HandshakeRefusal>>>,
}

impl HandshakePace {
    /// Creates the pace of a configuration; `None` if there is no bound.
    pub fn new(admission: &Admission, cores: usize) -> Option<Self> {
        let cores = cores.max(1) as u64;
        let per_core = if admission.enabled { admission.handshakes_per_core } else { 0 };
        let per_second = u64::from(per_core) * cores;
        Some(Self {
            turns: Mutex::new(Turns {
                pace: Pace::new(per_second)?,
                whole_pace: Pace::new(per_second)?,
                next_look: Duration::ZERO,
                queue: HandshakeQueue::default(),
            }),
            timekeeper: tokio::sync::Mutex::new(()),
            started: Instant::now(),
            waiting: AtomicU64::new(0),
            waiting_max: per_second * WAIT_MAX.as_secs(),
            waiting_enough: per_second / WAITING_PART,
            accepting: Mutex::new(Pace::new(ACCEPTED_PER_CORE_MIN * cores)?),
            refused: AtomicU64::new(0),
        })
    }

    /// True if enough handshakes wait for their turns, so that further connections need not be served yet. `beginning`
    /// is the number of connections that will have a handshake in a moment. With little memory for work, fewer are
    /// enough.
    pub fn has_enough(&self, beginning: u64, memory: &MemoryAccount) -> bool {
        let enough = self.waiting_enough.min(waiting_max(memory) / 2);
        read(&self.waiting) + beginning > enough
    }

    /// Returns the number of waiting handshakes above which there are enough.
    pub fn waiting_enough(&self) -> u64 {
        self.waiting_enough
    }

    /// Returns the number of handshakes that have their turns within the longest wait.
    pub fn waiting_max(&self) -> u64 {
        self.waiting_max
    }

    /// Refuses a handshake that has not come to its wait.
    pub fn refuse(&self) -> HandshakeRefusal {
        self.refused.fetch_add(1, Ordering::Relaxed);
        HandshakeRefusal::new()
    }

    /// True if a listener may accept one more connection of which it does not know whether it is for a handshake:
    /// unless enough of them wait, or at a low pace.
    pub fn may_accept(&self) -> bool {
        if read(&self.waiting) <= self.waiting_enough {
            return true;
        }
        let mut accepting = self.accepting.lock().unwrap_or_else(PoisonError::into_inner);
        accepting.take(self.started.elapsed(), Duration::ZERO).is_some()
    }

    /// Waits for the turn of a handshake, if the memory for work has room for one more that waits. Dropping the future
    /// leaves the queue.
    ///
    /// # Errors
    /// The handshake is refused, because it has waited for too long, or because too many wait.
    pub async fn wait(
        &self,
        client: HandshakeClient,
        memory: &MemoryAccount,
        load: &impl OperationLoad,
    ) -> Result<(), HandshakeRefusal> {
        let decision = self.wait_for_decision(client, memory, load).await;
        if decision.is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        decision
    }

    async fn wait_for_decision(
        &self,
        client: HandshakeClient,
        memory: &MemoryAccount,
        load: &dyn OperationLoad,
    ) -> Result<(), HandshakeRefusal> {
        let entered = self.enter(client, memory, load)?;
        let Some(mut waiting) = entered else { return Ok(()) };
        tokio::select! {
            biased;
            decision = &mut waiting.decision => {
                waiting.has_left = true;
                // The queue drops no sender.
                decision.unwrap_or_else(|_| Err(HandshakeRefusal::new()))
            }
            never = self.keep_time(load) => match never {},
            // The decision may have been made in this moment.
            () = tokio::time::sleep(WAIT_MAX) => {
                waiting.leave().unwrap_or_else(|| Err(HandshakeRefusal::new()))
            }
        }
    }

    /// Takes a turn that is due, or else a place in the queue. `None`: the turn was taken.
    fn enter(
        &self,
        client: HandshakeClient,
        memory: &MemoryAccount,
        load: &dyn OperationLoad,
    ) -> Result<Option<WaitingHandshake<'_>>, HandshakeRefusal> {
        let now = self.started.elapsed();
        let mut turns = self.lock();
        self.hand_out(&mut turns, now, load);
        if turns.queue.len() == 0 && turns.take(now, load) {
            return Ok(None);
        }
        let (sender, decision) = oneshot::channel();
        let waiting_max = waiting_max(memory).min(self.waiting_max);
        let waiting_max = usize::try_from(waiting_max).unwrap_or(usize::MAX);
        let pushed = turns.queue.push(client, sender, waiting_max);
        self.note_waiting(&turns);
        drop(turns);
        let (place, displaced) = pushed.ok_or_else(HandshakeRefusal::new)?;
        if let Some(displaced) = displaced {
            // A handshake that has just left needs no decision.
            let _ = displaced.send(Err(HandshakeRefusal::new()));
        }
        Ok(Some(WaitingHandshake { pace: self, place, decision, has_left: false }))
    }

    /// Hands out turns when they are due, while the caller waits. One of the waiting handshakes does so at a time; the
    /// others wait here until it leaves. If its worker is busy, arriving handshakes hand out what is due.
    async fn keep_time(&self, load: &dyn OperationLoad) -> Infallible {
        let _timekeeper = self.timekeeper.lock().await;
        loop {
            let until_next = {
                let now = self.started.elapsed();
                let mut turns = self.lock();
                self.hand_out(&mut turns, now, load);
                turns.pace.until_next(now).max(turns.next_look.saturating_sub(now))
            };
            let between = self.hand_out_between_looks(load);
            let _ = tokio::time::timeout(until_next, between).await;
        }
    }

    /// Hands out the turns that operations have taken away, in moments in which this worker has nothing else to do.
    async fn hand_out_between_looks(&self, load: &dyn OperationLoad) -> Infallible {
        loop {
            tokio::time::sleep(IDLE_TICK).await;
            if load.is_pressed() && idle_turn().await {
                self.hand_out_when_idle();
            }
        }
    }

    /// Gives some of the turns that are due at the whole pace, in a moment in which a worker has nothing else to do.
    fn hand_out_when_idle(&self) {
        let now = self.started.elapsed();
        let mut turns = self.lock();
        for _ in 0..IDLE_TURNS {
            if turns.queue.len() == 0 || turns.whole_pace.take(now, Duration::ZERO).is_none() {
                break;
            }
            turns.give_to_next();
        }
        self.note_waiting(&turns);
    }

    /// Gives the turns that are due to waiting handshakes, unless it has just been done.
    fn hand_out(&self, turns: &mut Turns, now: Duration, load: &dyn OperationLoad) {
        if now < turns.next_look {
            return;
        }
        turns.next_look = now + TICK;
        while turns.queue.len() > 0 && turns.take(now, load) {
            turns.give_to_next();
        }
        self.note_waiting(turns);
    }

    fn note_waiting(&self, turns: &Turns) {
        self.waiting.store(turns.queue.len() as u64, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Turns> {
        // No code panics half way under this lock.
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handshake in the queue, which it leaves when this is dropped.
struct WaitingHandshake<'a> {
    pace: &'a HandshakePace,
    place: HandshakePlace,
    decision: oneshot::Receiver<Result<(), HandshakeRefusal>>,
    has_left: bool,
}

impl WaitingHandshake<'_> {
    /// Leaves the queue. Returns the decision if there has been one.
    fn leave(&mut self) -> Option<Result<(), HandshakeRefusal>> {
        self.has_left = true;
        let mut turns = self.pace.lock();
        let was_waiting = turns.queue.remove(self.place).is_some();
        self.pace.note_waiting(&turns);
        drop(turns);
        if was_waiting { None } else { self.decision.try_recv().ok() }
    }
}

impl Drop for WaitingHandshake<'_> {
    fn drop(&mut self) {
        if !self.has_left && self.leave() == Some(Ok(())) {
            // The client has gone between its turn and its handshake.
            let mut turns = self.pace.lock();
            turns.pace.give_back();
            turns.whole_pace.give_back();
        }
    }
}

impl Turns {
    /// Takes a turn if one is due: while operations are slow, in place of several.
    fn take(&mut self, now: Duration, load: &dyn OperationLoad) -> bool {
        if self.pace.take(now, Duration::ZERO).is_none() {
            return false;
        }
        // It counts also if idle workers have handed out more.
        self.whole_pace.take(now, Duration::MAX);
        if !self.pace.has_unused(now) {
            load.note_storm();
        }
        if load.is_pressed() {
            self.pace.skip(PRESSED_PART - 1);
        }
        true
    }

    /// Gives a turn to the next handshake. The turn of one that is leaving is that of the one after it.
    fn give_to_next(&mut self) {
        while self.queue.pop().is_some_and(|waiting| waiting.send(Ok(())).is_err()) {}
    }
}

/// Returns the number of handshakes that may wait at a time.
fn waiting_max(memory: &MemoryAccount) -> u64 {
    memory.for_work() / MEMORY_PART / OPERATION_BYTES
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use tokio::task::LocalSet;

    use super::*;
    use crate::idle_turns::begin_worker;

    /// The load of a test, which says whether operations are slow.
    impl<F: Fn() -> bool> OperationLoad for F {
        fn is_pressed(&self) -> bool {
            self()
        }

        fn note_storm(&self) {}
    }

    fn pace(handshakes_per_core: u32, cores: usize) -> Option<HandshakePace> {
        let admission = Admission { enabled: true, handshakes_per_core, ..Admission::default() };
        HandshakePace::new(&admission, cores)
    }

    const CLIENT: HandshakeClient = HandshakeClient { rank: HandshakeRank::Anonymous, key: 1 };
    const NEIGHBOUR: HandshakeClient = HandshakeClient { rank: HandshakeRank::Anonymous, key: 2 };

    #[tokio::test(start_paused = true)]
    async fn a_storm_is_accepted_evenly_and_what_would_wait_too_long_is_refused() {
        let pace = Arc::new(pace(10, 2).expect("a pace"));
        let memory = MemoryAccount::unlimited();
        let began = Instant::now();
        let all = join_all((0..500).map(|_| pace.wait(CLIENT, &memory, &|| false))).await;
        let accepted = all.iter().filter(|it| it.is_ok()).count();
        assert!((200..=202).contains(&accepted), "{accepted}");
        assert!(began.elapsed() > Duration::from_secs(9), "{:?}", began.elapsed());
        assert_eq!((read(&pace.waiting), read(&pace.refused)), (0, 500 - accepted as u64));
        let retries = all.iter().filter_map(|it| it.as_ref().err());
        assert!(retries.map(|it| it.retry_after_seconds).all(|it| (10..=20).contains(&it)));
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_wait_than_fit_in_a_part_of_the_memory_for_work() {
        let pace = pace(10, 1).expect("a pace");
        let memory = MemoryAccount::new(20 * OPERATION_BYTES * MEMORY_PART);
        let began = Instant::now();
        let all = join_all((0..500).map(|_| pace.wait(CLIENT, &memory, &|| false))).await;
        let accepted = all.iter().filter(|it| it.is_ok()).count();
        assert_eq!(accepted, 21, "one at once, and 20 that wait");
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        assert_eq!((read(&pace.waiting), read(&pace.refused)), (0, 500 - accepted as u64));
    }

    #[tokio::test(start_paused = true)]
    async fn listeners_accept_slowly_while_many_wait() {
        let pace = pace(80, 1).expect("a pace");
        assert!((0..1000).all(|_| pace.may_accept()), "nothing waits");
        let memory = MemoryAccount::unlimited();
        tokio::time::advance(Duration::from_millis(100)).await;
        // The first of them have their turns at once.
        let mut waits: Vec<_> =
            (0..20).map(|_| Box::pin(pace.wait(CLIENT, &memory, &|| false))).collect();
        waits.retain_mut(|it| it.now_or_never().is_none());
        assert!(read(&pace.waiting) > pace.waiting_enough, "{pace:?}");
        let accepted = (0..1000).filter(|_| pace.may_accept()).count();
        assert!((60..=62).contains(&accepted), "a tenth of a second, {accepted}");
        join_all(waits).await;
        assert!((0..1000).all(|_| pace.may_accept()), "nothing waits any more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_with_many_handshakes_does_not_delay_those_of_others() {
        let pace = pace(10, 1).expect("a pace");
        let memory = MemoryAccount::unlimited();
        let began = Instant::now();
        let storm = join_all((0..200).map(|_| pace.wait(CLIENT, &memory, &|| false)));
        let neighbour = async {
            let turn = pace.wait(NEIGHBOUR, &memory, &|| false).await;
            (turn, began.elapsed())
        };
        let (storm, (turn, waited)) = tokio::join!(storm, neighbour);
        assert_eq!(turn, Ok(()));
        assert!(waited <= Duration::from_millis(205), "{waited:?}");
        let accepted = storm.iter().filter(|it| it.is_ok()).count();
        assert!((99..=101).contains(&accepted), "{accepted}");
    }

    #[tokio::test(start_paused = true)]
    async fn while_operations_wait_handshakes_have_a_quarter_of_the_turns() {
        let pace = pace(100, 1).expect("a pace");
        let memory = MemoryAccount::unlimited();
        let began = Instant::now();
        let is_pressed = || (1..3).contains(&began.elapsed().as_secs());
        let turns = join_all((0..300).map(|_| async {
            pace.wait(CLIENT, &memory, &is_pressed).await.expect("it waits for four seconds");
            began.elapsed().as_secs()
        }));
        let mut of_second = [0; 5];
        turns.await.into_iter().for_each(|second| of_second[second as usize] += 1);
        let [first, second, third, fourth, _] = of_second;
        // A tick is the time of two turns.
        assert!((98..=102).contains(&first) && (96..=102).contains(&fourth), "{of_second:?}");
        assert!((24..=27).contains(&second) && (24..=27).contains(&third), "{of_second:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_worker_hands_out_the_whole_pace_and_no_more() {
        let memory = MemoryAccount::unlimited();
        let work = async {
            begin_worker();
            for is_pressed in [false, true] {
                let pace = pace(10, 1).expect("a pace");
                let (began, load) = (Instant::now(), || is_pressed);
                let turns = (0..30).map(|_| pace.wait(CLIENT, &memory, &load));
                assert!(join_all(turns).await.iter().all(Result::is_ok));
                let took = began.elapsed().as_millis();
                assert!((2_790..=3_000).contains(&took), "{is_pressed}: {took} ms");
            }
        };
        LocalSet::new().run_until(work).await;
    }

    #[tokio::test(start_paused = true)]
    async fn handshakes_whose_clients_have_gone_cost_no_turn() {
        let pace = pace(10, 1).expect("a pace");
        let memory = MemoryAccount::unlimited();
        let began = Instant::now();
        for _ in 0..10 {
            let mut gone: Vec<_> =
                (0..50).map(|_| Box::pin(pace.wait(CLIENT, &memory, &|| false))).collect();
            gone.retain_mut(|it| it.now_or_never().is_none());
            assert_eq!(read(&pace.waiting), gone.len() as u64);
        }
        assert_eq!(read(&pace.waiting), 0);
        pace.wait(NEIGHBOUR, &memory, &|| false).await.expect("nothing waits");
        assert!(began.elapsed() <= Duration::from_millis(105), "{:?}", began.elapsed());
        assert_eq!(read(&pace.refused), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_its_client_does_not_use_is_given_back() {
        let pace = pace(10, 1).expect("a pace");
        let memory = MemoryAccount::unlimited();
        let began = Instant::now();
        pace.wait(CLIENT, &memory, &|| false).await.expect("the first turn");
        {
            let mut gone = Box::pin(pace.wait(CLIENT, &memory, &|| false));
            assert!((&mut gone).now_or_never().is_none());
            tokio::time::advance(Duration::from_millis(100)).await;
            // The client goes when its turn has been handed out, before it takes notice.
            let now = pace.started.elapsed();
            pace.hand_out(&mut pace.lock(), now, &|| false);
            assert_eq!(read(&pace.waiting), 0);
        }
        pace.wait(NEIGHBOUR, &memory, &|| false).await.expect("the turn that was given back");
        assert!(began.elapsed() <= Duration::from_millis(105), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn when_the_handshake_that_keeps_the_time_leaves_another_one_does() {
        let pace = pace(10, 1).expect("a pace");
        let memory = MemoryAccount::unlimited();
        let mut waits: Vec<_> =
            (0..4).map(|_| Box::pin(pace.wait(CLIENT, &memory, &|| false))).collect();
        waits.retain_mut(|it| it.now_or_never().is_none());
        let began = Instant::now();
        drop(waits.remove(0));
        let all = join_all(waits).await;
        assert!(all.len() == 2 && all.iter().all(Result::is_ok), "{all:?}");
        assert!(began.elapsed() <= Duration::from_millis(205), "{:?}", began.elapsed());
    }

    #[test]
    fn without_a_rate_there_is_no_pace() {
        assert!(pace(0, 8).is_none());
        assert!(
            HandshakePace::new(&Admission { enabled: false, ..Admission::default() }, 8).is_none()
        );
    }
}
