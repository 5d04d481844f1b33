//! Deadlines of many connections: a ring of slots, each a list of places in the slab. Putting one in costs a push;
//! nothing is taken out early, since a connection that has moved its deadline is simply put in again when the old one
//! fires.
//!
//! A place is half of a token, and one for each connection is what the wheel costs. That another connection may have
//! the place when an entry fires makes no difference: it knows when its own entry fires ([`Tick`]), as it must
//! anyway to tell it from earlier ones of its own.

use std::time::{Duration, Instant};

/// Width of a slot. Deadlines here are seconds; none needs to be met more exactly.
const TICK: Duration = Duration::from_millis(100);

/// Slots of the ring: 102 s until it is round. What is due later fires once on the way.
const SLOTS: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct Wheel {
    start: Instant,
    /// The tick up to which everything has fired.
    fired: u64,
    slots: Box<[Vec<u32>]>,
    /// A bit for each slot that is not empty, so that the next one is found without looking at all.
    taken: [u64; SLOTS / 64],
}

/// When a connection's entry fires; kept by the connection, to know whether another one is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tick(u32);

impl Tick {
    /// No entry.
    pub(crate) const NONE: Tick = Tick(u32::MAX);

    /// Thirteen years are enough: longer than a process lives, and nothing fires early after them.
    fn new(tick: u64) -> Self {
        Tick(u32::try_from(tick).unwrap_or(u32::MAX - 1))
    }
}

impl Wheel {
    pub(crate) fn new(now: Instant) -> Self {
        let slots = (0..SLOTS).map(|_| Vec::new()).collect();
        Self { start: now, fired: 0, slots, taken: [0; SLOTS / 64] }
    }

    /// The tick in which `deadline` has passed, at most one round ahead.
    pub(crate) fn tick_of(&self, deadline: Instant) -> Tick {
        let since = deadline.saturating_duration_since(self.start);
        // Rounded up: a timer may be late, never early.
        let tick = since.as_nanos().div_ceil(TICK.as_nanos());
        let tick = u64::try_from(tick).unwrap_or(u64::MAX);
        Tick::new(tick.clamp(self.fired + 1, self.fired + SLOTS as u64 - 1))
    }

    /// Lets `place` fire at `tick`, which came from [`Wheel::tick_of`] just now.
    pub(crate) fn insert(&mut self, tick: Tick, place: u32) {
        let slot = tick.0 as usize % SLOTS;
        self.slots[slot].push(place);
        self.taken[slot / 64] |= 1 << (slot % 64);
    }

    /// When something fires next.
    pub(crate) fn next(&self) -> Option<Instant> {
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

    /// Moves the places that are due at `now` into `due`, each with the tick that it was put in for. Those whose
    /// connection has another entry since, or is another one, are for the caller to recognise.
    pub(crate) fn fire(&mut self, now: Instant, due: &mut Vec<(Tick, u32)>) {
        let passed = now.saturating_duration_since(self.start).as_nanos() / TICK.as_nanos();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        // More than a round ago: every slot once.
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

/// A slot that had more room gives it back: a storm of connections falls into few slots.
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
        assert_eq!(wheel.next(), Some(start + TICK));
        assert_eq!(fired(&mut wheel, start + TICK / 2), [0; 0]);
        assert_eq!(fired(&mut wheel, start + TICK), [1]);
        assert_eq!(wheel.next(), Some(start + 3 * TICK));
        assert_eq!(fired(&mut wheel, start + 3 * TICK), [2]);
        assert_eq!(wheel.next(), Some(start + 990 * TICK));
        assert_eq!(fired(&mut wheel, start + 990 * TICK), [3]);
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn what_is_due_after_a_round_fires_once_on_the_way() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        let tick = wheel.tick_of(start + Duration::from_secs(3600));
        wheel.insert(tick, 1);
        assert_eq!(wheel.next(), Some(start + (SLOTS as u32 - 1) * TICK));
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
        assert_eq!(wheel.next(), None);
        // And the ring goes on from there.
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
            proptest::prop_assert_eq!(wheel.next(), first);
        }
    }
}
