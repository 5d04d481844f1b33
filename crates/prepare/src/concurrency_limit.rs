//! A concurrency limit that is fair among clients. It bounds the expensive work that runs at the
//! same time, and the work that waits.
//!
//! Work waits in one queue for each client, and clients take turns, so a client with a hundred
//! waiting jobs delays the one job of another by one turn and not by a hundred. One client never
//! runs more than half of the permitted jobs, so that another client finds room at once.
//!
//! Each job has a weight, such as the bytes that it holds while it waits. If too much waits, the
//! client with the heaviest waiting jobs is refused first.
//!
//! A job that its client holds anyway, such as a message that keeps its connection from being read,
//! is not refused: it waits outside of the queue until there is room, and so bounds its client
//! itself.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use execute::ClientKey;
use tokio::sync::oneshot;

/// The bounds of a [`ConcurrencyLimit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConcurrencyBounds {
    /// Maximum number of jobs that run at the same time; at least one.
    pub running_max: usize,
    /// Maximum weight of all waiting jobs.
    pub waiting_max: usize,
    /// Maximum weight of the waiting jobs of one client.
    pub waiting_per_client_max: usize,
}

impl ConcurrencyBounds {
    /// Maximum number of jobs of one client that run at the same time: half, at least one.
    fn running_per_client_max(&self) -> usize {
        self.running_max.div_ceil(2).max(1)
    }
}

/// Reason why a permit was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoPermit {
    /// Too much work waits.
    #[error("too much work is waiting")]
    Full,
    /// The deadline passed first.
    #[error("the deadline passed while the work was waiting")]
    TooLate,
}

/// The number of clients for which room is kept while there is no work.
const ROOM_KEPT: usize = 64;

/// A concurrency limit that is fair among clients.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    bounds: ConcurrencyBounds,
    state: Mutex<QueueState>,
    /// The number of jobs that wait now.
    waiting: Arc<AtomicU64>,
}

/// The right to work, until it is dropped.
#[derive(Debug)]
pub struct Permit {
    limit: Arc<ConcurrencyLimit>,
    client: ClientKey,
}

#[derive(Debug, Default)]
struct QueueState {
    running: usize,
    /// The weight of all waiting jobs.
    waiting_weight: usize,
    /// The clients with running or waiting work.
    clients: HashMap<ClientKey, ClientQueue>,
    /// The clients with waiting work. The first one has its turn next.
    turns: VecDeque<ClientKey>,
    /// The clients with work outside of the queue. The first one has its turn next.
    turns_outside: VecDeque<ClientKey>,
    next_number: u64,
}

#[derive(Debug, Default)]
struct ClientQueue {
    running: usize,
    waiting: VecDeque<Waiter>,
    /// The weight of `waiting`.
    waiting_weight: usize,
    /// Jobs for which the queue has no room. Their weight does not count.
    outside: VecDeque<Waiter>,
}

/// Treatment of a job for which the queue has no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenFull {
    /// It is refused.
    Refuse,
    /// It waits until there is room. The caller bounds the number of such jobs.
    Wait,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    weight: usize,
    when_full: WhenFull,
    grant: oneshot::Sender<Result<Permit, NoPermit>>,
}

impl ConcurrencyLimit {
    /// Creates a limit that keeps the number of waiting jobs in `waiting`.
    pub fn new(bounds: ConcurrencyBounds, waiting: Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(Self { bounds, state: Mutex::default(), waiting })
    }

    /// Waits for a permit for work of this weight, at least 1, that `client` causes.
    ///
    /// Dropping the future leaves the queue.
    ///
    /// # Errors
    /// [`NoPermit`]: too much waits and `when_full` is [`WhenFull::Refuse`], or the
    /// deadline passed.
    pub async fn acquire(
        self: &Arc<Self>,
        client: ClientKey,
        weight: usize,
        deadline: Instant,
        when_full: WhenFull,
    ) -> Result<Permit, NoPermit> {
        let (number, granted) = match self.enter_queue(client, weight, when_full) {
            AcquireOutcome::Granted(permit) => return Ok(permit),
            AcquireOutcome::Refused => return Err(NoPermit::Full),
            AcquireOutcome::Waiting(number, granted) => (number, granted),
        };
        let _slot = QueueSlot { limit: self, client, number };
        match tokio::time::timeout_at(deadline.into(), granted).await {
            Ok(Ok(granted)) => granted,
            // The limit outlives its waiters, so each of them gets a result.
            Ok(Err(_)) => Err(NoPermit::Full),
            Err(_) => Err(NoPermit::TooLate),
        }
    }

    fn enter_queue(
        self: &Arc<Self>,
        client: ClientKey,
        weight: usize,
        when_full: WhenFull,
    ) -> AcquireOutcome {
        let mut state = self.lock_state();
        let may_run = state.running < self.bounds.running_max.max(1)
            && state.running_of(client) < self.bounds.running_per_client_max();
        // While a permit is free, all waiting jobs are at the bound of their client.
        if may_run && !state.has_waiting(client) {
            return AcquireOutcome::Granted(self.grant_permit(&mut state, client));
        }
        let has_place = self.make_room(&mut state, client, weight);
        if !has_place && when_full == WhenFull::Refuse {
            return AcquireOutcome::Refused;
        }
        let (grant, granted) = oneshot::channel();
        state.next_number += 1;
        let number = state.next_number;
        let weight = self.weight_of(weight);
        let waiter = Waiter { number, weight, when_full, grant };
        if has_place {
            state.push_waiter(client, waiter);
        } else {
            state.push_outside(client, waiter);
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        AcquireOutcome::Waiting(number, granted)
    }

    /// The weight that counts: a job that is heavier than all that may wait can wait alone.
    fn weight_of(&self, weight: usize) -> usize {
        let ConcurrencyBounds { waiting_max, waiting_per_client_max, .. } = self.bounds;
        weight.clamp(1, waiting_max.min(waiting_per_client_max).max(1))
    }

    /// True if the queue has room for a new job, possibly after the removal of others.
    fn make_room(&self, state: &mut QueueState, client: ClientKey, weight: usize) -> bool {
        let own = state.clients.get(&client);
        // Jobs of one client keep their order.
        if own.is_some_and(|it| !it.outside.is_empty()) {
            return false;
        }
        let weight = self.weight_of(weight);
        let with_own = own.map_or(0, |it| it.waiting_weight) + weight;
        if with_own > self.bounds.waiting_per_client_max {
            return false;
        }
        while state.waiting_weight + weight > self.bounds.waiting_max {
            if !self.expel_newest(state, with_own) {
                return false;
            }
        }
        true
    }

    /// Removes the newest job of the client with the heaviest waiting jobs, if those are heavier
    /// than `weight`, the jobs of the new client.
    fn expel_newest(&self, state: &mut QueueState, weight: usize) -> bool {
        let weight_of =
            |client: &ClientKey| state.clients.get(client).map_or(0, |it| it.waiting_weight);
        let heaviest = state.turns.iter().copied().max_by_key(weight_of);
        let Some(heaviest) = heaviest.filter(|it| weight_of(it) > weight) else { return false };
        let newest = state.clients.get_mut(&heaviest).and_then(|it| it.waiting.pop_back());
        let Some(newest) = newest else { return false };
        state.subtract_weight(heaviest, newest.weight);
        match newest.when_full {
            WhenFull::Refuse => {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                // The receiver may be gone because its request was cancelled.
                let _ = newest.grant.send(Err(NoPermit::Full));
            }
            WhenFull::Wait => state.push_outside_first(heaviest, newest),
        }
        true
    }

    /// Moves jobs from outside into the queue while it has room.
    fn admit_outside(&self, state: &mut QueueState) {
        for _ in 0..state.turns_outside.len() {
            let Some(client) = state.turns_outside.pop_front() else { return };
            let Some(entry) = state.clients.get_mut(&client) else { continue };
            let Some(weight) = entry.outside.front().map(|it| it.weight) else { continue };
            if entry.waiting_weight + weight > self.bounds.waiting_per_client_max {
                state.turns_outside.push_back(client);
            } else if state.waiting_weight + weight > self.bounds.waiting_max {
                state.turns_outside.push_front(client);
                return;
            } else if let Some(waiter) = entry.outside.pop_front() {
                if !entry.outside.is_empty() {
                    state.turns_outside.push_back(client);
                }
                state.push_waiter(client, waiter);
            }
        }
    }

    fn grant_permit(self: &Arc<Self>, state: &mut QueueState, client: ClientKey) -> Permit {
        state.running += 1;
        state.clients.entry(client).or_default().running += 1;
        Permit { limit: Arc::clone(self), client }
    }

    /// Takes a permit back, and gives it to the next client that may have it.
    fn release_permit(self: &Arc<Self>, client: ClientKey) {
        // Dropped after the lock is released, because dropping a permit needs the lock.
        let unwanted;
        {
            let mut state = self.lock_state();
            state.running -= 1;
            if let Some(it) = state.clients.get_mut(&client) {
                it.running -= 1;
            }
            state.forget_if_idle(client);
            unwanted = self.start_waiting(&mut state);
        }
        drop(unwanted);
    }

    /// Starts jobs while there are permits, and fills the room that they leave. Returns the permits
    /// of jobs that have been cancelled.
    fn start_waiting(self: &Arc<Self>, state: &mut QueueState) -> Vec<Result<Permit, NoPermit>> {
        let mut unwanted = Vec::new();
        loop {
            self.admit_outside(state);
            if state.running >= self.bounds.running_max.max(1) {
                break;
            }
            let per_client_max = self.bounds.running_per_client_max();
            let may_run = |client: &ClientKey| state.running_of(*client) < per_client_max;
            let Some(turn) = state.turns.iter().position(may_run) else { break };
            let Some(next) = state.turns.remove(turn) else { break };
            let Some(entry) = state.clients.get_mut(&next) else { continue };
            let Some(waiter) = entry.waiting.pop_front() else { continue };
            if !entry.waiting.is_empty() {
                state.turns.push_back(next);
            }
            state.subtract_weight(next, waiter.weight);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            let permit = self.grant_permit(state, next);
            if let Err(unsent) = waiter.grant.send(Ok(permit)) {
                unwanted.push(unsent);
            }
        }
        unwanted
    }

    /// Locks the state. No code panics under this lock, so the state behind a poisoned one is
    /// sound.
    fn lock_state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The outcome of a request for a permit.
enum AcquireOutcome {
    Granted(Permit),
    Refused,
    Waiting(u64, oneshot::Receiver<Result<Permit, NoPermit>>),
}

impl QueueState {
    fn running_of(&self, client: ClientKey) -> usize {
        self.clients.get(&client).map_or(0, |it| it.running)
    }

    /// Frees the room of a burst of clients after its end: each of ten thousand that join at once has a place here.
    fn release_room(&mut self) {
        if self.clients.is_empty() && self.clients.capacity() > ROOM_KEPT {
            self.clients = HashMap::new();
            self.turns = VecDeque::new();
            self.turns_outside = VecDeque::new();
        }
    }

    /// True if a job of the client waits, in the queue or outside.
    fn has_waiting(&self, client: ClientKey) -> bool {
        let is_waiting = |it: &ClientQueue| !it.waiting.is_empty() || !it.outside.is_empty();
        self.clients.get(&client).is_some_and(is_waiting)
    }

    /// Adds a job to the queue.
    fn push_waiter(&mut self, client: ClientKey, waiter: Waiter) {
        self.waiting_weight += waiter.weight;
        let entry = self.clients.entry(client).or_default();
        if entry.waiting.is_empty() {
            self.turns.push_back(client);
        }
        entry.waiting_weight += waiter.weight;
        entry.waiting.push_back(waiter);
    }

    fn push_outside(&mut self, client: ClientKey, waiter: Waiter) {
        let entry = self.clients.entry(client).or_default();
        if entry.outside.is_empty() {
            self.turns_outside.push_back(client);
        }
        entry.outside.push_back(waiter);
    }

    /// Adds a job that was in the queue: it is the next one of its client.
    fn push_outside_first(&mut self, client: ClientKey, waiter: Waiter) {
        let entry = self.clients.entry(client).or_default();
        if entry.outside.is_empty() {
            self.turns_outside.push_back(client);
        }
        entry.outside.push_front(waiter);
    }

    /// Subtracts the weight of a job that has left the queue.
    fn subtract_weight(&mut self, client: ClientKey, weight: usize) {
        self.waiting_weight -= weight;
        if let Some(client) = self.clients.get_mut(&client) {
            client.waiting_weight -= weight;
        }
    }

    fn forget_if_idle(&mut self, client: ClientKey) {
        let is_idle = |it: &ClientQueue| it.running == 0;
        if self.clients.get(&client).is_some_and(is_idle) && !self.has_waiting(client) {
            self.clients.remove(&client);
            self.release_room();
        }
    }
}

/// A waiting job, in the queue or outside. Dropping it leaves the queue.
struct QueueSlot<'a> {
    limit: &'a Arc<ConcurrencyLimit>,
    client: ClientKey,
    number: u64,
}

impl Drop for QueueSlot<'_> {
    fn drop(&mut self) {
        // Dropped after the lock is released, because dropping a permit needs the lock.
        let unwanted;
        {
            let mut state = self.limit.lock_state();
            let Some(entry) = state.clients.get_mut(&self.client) else { return };
            let number = self.number;
            // A job that was granted or refused has left before.
            let has_left = if let Some(waiter) = remove_waiter(&mut entry.waiting, number) {
                if entry.waiting.is_empty() {
                    state.turns.retain(|client| *client != self.client);
                }
                state.subtract_weight(self.client, waiter.weight);
                true
            } else if remove_waiter(&mut entry.outside, number).is_some() {
                if entry.outside.is_empty() {
                    state.turns_outside.retain(|client| *client != self.client);
                }
                true
            } else {
                false
            };
            if has_left {
                self.limit.waiting.fetch_sub(1, Ordering::Relaxed);
            }
            state.forget_if_idle(self.client);
            unwanted = self.limit.start_waiting(&mut state);
        }
        drop(unwanted);
    }
}

fn remove_waiter(waiting: &mut VecDeque<Waiter>, number: u64) -> Option<Waiter> {
    let place = waiting.iter().position(|waiter| waiter.number == number)?;
    waiting.remove(place)
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limit.release_permit(self.client);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use super::*;

    const NOISY: u8 = 1;
    const POLITE: u8 = 2;

    fn client(number: u8) -> ClientKey {
        ClientKey::of_address([192, 0, 2, number].into())
    }

    type Acquiring = Pin<Box<dyn Future<Output = Result<Permit, NoPermit>>>>;

    /// Requests a permit, and polls the request once.
    fn acquire_once(limit: &Arc<ConcurrencyLimit>, number: u8) -> Acquiring {
        acquire_with(limit, number, 1)
    }

    fn acquire_with(limit: &Arc<ConcurrencyLimit>, number: u8, weight: usize) -> Acquiring {
        let limit = Arc::clone(limit);
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut acquiring: Acquiring = Box::pin(async move {
            limit.acquire(client(number), weight, deadline, WhenFull::Refuse).await
        });
        if let Some(outcome) = polled(&mut acquiring) {
            return Box::pin(std::future::ready(outcome));
        }
        acquiring
    }

    fn polled(acquiring: &mut Acquiring) -> Option<Result<Permit, NoPermit>> {
        match acquiring.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    fn granted(acquiring: &mut Acquiring) -> Permit {
        polled(acquiring).expect("it is its turn").expect("a permit")
    }

    fn limit(running_max: usize, waiting_max: usize, per_client: usize) -> Arc<ConcurrencyLimit> {
        let waiting_per_client_max = per_client;
        let bounds = ConcurrencyBounds { running_max, waiting_max, waiting_per_client_max };
        ConcurrencyLimit::new(bounds, Arc::default())
    }

    fn waiting(limit: &ConcurrencyLimit) -> u64 {
        limit.waiting.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn clients_take_turns_however_many_of_their_jobs_wait() {
        let limit = limit(1, 100, 100);
        let first = granted(&mut acquire_once(&limit, NOISY));
        let mut noisy: Vec<_> = (0..50).map(|_| acquire_once(&limit, NOISY)).collect();
        let mut polite = acquire_once(&limit, POLITE);
        drop(first);
        let second = granted(&mut noisy[0]);
        assert!(polled(&mut polite).is_none());
        drop(second);
        let third = granted(&mut polite);
        assert!(noisy[1..].iter_mut().all(|it| polled(it).is_none()));
        drop(third);
        drop(granted(&mut noisy[1]));
    }

    #[tokio::test]
    async fn one_client_leaves_half_of_the_permits_to_others() {
        let limit = limit(4, 100, 100);
        let mut noisy: Vec<_> = (0..4).map(|_| acquire_once(&limit, NOISY)).collect();
        let running = [granted(&mut noisy[0]), granted(&mut noisy[1])];
        assert!(polled(&mut noisy[2]).is_none());
        let polite = granted(&mut acquire_once(&limit, POLITE));
        drop((running, polite));
        drop([granted(&mut noisy[2]), granted(&mut noisy[3])]);
        assert!(limit.lock_state().clients.is_empty());
    }

    #[tokio::test]
    async fn a_client_over_its_bound_is_refused_and_others_are_not() {
        let limit = limit(1, 100, 2);
        let running = granted(&mut acquire_once(&limit, NOISY));
        let kept = [acquire_once(&limit, NOISY), acquire_once(&limit, NOISY)];
        assert_eq!(
            polled(&mut acquire_once(&limit, NOISY)).map(drop_permit),
            Some(Err(NoPermit::Full))
        );
        let mut polite = acquire_once(&limit, POLITE);
        assert_eq!(waiting(&limit), 3);
        drop((kept, running));
        drop(granted(&mut polite));
        assert_eq!(waiting(&limit), 0);
    }

    #[tokio::test]
    async fn if_too_much_waits_the_newest_job_of_the_busiest_client_makes_room() {
        let limit = limit(1, 3, 100);
        let running = granted(&mut acquire_once(&limit, NOISY));
        let mut noisy: Vec<_> = (0..3).map(|_| acquire_once(&limit, NOISY)).collect();
        assert_eq!(
            polled(&mut acquire_once(&limit, NOISY)).map(drop_permit),
            Some(Err(NoPermit::Full))
        );
        let mut polite = acquire_once(&limit, POLITE);
        assert!(polled(&mut polite).is_none());
        assert_eq!(polled(&mut noisy[2]).map(drop_permit), Some(Err(NoPermit::Full)));
        assert_eq!(waiting(&limit), 3);
        drop((running, noisy));
        drop(granted(&mut polite));
    }

    #[tokio::test]
    async fn heavy_jobs_make_room_until_a_lighter_one_fits() {
        let limit = limit(1, 10, 10);
        let running = granted(&mut acquire_once(&limit, NOISY));
        let mut noisy: Vec<_> = [4, 3, 3].map(|weight| acquire_with(&limit, NOISY, weight)).into();
        assert_eq!(
            polled(&mut acquire_once(&limit, NOISY)).map(drop_permit),
            Some(Err(NoPermit::Full))
        );
        // Two of three must go: with one of them gone, four do not fit beside seven.
        let mut polite = acquire_with(&limit, POLITE, 4);
        assert!(polled(&mut polite).is_none());
        let refused: Vec<_> = noisy.iter_mut().map(|it| polled(it).is_some()).collect();
        assert_eq!((refused, waiting(&limit)), (vec![false, true, true], 2));
        drop((running, noisy));
        drop(granted(&mut polite));
        assert_eq!(limit.lock_state().waiting_weight, 0);
    }

    #[tokio::test]
    async fn a_job_that_is_heavier_than_the_bound_waits_alone() {
        let limit = limit(1, 10, 5);
        let running = granted(&mut acquire_once(&limit, NOISY));
        let mut heavy = acquire_with(&limit, NOISY, 1000);
        assert!(polled(&mut heavy).is_none());
        assert_eq!(
            polled(&mut acquire_once(&limit, NOISY)).map(drop_permit),
            Some(Err(NoPermit::Full))
        );
        drop(running);
        drop(granted(&mut heavy));
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_whose_deadline_passes_is_refused_and_leaves_the_queue() {
        let limit = limit(1, 10, 10);
        let _running = granted(&mut acquire_once(&limit, NOISY));
        let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
        let late = limit.acquire(client(POLITE), 1, deadline.into_std(), WhenFull::Refuse).await;
        assert_eq!(drop_permit(late), Err(NoPermit::TooLate));
        assert_eq!((waiting(&limit), limit.lock_state().turns.len()), (0, 0));
    }

    #[tokio::test]
    async fn a_cancelled_job_leaves_the_queue_and_its_permit() {
        let limit = limit(1, 10, 10);
        let running = granted(&mut acquire_once(&limit, NOISY));
        let abandoned = acquire_once(&limit, POLITE);
        let granted_unseen = acquire_once(&limit, NOISY);
        assert_eq!(waiting(&limit), 2);
        drop(abandoned);
        assert_eq!(waiting(&limit), 1);
        drop(running);
        // It has its permit and has not been polled since.
        drop(granted_unseen);
        drop(granted(&mut acquire_once(&limit, POLITE)));
        assert!(limit.lock_state().clients.is_empty());
    }

    fn acquire_or_wait(limit: &Arc<ConcurrencyLimit>, number: u8, weight: usize) -> Acquiring {
        let limit = Arc::clone(limit);
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut acquiring: Acquiring = Box::pin(async move {
            limit.acquire(client(number), weight, deadline, WhenFull::Wait).await
        });
        assert!(polled(&mut acquiring).is_none());
        acquiring
    }

    #[tokio::test]
    async fn a_job_outside_of_the_queue_enters_when_another_leaves() {
        let limit = limit(1, 4, 4);
        let running = granted(&mut acquire_once(&limit, NOISY));
        let mut queued = [acquire_with(&limit, NOISY, 2), acquire_with(&limit, NOISY, 2)];
        let [mut second, mut third] = [0, 1].map(|_| acquire_or_wait(&limit, NOISY, 4));
        assert_eq!((waiting(&limit), limit.lock_state().waiting_weight), (4, 4));
        // A polite client still finds room: the newest job in the queue leaves.
        let mut polite = acquire_once(&limit, POLITE);
        assert_eq!(polled(&mut queued[1]).map(drop_permit), Some(Err(NoPermit::Full)));
        drop(running);
        drop(granted(&mut queued[0]));
        drop(granted(&mut polite));
        drop(granted(&mut second));
        drop(granted(&mut third));
        assert!(
            limit.lock_state().clients.is_empty() && limit.lock_state().turns_outside.is_empty()
        );
        assert_eq!((waiting(&limit), limit.lock_state().waiting_weight), (0, 0));
    }

    #[tokio::test]
    async fn a_job_that_must_leave_the_queue_and_is_not_refused_keeps_its_turn() {
        let limit = limit(1, 3, 3);
        let running = granted(&mut acquire_once(&limit, NOISY));
        let mut patient: Vec<_> = (0..4).map(|_| acquire_or_wait(&limit, NOISY, 1)).collect();
        let mut polite = acquire_once(&limit, POLITE);
        assert!(polled(&mut polite).is_none() && patient.iter_mut().all(|it| polled(it).is_none()));
        drop(running);
        drop(granted(&mut patient[0]));
        drop(granted(&mut polite));
        for job in &mut patient[1..] {
            drop(granted(job));
        }
        assert_eq!(waiting(&limit), 0);
    }

    #[tokio::test]
    async fn a_cancelled_job_outside_of_the_queue_leaves_no_state() {
        let limit = limit(1, 1, 1);
        let running = granted(&mut acquire_once(&limit, NOISY));
        let queued = acquire_once(&limit, NOISY);
        let outside = [0, 1].map(|_| acquire_or_wait(&limit, NOISY, 1));
        let [first, mut last] = outside;
        drop(first);
        // The room in the queue goes to the remaining job.
        drop(queued);
        assert_eq!((waiting(&limit), limit.lock_state().waiting_weight), (1, 1));
        drop(running);
        drop(granted(&mut last));
        assert!(limit.lock_state().clients.is_empty());
    }

    fn drop_permit(outcome: Result<Permit, NoPermit>) -> Result<(), NoPermit> {
        outcome.map(drop)
    }
}
