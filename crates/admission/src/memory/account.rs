//! The counters of the memory budget, and the decisions that depend on them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::kind::MemoryKind;
use super::{MemoryUsedUp, OPERATION_BYTES};

/// The part of the budget (one in this number) that work may always use.
const WORK_PART_MIN: u64 = 8;

/// The part of the memory for work (one in this number) that only new operations may use.
const OPERATIONS_PART: u64 = 4;

/// The part of the budget (all but one in this number) above which events that wait for slow clients are dropped.
const SHED_PART: u64 = 8;

/// The part of the memory for work (one in this number) above which clients that do not read are disconnected. It is
/// less than what large bodies and responses may use, so that these are not refused because of such clients.
const STALLED_PART: u64 = 2;

/// The part of the last difference (one in this number) by which uncounted memory falls with each measurement. It rises
/// at once: memory that is taken and counted between two measurements may be missing in one of them.
const FALL_PART: u64 = 2;

/// The part of the budget (one in this number) that the resident memory must leave free for a large body or response:
/// small pieces of memory are taken without asking.
const FREE_PART: u64 = 8;

/// The part of the budget (one in this number) that must have been freed before free memory is returned to the system
/// because something does not fit.
const RETURNED_PART: u64 = 32;

/// The number of measurements of a shortage for which the longest pause of refused clients grows by a second.
const MEASUREMENTS_PER_SECOND: u64 = 10;

/// The longest time after which a refused client should return.
const RETRY_AFTER_SECONDS_MAX: u64 = 30;

/// The number of measurements of a shortage after which the pause grows no more: 30 s. A client that waits longer does
/// not learn that the shortage is over.
const SHORTAGE_MAX: u64 = 30 * MEASUREMENTS_PER_SECOND;

/// Reads the resident memory of the process in bytes; `None` if the system does not tell. With `true`, the allocator
/// first returns the free memory that it keeps to the system, which takes some milliseconds.
pub type Meter = fn(bool) -> Option<u64>;

/// The memory of the process within its budget, see the module. Share it by `Arc`. All methods are lock-free, except
/// while the resident memory is read because something might not fit.
#[derive(Debug)]
pub struct MemoryAccount {
    /// The budget; `None` if nothing is counted.
    budget: Option<u64>,
    held: [AtomicU64; MemoryKind::ALL.len()],
    /// The held bytes that are not taken yet.
    promised: AtomicU64,
    /// Reads the resident memory of the process, if that is possible at any time.
    meter: Option<Meter>,
    /// The bytes that were released since the start, and their number when free memory was last returned. Held while the
    /// meter reads: two readings at the same time would forget what each other's caller is about to take.
    freed: AtomicU64,
    reading: Mutex<u64>,
    /// The resident memory at the last measurement.
    resident: AtomicU64,
    /// The bytes of large bodies and responses that were counted since then. Those that were released since then are
    /// not subtracted, because the allocator has not returned them to the system yet.
    added: AtomicU64,
    /// The resident memory that is not counted, as of the last measurements.
    uncounted: AtomicU64,
    refused: [AtomicU64; MemoryKind::ALL.len()],
    /// The number of refusals at the last measurement.
    refused_before: AtomicU64,
    /// The number of measurements with refusals of late.
    shortage: AtomicU64,
}

impl MemoryAccount {
    /// Creates the account of a process with a budget in bytes.
    pub fn new(budget: u64) -> Arc<Self> {
        Self::of(Some(budget), None)
    }

    /// Creates the account of a process with a budget in bytes; `meter` reads its resident memory.
    pub fn measured_by(meter: Meter, budget: u64) -> Arc<Self> {
        Self::of(Some(budget), Some(meter))
    }

    /// Creates an account that counts and refuses nothing.
    pub fn unlimited() -> Arc<Self> {
        Self::of(None, None)
    }

    fn of(budget: Option<u64>, meter: Option<Meter>) -> Arc<Self> {
        Arc::new(Self {
            budget,
            held: Default::default(),
            promised: AtomicU64::new(0),
            meter,
            freed: AtomicU64::new(0),
            reading: Mutex::new(0),
            resident: AtomicU64::new(0),
            added: AtomicU64::new(0),
            uncounted: AtomicU64::new(0),
            refused: Default::default(),
            refused_before: AtomicU64::new(0),
            shortage: AtomicU64::new(0),
        })
    }

    /// Returns the budget in bytes; `None` if there is none.
    pub fn budget(&self) -> Option<u64> {
        self.budget
    }

    /// Returns the bytes of one kind that are held.
    pub fn held(&self, kind: MemoryKind) -> u64 {
        self.held[kind.index()].load(Ordering::Relaxed)
    }

    /// Returns the bytes of all kinds that are held.
    pub fn held_total(&self) -> u64 {
        self.held.iter().map(|it| it.load(Ordering::Relaxed)).fold(0, u64::saturating_add)
    }

    /// Returns the resident memory that is not counted.
    pub fn uncounted(&self) -> u64 {
        self.uncounted.load(Ordering::Relaxed)
    }

    /// Returns the resident memory at the last measurement.
    pub fn resident(&self) -> u64 {
        self.resident.load(Ordering::Relaxed)
    }

    /// Returns the memory of the process, as of the last measurement and the work counted since.
    pub fn used(&self) -> u64 {
        self.uncounted().saturating_add(self.held_total())
    }

    /// Returns the number of times that memory of this kind was refused.
    pub fn refused(&self, kind: MemoryKind) -> u64 {
        self.refused[kind.index()].load(Ordering::Relaxed)
    }

    /// Returns the bytes that all counted work may hold; `u64::MAX` without a budget.
    pub fn for_work(&self) -> u64 {
        let Some(budget) = self.budget else { return u64::MAX };
        budget.saturating_sub(self.uncounted()).max(budget / WORK_PART_MIN)
    }

    /// Returns the bytes that all counted work may hold after memory of this kind was added.
    fn bound(&self, kind: MemoryKind) -> u64 {
        let for_work = self.for_work();
        match kind {
            MemoryKind::Operations => for_work,
            _ => for_work - for_work / OPERATIONS_PART,
        }
    }

    /// Returns the bytes that one more large body or response may take.
    pub fn room(&self) -> u64 {
        self.bound(MemoryKind::SubgraphResponses).saturating_sub(self.held_total())
    }

    /// True if the memory for work is nearly used up: large bodies and responses are refused.
    pub fn is_short(&self) -> bool {
        self.budget.is_some() && self.room() < OPERATION_BYTES
    }

    /// Returns the bytes that the process should release, because its budget is nearly used up.
    pub fn excess(&self) -> u64 {
        let Some(budget) = self.budget else { return 0 };
        self.used().saturating_sub(budget - budget / SHED_PART)
    }

    /// Returns the bytes that clients that do not read should release, so that others do not need to be refused.
    pub fn excess_of_work(&self) -> u64 {
        if self.budget.is_none() {
            return 0;
        }
        self.held_total().saturating_sub(self.for_work() / STALLED_PART)
    }

    /// Checks that a body of this size would fit, without counting it: its sender may never send it.
    ///
    /// # Errors
    /// It would not fit. The refusal is counted.
    pub fn check_room(&self, kind: MemoryKind, bytes: u64) -> Result<(), MemoryUsedUp> {
        if self.budget.is_none() || bytes <= self.room() {
            return Ok(());
        }
        self.count_refused(kind);
        Err(MemoryUsedUp)
    }

    /// Returns the part of this resident memory that is not counted now.
    pub fn uncounted_of(&self, resident: u64) -> u64 {
        let promised = self.promised.load(Ordering::Relaxed);
        let taken = self.held_total().saturating_sub(promised);
        resident.saturating_sub(taken)
    }

    /// Records the resident memory of the process. The caller does this ten times a second while memory is short.
    /// Returns true if memory was refused since the last call.
    pub fn measure(&self, resident: u64) -> bool {
        self.resident.store(resident, Ordering::Relaxed);
        self.added.store(0, Ordering::Relaxed);
        let measured = self.uncounted_of(resident);
        let before = self.uncounted();
        let fallen = before - before.saturating_sub(measured).div_ceil(FALL_PART);
        self.uncounted.store(measured.max(fallen), Ordering::Relaxed);
        let refused = self.refused.iter().map(|it| it.load(Ordering::Relaxed)).sum();
        let is_short = self.refused_before.swap(refused, Ordering::Relaxed) != refused;
        let shortage = self.shortage.load(Ordering::Relaxed);
        let shortage = match is_short {
            true => (shortage + 1).min(SHORTAGE_MAX),
            false => shortage.saturating_sub(1 + shortage / 8),
        };
        self.shortage.store(shortage, Ordering::Relaxed);
        is_short
    }

    /// Returns the whole seconds after which a refused client should return: a random number that grows with the
    /// length of the shortage, so that clients come back spread out, and 30 at most. `random` is any random number.
    pub fn retry_after_seconds(&self, random: u64) -> u64 {
        let spread = 2 + self.shortage.load(Ordering::Relaxed) / MEASUREMENTS_PER_SECOND;
        1 + random % spread.min(RETRY_AFTER_SECONDS_MAX)
    }

    /// Counts a refusal of memory of this kind.
    pub fn count_refused(&self, kind: MemoryKind) {
        self.refused[kind.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Adds bytes that are about to be taken, if they fit.
    pub(super) fn try_add(&self, kind: MemoryKind, bytes: u64) -> Result<(), MemoryUsedUp> {
        if bytes == 0 {
            return Ok(());
        }
        // Added first, so that concurrent calls never exceed the bound together.
        self.add(kind, bytes);
        if self.held_total() <= self.bound(kind) && self.fits_resident(kind, bytes) {
            return Ok(());
        }
        self.remove(kind, bytes);
        self.count_refused(kind);
        Err(MemoryUsedUp)
    }

    /// Adds bytes that are taken later, if they fit.
    pub(super) fn try_add_promised(
        &self,
        kind: MemoryKind,
        bytes: u64,
    ) -> Result<(), MemoryUsedUp> {
        self.held[kind.index()].fetch_add(bytes, Ordering::Relaxed);
        self.promised.fetch_add(bytes, Ordering::Relaxed);
        if self.held_total() <= self.bound(kind) && self.fits_resident(kind, 0) {
            return Ok(());
        }
        self.promised.fetch_sub(bytes, Ordering::Relaxed);
        self.remove(kind, bytes);
        self.count_refused(kind);
        Err(MemoryUsedUp)
    }

    /// True if the resident memory stays within the budget with what was added and promised. `not_taken` bytes of what was
    /// added are not taken yet. Measures it again if it
    /// may have grown too much since the last measurement: bodies that others release and take reuse the same memory.
    fn fits_resident(&self, kind: MemoryKind, not_taken: u64) -> bool {
        let Some(budget) = self.budget else { return true };
        if kind == MemoryKind::Operations {
            return true;
        }
        let fits = || {
            let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            let expected = read(&self.resident)
                .saturating_add(read(&self.added))
                .saturating_add(read(&self.promised));
            expected <= budget - budget / FREE_PART
        };
        if fits() {
            return true;
        }
        let Some(meter) = self.meter else { return self.needs_most_itself(budget) };
        let mut freed_before = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        // Most of the time nothing is short: what was added has been released since.
        for has_released in [false, true] {
            if has_released {
                // Returning memory takes milliseconds, in which other requests wait. With little that was freed since
                // the last time, there is little to return.
                let freed = self.freed.load(Ordering::Relaxed);
                if freed - *freed_before < budget / RETURNED_PART {
                    break;
                }
                *freed_before = freed;
            }
            let added = self.added.load(Ordering::Relaxed);
            let Some(resident) = meter(has_released) else {
                // The system does not tell. Then only the counted memory is bounded.
                self.added.store(0, Ordering::Relaxed);
                return true;
            };
            self.replace_added(added, not_taken);
            self.resident.store(resident, Ordering::Relaxed);
            if fits() {
                return true;
            }
        }
        self.needs_most_itself(budget)
    }

    /// True if the process needs most of the budget for other than counted work, as of the last reading, and little is
    /// counted: then some work is admitted all the same.
    fn needs_most_itself(&self, budget: u64) -> bool {
        self.uncounted_of(self.resident()) > budget - budget / OPERATIONS_PART
            && self.held_total() <= budget / WORK_PART_MIN
    }

    /// Forgets bytes that were added before the resident memory was read, except those that are not taken yet.
    fn replace_added(&self, before: u64, not_taken: u64) {
        let replaced = |added: u64| Some(added.saturating_sub(before).saturating_add(not_taken));
        // The function always returns a value, so that this does not fail.
        let _ = self.added.fetch_update(Ordering::Relaxed, Ordering::Relaxed, replaced);
    }

    pub(super) fn add(&self, kind: MemoryKind, bytes: u64) {
        self.held[kind.index()].fetch_add(bytes, Ordering::Relaxed);
        if kind != MemoryKind::Operations {
            self.added.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Subtracts bytes that were added before, and are free now.
    pub(super) fn subtract(&self, kind: MemoryKind, bytes: u64) {
        self.freed.fetch_add(bytes, Ordering::Relaxed);
        self.remove(kind, bytes);
    }

    /// Subtracts bytes that were added before.
    fn remove(&self, kind: MemoryKind, bytes: u64) {
        let before = self.held[kind.index()].fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "more was released than was counted");
    }

    pub(super) fn add_promised(&self, bytes: u64) {
        self.promised.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Subtracts promised bytes, which are probably resident now: the next measurement finds them. Where they were
    /// released without being taken, too much is counted until then, and refusing measures before.
    pub(super) fn subtract_promised(&self, bytes: u64) {
        self.added.fetch_add(bytes, Ordering::Relaxed);
        self.promised.fetch_sub(bytes, Ordering::Relaxed);
    }
}
