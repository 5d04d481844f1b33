//! A timer wheel for the deadlines of many connections: a ring of slots, each a list of places in the slab. Inserting
//! an entry costs a push. Entries are never removed early: a connection with a moved deadline is inserted again when
//! the old entry fires.
//!
//! An entry is a place, which is half of a token, so the wheel costs 4 bytes per connection. Another connection may use
//! the place when the entry fires. This is harmless: each connection knows the tick of its own entry ([`Tick`]), as it
//! must anyway to recognise earlier entries of its own.

use std::time::{Duration, Instant};

/// The width of a slot. Deadlines here are seconds and need no higher precision.
const TICK: Duration = Duration::from_millis(100);

/// The number of slots of the ring, which covers 102 s. A later deadline fires once per round before it is due.
const SLOTS: usize = 1024;

/// A timer wheel, see the module.
#[derive(Debug)]
pub(crate) struct Wheel {
    start: Instant,
    /// The tick up to which everything has fired.
    fired: u64,
    slots: Box<[Vec<u32>]>,
    /// One bit per slot, set if the slot is not empty, to find the next slot without visiting all.
    taken: [u64; SLOTS / 64],
}

/// The time at which a connection's entry fires. The connection keeps it, to know whether it needs another entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tick(u32);

impl Tick {
    /// The value of a connection without an entry.
    pub(crate) const NONE: Tick = Tick(u32::MAX);

    /// Makes a tick. 32 bits last thirteen years: longer than a process lives, and nothing fires early after them.
    fn new(tick: u64) -> Self {
        Tick(u32::try_from(tick).unwrap_or(u32::MAX - 1))
    }
}

impl Wheel {
    pub(crate) fn new(now: Instant) -> Self {
        let slots = (0..SLOTS).map(|_| Vec::new()).collect();
        Self { start: now, fired: 0, slots, taken: [0; SLOTS / 64] }
    }

    /// Returns the tick at which `deadline` has passed, at most one round ahead.
    pub(crate) fn tick_of(&self, deadline: Instant) -> Tick {
        let since = deadline.saturating_duration_since(self.start);
        // Rounded up: a timer may be late, never early.
        let tick = since.as_nanos().div_ceil(TICK.as_nanos());
        let tick = u64::try_from(tick).unwrap_or(u64::MAX);
        Tick::new(tick.clamp(self.fired + 1, self.fired + SLOTS as u64 - 1))
    }

    /// Inserts an entry that fires at `tick`, which [`Wheel::tick_of`] has just returned.
    pub(crate) fn insert(&mut self, tick: Tick, place: u32) {
        let slot = tick.0 as usize % SLOTS;
        self.slots[slot].push(place);
        self.taken[slot / 64] |= 1 << (slot % 64);
    }

    /// Returns the time at which the next entry fires.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let first = self.fired + 1;
        let ticks =
            (first..first + SLOTS as u64).map(|tick| (tick, (tick % SLOTS as u64) as usize));
        let mut ticks = ticks.peekable();
        while let Some((tick, slot)) = ticks.next() {
            let rest = self.taken[slot / 64] >> (slot % 64);
            if rest & 1 == 1 {
                let millis = TICK.as_millis() as u64 * tick;
                return Some(self.start + Duration::from_millis(millis));
            }
            if rest == 0 {
                // The rest of this word is empty.
                while ticks.next_if(|(_, next)| next / 64 == slot / 64 && *next > slot).is_some() {}
            }
        }
        None
    }

    /// Moves the places that are due at `now` into `due`, each with the tick that it was inserted for. The caller
    /// recognises entries of connections that have a newer entry or were replaced.
    pub(crate) fn fire(&mut self, now: Instant, due: &mut Vec<(Tick, u32)>) {
        let passed = now.saturating_duration_since(self.start).as_nanos() / TICK.as_nanos();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        // After more than a round, every slot fires once.
        let first = (self.fired + 1).max(passed.saturating_sub(SLOTS as u64 - 1));
        for tick in first..=passed {
            let slot = (tick % SLOTS as u64) as usize;
            due.extend(self.slots[slot].drain(..).map(|place| (Tick::new(tick), place)));
            if self.slots[slot].capacity() > SLOT_KEPT {
                self.slots[slot] = Vec::new();
            }
            self.taken[slot / 64] &= !(1 << (slot % 64));
        }
        self.fired = self.fired.max(passed);
    }
}

/// The capacity above which a slot frees its memory after use: a burst of connections fills few slots.
const SLOT_KEPT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn fired(wheel: &mut Wheel, now: Instant) -> Vec<u32> {
        let mut due = Vec::new();
        wheel.fire(now, &mut due);
        due.into_iter().map(|(_, place)| place).collect()
    }

    #[test]
    fn nothing_fires_early_and_everything_within_a_tick() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        for (number, millis) in [(1, 1), (2, 250), (3, 99_000)] {
            let tick = wheel.tick_of(start + Duration::from_millis(millis));
            wheel.insert(tick, number);
        }
        assert_eq!(wheel.next_deadline(), Some(start + TICK));
        assert_eq!(fired(&mut wheel, start + TICK / 2), [0; 0]);
        assert_eq!(fired(&mut wheel, start + TICK), [1]);
        assert_eq!(wheel.next_deadline(), Some(start + 3 * TICK));
        assert_eq!(fired(&mut wheel, start + 3 * TICK), [2]);
        assert_eq!(wheel.next_deadline(), Some(start + 990 * TICK));
        assert_eq!(fired(&mut wheel, start + 990 * TICK), [3]);
        assert_eq!(wheel.next_deadline(), None);
    }

    #[test]
    fn a_deadline_after_more_than_a_round_fires_once_on_the_way() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        let tick = wheel.tick_of(start + Duration::from_secs(3600));
        wheel.insert(tick, 1);
        assert_eq!(wheel.next_deadline(), Some(start + (SLOTS as u32 - 1) * TICK));
        assert_eq!(fired(&mut wheel, start + SLOTS as u32 * TICK), [1]);
    }

    #[test]
    fn after_a_long_sleep_everything_fires_once() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        for number in 0..50 {
            let tick = wheel.tick_of(start + Duration::from_secs(2 * u64::from(number)));
            wheel.insert(tick, number);
        }
        let later = start + Duration::from_secs(100_000);
        let mut all = fired(&mut wheel, later);
        all.sort_unstable();
        assert_eq!(all, (0..50).collect::<Vec<u32>>());
        assert_eq!(wheel.next_deadline(), None);
        // The ring continues from there.
        let tick = wheel.tick_of(later + TICK);
        wheel.insert(tick, 7);
        assert_eq!(fired(&mut wheel, later + 2 * TICK), [7]);
    }

    proptest::proptest! {
        #[test]
        fn the_next_time_is_the_earliest_entry(millis in proptest::collection::vec(1_u64..100_000, 1..20)) {
            let start = Instant::now();
            let mut wheel = Wheel::new(start);
            let mut ticks = Vec::new();
            for (number, millis) in (0..).zip(&millis) {
                let tick = wheel.tick_of(start + Duration::from_millis(*millis));
                wheel.insert(tick, number);
                ticks.push(tick);
            }
            let first = ticks.iter().min().map(|tick| start + TICK * tick.0);
            proptest::prop_assert_eq!(wheel.next_deadline(), first);
        }
    }
}
