//! The decisions of hedging: whether a late request is sent a second time, and which of the two responses counts.
//!
//! A state machine without sockets and clocks: events and the time go in, decisions come out. `hedged_attempt` drives it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::latency_histogram::LatencyHistogram;
use crate::request_budget::{HEDGE_LIMITS, RequestBudget};
use crate::{HedgeDelay, HedgeSettings};

/// The shortest time after which a second request is sent: timers have whole milliseconds, and a subgraph that is this
/// fast gains nothing.
const DELAY_MIN: Duration = Duration::from_millis(1);

/// The state of hedging for one subgraph. All workers share it.
#[derive(Debug)]
pub(crate) struct Hedging {
    delay: HedgeDelay,
    budget: RequestBudget,
    /// The recent latencies, if the delay depends on them.
    latencies: Option<LatencyHistogram>,
    /// True while the subgraph takes several times longer than usual for all requests.
    is_slow: AtomicBool,
}

/// The reason why a late request is not sent a second time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HedgeRefusal {
    /// Enough requests were sent a second time.
    Budget,
    /// The response could not come before the deadline.
    TooLate,
    /// The subgraph fails, is slow, or has no room: it must not get more requests.
    Overloaded,
}

impl HedgeRefusal {
    /// All reasons.
    pub const ALL: [Self; 3] = [Self::Budget, Self::TooLate, Self::Overloaded];

    /// The value of the metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Budget => "budget",
            Self::TooLate => "too_late",
            Self::Overloaded => "overloaded",
        }
    }
}

/// The facts that decide whether a late request is sent a second time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HedgeFacts {
    /// True if the circuit breaker admits all requests.
    pub(crate) is_admitted: bool,
    /// True if a request needs not wait for a connection.
    pub(crate) has_room: bool,
    /// The time until the deadline of the request.
    pub(crate) time_left: Duration,
    /// The duration of the fastest recent response.
    pub(crate) fastest: Duration,
    /// The number of requests so far.
    pub(crate) requests: u64,
}

impl Hedging {
    /// Creates the state of a subgraph that has got `requests` so far.
    pub(crate) fn new(settings: &HedgeSettings, requests: u64, now: Instant) -> Self {
        let latencies = match settings.after {
            HedgeDelay::Fixed(_) => None,
            HedgeDelay::Percentile(percent) => Some(LatencyHistogram::new(percent, now)),
        };
        Self {
            delay: settings.after,
            budget: RequestBudget::new(settings.budget_percent, HEDGE_LIMITS, requests, now),
            latencies,
            is_slow: AtomicBool::new(false),
        }
    }

    /// Returns the time after which a request is late; `None` while that is not known.
    pub(crate) fn delay(&self, now: Instant) -> Option<Duration> {
        let delay = match (self.delay, &self.latencies) {
            (HedgeDelay::Fixed(delay), _) => delay,
            (_, latencies) => latencies.as_ref()?.percentile(now)?,
        };
        Some(delay.max(DELAY_MIN))
    }

    /// Notes the time for which a first request has waited for its response. One that was ended because the second one
    /// was faster would have taken longer, so the percentile does not sink because of second requests.
    pub(crate) fn note_latency(&self, latency: Duration, now: Instant) {
        if let Some(latencies) = &self.latencies {
            latencies.note(latency, now);
        }
    }

    /// Notes whether the subgraph takes several times longer than usual.
    pub(crate) fn note_slowness(&self, is_slow: bool) {
        // Reading needs no exclusive cache line.
        if self.is_slow.load(Ordering::Relaxed) != is_slow {
            self.is_slow.store(is_slow, Ordering::Relaxed);
        }
    }

    /// Decides whether a late request is sent a second time now, and takes it from the budget.
    pub(crate) fn decide(&self, facts: HedgeFacts, now: Instant) -> Result<(), HedgeRefusal> {
        if !facts.is_admitted || !facts.has_room || self.is_slow.load(Ordering::Relaxed) {
            return Err(HedgeRefusal::Overloaded);
        }
        if facts.time_left <= facts.fastest {
            return Err(HedgeRefusal::TooLate);
        }
        match self.budget.withdraw(facts.requests, now) {
            true => Ok(()),
            false => Err(HedgeRefusal::Budget),
        }
    }
}

/// One of the two requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Runner {
    First,
    Second,
}

/// The state of one request that may be sent a second time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum HedgeRace {
    /// The first request is in flight, and not late yet.
    #[default]
    Early,
    /// The first request is late, and alone.
    Alone,
    /// Both requests are in flight.
    Both,
    /// The first request has failed; the second one is in flight.
    FirstFailed,
    /// The second request has failed; the first one is in flight.
    SecondFailed,
    /// The result is known.
    Over,
}

impl HedgeRace {
    /// Notes that the first request is late. Returns true if the second one must be sent now, as `decision` permits.
    pub(crate) fn on_late(&mut self, decision: Result<(), HedgeRefusal>) -> bool {
        if *self != Self::Early {
            return false;
        }
        *self = if decision.is_ok() { Self::Both } else { Self::Alone };
        decision.is_ok()
    }

    /// Notes the end of a request. Returns the request with the result that counts; the caller must end the other one.
    /// `None` means that the other request may still succeed.
    pub(crate) fn on_end(&mut self, runner: Runner, has_succeeded: bool) -> Option<Runner> {
        let (next, counts) = match (*self, runner, has_succeeded) {
            (Self::Over, ..) => (Self::Over, None),
            (_, runner, true) => (Self::Over, Some(runner)),
            (Self::Both, Runner::First, false) => (Self::FirstFailed, None),
            (Self::Both, Runner::Second, false) => (Self::SecondFailed, None),
            // Both have failed, or there was only one.
            (_, _, false) => (Self::Over, Some(Runner::First)),
        };
        *self = next;
        counts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn facts() -> HedgeFacts {
        HedgeFacts {
            is_admitted: true,
            has_room: true,
            time_left: SECOND,
            fastest: SECOND / 2,
            requests: 20,
        }
    }

    fn hedging(after: HedgeDelay) -> Hedging {
        Hedging::new(&HedgeSettings { after, budget_percent: 5 }, 0, Instant::now())
    }

    #[test]
    fn a_late_request_is_sent_again_if_the_subgraph_can_take_it_and_time_and_budget_suffice() {
        use HedgeRefusal::{Budget, Overloaded, TooLate};
        for (facts, is_slow, expected) in [
            (facts(), false, Ok(())),
            (HedgeFacts { is_admitted: false, ..facts() }, false, Err(Overloaded)),
            (HedgeFacts { has_room: false, ..facts() }, false, Err(Overloaded)),
            (facts(), true, Err(Overloaded)),
            (HedgeFacts { fastest: SECOND, ..facts() }, false, Err(TooLate)),
            (HedgeFacts { fastest: Duration::ZERO, ..facts() }, false, Ok(())),
            (HedgeFacts { requests: 19, ..facts() }, false, Err(Budget)),
        ] {
            let hedging = hedging(HedgeDelay::Fixed(SECOND));
            hedging.note_slowness(is_slow);
            assert_eq!(hedging.decide(facts, Instant::now()), expected, "{facts:?} {is_slow}");
        }
    }

    #[test]
    fn a_refusal_for_another_reason_costs_no_budget() {
        let hedging = hedging(HedgeDelay::Fixed(SECOND));
        let now = Instant::now();
        let late = HedgeFacts { time_left: Duration::ZERO, ..facts() };
        assert_eq!(hedging.decide(late, now), Err(HedgeRefusal::TooLate));
        assert_eq!(hedging.decide(facts(), now), Ok(()));
        assert_eq!(hedging.decide(facts(), now), Err(HedgeRefusal::Budget));
    }

    #[test]
    fn the_delay_is_fixed_or_the_percentile_of_first_requests() {
        let now = Instant::now();
        assert_eq!(hedging(HedgeDelay::Fixed(SECOND)).delay(now), Some(SECOND));
        let observed = hedging(HedgeDelay::Percentile(90));
        assert_eq!(observed.delay(now), None, "nothing is known");
        (0..90).for_each(|_| observed.note_latency(SECOND / 10, now));
        (0..10).for_each(|_| observed.note_latency(SECOND, now));
        let delay = observed.delay(now + SECOND).unwrap_or_default();
        assert!((SECOND / 10..SECOND / 8).contains(&delay), "{delay:?}");
        let fast = hedging(HedgeDelay::Fixed(Duration::ZERO));
        assert_eq!(fast.delay(now), Some(DELAY_MIN));
    }

    /// An event of a race.
    #[derive(Clone, Copy, Debug)]
    enum RaceEvent {
        Late { is_allowed: bool },
        End { runner: Runner, has_succeeded: bool },
    }

    fn any_event() -> impl Strategy<Value = RaceEvent> {
        prop_oneof![
            any::<bool>().prop_map(|is_allowed| RaceEvent::Late { is_allowed }),
            (any::<bool>(), any::<bool>()).prop_map(|(is_first, has_succeeded)| RaceEvent::End {
                runner: if is_first { Runner::First } else { Runner::Second },
                has_succeeded,
            }),
        ]
    }

    proptest! {
        /// A model of the two requests decides which events can happen and what must follow.
        #[test]
        fn the_first_success_counts_and_the_first_failure_only_if_nothing_is_in_flight(
            events in prop::collection::vec(any_event(), 0..20),
        ) {
            let mut race = HedgeRace::default();
            let (mut first, mut second) = (true, false);
            let mut has_been_late = false;
            for event in events {
                match event {
                    RaceEvent::Late { is_allowed } => {
                        if has_been_late || !first {
                            continue;
                        }
                        has_been_late = true;
                        let decision = if is_allowed { Ok(()) } else { Err(HedgeRefusal::Budget) };
                        second = race.on_late(decision);
                        prop_assert_eq!(second, is_allowed);
                    }
                    RaceEvent::End { runner, has_succeeded } => {
                        let in_flight = match runner {
                            Runner::First => &mut first,
                            Runner::Second => &mut second,
                        };
                        if !std::mem::take(in_flight) {
                            continue;
                        }
                        let expected = match (has_succeeded, first || second) {
                            (true, _) => Some(runner),
                            (false, true) => None,
                            (false, false) => Some(Runner::First),
                        };
                        prop_assert_eq!(race.on_end(runner, has_succeeded), expected);
                        if expected.is_some() {
                            prop_assert_eq!(race, HedgeRace::Over);
                            // Later events have no effect.
                            prop_assert!(!race.on_late(Ok(())));
                            prop_assert_eq!(race.on_end(runner, has_succeeded), None);
                            break;
                        }
                    }
                }
            }
        }
    }
}
