//! Accounting of the bytes that the router holds for clients: one [`ByteAccount`] for each connection, all of them
//! within one [`ByteBudget`].
//!
//! A response is charged when it is created, and the charge ends when its bytes are freed, in whatever way. When the
//! budget is exceeded, the largest connection of the client with the most bytes is evicted: its account is marked, and
//! the task that serves the connection closes it. So a client that reads nothing takes memory from itself first.
//!
//! Connections that read are spared for as long as possible: above the budget only connections that read nothing for
//! `STALLED_AFTER` are evicted, above twice the budget any connection. When the memory of the whole
//! process is short, connections that read nothing are evicted within the budget, too ([`ByteBudget::shed`]).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use admission::memory::{MemoryAccount, MemoryCharge, MemoryKind};
use bytes::Bytes;
use execute::ClientKey;
use telemetry::Metric;
use tokio::sync::Notify;

/// The minimum number of bytes of an account that is searched and may be evicted: closing smaller connections would
/// free too little. A socket accepts this much at once.
const TRACKED_BYTES_MIN: usize = 16 << 10;

/// The time without progress after which a connection is stalled. A client that reads makes progress within a few round
/// trips.
const STALLED_AFTER: Duration = Duration::from_secs(1);

/// The minimum interval between two searches. A search visits all connections with many bytes, and blocks their
/// accounts meanwhile. A search begins earlier if much was charged since the last one: see [`SEARCHED_PART`].
const SEARCH_INTERVAL: Duration = Duration::from_millis(20);

/// The part of the budget (one in this number) that may be charged above the budget before the next search, regardless
/// of the interval.
const SEARCHED_PART: usize = 32;

/// The minimum size of a charged body. For a shorter one the account would cost as much as the bytes.
pub const CHARGED_BYTES_MIN: usize = 1 << 10;

/// The bytes that all connections may hold together.
#[derive(Debug)]
pub struct ByteBudget {
    held: AtomicUsize,
    max: usize,
    /// The accounts with more than [`TRACKED_BYTES_MIN`] now, or since the last search.
    tracked: Mutex<Vec<Weak<ByteAccount>>>,
    evicted: AtomicU64,
    /// The bytes that were charged above the budget since the last search.
    unsearched: AtomicUsize,
    /// The time when the next search is due regardless of the charged bytes, in milliseconds after `started`.
    next_search: AtomicU64,
    /// The zero of [`ByteAccount::progress`].
    started: Instant,
    /// The memory of the process, which the held bytes are a part of.
    memory: Arc<MemoryAccount>,
}

/// The metrics of the responses that clients have not read yet.
pub const RESPONSE_QUEUE_METRICS: &[Metric<ByteBudget>] = &[
    Metric::gauge(
        "starling_http_response_queue_bytes",
        "Bytes of responses that clients have not read yet (http.response_queue_bytes_total)",
        |it| it.held() as u64,
    ),
    Metric::counter(
        "starling_http_response_queue_evictions",
        "Connections closed because too many bytes of responses were unread",
        ByteBudget::evicted,
    ),
];

/// An account with its bytes at the time of one search ([`ByteBudget::enforce`]).
struct HeldBytes {
    account: Arc<ByteAccount>,
    held: usize,
    is_stalled: bool,
}

impl ByteBudget {
    /// Creates a budget of `max` bytes, in a process with any memory.
    pub fn new(max: usize) -> Arc<Self> {
        Self::within(max, &MemoryAccount::unlimited())
    }

    /// Creates a budget of `max` bytes, which are a part of the memory of the process.
    pub fn within(max: usize, memory: &Arc<MemoryAccount>) -> Arc<Self> {
        Arc::new(Self {
            held: AtomicUsize::new(0),
            max,
            tracked: Mutex::default(),
            evicted: AtomicU64::new(0),
            unsearched: AtomicUsize::new(0),
            next_search: AtomicU64::new(0),
            started: Instant::now(),
            memory: Arc::clone(memory),
        })
    }

    /// The number of bytes that are held now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// The number of connections that were evicted.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Opens the account of one connection of `client`. Above `max` bytes [`ByteAccount::has_room`] is false.
    pub fn open(self: &Arc<Self>, client: ClientKey, max: usize) -> Arc<ByteAccount> {
        Arc::new(ByteAccount {
            budget: Arc::clone(self),
            client,
            max,
            held: AtomicUsize::new(0),
            charges: AtomicUsize::new(0),
            progress: AtomicU64::new(0),
            is_tracked: AtomicBool::new(false),
            is_evicted: AtomicBool::new(false),
            changed: Notify::new(),
            waiting: AtomicUsize::new(0),
            eviction: Notify::new(),
        })
    }

    /// True if a search is due after `bytes` were charged above the budget. The caller must do it.
    fn begin_search(&self, bytes: usize) -> bool {
        let unsearched = self.unsearched.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let now = self.now();
        let next = self.next_search.load(Ordering::Relaxed);
        if now < next && unsearched <= self.max / SEARCHED_PART {
            return false;
        }
        let interval = u64::try_from(SEARCH_INTERVAL.as_millis()).unwrap_or(u64::MAX);
        let after = now.saturating_add(interval);
        let (set, fail) = (Ordering::Relaxed, Ordering::Relaxed);
        // Only one of several threads that see the same state begins the search.
        let begins = self.next_search.compare_exchange(next, after, set, fail).is_ok();
        if begins {
            self.unsearched.store(0, Ordering::Relaxed);
        }
        begins
    }

    /// Evicts connections of clients that do not read until so many bytes are freed. For use when the memory of the
    /// process is short.
    pub fn shed(&self, bytes: usize) {
        let held = self.held();
        if bytes > 0 && held > 0 {
            self.enforce(held.saturating_sub(bytes).min(self.max), usize::MAX);
        }
    }

    /// Evicts connections that read nothing until the remaining accounts hold no more than `max`, and any connections
    /// until they hold no more than `max_of_any`.
    fn enforce(&self, max: usize, max_of_any: usize) {
        let now = self.now();
        let mut staying = Vec::new();
        let mut by_client: HashMap<ClientKey, usize> = HashMap::new();
        let mut total = 0;
        let mut tracked = self.tracked();
        tracked.retain(|account| {
            let Some(account) = account.upgrade() else { return false };
            account.is_tracked.store(false, Ordering::SeqCst);
            let held = account.held();
            if account.is_evicted() || held < TRACKED_BYTES_MIN {
                return false;
            }
            if account.is_tracked.swap(true, Ordering::SeqCst) {
                // A concurrent charge has just tracked it again, and waits for the list.
                return false;
            }
            total += held;
            *by_client.entry(account.client).or_default() += held;
            let stalled_for = now.saturating_sub(account.progress.load(Ordering::Relaxed));
            let is_stalled = u128::from(stalled_for) >= STALLED_AFTER.as_millis();
            staying.push(HeldBytes { account, held, is_stalled });
            true
        });
        drop(tracked);
        while total > max {
            let candidates = staying.iter().enumerate().filter(|(_, held_bytes)| {
                // One response alone may be larger than the budget.
                let is_alone = staying.len() == 1 && held_bytes.account.charges() <= 1;
                held_bytes.is_stalled || (total > max_of_any && !is_alone)
            });
            let weight = |held_bytes: &HeldBytes| {
                let of_client = by_client.get(&held_bytes.account.client).copied();
                (held_bytes.is_stalled, of_client.unwrap_or_default(), held_bytes.held)
            };
            let most = candidates.max_by_key(|(_, held_bytes)| weight(held_bytes));
            let Some((index, _)) = most else { return };
            let HeldBytes { account, held, .. } = staying.swap_remove(index);
            total -= held;
            if let Some(of_client) = by_client.get_mut(&account.client) {
                *of_client -= held;
            }
            account.is_evicted.store(true, Ordering::SeqCst);
            account.eviction.notify_waiters();
            account.changed.notify_waiters();
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Milliseconds since the budget was created.
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Locks the list. No code panics under this lock, so a poisoned lock holds a valid list.
    fn tracked(&self) -> MutexGuard<'_, Vec<Weak<ByteAccount>>> {
        self.tracked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes that are held for one connection.
#[derive(Debug)]
pub struct ByteAccount {
    budget: Arc<ByteBudget>,
    client: ClientKey,
    max: usize,
    held: AtomicUsize,
    charges: AtomicUsize,
    /// The time when the client last read something, or the account was last empty, by the budget's clock.
    progress: AtomicU64,
    is_tracked: AtomicBool,
    is_evicted: AtomicBool,
    /// Notified when bytes are freed, if something waits for that.
    changed: Notify,
    /// The number of callers that wait.
    waiting: AtomicUsize,
    /// Notified once, on eviction.
    eviction: Notify,
}

impl ByteAccount {
    /// The number of bytes that are held now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    fn charges(&self) -> usize {
        self.charges.load(Ordering::Relaxed)
    }

    /// Records that the client reads the data sent to it.
    pub fn note_progress(&self) {
        self.progress.store(self.budget.now(), Ordering::Relaxed);
    }

    /// True if the connection holds no more than its bound, so that more work may begin for it.
    pub fn has_room(&self) -> bool {
        self.held() <= self.max
    }

    /// True if the connection must be closed.
    pub fn is_evicted(&self) -> bool {
        self.is_evicted.load(Ordering::SeqCst)
    }

    /// Waits until the account has room, or is evicted.
    pub async fn room(&self) {
        // Before the check of the bytes, so that a charge that is released after it notices the caller.
        let _waiting = WaitingForRoom::begin(&self.waiting);
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before the check, so that a change between the two is not missed.
            changed.as_mut().enable();
            if self.has_room() || self.is_evicted() {
                return;
            }
            changed.await;
        }
    }

    /// Waits until the connection must be closed.
    pub async fn evicted(&self) {
        let mut eviction = std::pin::pin!(self.eviction.notified());
        eviction.as_mut().enable();
        if !self.is_evicted() {
            eviction.await;
        }
    }

    /// Counts `bytes` as held until the charge is dropped. Never refuses, because the bytes exist already.
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        self.charge_with_memory(bytes, bytes)
    }

    /// Counts `bytes` for the connection, and `memory_bytes` of them as memory of the process.
    fn charge_with_memory(self: &Arc<Self>, bytes: usize, memory_bytes: usize) -> Charge {
        let held = self.held.fetch_add(bytes, Ordering::SeqCst) + bytes;
        if held == bytes {
            self.note_progress();
        }
        self.charges.fetch_add(1, Ordering::Relaxed);
        let total = self.budget.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if held >= TRACKED_BYTES_MIN && !self.is_tracked.swap(true, Ordering::SeqCst) {
            self.budget.tracked().push(Arc::downgrade(self));
        }
        if total > self.budget.max && self.budget.begin_search(bytes) {
            self.budget.enforce(self.budget.max, self.budget.max.saturating_mul(2));
        }
        let memory =
            MemoryCharge::new(&self.budget.memory, MemoryKind::Responses, memory_bytes as u64);
        Charge { account: Arc::clone(self), bytes, memory }
    }

    /// Charges a body until its last slice is dropped. Bodies below [`CHARGED_BYTES_MIN`] are returned without a
    /// charge.
    pub fn charged(self: &Arc<Self>, body: Bytes) -> Bytes {
        if body.len() < CHARGED_BYTES_MIN {
            return body;
        }
        // A body that others hold, too (a cache, other clients), is in memory once, and is measured.
        let memory_bytes = if body.is_unique() { body.len() } else { 0 };
        let charge = self.charge_with_memory(body.len(), memory_bytes);
        Bytes::from_owner(ChargedBytes { body, _charge: charge })
    }
}

/// A caller that waits for room, until this is dropped.
struct WaitingForRoom<'a>(&'a AtomicUsize);

impl<'a> WaitingForRoom<'a> {
    fn begin(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::SeqCst);
        Self(waiting)
    }
}

impl Drop for WaitingForRoom<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Bytes that count as held. Dropping it frees them.
#[derive(Debug)]
pub struct Charge {
    account: Arc<ByteAccount>,
    bytes: usize,
    memory: MemoryCharge,
}

impl Charge {
    /// Frees `bytes` of the charge, at most all of it, because they have left the router.
    pub fn release(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        if bytes == 0 {
            return;
        }
        self.bytes -= bytes;
        self.memory.shrink(bytes as u64);
        // hot path: the next charge of an empty account notes the time.
        if self.account.held() > bytes {
            self.account.note_progress();
        }
        self.account.held.fetch_sub(bytes, Ordering::SeqCst);
        self.account.budget.held.fetch_sub(bytes, Ordering::Relaxed);
        // hot path: a notification takes a lock, and most clients read soon enough that nothing waits.
        if self.account.waiting.load(Ordering::SeqCst) > 0 {
            self.account.changed.notify_waiters();
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.release(self.bytes);
        self.account.charges.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The owner of a charged body.
struct ChargedBytes {
    body: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for ChargedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 10 * TRACKED_BYTES_MIN;

    fn client(last: u8) -> ClientKey {
        ClientKey::of_address([192, 0, 2, last].into())
    }

    #[test]
    fn a_body_counts_until_its_last_slice_is_dropped() {
        let budget = ByteBudget::new(MAX);
        let account = budget.open(client(1), 4 * CHARGED_BYTES_MIN);
        let mut body = account.charged(Bytes::from(vec![0; 5 * CHARGED_BYTES_MIN]));
        let short = account.charged(Bytes::from_static(b"{}"));
        let first = body.split_to(100);
        drop(body);
        let whole = 5 * CHARGED_BYTES_MIN;
        assert_eq!((account.held(), budget.held(), account.has_room()), (whole, whole, false));
        drop((first, short));
        assert_eq!((account.held(), budget.held(), account.has_room()), (0, 0, true));
    }

    #[test]
    fn the_largest_connection_of_the_client_that_holds_most_is_evicted() {
        let budget = ByteBudget::new(MAX);
        let single = budget.open(client(1), MAX);
        let many: Vec<_> = (0..4).map(|_| budget.open(client(2), MAX)).collect();
        // The single connection holds more than each of the others, and less than all of them together.
        let mut charges = vec![single.charge(8 * TRACKED_BYTES_MIN)];
        charges.extend(many[..2].iter().map(|it| it.charge(4 * TRACKED_BYTES_MIN)));
        charges.push(many[2].charge(2 * TRACKED_BYTES_MIN));
        assert_eq!(budget.evicted(), 0, "none is stalled, and it is not yet twice the budget");
        charges.push(many[3].charge(6 * TRACKED_BYTES_MIN));
        let evicted = |it: &Arc<ByteAccount>| it.is_evicted();
        assert_eq!(many.iter().map(evicted).collect::<Vec<_>>(), [false, false, false, true]);
        assert!(!single.is_evicted());
        // The bytes of an evicted connection evict no other.
        charges.push(many[2].charge(1));
        assert_eq!(budget.evicted(), 1);
        drop(charges);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn a_stalled_connection_is_evicted_before_one_that_reads() {
        let budget = Arc::new(ByteBudget {
            held: AtomicUsize::new(0),
            max: MAX,
            tracked: Mutex::default(),
            evicted: AtomicU64::new(0),
            unsearched: AtomicUsize::new(0),
            next_search: AtomicU64::new(0),
            started: Instant::now().checked_sub(2 * STALLED_AFTER).expect("it runs for longer"),
            memory: MemoryAccount::unlimited(),
        });
        let (reading, stalled) = (budget.open(client(1), MAX), budget.open(client(2), MAX));
        let charges = [reading.charge(8 * TRACKED_BYTES_MIN), stalled.charge(TRACKED_BYTES_MIN)];
        stalled.progress.store(0, Ordering::Relaxed);
        let more = reading.charge(2 * TRACKED_BYTES_MIN);
        assert_eq!((reading.is_evicted(), stalled.is_evicted()), (false, true));
        drop((charges, more));
    }

    #[test]
    fn progress_is_what_is_read_of_several_responses_and_the_first_charge_of_an_empty_account() {
        let mut budget = ByteBudget::new(MAX);
        let started = Instant::now().checked_sub(2 * STALLED_AFTER).expect("it runs for longer");
        Arc::get_mut(&mut budget).expect("it is the only one").started = started;
        let account = budget.open(client(1), MAX);
        let has_progress = || account.progress.swap(0, Ordering::Relaxed) > 0;
        let mut first = account.charge(2);
        assert!(has_progress(), "it was empty");
        let second = account.charge(1);
        assert!(!has_progress(), "nothing was read");
        first.release(1);
        assert!(has_progress());
        drop(first);
        assert!(has_progress());
        drop(second);
        let _third = account.charge(1);
        assert!(has_progress(), "it was empty");
    }

    #[test]
    fn connections_that_do_not_read_are_evicted_when_the_memory_of_the_process_is_short() {
        let memory = MemoryAccount::new(1 << 30);
        let mut budget = ByteBudget::within(MAX, &memory);
        let started = Instant::now().checked_sub(2 * STALLED_AFTER).expect("it runs for longer");
        Arc::get_mut(&mut budget).expect("it is the only one").started = started;
        let [reading, small, large] = [1, 2, 3].map(|it| budget.open(client(it), MAX));
        let charges = [
            reading.charge(4 * TRACKED_BYTES_MIN),
            small.charge(TRACKED_BYTES_MIN),
            large.charge(2 * TRACKED_BYTES_MIN),
        ];
        let held = 7 * TRACKED_BYTES_MIN;
        assert_eq!(memory.held(MemoryKind::Responses), held as u64);
        for account in [&small, &large] {
            account.progress.store(0, Ordering::Relaxed);
        }
        budget.shed(0);
        assert_eq!(budget.evicted(), 0);
        budget.shed(TRACKED_BYTES_MIN);
        let evicted = || [&reading, &small, &large].map(|it| it.is_evicted());
        assert_eq!(evicted(), [false, false, true], "the largest of those that do not read");
        budget.shed(MAX);
        assert_eq!(evicted(), [false, true, true], "the client that reads is spared");
        drop(charges);
        assert_eq!(memory.held(MemoryKind::Responses), 0);
    }

    #[test]
    fn one_response_alone_may_be_larger_than_the_budget() {
        let budget = ByteBudget::new(MAX);
        let account = budget.open(client(1), MAX);
        let first = account.charge(3 * MAX);
        assert!(!account.is_evicted());
        let second = account.charge(MAX);
        assert!(account.is_evicted());
        drop((first, second));
    }

    #[test]
    fn many_small_charges_above_the_budget_cause_few_searches() {
        const CHARGES: usize = 10_000;
        let budget = ByteBudget::new(MAX);
        let started = Instant::now();
        let begun = (0..CHARGES).filter(|_| budget.begin_search(1)).count();
        let by_time = started.elapsed().as_millis() / SEARCH_INTERVAL.as_millis() + 1;
        let by_bytes = CHARGES / (MAX / SEARCHED_PART);
        assert!(begun > by_bytes, "{begun}");
        assert!(begun as u128 <= by_time + by_bytes as u128, "{begun}");
        assert!(budget.begin_search(MAX), "much was charged at once");
    }

    #[tokio::test]
    async fn work_waits_until_bytes_are_read_or_the_connection_is_evicted() {
        let budget = ByteBudget::new(MAX);
        let account = budget.open(client(1), CHARGED_BYTES_MIN);
        account.room().await;
        let mut charge = account.charge(3 * CHARGED_BYTES_MIN);
        let waiting = account.room();
        let reading = async {
            charge.release(CHARGED_BYTES_MIN);
            tokio::task::yield_now().await;
            assert!(!account.has_room());
            charge.release(CHARGED_BYTES_MIN);
        };
        tokio::join!(waiting, reading);
        assert!(account.has_room());
        let overflow = async {
            tokio::task::yield_now().await;
            drop([account.charge(2 * MAX), account.charge(MAX)]);
        };
        tokio::join!(account.evicted(), overflow);
        account.evicted().await;
    }
}
