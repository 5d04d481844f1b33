//! The shape of a surge: requests a second over time, as straight lines between points, and the planned start of each
//! request.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::random::Random;
use crate::rate::{Arrivals, RATE_MAX};

/// The maximum number of points of a shape.
pub const POINTS_MAX: usize = 10_000;

/// The maximum duration of a shape in seconds: a day.
pub const SHAPE_SECONDS_MAX: f64 = 24.0 * 3600.0;

/// The rate at the top of a spike, as a multiple of the rate around it.
pub const SPIKE_FACTOR: f64 = 10.0;

/// The tolerance for rounding errors when the requests of a whole shape are counted.
const COUNT_TOLERANCE: f64 = 1e-6;

/// The rate at one time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ShapePoint {
    /// The time in seconds from the beginning.
    pub seconds: f64,
    /// Requests a second.
    pub rate: f64,
}

/// Requests a second over time. Between two points the rate changes linearly; two points at one time are a step.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadShape {
    points: Vec<ShapePoint>,
    /// For each point, the number of requests up to it.
    counts: Vec<f64>,
}

impl LoadShape {
    /// Creates a shape from its points, in the order of their times.
    ///
    /// # Errors
    /// A message that says which point is wrong: there are fewer than two, the first is not at 0 seconds, the times
    /// fall, a number is out of range, or all rates are zero.
    pub fn from_points(points: Vec<ShapePoint>) -> Result<Self, String> {
        if points.len() < 2 || points.len() > POINTS_MAX {
            return Err(format!("a shape has from 2 to {POINTS_MAX} points"));
        }
        let mut before = 0.0;
        for (index, point) in points.iter().enumerate() {
            let wrong = |what: String| Err(format!("point {}: {what}", index + 1));
            let ShapePoint { seconds, rate } = *point;
            if index == 0 && seconds != 0.0 {
                return wrong("the first point is at 0 seconds".to_owned());
            }
            if !(0.0..=SHAPE_SECONDS_MAX).contains(&seconds) {
                return wrong(format!("seconds must be from 0 to {SHAPE_SECONDS_MAX} (a day)"));
            }
            if !(0.0..=RATE_MAX).contains(&rate) {
                return wrong(format!("the rate must be from 0 to {RATE_MAX} requests a second"));
            }
            if seconds < before {
                return wrong(format!("{seconds} s is before the point above it at {before} s"));
            }
            before = seconds;
        }
        let mut total = 0.0;
        let mut counts = vec![0.0];
        for pair in points.windows(2) {
            total += (pair[0].rate + pair[1].rate) / 2.0 * (pair[1].seconds - pair[0].seconds);
            counts.push(total);
        }
        if total <= 0.0 {
            return Err("the shape has no requests: its rates or its times are all zero".to_owned());
        }
        Ok(Self { points, counts })
    }

    /// Creates a shape from the rates at fractions of its duration.
    fn from_fractions(seconds: f64, rates: &[(f64, f64)]) -> Result<Self, String> {
        let points =
            rates.iter().map(|(at, rate)| ShapePoint { seconds: at * seconds, rate: *rate });
        Self::from_points(points.collect())
    }

    /// A constant rate.
    ///
    /// # Errors
    /// The rate or the duration is out of range.
    pub fn constant(rate: f64, seconds: f64) -> Result<Self, String> {
        Self::from_fractions(seconds, &[(0.0, rate), (1.0, rate)])
    }

    /// From nothing to the rate, over the whole duration.
    ///
    /// # Errors
    /// The rate or the duration is out of range.
    pub fn ramp(rate: f64, seconds: f64) -> Result<Self, String> {
        Self::from_fractions(seconds, &[(0.0, 0.0), (1.0, rate)])
    }

    /// The rate for a quarter of the duration, then twice the rate within half of it, which stays.
    ///
    /// # Errors
    /// The rate or the duration is out of range.
    pub fn doubling(rate: f64, seconds: f64) -> Result<Self, String> {
        Self::from_fractions(
            seconds,
            &[(0.0, rate), (0.25, rate), (0.75, 2.0 * rate), (1.0, 2.0 * rate)],
        )
    }

    /// The rate, and in the middle [`SPIKE_FACTOR`] times the rate at once, for a fifth of the duration.
    ///
    /// # Errors
    /// The rate or the duration is out of range.
    pub fn spike(rate: f64, seconds: f64) -> Result<Self, String> {
        let top = SPIKE_FACTOR * rate;
        Self::from_fractions(
            seconds,
            &[(0.0, rate), (0.4, rate), (0.4, top), (0.6, top), (0.6, rate), (1.0, rate)],
        )
    }

    /// Returns the same shape with another highest rate or another duration.
    ///
    /// # Errors
    /// A number is out of range.
    pub fn scaled(&self, peak: Option<f64>, seconds: Option<f64>) -> Result<Self, String> {
        let rate_factor = peak.map_or(1.0, |peak| peak / self.peak());
        let time_factor = seconds.map_or(1.0, |seconds| seconds / self.seconds());
        let points = self.points.iter().map(|point| ShapePoint {
            seconds: point.seconds * time_factor,
            rate: point.rate * rate_factor,
        });
        Self::from_points(points.collect())
    }

    /// Returns the points.
    pub fn points(&self) -> &[ShapePoint] {
        &self.points
    }

    /// Returns the duration in seconds.
    pub fn seconds(&self) -> f64 {
        self.points.last().map_or(0.0, |point| point.seconds)
    }

    /// Returns the highest rate.
    pub fn peak(&self) -> f64 {
        self.points.iter().fold(0.0, |peak, point| peak.max(point.rate))
    }

    /// Returns the number of requests of the whole shape, its integral.
    pub fn total(&self) -> f64 {
        self.counts.last().copied().unwrap_or(0.0)
    }

    /// Returns the number of requests up to a time.
    pub fn expected(&self, seconds: f64) -> f64 {
        let after = self.points.partition_point(|point| point.seconds <= seconds);
        let Some((from, to)) =
            after.checked_sub(1).and_then(|at| Some((at, self.points.get(after)?)))
        else {
            return if after == 0 { 0.0 } else { self.total() };
        };
        let begin = self.points[from];
        let passed = seconds - begin.seconds;
        let slope = (to.rate - begin.rate) / (to.seconds - begin.seconds);
        self.counts[from] + begin.rate * passed + slope * passed * passed / 2.0
    }

    /// Returns the time in seconds at which a number of requests is reached, the inverse of [`Self::expected`].
    fn time_of(&self, count: f64) -> f64 {
        // The first point at which the count is reached; the line to it has requests.
        let after = self.counts.partition_point(|reached| *reached < count).max(1);
        let Some(to) = self.points.get(after) else { return self.seconds() };
        let from = self.points[after - 1];
        let (left, length) = (count - self.counts[after - 1], to.seconds - from.seconds);
        if left <= 0.0 {
            return from.seconds;
        }
        // rate·t + slope·t²/2 = left, in the form without cancellation for small slopes.
        let slope = (to.rate - from.rate) / length;
        let root = (from.rate * from.rate + 2.0 * slope * left).max(0.0).sqrt();
        from.seconds + (2.0 * left / (from.rate + root)).min(length)
    }
}

/// The planned starts of all requests, one after the other.
#[derive(Debug, Clone)]
pub struct SurgeSchedule {
    shape: LoadShape,
    arrivals: Arrivals,
    random: Random,
    warmup: f64,
    /// The number of requests up to the last start, counted from the end of the warm-up.
    position: f64,
}

impl SurgeSchedule {
    /// Creates the schedule of a shape after a warm-up at the shape's first rate.
    pub fn new(shape: LoadShape, arrivals: Arrivals, warmup: Duration, seed: u64) -> Self {
        let warmup = warmup.as_secs_f64();
        let position = -warmup * shape.points[0].rate;
        Self { shape, arrivals, random: Random::new(seed), warmup, position }
    }

    /// Returns the start of the next request, counted from the beginning of the warm-up; `None` after the last one.
    pub fn advance(&mut self) -> Option<Duration> {
        self.position += match self.arrivals {
            Arrivals::Constant => 1.0,
            Arrivals::Poisson => self.random.exponential(),
        };
        if self.position > self.shape.total() + COUNT_TOLERANCE {
            return None;
        }
        let seconds = if self.position > 0.0 {
            self.warmup + self.shape.time_of(self.position)
        } else {
            // The first rate is not zero: otherwise the warm-up has no requests.
            self.warmup + self.position / self.shape.points[0].rate.max(f64::MIN_POSITIVE)
        };
        Some(Duration::from_secs_f64(seconds.max(0.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn point(seconds: f64, rate: f64) -> ShapePoint {
        ShapePoint { seconds, rate }
    }

    fn starts(shape: &LoadShape, arrivals: Arrivals, warmup: u64, seed: u64) -> Vec<f64> {
        let warmup = Duration::from_secs(warmup);
        let mut schedule = SurgeSchedule::new(shape.clone(), arrivals, warmup, seed);
        std::iter::from_fn(|| schedule.advance()).map(|start| start.as_secs_f64()).collect()
    }

    /// Shapes of up to ten points with steps, pauses and times without requests.
    fn shapes() -> impl Strategy<Value = LoadShape> {
        let part = (0_u32..40, 0_u32..500);
        proptest::collection::vec(part, 2..10).prop_filter_map("no requests", |parts| {
            let mut seconds = 0.0;
            let points = parts.iter().enumerate().map(|(index, (tenths, rate))| {
                seconds += if index == 0 { 0.0 } else { f64::from(*tenths) / 10.0 };
                point(seconds, f64::from(*rate))
            });
            LoadShape::from_points(points.collect()).ok()
        })
    }

    proptest! {
        #[test]
        fn the_number_of_sends_is_the_integral_of_the_shape(shape in shapes()) {
            let starts = starts(&shape, Arrivals::Constant, 0, 1);
            prop_assert_eq!(starts.len(), (shape.total() + COUNT_TOLERANCE).floor() as usize);
            prop_assert!(starts.is_sorted());
            // Also up to any time in between.
            for tenth in 0..=10 {
                let until = shape.seconds() * f64::from(tenth) / 10.0;
                let count = starts.iter().filter(|start| **start <= until).count() as f64;
                prop_assert!((count - shape.expected(until)).abs() <= 1.0 + 1e-3, "{count} until {until}");
            }
        }

        #[test]
        fn random_sends_have_the_integral_as_their_mean(shape in shapes(), seed in 0_u64..1000) {
            let count = starts(&shape, Arrivals::Poisson, 0, seed).len() as f64;
            // Six standard deviations of a Poisson distribution: wrong once in a billion cases.
            let spread = 6.0 * shape.total().sqrt() + 3.0;
            prop_assert!((count - shape.total()).abs() <= spread, "{count} of {}", shape.total());
        }

        #[test]
        fn no_send_is_at_a_time_without_requests(rate in 1_u32..300) {
            let rate = f64::from(rate);
            let points = [point(0.0, rate), point(1.0, rate), point(1.0, 0.0), point(3.0, 0.0), point(3.0, rate), point(4.0, rate)];
            let shape = LoadShape::from_points(points.to_vec()).unwrap();
            let starts = starts(&shape, Arrivals::Constant, 0, 1);
            prop_assert!(starts.iter().all(|start| *start <= 1.0 + 1e-9 || *start >= 3.0 - 1e-9));
        }
    }

    #[test]
    fn the_named_shapes_have_their_rates() {
        for (shape, total, peak) in [
            (LoadShape::constant(100.0, 10.0), 1000.0, 100.0),
            (LoadShape::ramp(100.0, 10.0), 500.0, 100.0),
            (LoadShape::doubling(100.0, 20.0), 500.0 + 1500.0 + 1000.0, 200.0),
            (LoadShape::spike(100.0, 10.0), 800.0 + 2000.0, 1000.0),
        ] {
            let shape = shape.unwrap();
            assert!((shape.total() - total).abs() < 1e-6, "{shape:?}");
            assert!((shape.peak() - peak).abs() < 1e-6, "{shape:?}");
        }
        let doubling = LoadShape::doubling(100.0, 20.0).unwrap();
        for (seconds, expected) in [(5.0, 500.0), (10.0, 500.0 + 625.0), (15.0, 2000.0)] {
            assert!((doubling.expected(seconds) - expected).abs() < 1e-6, "{seconds}");
        }
    }

    #[test]
    fn a_warm_up_sends_at_the_first_rate_and_does_not_count() {
        let shape = LoadShape::constant(10.0, 1.0).unwrap();
        let all = starts(&shape, Arrivals::Constant, 2, 1);
        assert_eq!(all.len(), 30);
        assert_eq!(all.iter().filter(|start| **start <= 2.0 + 1e-9).count(), 20);
        // A ramp begins at zero, so there is nothing to warm up with.
        let ramp = LoadShape::ramp(10.0, 2.0).unwrap();
        let starts = starts(&ramp, Arrivals::Constant, 2, 1);
        assert!(starts.len() == 10 && starts[0] >= 2.0, "{starts:?}");
    }

    #[test]
    fn a_shape_is_scaled_in_both_directions() {
        let shape = LoadShape::doubling(100.0, 20.0).unwrap();
        let scaled = shape.scaled(Some(20.0), Some(10.0)).unwrap();
        assert_eq!((scaled.peak(), scaled.seconds(), scaled.points().len()), (20.0, 10.0, 4));
        assert_eq!(shape.scaled(None, None).unwrap(), shape);
        assert!(shape.scaled(Some(1e9), None).is_err());
    }

    #[test]
    fn impossible_shapes_are_refused_with_the_point() {
        for (points, expected) in [
            (vec![point(0.0, 1.0)], "from 2 to"),
            (vec![point(1.0, 1.0), point(2.0, 1.0)], "point 1: the first"),
            (vec![point(0.0, 1.0), point(2.0, 1.0), point(1.0, 1.0)], "point 3: 1 s is before"),
            (vec![point(0.0, 1.0), point(1.0, -1.0)], "point 2: the rate"),
            (vec![point(0.0, f64::NAN), point(1.0, 1.0)], "point 1: the rate"),
            (vec![point(0.0, 1.0), point(f64::INFINITY, 1.0)], "point 2: seconds"),
            (vec![point(0.0, 0.0), point(1.0, 0.0)], "no requests"),
            (vec![point(0.0, 5.0), point(0.0, 5.0)], "no requests"),
        ] {
            let error = LoadShape::from_points(points).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
