//! Whether load balancers should send this router new clients, by the share of requests that it refuses, and by whether
//! it is short of memory.
//!
//! The router becomes unready when it has refused much for a while, and ready again when it has refused little for a
//! while. An unready router gets fewer requests, so that it always looks well soon: how much it refuses then does not
//! tell whether it could do the whole load again. A router that becomes unready again soon therefore stays so for twice
//! as long each time, up to a bound, and routers that became unready together return at different times.

use std::time::Duration;

/// The time in which the share of refused requests follows a change.
const MEMORY: Duration = Duration::from_secs(2);

/// The number of requests, forgotten as [`MEMORY`] says, below which nothing is concluded from refusals.
const REQUESTS_MIN: f64 = 20.0;

/// The part of the share that makes a router unready up to which it may become ready.
const RECOVERY_PART: f64 = 0.5;

/// The number of times that the time of being unready doubles at most: it is 8 times as long then. In an overload of
/// all routers no router is away for much longer than a load balancer needs to notice it.
const DOUBLINGS_MAX: u32 = 3;

/// The multiple of the last time of being unready for which a router must stay ready, for the next one to be short
/// again.
const CALM_RATIO: u32 = 10;

/// The part of the time of being unready that is added at random, at most.
const SPREAD: f64 = 0.5;

/// The settings of [`Readiness`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ReadinessSettings {
    /// The share of refused requests from which the router is not ready, above 0 and up to 1.
    pub unready_share: f64,
    /// The time for which so much must be refused.
    pub unready_after: Duration,
    /// The time for which the router stays unready at least.
    pub ready_after: Duration,
}

/// A change of the readiness.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadinessChange {
    /// The router is not ready any more.
    Unready,
    /// The router is ready again.
    Ready,
}

/// The readiness as a state machine. All times are durations since any fixed point, and must not go back.
#[derive(Debug)]
pub struct Readiness {
    settings: ReadinessSettings,
    refused: f64,
    requests: f64,
    updated: Duration,
    state: State,
    /// The time from which the share was beyond the bound of the state. None while it is not.
    beyond_since: Option<Duration>,
    /// The number of times that the time of being unready doubles.
    doublings: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Ready { since: Duration },
    Unready { until: Duration, hold: Duration },
}

impl Readiness {
    /// Creates the state of a router that is ready.
    pub fn new(settings: ReadinessSettings) -> Self {
        Self {
            settings,
            refused: 0.0,
            requests: 0.0,
            updated: Duration::ZERO,
            state: State::Ready { since: Duration::ZERO },
            beyond_since: None,
            doublings: 0,
        }
    }

    /// True if the router is ready.
    pub fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready { .. })
    }

    /// Returns the share of requests that were refused of late; 0 if there were few.
    pub fn refused_share(&self) -> f64 {
        if self.requests < REQUESTS_MIN { 0.0 } else { self.refused / self.requests }
    }

    /// Counts the requests that were admitted and refused since the last call. To be called about once a second. While
    /// `is_short` of something that work needs, the router is as one that refuses all requests, also if it gets few.
    /// `random` is any random number.
    pub fn update(
        &mut self,
        (admitted, refused): (u64, u64),
        is_short: bool,
        now: Duration,
        random: u64,
    ) -> Option<ReadinessChange> {
        let elapsed = now.saturating_sub(self.updated).as_secs_f64();
        let kept = (-elapsed / MEMORY.as_secs_f64()).exp();
        self.refused = self.refused * kept + refused as f64;
        self.requests = self.requests * kept + (admitted + refused) as f64;
        self.updated = now;
        let share = if is_short { 1.0 } else { self.refused_share() };
        match self.state {
            State::Ready { since } => {
                if share < self.settings.unready_share {
                    self.beyond_since = None;
                    return None;
                }
                let beyond_since = *self.beyond_since.get_or_insert(now);
                if now.saturating_sub(beyond_since) < self.settings.unready_after {
                    return None;
                }
                self.become_unready(since, now, random);
                Some(ReadinessChange::Unready)
            }
            State::Unready { until, .. } => {
                if share > self.settings.unready_share * RECOVERY_PART {
                    self.beyond_since = None;
                    return None;
                }
                // Little was refused for as long as much must be to become unready.
                let beyond_since = *self.beyond_since.get_or_insert(now);
                if now < until || now.saturating_sub(beyond_since) < self.settings.unready_after {
                    return None;
                }
                self.state = State::Ready { since: now };
                self.beyond_since = None;
                Some(ReadinessChange::Ready)
            }
        }
    }

    fn become_unready(&mut self, ready_since: Duration, now: Duration, random: u64) {
        let last_hold = self.settings.ready_after * (1 << self.doublings);
        let is_first = ready_since.is_zero();
        let was_calm = now.saturating_sub(ready_since) >= last_hold * CALM_RATIO;
        self.doublings = match is_first || was_calm {
            true => 0,
            false => (self.doublings + 1).min(DOUBLINGS_MAX),
        };
        let hold = self.settings.ready_after * (1 << self.doublings);
        let hold = hold + hold.mul_f64(SPREAD * (random % 1024) as f64 / 1024.0);
        self.state = State::Unready { until: now + hold, hold };
        self.beyond_since = None;
    }

    /// Returns the time for which the router stays unready at least, from the moment at which it became so; `None` if
    /// it is ready.
    pub fn hold(&self) -> Option<Duration> {
        match self.state {
            State::Ready { .. } => None,
            State::Unready { hold, .. } => Some(hold),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: ReadinessSettings = ReadinessSettings {
        unready_share: 0.5,
        unready_after: Duration::from_secs(5),
        ready_after: Duration::from_secs(10),
    };

    /// A router in virtual time.
    struct Simulation {
        readiness: Readiness,
        second: u64,
        /// The seconds of all changes.
        changes: Vec<(u64, ReadinessChange)>,
    }

    impl Simulation {
        fn new() -> Self {
            Self { readiness: Readiness::new(SETTINGS), second: 0, changes: Vec::new() }
        }

        /// Runs for some seconds with the requests that `load` returns, admitted and refused.
        fn run(&mut self, seconds: u64, mut load: impl FnMut(bool) -> (u64, u64)) -> &mut Self {
            for _ in 0..seconds {
                self.second += 1;
                let (admitted, refused) = load(self.readiness.is_ready());
                let now = Duration::from_secs(self.second);
                let random = self.second.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
                if let Some(change) = self.readiness.update((admitted, refused), false, now, random)
                {
                    self.changes.push((self.second, change));
                }
            }
            self
        }
    }

    #[test]
    fn a_router_that_refuses_much_for_long_is_unready_until_it_has_refused_little_for_long() {
        let mut simulation = Simulation::new();
        simulation.run(60, |_| (1000, 400));
        assert_eq!(simulation.changes, [], "less than half is refused");
        simulation.run(60, |is_ready| if is_ready { (1000, 1500) } else { (100, 0) });
        let changes = &simulation.changes;
        assert_eq!(changes[0].1, ReadinessChange::Unready);
        assert!((65..70).contains(&changes[0].0), "{changes:?}");
        assert_eq!(changes[1].1, ReadinessChange::Ready);
        assert!((10..=16).contains(&(changes[1].0 - changes[0].0)), "{changes:?}");
    }

    #[test]
    fn a_router_that_is_short_of_memory_is_unready_without_requests() {
        let mut readiness = Readiness::new(SETTINGS);
        let mut changes = Vec::new();
        for second in 1..60 {
            let is_short = (10..30).contains(&second);
            let change = readiness.update((0, 0), is_short, Duration::from_secs(second), 0);
            changes.extend(change.map(|it| (second, it)));
        }
        assert_eq!(changes, [(15, ReadinessChange::Unready), (35, ReadinessChange::Ready)]);
    }

    #[test]
    fn bursts_and_single_requests_change_nothing() {
        let mut simulation = Simulation::new();
        for _ in 0..50 {
            simulation.run(3, |_| (1000, 3000)).run(10, |_| (1000, 0));
        }
        // Too few to conclude anything from.
        simulation.run(600, |_| (0, 5));
        assert_eq!(simulation.changes, []);
        assert_eq!(simulation.readiness.refused_share(), 0.0);
    }

    #[test]
    fn a_router_that_goes_on_refusing_stays_unready() {
        let mut simulation = Simulation::new();
        simulation.run(3600, |_| (1000, 4000));
        assert_eq!(simulation.changes.len(), 1, "{:?}", simulation.changes);
        // It refuses less, but more than a quarter.
        simulation.run(600, |_| (1000, 600));
        assert_eq!(simulation.changes.len(), 1, "{:?}", simulation.changes);
        simulation.run(20, |_| (1000, 100));
        assert_eq!(simulation.changes.len(), 2, "{:?}", simulation.changes);
    }

    #[test]
    fn a_lasting_overload_of_a_ready_router_makes_it_flap_ever_less() {
        let mut simulation = Simulation::new();
        // The load balancer sends it nothing while it is not ready, and too much as soon as it is.
        simulation.run(3600, |is_ready| if is_ready { (1000, 4000) } else { (0, 0) });
        let unready: Vec<_> =
            simulation.changes.iter().filter(|it| it.1 == ReadinessChange::Unready).collect();
        // The time of being unready becomes 80 to 120 s, and 5 s make it unready again.
        assert!((25..45).contains(&unready.len()), "{}", unready.len());
        let late = &simulation.changes[simulation.changes.len() - 10..];
        let holds: Vec<_> =
            late.windows(2).filter(|it| it[0].1 == ReadinessChange::Unready).collect();
        assert!(holds.iter().all(|it| (80..=126).contains(&(it[1].0 - it[0].0))), "{late:?}");
        // After a long calm the first time is short again.
        simulation.run(3600, |_| (1000, 0));
        simulation.changes.clear();
        simulation.run(40, |is_ready| if is_ready { (1000, 4000) } else { (0, 0) });
        let [first, second, ..] = simulation.changes[..] else {
            panic!("{:?}", simulation.changes)
        };
        assert!((10..=20).contains(&(second.0 - first.0)), "{:?}", simulation.changes);
    }

    #[test]
    fn routers_that_become_unready_together_return_at_different_times() {
        let until = |random| {
            let mut readiness = Readiness::new(SETTINGS);
            (1..100).for_each(|it| {
                if readiness.is_ready() {
                    readiness.update((0, 1000), false, Duration::from_secs(it), random);
                }
            });
            readiness.hold().unwrap()
        };
        assert_eq!(until(0), Duration::from_secs(10));
        assert!((14.9..15.0).contains(&until(1023).as_secs_f64()));
    }
}
