//! A concurrency limit that is fair among clients: how much expensive work runs at the same time, and how much may
//! wait.
//!
//! Work waits in one queue for each client, and clients take turns, so a client with a hundred waiting jobs delays
//! the one job of another by one turn and not by a hundred. One client never runs more than half of what may run, so
//! another one that comes finds room at once.
//!
//! Each job has a weight, such as the bytes that it holds while it waits. Where too much waits, the client with the
//! heaviest waiting jobs is refused first.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use execute::ClientKey;
use tokio::sync::oneshot;

/// The bounds of a [`ConcurrencyLimit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConcurrencyBounds {
    /// How much runs at the same time; at least one.
    pub running_max: usize,
    /// The weight of all jobs that may wait.
    pub waiting_max: usize,
    /// The weight of the jobs of one client that may wait.
    pub waiting_per_client_max: usize,
}

impl ConcurrencyBounds {
    /// How much runs at the same time for one client: half, at least one.
    fn running_per_client_max(&self) -> usize {
        self.running_max.div_ceil(2).max(1)
    }
}

/// Why there is no permit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoPermit {
    /// Too much waits.
    #[error("too much work is waiting")]
    Full,
    /// The deadline passed first.
    #[error("the deadline passed while the work was waiting")]
    TooLate,
}

/// See the module.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    bounds: ConcurrencyBounds,
    state: Mutex<State>,
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
struct State {
    running: usize,
    /// The weight of all waiting jobs.
    waiting_weight: usize,
    /// The clients with running or waiting work.
    clients: HashMap<ClientKey, Client>,
    /// The clients with waiting work. The first one has its turn next.
    turns: VecDeque<ClientKey>,
    next_number: u64,
}

#[derive(Debug, Default)]
struct Client {
    running: usize,
    waiting: VecDeque<Waiter>,
    /// The weight of `waiting`.
    waiting_weight: usize,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    weight: usize,
    grant: oneshot::Sender<Result<Permit, NoPermit>>,
}

impl ConcurrencyLimit {
    /// A limit that keeps the number of waiting jobs in `waiting`.
    pub fn new(bounds: ConcurrencyBounds, waiting: Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(Self { bounds, state: Mutex::default(), waiting })
    }

    /// Waits for a permit for work of this weight, at least 1, that `client` causes.
    ///
    /// Dropping the future gives the place in the queue back.
    ///
    /// # Errors
    /// [`NoPermit`]: too much waits, or the deadline passed.
    pub async fn acquire(
        self: &Arc<Self>,
        client: ClientKey,
        weight: usize,
        deadline: Instant,
    ) -> Result<Permit, NoPermit> {
        let (number, granted) = match self.enter(client, weight) {
            Entry::Granted(permit) => return Ok(permit),
            Entry::Refused => return Err(NoPermit::Full),
            Entry::Waiting(number, granted) => (number, granted),
        };
        let _place = Place { limit: self, client, number };
        match tokio::time::timeout_at(deadline.into(), granted).await {
            Ok(Ok(granted)) => granted,
            // The limit outlives its waiters, so none is dropped without a word.
            Ok(Err(_)) => Err(NoPermit::Full),
            Err(_) => Err(NoPermit::TooLate),
        }
    }

    fn enter(self: &Arc<Self>, client: ClientKey, weight: usize) -> Entry {
        let ConcurrencyBounds { waiting_max, waiting_per_client_max, .. } = self.bounds;
        let mut state = self.state();
        let own = state.clients.get(&client);
        let (running, own_weight) = own.map_or((0, 0), |it| (it.running, it.waiting_weight));
        let may_run = state.running < self.bounds.running_max.max(1)
            && running < self.bounds.running_per_client_max();
        // While a permit is free, all that wait are at the bound of their client.
        if may_run && own_weight == 0 {
            return Entry::Granted(self.start(&mut state, client));
        }
        // A job that is heavier than all that may wait can wait alone.
        let weight = weight.clamp(1, waiting_max.min(waiting_per_client_max).max(1));
        if own_weight + weight > waiting_per_client_max {
            return Entry::Refused;
        }
        while state.waiting_weight + weight > waiting_max {
            if !self.refuse_newest(&mut state, own_weight + weight) {
                return Entry::Refused;
            }
        }
        let (grant, granted) = oneshot::channel();
        state.next_number += 1;
        let number = state.next_number;
        if own_weight == 0 {
            state.turns.push_back(client);
        }
        state.waiting_weight += weight;
        let entry = state.clients.entry(client).or_default();
        entry.waiting_weight += weight;
        entry.waiting.push_back(Waiter { number, weight, grant });
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Entry::Waiting(number, granted)
    }

    /// Refuses the newest job of the client with the heaviest waiting jobs, if they are heavier than `weight`,
    /// those of a newcomer.
    fn refuse_newest(&self, state: &mut State, weight: usize) -> bool {
        let weight_of =
            |client: &ClientKey| state.clients.get(client).map_or(0, |it| it.waiting_weight);
        let heaviest = state.turns.iter().copied().max_by_key(weight_of);
        let Some(heaviest) = heaviest.filter(|it| weight_of(it) > weight) else { return false };
        let newest = state.clients.get_mut(&heaviest).and_then(|it| it.waiting.pop_back());
        let Some(newest) = newest else { return false };
        self.note_left(state, heaviest, newest.weight);
        // A receiver that is gone has given up.
        let _ = newest.grant.send(Err(NoPermit::Full));
        true
    }

    fn start(self: &Arc<Self>, state: &mut State, client: ClientKey) -> Permit {
        state.running += 1;
        state.clients.entry(client).or_default().running += 1;
        Permit { limit: Arc::clone(self), client }
    }

    /// Takes a permit back and gives it to the next client that may have it.
    fn finish(self: &Arc<Self>, client: ClientKey) {
        // Permits of jobs that have been given up. They are dropped after the lock is released, which their drop needs.
        let mut unwanted = Vec::new();
        {
            let mut state = self.state();
            state.running -= 1;
            if let Some(it) = state.clients.get_mut(&client) {
                it.running -= 1;
            }
            state.forget_if_idle(client);
            while state.running < self.bounds.running_max.max(1) {
                let per_client_max = self.bounds.running_per_client_max();
                let may_run = |client: &ClientKey| state.running_of(*client) < per_client_max;
                let Some(turn) = state.turns.iter().position(may_run) else { break };
                let Some(next) = state.turns.remove(turn) else { break };
                let Some(entry) = state.clients.get_mut(&next) else { continue };
                let Some(waiter) = entry.waiting.pop_front() else { continue };
                if !entry.waiting.is_empty() {
                    state.turns.push_back(next);
                }
                self.note_left(&mut state, next, waiter.weight);
                let permit = self.start(&mut state, next);
                if let Err(unsent) = waiter.grant.send(Ok(permit)) {
                    unwanted.push(unsent);
                }
            }
        }
        drop(unwanted);
    }

    /// Counts a job that has left the queue of `client`.
    fn note_left(&self, state: &mut State, client: ClientKey, weight: usize) {
        state.waiting_weight -= weight;
        if let Some(client) = state.clients.get_mut(&client) {
            client.waiting_weight -= weight;
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Nothing panics under this lock, so a poisoned one holds a sound state.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The outcome of asking for a permit.
enum Entry {
    Granted(Permit),
    Refused,
    Waiting(u64, oneshot::Receiver<Result<Permit, NoPermit>>),
}

impl State {
    fn running_of(&self, client: ClientKey) -> usize {
        self.clients.get(&client).map_or(0, |it| it.running)
    }

    fn forget_if_idle(&mut self, client: ClientKey) {
        if self.clients.get(&client).is_some_and(|it| it.running == 0 && it.waiting.is_empty()) {
            self.clients.remove(&client);
        }
    }
}

/// A place in the queue of a client. Dropping it leaves the queue.
struct Place<'a> {
    limit: &'a ConcurrencyLimit,
    client: ClientKey,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.limit.state();
        let Some(entry) = state.clients.get_mut(&self.client) else { return };
        let place = entry.waiting.iter().position(|waiter| waiter.number == self.number);
        // A job that was granted or refused has left before.
        let left = place.and_then(|place| entry.waiting.remove(place));
        if entry.waiting.is_empty() {
            state.turns.retain(|client| *client != self.client);
        }
        if let Some(left) = left {
            self.limit.note_left(&mut state, self.client, left.weight);
        }
        state.forget_if_idle(self.client);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limit.finish(self.client);
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

    /// A request for a permit that has been polled once.
    fn ask(limit: &Arc<ConcurrencyLimit>, number: u8) -> Acquiring {
        ask_with(limit, number, 1)
    }

    fn ask_with(limit: &Arc<ConcurrencyLimit>, number: u8, weight: usize) -> Acquiring {
        let limit = Arc::clone(limit);
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut asked: Acquiring =
            Box::pin(async move { limit.acquire(client(number), weight, deadline).await });
        if let Some(outcome) = polled(&mut asked) {
            return Box::pin(std::future::ready(outcome));
        }
        asked
    }

    fn polled(asked: &mut Acquiring) -> Option<Result<Permit, NoPermit>> {
        match asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    fn granted(asked: &mut Acquiring) -> Permit {
        polled(asked).expect("it is its turn").expect("a permit")
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
        let first = granted(&mut ask(&limit, NOISY));
        let mut noisy: Vec<_> = (0..50).map(|_| ask(&limit, NOISY)).collect();
        let mut polite = ask(&limit, POLITE);
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
        let mut noisy: Vec<_> = (0..4).map(|_| ask(&limit, NOISY)).collect();
        let running = [granted(&mut noisy[0]), granted(&mut noisy[1])];
        assert!(polled(&mut noisy[2]).is_none());
        let polite = granted(&mut ask(&limit, POLITE));
        drop((running, polite));
        drop([granted(&mut noisy[2]), granted(&mut noisy[3])]);
        assert!(limit.state().clients.is_empty());
    }

    #[tokio::test]
    async fn a_client_over_its_bound_is_refused_and_others_are_not() {
        let limit = limit(1, 100, 2);
        let running = granted(&mut ask(&limit, NOISY));
        let kept = [ask(&limit, NOISY), ask(&limit, NOISY)];
        assert_eq!(polled(&mut ask(&limit, NOISY)).map(drop_permit), Some(Err(NoPermit::Full)));
        let mut polite = ask(&limit, POLITE);
        assert_eq!(waiting(&limit), 3);
        drop((kept, running));
        drop(granted(&mut polite));
        assert_eq!(waiting(&limit), 0);
    }

    #[tokio::test]
    async fn where_too_much_waits_the_newest_job_of_the_busiest_client_makes_room() {
        let limit = limit(1, 3, 100);
        let running = granted(&mut ask(&limit, NOISY));
        let mut noisy: Vec<_> = (0..3).map(|_| ask(&limit, NOISY)).collect();
        assert_eq!(polled(&mut ask(&limit, NOISY)).map(drop_permit), Some(Err(NoPermit::Full)));
        let mut polite = ask(&limit, POLITE);
        assert!(polled(&mut polite).is_none());
        assert_eq!(polled(&mut noisy[2]).map(drop_permit), Some(Err(NoPermit::Full)));
        assert_eq!(waiting(&limit), 3);
        drop((running, noisy));
        drop(granted(&mut polite));
    }

    #[tokio::test]
    async fn heavy_jobs_make_room_until_a_lighter_one_fits() {
        let limit = limit(1, 10, 10);
        let running = granted(&mut ask(&limit, NOISY));
        let mut noisy: Vec<_> = [4, 3, 3].map(|weight| ask_with(&limit, NOISY, weight)).into();
        assert_eq!(polled(&mut ask(&limit, NOISY)).map(drop_permit), Some(Err(NoPermit::Full)));
        // Two of three have to go: with one of them gone, four do not fit beside seven.
        let mut polite = ask_with(&limit, POLITE, 4);
        assert!(polled(&mut polite).is_none());
        let refused: Vec<_> = noisy.iter_mut().map(|it| polled(it).is_some()).collect();
        assert_eq!((refused, waiting(&limit)), (vec![false, true, true], 2));
        drop((running, noisy));
        drop(granted(&mut polite));
        assert_eq!(limit.state().waiting_weight, 0);
    }

    #[tokio::test]
    async fn a_job_that_is_heavier_than_the_bound_waits_alone() {
        let limit = limit(1, 10, 5);
        let running = granted(&mut ask(&limit, NOISY));
        let mut heavy = ask_with(&limit, NOISY, 1000);
        assert!(polled(&mut heavy).is_none());
        assert_eq!(polled(&mut ask(&limit, NOISY)).map(drop_permit), Some(Err(NoPermit::Full)));
        drop(running);
        drop(granted(&mut heavy));
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_whose_deadline_passes_is_refused_and_leaves_the_queue() {
        let limit = limit(1, 10, 10);
        let _running = granted(&mut ask(&limit, NOISY));
        let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
        let late = limit.acquire(client(POLITE), 1, deadline.into_std()).await;
        assert_eq!(drop_permit(late), Err(NoPermit::TooLate));
        assert_eq!((waiting(&limit), limit.state().turns.len()), (0, 0));
    }

    #[tokio::test]
    async fn a_job_that_gives_up_leaves_the_queue_and_its_permit() {
        let limit = limit(1, 10, 10);
        let running = granted(&mut ask(&limit, NOISY));
        let abandoned = ask(&limit, POLITE);
        let granted_unseen = ask(&limit, NOISY);
        assert_eq!(waiting(&limit), 2);
        drop(abandoned);
        assert_eq!(waiting(&limit), 1);
        drop(running);
        // It has its permit and has not been polled since.
        drop(granted_unseen);
        drop(granted(&mut ask(&limit, POLITE)));
        assert!(limit.state().clients.is_empty());
    }

    fn drop_permit(outcome: Result<Permit, NoPermit>) -> Result<(), NoPermit> {
        outcome.map(drop)
    }
}
