//! A concurrency limit that is fair among clients: how much expensive work runs at the same time, and how much may
//! wait.
//!
//! Work waits in one queue for each client, and clients take turns, so a client with a hundred waiting jobs delays
//! the one job of another by one turn and not by a hundred. One client never runs more than half of what may run, so
//! another one that comes finds room at once.
//!
//! Each job has a weight, such as the bytes that it holds while it waits. Where too much waits, the client with the
//! heaviest waiting jobs is refused first.
//!
//! A job that its client holds anyway, such as a message that keeps its connection from being read, is not refused: it
//! waits outside of the queue for a place in it, and so bounds its client itself.

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
    /// The clients with work outside of the queue. The first one has its turn next.
    turns_outside: VecDeque<ClientKey>,
    next_number: u64,
}

#[derive(Debug, Default)]
struct Client {
    running: usize,
    waiting: VecDeque<Waiter>,
    /// The weight of `waiting`.
    waiting_weight: usize,
    /// Jobs for which the queue has no place. Their weight does not count.
    outside: VecDeque<Waiter>,
}

/// What becomes of a job for which the queue has no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WithoutPlace {
    /// It is refused.
    Refuse,
    /// It waits for a place. The caller bounds the number of such jobs.
    Wait,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    weight: usize,
    without_place: WithoutPlace,
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
    /// [`NoPermit`]: too much waits and `without_place` says to refuse, or the deadline passed.
    pub async fn acquire(
        self: &Arc<Self>,
        client: ClientKey,
        weight: usize,
        deadline: Instant,
        without_place: WithoutPlace,
    ) -> Result<Permit, NoPermit> {
        let (number, granted) = match self.enter(client, weight, without_place) {
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

    fn enter(
        self: &Arc<Self>,
        client: ClientKey,
        weight: usize,
        without_place: WithoutPlace,
    ) -> Entry {
        let mut state = self.state();
        let may_run = state.running < self.bounds.running_max.max(1)
            && state.running_of(client) < self.bounds.running_per_client_max();
        // While a permit is free, all that wait are at the bound of their client.
        if may_run && !state.waits(client) {
            return Entry::Granted(self.start(&mut state, client));
        }
        let has_place = self.make_room(&mut state, client, weight);
        if !has_place && without_place == WithoutPlace::Refuse {
            return Entry::Refused;
        }
        let (grant, granted) = oneshot::channel();
        state.next_number += 1;
        let number = state.next_number;
        let weight = self.weight_of(weight);
        let waiter = Waiter { number, weight, without_place, grant };
        if has_place {
            state.push(client, waiter);
        } else {
            state.push_outside(client, waiter);
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Entry::Waiting(number, granted)
    }

    /// The weight that counts: a job that is heavier than all that may wait can wait alone.
    fn weight_of(&self, weight: usize) -> usize {
        let ConcurrencyBounds { waiting_max, waiting_per_client_max, .. } = self.bounds;
        weight.clamp(1, waiting_max.min(waiting_per_client_max).max(1))
    }

    /// True if the queue has a place for the job of a newcomer, perhaps since others had to leave it.
    fn make_room(&self, state: &mut State, client: ClientKey, weight: usize) -> bool {
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

    /// Expels the newest job of the client with the heaviest waiting jobs, if they are heavier than `weight`, those of
    /// a newcomer.
    fn expel_newest(&self, state: &mut State, weight: usize) -> bool {
        let weight_of =
            |client: &ClientKey| state.clients.get(client).map_or(0, |it| it.waiting_weight);
        let heaviest = state.turns.iter().copied().max_by_key(weight_of);
        let Some(heaviest) = heaviest.filter(|it| weight_of(it) > weight) else { return false };
        let newest = state.clients.get_mut(&heaviest).and_then(|it| it.waiting.pop_back());
        let Some(newest) = newest else { return false };
        state.subtract(heaviest, newest.weight);
        match newest.without_place {
            WithoutPlace::Refuse => {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                // A receiver that is gone has given up.
                let _ = newest.grant.send(Err(NoPermit::Full));
            }
            WithoutPlace::Wait => state.push_outside_first(heaviest, newest),
        }
        true
    }

    /// Gives free places in the queue to jobs outside of it.
    fn admit(&self, state: &mut State) {
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
                state.push(client, waiter);
            }
        }
    }

    fn start(self: &Arc<Self>, state: &mut State, client: ClientKey) -> Permit {
        state.running += 1;
        state.clients.entry(client).or_default().running += 1;
        Permit { limit: Arc::clone(self), client }
    }

    /// Takes a permit back and gives it to the next client that may have it.
    fn finish(self: &Arc<Self>, client: ClientKey) {
        // Dropped after the lock is released, which their drop needs.
        let unwanted;
        {
            let mut state = self.state();
            state.running -= 1;
            if let Some(it) = state.clients.get_mut(&client) {
                it.running -= 1;
            }
            state.forget_if_idle(client);
            unwanted = self.advance(&mut state);
        }
        drop(unwanted);
    }

    /// Starts jobs while there are permits and fills the places that they leave. Returns the permits of jobs that have
    /// been given up.
    fn advance(self: &Arc<Self>, state: &mut State) -> Vec<Result<Permit, NoPermit>> {
        let mut unwanted = Vec::new();
        loop {
            self.admit(state);
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
            state.subtract(next, waiter.weight);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            let permit = self.start(state, next);
            if let Err(unsent) = waiter.grant.send(Ok(permit)) {
                unwanted.push(unsent);
            }
        }
        unwanted
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

    /// True if a job of the client waits, in the queue or outside.
    fn waits(&self, client: ClientKey) -> bool {
        let is_waiting = |it: &Client| !it.waiting.is_empty() || !it.outside.is_empty();
        self.clients.get(&client).is_some_and(is_waiting)
    }

    /// Puts a job into the queue.
    fn push(&mut self, client: ClientKey, waiter: Waiter) {
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

    /// For a job that had a place: it is the next one of its client.
    fn push_outside_first(&mut self, client: ClientKey, waiter: Waiter) {
        let entry = self.clients.entry(client).or_default();
        if entry.outside.is_empty() {
            self.turns_outside.push_back(client);
        }
        entry.outside.push_front(waiter);
    }

    /// Subtracts the weight of a job that has left the queue.
    fn subtract(&mut self, client: ClientKey, weight: usize) {
        self.waiting_weight -= weight;
        if let Some(client) = self.clients.get_mut(&client) {
            client.waiting_weight -= weight;
        }
    }

    fn forget_if_idle(&mut self, client: ClientKey) {
        let is_idle = |it: &Client| it.running == 0;
        if self.clients.get(&client).is_some_and(is_idle) && !self.waits(client) {
            self.clients.remove(&client);
        }
    }
}

/// A place in the queue of a client, or outside of it. Dropping it leaves the queue.
struct Place<'a> {
    limit: &'a Arc<ConcurrencyLimit>,
    client: ClientKey,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // Dropped after the lock is released, which their drop needs.
        let unwanted;
        {
            let mut state = self.limit.state();
            let Some(entry) = state.clients.get_mut(&self.client) else { return };
            let number = self.number;
            // A job that was granted or refused has left before.
            let has_left = if let Some(waiter) = remove(&mut entry.waiting, number) {
                if entry.waiting.is_empty() {
                    state.turns.retain(|client| *client != self.client);
                }
                state.subtract(self.client, waiter.weight);
                true
            } else if remove(&mut entry.outside, number).is_some() {
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
            unwanted = self.limit.advance(&mut state);
        }
        drop(unwanted);
    }
}

fn remove(waiting: &mut VecDeque<Waiter>, number: u64) -> Option<Waiter> {
    let place = waiting.iter().position(|waiter| waiter.number == number)?;
    waiting.remove(place)
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
        let mut asked: Acquiring = Box::pin(async move {
            limit.acquire(client(number), weight, deadline, WithoutPlace::Refuse).await
        });
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
        let late =
            limit.acquire(client(POLITE), 1, deadline.into_std(), WithoutPlace::Refuse).await;
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

    fn ask_patiently(limit: &Arc<ConcurrencyLimit>, number: u8, weight: usize) -> Acquiring {
        let limit = Arc::clone(limit);
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut asked: Acquiring = Box::pin(async move {
            limit.acquire(client(number), weight, deadline, WithoutPlace::Wait).await
        });
        assert!(polled(&mut asked).is_none());
        asked
    }

    #[tokio::test]
    async fn a_job_that_is_not_refused_gets_a_place_when_another_leaves_the_queue() {
        let limit = limit(1, 4, 4);
        let running = granted(&mut ask(&limit, NOISY));
        let mut queued = [ask_with(&limit, NOISY, 2), ask_with(&limit, NOISY, 2)];
        let [mut second, mut third] = [0, 1].map(|_| ask_patiently(&limit, NOISY, 4));
        assert_eq!((waiting(&limit), limit.state().waiting_weight), (4, 4));
        // A polite client still finds a place: the newest job in the queue makes room.
        let mut polite = ask(&limit, POLITE);
        assert_eq!(polled(&mut queued[1]).map(drop_permit), Some(Err(NoPermit::Full)));
        drop(running);
        drop(granted(&mut queued[0]));
        drop(granted(&mut polite));
        drop(granted(&mut second));
        drop(granted(&mut third));
        assert!(limit.state().clients.is_empty() && limit.state().turns_outside.is_empty());
        assert_eq!((waiting(&limit), limit.state().waiting_weight), (0, 0));
    }

    #[tokio::test]
    async fn a_job_that_has_to_leave_the_queue_and_is_not_refused_keeps_its_turn() {
        let limit = limit(1, 3, 3);
        let running = granted(&mut ask(&limit, NOISY));
        let mut patient: Vec<_> = (0..4).map(|_| ask_patiently(&limit, NOISY, 1)).collect();
        let mut polite = ask(&limit, POLITE);
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
    async fn a_job_outside_of_the_queue_that_gives_up_leaves_nothing_behind() {
        let limit = limit(1, 1, 1);
        let running = granted(&mut ask(&limit, NOISY));
        let queued = ask(&limit, NOISY);
        let outside = [0, 1].map(|_| ask_patiently(&limit, NOISY, 1));
        let [first, mut last] = outside;
        drop(first);
        // The place in the queue goes to the one that is left.
        drop(queued);
        assert_eq!((waiting(&limit), limit.state().waiting_weight), (1, 1));
        drop(running);
        drop(granted(&mut last));
        assert!(limit.state().clients.is_empty());
    }

    fn drop_permit(outcome: Result<Permit, NoPermit>) -> Result<(), NoPermit> {
        outcome.map(drop)
    }
}
