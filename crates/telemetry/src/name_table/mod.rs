//! A table of counters by name, for names that clients choose: the names that are used most have a row each, all
//! others share one.
//!
//! # Which names get a row
//! While there is room, every new name gets a row. In a full table, the uses of other names are estimated
//! (`use_sketch`), and a name gets the row of the least used one when it has been used more often lately. So the names
//! that come first do not keep their rows for ever, a name that was made up for one request never takes the row of one
//! that is used, and there is nothing to configure. Uses count less with time ([`HALF_LIFE`]).
//!
//! A row of its own begins at zero, and the counts of a row that is given up move to the shared row. No counter of a
//! name ever includes uses of another name, none decreases, and the sum over all rows is that of all uses.
//!
//! # Cost
//! A name with a row costs a hash and two look-ups in a snapshot of the table, without locks and allocations. A name
//! without one costs four more atomic operations. The lock is taken to add or replace a row, at most once in
//! [`REPLACEMENT_INTERVAL`] once the table is full.

mod use_sketch;

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use self::use_sketch::UseSketch;
use crate::metric::{Metric, read};

/// The time after which a use counts half.
pub const HALF_LIFE: Duration = Duration::from_mins(10);

/// The shortest time between two replacements of rows. One costs some ten microseconds for a table of 500 rows, so all
/// replacements together take less than one percent of one CPU.
pub const REPLACEMENT_INTERVAL: Duration = Duration::from_millis(5);

/// The number of uses by which a name must exceed the least used row to replace it, so that names that are used equally
/// often do not take turns.
const MARGIN: u64 = 2;

/// The maximum number of replaced rows that threads still write to. With more nothing is replaced.
const RETIRED_MAX: usize = 64;

/// The counters of one row.
pub trait NamedCounters: Default + Send + Sync {
    /// Returns the number of uses that were counted.
    fn uses(&self) -> u64;

    /// Adds all counts of another row.
    fn add_all(&self, other: &Self);
}

/// The identity of a name in one table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NameKey(u64);

impl NameKey {
    /// The key of the row that all other names share.
    pub const OTHER: Self = Self(0);

    /// Returns the number of the key, for tables of other things; zero for [`NameKey::OTHER`].
    pub fn number(self) -> u64 {
        self.0
    }

    /// Returns the key with that number.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// A table with labels `L` and counters `C`.
pub struct NameTable<L, C> {
    rows_max: usize,
    /// Randomly seeded: clients cannot find names with equal hashes.
    hasher: foldhash::quality::RandomState,
    rows: ArcSwap<RowMap<L, C>>,
    other: C,
    /// Made when the table is full for the first time.
    sketch: OnceLock<UseSketch>,
    /// The rows that were replaced, while threads may write to them. Held while rows are added or replaced.
    retired: Mutex<Vec<Arc<NameRow<L, C>>>>,
    /// No row has fewer recent uses.
    least_uses: AtomicU64,
    /// The milliseconds after `started` at which uses are halved, and from which a row may be replaced.
    next_ageing: AtomicU64,
    next_replacement: AtomicU64,
    started: Instant,
    replaced: AtomicU64,
    /// The number of the next row. Changed under the lock only.
    next_row: AtomicU64,
}

/// The rows by the hash of their name.
type RowMap<L, C> = HashMap<u64, Arc<NameRow<L, C>>, KeyHasher>;

/// One row.
#[derive(Debug)]
pub struct NameRow<L, C> {
    /// The number of the row, which no other one of the table ever has, not even a later one of the same name.
    pub number: u64,
    /// The labels of the row in the metrics.
    pub label: L,
    /// The counters.
    pub counters: C,
    /// The number of recent uses is `credit + (uses - uses_before)`. Both are written under the lock only.
    credit: AtomicU64,
    uses_before: AtomicU64,
}

/// All counters of a table at one time.
#[derive(Debug)]
pub struct TableReading<L, C> {
    /// The rows of names that have one, in no order.
    pub rows: Vec<Arc<NameRow<L, C>>>,
    /// A copy of the counters that all other names share.
    pub other: C,
}

impl<L, C: NamedCounters> NameTable<L, C> {
    /// Creates a table with at most `rows_max` rows of their own, at least one.
    pub fn new(rows_max: usize, now: Instant) -> Self {
        Self {
            rows_max: rows_max.max(1),
            hasher: foldhash::quality::RandomState::default(),
            rows: ArcSwap::default(),
            other: C::default(),
            sketch: OnceLock::new(),
            retired: Mutex::default(),
            least_uses: AtomicU64::new(0),
            next_ageing: AtomicU64::new(millis(HALF_LIFE)),
            next_replacement: AtomicU64::new(0),
            started: now,
            replaced: AtomicU64::new(0),
            next_row: AtomicU64::new(0),
        }
    }

    /// Returns the key of a name that is used now, which may get a row for it. `label` makes the label of a new row.
    /// Equal labels must have equal names.
    // hot path: less than 100 ns for a name with a row
    pub fn admit(&self, name: impl Hash, now: Instant, label: impl FnOnce() -> L) -> NameKey {
        // Zero is the key of the shared row.
        let key = self.hasher.hash_one(name).max(1);
        let count = {
            let rows = self.rows.load();
            if rows.contains_key(&key) {
                return NameKey(key);
            }
            rows.len()
        };
        if count < self.rows_max {
            let retired = self.lock();
            let rows = self.rows.load_full();
            // Another thread may have added it meanwhile.
            if rows.contains_key(&key) {
                return NameKey(key);
            }
            if rows.len() < self.rows_max {
                self.insert(key, label(), 0, None);
                return NameKey(key);
            }
            drop(retired);
        }
        self.count_without_row(key, now, label);
        NameKey(key)
    }

    /// Calls `count` with the counters of a name, or with those that other names share.
    // hot path: less than 50 ns besides `count`
    pub fn count(&self, key: NameKey, count: impl FnOnce(&C)) {
        let rows = self.rows.load();
        count(rows.get(&key.0).map_or(&self.other, |row| &row.counters));
    }

    /// Returns the row of a name, if it has one.
    pub fn row(&self, key: NameKey) -> Option<Arc<NameRow<L, C>>> {
        self.rows.load().get(&key.0).cloned()
    }

    /// Reads all counters. A row that is replaced is either among the rows or part of the shared counters, never both
    /// and never neither.
    pub fn read_rows(&self) -> TableReading<L, C> {
        let mut retired = self.lock();
        self.collect_retired(&mut retired);
        let other = C::default();
        other.add_all(&self.other);
        retired.iter().for_each(|row| other.add_all(&row.counters));
        // Rows that are replaced from now on stay as they are for the reading.
        TableReading { rows: self.rows.load().values().cloned().collect(), other }
    }

    /// Counts a use of a name without a row. If it is used more than the least used row, it gets that.
    fn count_without_row(&self, key: u64, now: Instant, label: impl FnOnce() -> L) {
        let sketch = self.sketch.get_or_init(|| UseSketch::new(self.rows_max));
        let uses = sketch.count(key);
        let now = millis(now.saturating_duration_since(self.started));
        let is_ageing_due = now >= self.next_ageing.load(Ordering::Relaxed);
        let may_replace = now >= self.next_replacement.load(Ordering::Relaxed)
            && uses > self.least_uses.load(Ordering::Relaxed) + MARGIN;
        if !is_ageing_due && !may_replace {
            return;
        }
        let mut retired = match self.retired.try_lock() {
            Ok(retired) => retired,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            // Another thread does the same.
            Err(TryLockError::WouldBlock) => return,
        };
        if is_ageing_due {
            self.age(sketch, now);
        }
        self.collect_retired(&mut retired);
        let rows = self.rows.load_full();
        let least = rows.iter().map(|(key, row)| (row.recent_uses(), *key)).min();
        let Some((least_uses, least_key)) = least else { return };
        self.least_uses.store(least_uses, Ordering::Relaxed);
        let uses = sketch.estimate(key);
        let is_more = uses > least_uses + MARGIN && !rows.contains_key(&key);
        drop(rows);
        if !may_replace || !is_more || retired.len() >= RETIRED_MAX {
            return;
        }
        self.next_replacement.store(now + millis(REPLACEMENT_INTERVAL), Ordering::Relaxed);
        // The name that loses its row can win another one by its further uses.
        sketch.raise(least_key, least_uses);
        if let Some(row) = self.insert(key, label(), uses, Some(least_key)) {
            retired.push(row);
            self.replaced.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds a row in place of that of `replaced`, which is returned. The lock must be held.
    fn insert(
        &self,
        key: u64,
        label: L,
        credit: u64,
        replaced: Option<u64>,
    ) -> Option<Arc<NameRow<L, C>>> {
        let (credit, uses_before) = (AtomicU64::new(credit), AtomicU64::new(0));
        let number = self.next_row.fetch_add(1, Ordering::Relaxed);
        let row = Arc::new(NameRow { number, label, counters: C::default(), credit, uses_before });
        let mut rows = RowMap::clone(&self.rows.load());
        let removed = replaced.and_then(|key| rows.remove(&key));
        rows.insert(key, row);
        self.rows.store(Arc::new(rows));
        removed
    }

    /// Moves the counts of replaced rows to the shared row, once no thread writes to them any more.
    fn collect_retired(&self, retired: &mut Vec<Arc<NameRow<L, C>>>) {
        for row in std::mem::take(retired) {
            match Arc::try_unwrap(row) {
                Ok(row) => self.other.add_all(&row.counters),
                Err(row) => retired.push(row),
            }
        }
    }

    /// Halves all uses, once for each half-life that has passed. The lock must be held.
    ///
    /// Uses are aged only when a name without a row comes, which may be days after the last time. The uses of a row
    /// since then count as if they were spread evenly: a row in use keeps those of about one half-life.
    fn age(&self, sketch: &UseSketch, now: u64) {
        let due = self.next_ageing.load(Ordering::Relaxed);
        if now < due {
            // Another thread has done it.
            return;
        }
        let passed = now.saturating_sub(due) / millis(HALF_LIFE) + 1;
        self.next_ageing.store(due + passed * millis(HALF_LIFE), Ordering::Relaxed);
        // After that many halvings nothing is left.
        let halvings = u32::try_from(passed).unwrap_or(u32::MAX).min(63);
        (0..halvings.min(32)).for_each(|_| sketch.halve());
        for row in self.rows.load().values() {
            let uses = row.counters.uses();
            let before = row.uses_before.swap(uses, Ordering::Relaxed);
            let each = uses.saturating_sub(before) / passed;
            // Of the uses in each of these half-lives, 1/2 + 1/4 + … remain.
            let remaining = each - (each >> halvings);
            let credit = row.credit.load(Ordering::Relaxed) >> halvings;
            row.credit.store(credit + remaining, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<NameRow<L, C>>>> {
        // Each change is one step, so the state behind a poisoned lock is sound.
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L, C: NamedCounters> NameRow<L, C> {
    fn recent_uses(&self) -> u64 {
        let (credit, before) =
            (self.credit.load(Ordering::Relaxed), self.uses_before.load(Ordering::Relaxed));
        credit + self.counters.uses().saturating_sub(before)
    }
}

impl<L, C> fmt::Debug for NameTable<L, C> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows.load().len();
        out.debug_struct("NameTable").field("rows", &rows).finish_non_exhaustive()
    }
}

/// The fill of a table, which does not depend on what it counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameTableFill {
    /// The number of rows.
    pub rows: u64,
    /// The maximum number of rows.
    pub rows_max: u64,
    /// The number of rows that were given to another name.
    pub replaced: u64,
}

impl<L, C> NameTable<L, C> {
    /// Returns the fill, for [`NAME_TABLE_METRICS`].
    pub fn fill(&self) -> NameTableFill {
        NameTableFill {
            rows: self.rows.load().len() as u64,
            rows_max: self.rows_max as u64,
            replaced: read(&self.replaced),
        }
    }
}

/// The metrics of a table. The label that names the table is added by the caller.
pub const NAME_TABLE_METRICS: &[Metric<NameTableFill>] = &[
    Metric::gauge(
        "starling_metrics_names",
        "Names of operations and clients that have metrics of their own",
        |it| it.rows,
    ),
    Metric::gauge(
        "starling_metrics_names_max",
        "The maximum of names that have metrics of their own; all others are counted as `other`",
        |it| it.rows_max,
    ),
    Metric::counter(
        "starling_metrics_names_replaced",
        "Times that a name got the place of one that was used less",
        |it| it.replaced,
    ),
];

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Takes keys as they are: they are hashes.
#[derive(Clone, Copy, Debug, Default)]
struct KeyHasher;

/// The state of [`KeyHasher`].
#[derive(Debug, Default)]
struct KeyState(u64);

impl BuildHasher for KeyHasher {
    type Hasher = KeyState;

    fn build_hasher(&self) -> KeyState {
        KeyState::default()
    }
}

impl Hasher for KeyState {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Debug, Default)]
    struct Uses(AtomicU64);

    impl NamedCounters for Uses {
        fn uses(&self) -> u64 {
            read(&self.0)
        }

        fn add_all(&self, other: &Self) {
            self.0.fetch_add(other.uses(), Ordering::Relaxed);
        }
    }

    type Table = NameTable<u32, Uses>;

    fn use_name(table: &Table, name: u32, now: Instant) {
        let key = table.admit(name, now, || name);
        table.count(key, |uses| {
            uses.0.fetch_add(1, Ordering::Relaxed);
        });
    }

    /// The uses of each name with a row.
    fn uses(table: &Table) -> BTreeMap<u32, u64> {
        table.read_rows().rows.iter().map(|row| (row.label, row.counters.uses())).collect()
    }

    fn total(table: &Table) -> u64 {
        let reading = table.read_rows();
        reading.rows.iter().map(|row| row.counters.uses()).sum::<u64>() + reading.other.uses()
    }

    #[test]
    fn names_have_rows_of_their_own_while_there_is_room() {
        let now = Instant::now();
        let table = Table::new(3, now);
        for name in [1, 2, 1, 3, 4, 1] {
            use_name(&table, name, now);
        }
        assert_eq!(uses(&table), BTreeMap::from([(1, 3), (2, 1), (3, 1)]));
        assert_eq!(table.read_rows().other.uses(), 1);
        assert_eq!(table.fill(), NameTableFill { rows: 3, rows_max: 3, replaced: 0 });
    }

    #[test]
    fn the_shared_row_has_a_key_of_its_own() {
        let table = Table::new(3, Instant::now());
        table.count(NameKey::OTHER, |uses| {
            uses.0.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!((uses(&table).len(), table.read_rows().other.uses()), (0, 1));
    }

    #[test]
    fn a_name_that_is_used_more_gets_the_row_of_the_least_used_one() {
        let start = Instant::now();
        let table = Table::new(2, start);
        for name in [1, 1, 1, 2] {
            use_name(&table, name, start);
        }
        for _ in 0..5 {
            use_name(&table, 3, start);
        }
        // The fourth use was one more than the margin allows to ignore: it and the fifth are counted in the new row.
        assert_eq!(uses(&table), BTreeMap::from([(1, 3), (3, 2)]));
        assert_eq!(
            table.read_rows().other.uses(),
            3 + 1,
            "earlier uses, and those of the replaced row"
        );
        assert_eq!(table.fill().replaced, 1);
    }

    #[test]
    fn rows_are_replaced_one_after_the_other() {
        let start = Instant::now();
        let table = Table::new(2, start);
        (1..=2).for_each(|name| use_name(&table, name, start));
        let attempt = |names: std::ops::Range<u32>, now| {
            names.for_each(|name| (0..9).for_each(|_| use_name(&table, name, now)));
        };
        attempt(10..12, start);
        assert_eq!(table.fill().replaced, 1);
        attempt(11..12, start + REPLACEMENT_INTERVAL);
        assert_eq!(uses(&table).into_keys().collect::<Vec<_>>(), [10, 11]);
    }

    #[test]
    fn a_name_that_is_no_longer_used_loses_its_row() {
        let start = Instant::now();
        let table = Table::new(1, start);
        (0..1_000).for_each(|_| use_name(&table, 1, start));
        (1..=8).for_each(|passed| use_name(&table, 2, start + passed * HALF_LIFE));
        let later = start + 8 * HALF_LIFE;
        (0..3).for_each(|_| use_name(&table, 2, later));
        assert_eq!(uses(&table).into_keys().collect::<Vec<_>>(), [1], "1,000 have become 3");
        (0..6).for_each(|_| use_name(&table, 2, later));
        assert_eq!(uses(&table).into_keys().collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_name_in_use_keeps_its_row_after_days_without_another_name() {
        let start = Instant::now();
        let table = Table::new(1, start);
        // Four days, ten uses in each half-life.
        (0..5_760).for_each(|_| use_name(&table, 1, start));
        let later = start + 576 * HALF_LIFE;
        (0..9).for_each(|_| use_name(&table, 2, later));
        assert_eq!(uses(&table).into_keys().collect::<Vec<_>>(), [1]);
    }

    /// Frequent names are kept, whatever order they come in among names that are used once.
    #[test]
    fn frequent_names_have_rows_whatever_the_order() {
        const ROWS: u32 = 32;
        const MADE_UP: u32 = 20_000;
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let frequent: Vec<u32> = (0..ROWS / 2).collect();
            let mut stream: Vec<u32> = (1_000..1_000 + MADE_UP).collect();
            for name in &frequent {
                stream.extend(std::iter::repeat_n(*name, random.usize(200..400)));
            }
            match seed % 4 {
                // Frequent names first, last, in bursts at any time, or evenly.
                0 => stream.sort_unstable(),
                1 => stream.sort_unstable_by(|a, b| b.cmp(a)),
                2 => {
                    let shift = random.usize(..stream.len());
                    stream.rotate_left(shift);
                }
                _ => random.shuffle(&mut stream),
            }
            let start = Instant::now();
            let table = Table::new(ROWS as usize, start);
            for (number, name) in (0_u32..).zip(&stream) {
                use_name(&table, *name, start + number * Duration::from_millis(10));
            }
            let kept = uses(&table);
            let lost: Vec<_> = frequent.iter().filter(|it| !kept.contains_key(it)).collect();
            assert!(lost.is_empty(), "seed {seed}: {lost:?}, {:?}", table.fill());
            assert_eq!(kept.len(), ROWS as usize, "seed {seed}");
            assert_eq!(total(&table), stream.len() as u64, "seed {seed}");
        }
    }

    #[test]
    fn made_up_names_do_not_take_the_rows_of_names_in_use() {
        let start = Instant::now();
        let table = Table::new(10, start);
        // The made-up names come first, and continue to come.
        for number in 0..100_000_u32 {
            let now = start + number * Duration::from_millis(1);
            use_name(&table, 1_000 + number, now);
            if number % 200 == 0 {
                (0..5).for_each(|name| use_name(&table, name, now));
            }
        }
        let kept = uses(&table);
        assert!((0..5).all(|name| kept.contains_key(&name)), "{kept:?}");
        assert!(table.fill().replaced < 100, "{:?}", table.fill());
        assert_eq!(total(&table), 102_500);
    }

    #[test]
    fn a_row_that_threads_still_write_to_is_part_of_the_shared_counters() {
        let start = Instant::now();
        let table = Table::new(1, start);
        use_name(&table, 1, start);
        let first = table.read_rows();
        (0..6).for_each(|_| use_name(&table, 2, start));
        let second = table.read_rows();
        assert_eq!(second.rows[0].label, 2);
        // A thread does so that has found the row before it was replaced.
        first.rows[0].counters.0.fetch_add(1, Ordering::Relaxed);
        assert_eq!((total(&table), second.other.uses()), (8, 3 + 1), "a reading does not change");
        drop(first);
        assert_eq!(total(&table), 8);
    }

    #[test]
    fn a_name_that_gets_another_row_has_another_number() {
        let start = Instant::now();
        let table = Table::new(1, start);
        let mut numbers = Vec::new();
        for (round, name) in (0..).zip([1, 2, 1]) {
            let now = start + round * 20 * HALF_LIFE;
            (0..9).for_each(|_| use_name(&table, name, now));
            let rows = table.read_rows().rows;
            numbers.push((rows[0].label, rows[0].number));
        }
        assert_eq!(numbers, [(1, 0), (2, 1), (1, 2)]);
    }

    #[test]
    fn no_use_is_lost_while_rows_are_replaced() {
        let start = Instant::now();
        let table = Table::new(4, start);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let table = &table;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(thread);
                    for number in 0..20_000_u32 {
                        // The most used names change with each half-life.
                        let now = start + number * (HALF_LIFE / 500);
                        use_name(table, number / 500 + random.u32(..4), now);
                    }
                });
            }
        });
        assert!(table.fill().replaced > 10, "{:?}", table.fill());
        assert_eq!(total(&table), 80_000);
    }
}
