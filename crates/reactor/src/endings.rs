//! Connections that their peers have closed, and that must be ended.
//!
//! All clients may vanish at once, when a proxy or a load balancer fails. Ending one takes 20 to 50 µs in several
//! threads, so ten thousand would take all CPU time for up to half a second. Queries and the remaining clients would
//! notice, also beside a router that is only busy. So a few are ended at a time, in the order in which they have gone,
//! with pauses: ten thousand of one reactor at less than a tenth of a core, about as fast as clients may return, and
//! more of them faster.
//!
//! When many have gone and clients return, the ends give way to the new connections for some seconds, because clients
//! wait for those. If there is no room for new connections, the caller hurries the ends.
//!
//! While a connection waits, it takes no messages (`Phase::Leaving`). A broadcast would spend a system call on each of
//! them, and the next broadcast would fail for all of them and so end them at once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::poller::Readiness;
use crate::recent_count::RecentCount;

/// The part of all that wait which is ended in one turn at least. The more there are, the faster they are ended, so
/// that not even a million keep their descriptors for long.
const TURN_PART: usize = 1024;

/// A turn ends at least this multiple of the connections that have lately gone in the time of a pause. So clients that
/// come and go all the time do not wait for each other, however many. The mean is over about
/// [`RATE_SECONDS`]: ten thousand that go at once are ended nine at a time.
const RATE_FACTOR: f64 = 1.5;
const RATE_SECONDS: f64 = 10.0;

/// The numbers that are ended in one turn at least and at most. The maximum takes some 10 ms.
const TURN_MIN: usize = 5;
const TURN_MAX: usize = 256;

/// The number of waiting connections from which on their ends give way, and the number of new connections in about the
/// last second to which they do.
const MANY_WAITING: usize = 1000;
const MANY_ARRIVALS: f64 = 50.0;

/// The time for which the first one gives way at most.
const GIVE_WAY_TIME_MAX: Duration = Duration::from_secs(15);

/// The time for which ends give way to nothing after they were hurried.
const HURRY_TIME: Duration = Duration::from_millis(100);

/// The time between two announcements that very many wait.
const ANNOUNCEMENT_PAUSE: Duration = Duration::from_millis(250);

/// The pause after a turn while connections wait. Several are ended together, because each turn costs switches between
/// threads.
const PAUSE: Duration = Duration::from_millis(5);

/// The number of turns for which a late one makes up at most.
const LATE_TURNS_MAX: u128 = 15;

/// The number of waiting connections above which the list frees its memory once it is empty.
const KEPT_MAX: usize = 1024;

/// The connections that wait for their end, the first one first.
#[derive(Debug)]
pub(crate) struct Endings {
    /// Each with the time at which it has gone.
    waiting: VecDeque<(Instant, Readiness)>,
    /// The time of the next turn, if some wait after the last one.
    next_turn: Option<Instant>,
    /// The connections that have gone lately.
    gone: RecentCount,
    /// Until this time, the ends give way to nothing.
    hurried_until: Option<Instant>,
    /// The earliest time at which it is announced again that very many wait.
    next_announcement: Option<Instant>,
}

impl Endings {
    /// Creates the state in which no connection waits.
    pub(crate) fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            next_turn: None,
            gone: RecentCount::new(RATE_SECONDS),
            hurried_until: None,
            next_announcement: None,
        }
    }

    /// Adds a connection that has gone.
    pub(crate) fn add(&mut self, readiness: Readiness, now: Instant) {
        self.waiting.push_back((now, readiness));
        self.gone.add(1, now);
    }

    /// Notes that others need the room of the connections that wait.
    pub(crate) fn hurry(&mut self, now: Instant) {
        self.hurried_until = Some(now + HURRY_TIME);
    }

    /// True if the ends wait, because new connections come first.
    fn gives_way(&self, now: Instant, arrivals: f64) -> bool {
        let Some((since, _)) = self.waiting.front() else { return false };
        self.are_many()
            && arrivals >= MANY_ARRIVALS
            && now.saturating_duration_since(*since) < GIVE_WAY_TIME_MAX
            && self.hurried_until.is_none_or(|until| until <= now)
    }

    /// Returns the number of connections that may be ended now, when `arrivals` have come in about the last second. A
    /// turn that comes late, because the reactor has much else to do, makes up for those that it missed.
    pub(crate) fn take_turn(&mut self, now: Instant, arrivals: f64) -> usize {
        // hot path: none waits most of the time
        if self.waiting.is_empty() {
            return 0;
        }
        let late = match self.next_turn {
            Some(at) if now < at => return 0,
            at => at.map_or(Duration::ZERO, |at| now - at),
        };
        if self.gives_way(now, arrivals) {
            self.end_turn(now);
            return 0;
        }
        // At most 16, so it fits.
        let turns = 1 + (late.as_micros() / PAUSE.as_micros()).min(LATE_TURNS_MAX) as usize;
        let in_pause = self.gone.until(now) / RATE_SECONDS * PAUSE.as_secs_f64();
        let of_turn =
            TURN_MIN.max((RATE_FACTOR * in_pause) as usize).max(self.waiting.len() / TURN_PART);
        (of_turn * turns).min(TURN_MAX)
    }

    /// Ends a turn that has ended connections.
    pub(crate) fn end_turn(&mut self, now: Instant) {
        self.next_turn = (!self.waiting.is_empty()).then(|| now + PAUSE);
    }

    /// Takes the next connection, if there is one and `left` in the turn is above zero.
    pub(crate) fn next(&mut self, left: &mut usize) -> Option<Readiness> {
        *left = left.checked_sub(1)?;
        let next = self.waiting.pop_front().map(|(_, readiness)| readiness);
        if self.waiting.is_empty() && self.waiting.capacity() > KEPT_MAX {
            self.waiting = VecDeque::new();
        }
        next
    }

    fn are_many(&self) -> bool {
        self.waiting.len() >= MANY_WAITING
    }

    /// True if very many connections wait, so that their ends make other work slow; a few times a second only.
    pub(crate) fn announces_many(&mut self, now: Instant) -> bool {
        let is_due = self.are_many() && self.next_announcement.is_none_or(|at| at <= now);
        if is_due {
            self.next_announcement = Some(now + ANNOUNCEMENT_PAUSE);
        }
        is_due
    }

    /// Returns the number of connections that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the time of the next turn; `None` if no connection waits.
    pub(crate) fn next_turn(&self) -> Option<Instant> {
        self.next_turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(key: u64) -> Readiness {
        Readiness { key, readable: true, writable: true, ending: true }
    }

    /// Takes a turn, which takes `took`, and returns the keys of the connections that are ended.
    fn turn(endings: &mut Endings, now: Instant, took: Duration) -> Vec<u64> {
        turn_beside(endings, 0.0, now, took)
    }

    /// The same after arrivals.
    fn turn_beside(endings: &mut Endings, arrivals: f64, now: Instant, took: Duration) -> Vec<u64> {
        let mut left = endings.take_turn(now, arrivals);
        let ended: Vec<u64> =
            std::iter::from_fn(|| endings.next(&mut left)).map(|it| it.key).collect();
        if !ended.is_empty() {
            endings.end_turn(now + took);
        }
        ended
    }

    const NO_TIME: Duration = Duration::ZERO;

    #[test]
    fn connections_are_ended_in_order_with_pauses() {
        let (mut endings, now) = (Endings::new(), Instant::now());
        (0..300).for_each(|key| endings.add(ending(key), now));
        let keys: Vec<u64> = (0..300).collect();
        let mut turns = keys.chunks(TURN_MIN);
        assert_eq!(Some(&*turn(&mut endings, now, PAUSE / 2)), turns.next());
        let next = now + PAUSE / 2 + PAUSE;
        assert_eq!(endings.next_turn(), Some(next));
        assert_eq!(turn(&mut endings, now + PAUSE, NO_TIME), [], "the pause is not over");
        for keys in turns {
            let at = endings.next_turn().expect("some wait");
            assert_eq!(turn(&mut endings, at, NO_TIME), keys);
        }
        assert_eq!(endings.next_turn(), None);
        assert_eq!(turn(&mut endings, now + 300 * PAUSE, NO_TIME), []);
    }

    #[test]
    fn a_late_turn_makes_up_for_those_that_were_missed() {
        let (mut endings, now) = (Endings::new(), Instant::now());
        (0..1000).for_each(|key| endings.add(ending(key), now));
        turn(&mut endings, now, NO_TIME);
        assert_eq!(turn(&mut endings, now + 6 * PAUSE, NO_TIME).len(), 6 * TURN_MIN);
        let latest = turn(&mut endings, now + 600 * PAUSE, NO_TIME).len();
        assert_eq!(latest, 16 * TURN_MIN, "the turns that it makes up for are bounded");
    }

    #[test]
    fn clients_that_come_and_go_all_the_time_do_not_wait_also_after_a_storm() {
        let (mut endings, mut now) = (Endings::new(), Instant::now());
        (0..10_000).for_each(|key| endings.add(ending(key), now));
        for _ in 0..12_000 {
            // 3,000 go in a second.
            (0..15).for_each(|key| endings.add(ending(key), now));
            turn(&mut endings, now, NO_TIME);
            now += PAUSE;
        }
        assert!(endings.waiting.len() < 50, "{}", endings.waiting.len());
    }

    #[test]
    fn while_clients_return_their_old_connections_wait_for_some_seconds() {
        let (mut endings, began) = (Endings::new(), Instant::now());
        (0..10_000).for_each(|key| endings.add(ending(key), began));
        let ended = |endings: &mut Endings, arrivals: f64, from: u64, seconds: u32| {
            let from = began + Duration::from_secs(from);
            let turns = (0..seconds * 200)
                .map(|index| turn_beside(endings, arrivals, from + index * PAUSE, NO_TIME).len());
            turns.sum::<usize>()
        };
        assert_eq!(ended(&mut endings, 50.0, 0, 5), 0);
        endings.hurry(began + Duration::from_secs(5));
        let hurried = ended(&mut endings, 50.0, 5, 1);
        assert!((100..200).contains(&hurried), "{hurried}, in a tenth of a second");
        assert_eq!(ended(&mut endings, 50.0, 6, 9), 0);
        assert!(ended(&mut endings, 50.0, 15, 1) > 1000, "they have waited for 15 seconds");
        let later = began + Duration::from_secs(15);
        (0..10_000).for_each(|key| endings.add(ending(key), later));
        assert!(ended(&mut endings, 49.0, 16, 3) > 2000, "few clients come");
    }

    #[test]
    fn it_is_announced_a_few_times_a_second_that_very_many_wait() {
        let (mut endings, began) = (Endings::new(), Instant::now());
        let mut announced = |count: u64, now: Instant| {
            (0..count).for_each(|key| endings.add(ending(key), now));
            endings.announces_many(now)
        };
        assert!(!announced(999, began), "not so many");
        assert!(announced(1, began));
        assert!(!announced(1, began + ANNOUNCEMENT_PAUSE / 2));
        assert!(announced(0, began + ANNOUNCEMENT_PAUSE));
    }

    #[test]
    fn a_million_take_no_long_pauses_and_leave_no_memory() {
        let (mut endings, mut now) = (Endings::new(), Instant::now());
        (0..1_000_000).for_each(|key| endings.add(ending(key), now));
        let (began, mut work) = (now, Duration::ZERO);
        while !endings.waiting.is_empty() {
            let ended = u32::try_from(endings.take_turn(now, 0.0).min(endings.waiting.len()));
            let took = ended.expect("a small number") * Duration::from_micros(20);
            turn(&mut endings, now, took);
            work += took;
            now += took + PAUSE;
        }
        assert!(now - began < 4 * work, "{:?} for {work:?} of work", now - began);
        assert_eq!(endings.waiting.capacity(), 0);
    }
}
