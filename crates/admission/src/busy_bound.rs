//! The bound for greedy clients while the processors are busy.
//!
//! A processor that greedy clients keep busy has no time left when it becomes slower for a moment, or when others want
//! more, and then all wait. Latencies show that too late, and hardly at all where operations spend most of their time
//! in subgraphs. So greedy clients have what fills the processors up to a target, and their work in flight is bounded
//! to what that takes: in a slow moment more is in flight at once, and they are refused first.

use std::time::Duration;

use crate::UNITS;

/// The part of their time for which the processors are busy at most because of greedy clients.
const BUSY_TARGET: f64 = 0.85;

/// The bounds of the factor by which one measurement changes the bound.
const FALL_MAX: f64 = 0.7;
const RISE_MAX: f64 = 1.1;

/// The bound, and the work in flight since the last measurement.
#[derive(Debug, Default)]
pub(crate) struct BusyBound {
    /// The bound in units of work; `None` while there is none.
    bound: Option<f64>,
    in_flight: u64,
    changed: Duration,
    measured: Duration,
    /// The integral of the work in flight over time, in units and seconds.
    area: f64,
}

impl BusyBound {
    /// Returns the units of work in flight up to which greedy clients are admitted, if there is a bound.
    pub(crate) fn units(&self) -> Option<u64> {
        self.bound.map(|it| it as u64)
    }

    /// Notes the units of work that are in flight from now on.
    pub(crate) fn set_in_flight(&mut self, units: u64, now: Duration) {
        self.area += self.in_flight as f64 * now.saturating_sub(self.changed).as_secs_f64();
        (self.in_flight, self.changed) = (units, now);
    }

    /// Notes the part of their time for which the processors were busy since the last call, if it is known, and the
    /// limit in units of work.
    pub(crate) fn adapt(&mut self, busy_part: Option<f64>, limit: u64, now: Duration) {
        self.set_in_flight(self.in_flight, now);
        let seconds = now.saturating_sub(self.measured).as_secs_f64();
        let mean = self.area / seconds.max(f64::MIN_POSITIVE);
        (self.area, self.measured) = (0.0, now);
        let Some(busy_part) = busy_part else {
            self.bound = None;
            return;
        };
        let factor = (BUSY_TARGET / busy_part.max(f64::MIN_POSITIVE)).clamp(FALL_MAX, RISE_MAX);
        let bound = match self.bound {
            // The mean work in flight has kept them busy for that part.
            _ if factor < 1.0 => mean * factor,
            Some(bound) => bound.max(mean) * factor,
            None => return,
        };
        self.bound = (bound < limit as f64).then_some(bound.max(f64::from(UNITS)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 500_000;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn greedy_clients_fill_busy_processors_up_to_the_target() {
        let mut bound = BusyBound::default();
        // Others have 150 operations in flight, which keep the processors busy for 60 % of their time.
        for second in 1..60 {
            let in_flight = bound.units().unwrap_or(LIMIT).max(150_000);
            bound.set_in_flight(in_flight, seconds(second - 1));
            bound.adapt(Some((in_flight as f64 / 250_000.0).min(1.0)), LIMIT, seconds(second));
        }
        let units = bound.units().expect("the processors are busy");
        assert!((205_000..220_000).contains(&units), "{units}");
    }

    #[test]
    fn there_is_no_bound_unless_the_processors_were_busy() {
        let mut bound = BusyBound::default();
        for (second, busy_part) in [(1, Some(0.1)), (2, Some(0.8)), (3, None)] {
            bound.set_in_flight(LIMIT, seconds(second - 1));
            bound.adapt(busy_part, LIMIT, seconds(second));
            assert_eq!(bound.units(), None, "{busy_part:?}");
        }
    }

    #[test]
    fn it_ends_when_they_have_time_to_spare_and_when_that_is_not_known() {
        for (busy_part, ends_after) in [(Some(0.5), 12), (None, 1)] {
            let mut bound = BusyBound::default();
            bound.set_in_flight(200_000, seconds(0));
            bound.adapt(Some(1.0), LIMIT, seconds(1));
            assert_eq!(bound.units(), Some(170_000));
            bound.set_in_flight(0, seconds(1));
            let ended = (1..).find(|second| {
                bound.adapt(busy_part, LIMIT, seconds(1 + second));
                bound.units().is_none()
            });
            assert_eq!(ended, Some(ends_after), "{busy_part:?}");
        }
    }

    #[test]
    fn it_is_that_of_the_mean_in_flight() {
        let mut bound = BusyBound::default();
        bound.set_in_flight(400_000, Duration::from_millis(250));
        bound.set_in_flight(0, Duration::from_millis(750));
        bound.adapt(Some(0.9), LIMIT, seconds(1));
        assert_eq!(bound.units(), Some(188_888));
    }
}
