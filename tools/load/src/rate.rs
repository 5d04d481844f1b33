//! Open-loop load: the scheduled start of each request, independent of the requests before it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::random::Random;
use crate::units::{format_number, parse_duration};

/// The maximum number of requests a second; it exceeds the capacity of one thread.
pub(crate) const RATE_MAX: f64 = 1_000_000.0;

/// Requests a second over time: `500`, or `1000..2000/120s` for a rate that changes linearly and then stays.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Requests a second at the beginning, and during the warm-up.
    pub from: f64,
    /// Requests a second at the end of `over_seconds`, and from then on.
    pub to: f64,
    /// The duration of the change; zero for a constant rate.
    pub over_seconds: f64,
}

/// The distribution of requests within the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Equal gaps.
    #[default]
    Constant,
    /// Exponential gaps, as of independent clients.
    Poisson,
}

impl Rate {
    /// Creates a constant rate.
    pub fn constant(rate: f64) -> Self {
        Self { from: rate, to: rate, over_seconds: 0.0 }
    }

    /// Returns the duration of the change; `None` for a constant rate.
    pub fn change(&self) -> Option<Duration> {
        (self.over_seconds > 0.0).then(|| Duration::from_secs_f64(self.over_seconds))
    }

    /// Returns the number of requests expected up to this time after the warm-up.
    pub fn expected(&self, seconds: f64) -> f64 {
        let Self { from, to, over_seconds: over } = *self;
        if seconds <= over {
            from * seconds
                + if over > 0.0 { (to - from) * seconds * seconds / (2.0 * over) } else { 0.0 }
        } else {
            (from + to) / 2.0 * over + to * (seconds - over)
        }
    }

    /// Returns the time at which `count` requests are expected, the inverse of [`Self::expected`]. Negative counts are
    /// in the warm-up.
    fn time_of(&self, count: f64) -> f64 {
        let Self { from, to, over_seconds: over } = *self;
        if count <= 0.0 {
            return count / from;
        }
        let changing = (from + to) / 2.0 * over;
        if count >= changing {
            return over + (count - changing) / to;
        }
        // from·t + (to − from)·t² / (2·over) = count, in the form without cancellation for small slopes.
        let slope = (to - from) / over;
        2.0 * count / (from + (from * from + 2.0 * slope * count).sqrt())
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| {
            let rate =
                part.trim().parse::<f64>().ok().filter(|rate| *rate > 0.0 && *rate <= RATE_MAX);
            rate.ok_or_else(|| {
                format!("`{part}` is not a rate: write requests a second, at most {RATE_MAX}")
            })
        };
        let Some((from, rest)) = text.split_once("..") else {
            return number(text).map(Self::constant);
        };
        let (to, over) = rest
            .split_once('/')
            .ok_or_else(|| format!("`{text}` has no duration: write 1000..2000/120s"))?;
        let over_seconds = parse_duration(over)?.as_secs_f64();
        if over_seconds <= 0.0 {
            return Err(format!("`{text}`: the duration must be longer than zero"));
        }
        Ok(Self { from: number(from)?, to: number(to)?, over_seconds })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.over_seconds > 0.0 {
            write!(
                f,
                "{}..{}/{}s",
                format_number(self.from),
                format_number(self.to),
                self.over_seconds
            )
        } else {
            write!(f, "{}", format_number(self.from))
        }
    }
}

/// The starts of all requests, one after the other.
#[derive(Debug, Clone)]
pub struct Schedule {
    rate: Rate,
    arrivals: Arrivals,
    random: Random,
    warmup: Duration,
    /// The number of requests expected up to the last start, counted from the end of the warm-up.
    position: f64,
}

impl Schedule {
    /// Creates a schedule that begins with the warm-up, at the rate's beginning.
    pub fn new(rate: Rate, arrivals: Arrivals, warmup: Duration, seed: u64) -> Self {
        let position = -warmup.as_secs_f64() * rate.from;
        Self { rate, arrivals, random: Random::new(seed), warmup, position }
    }

    /// Returns the start of the next request, counted from the beginning of the warm-up.
    pub fn advance(&mut self) -> Duration {
        self.position += match self.arrivals {
            Arrivals::Constant => 1.0,
            Arrivals::Poisson => self.random.exponential(),
        };
        let seconds = self.warmup.as_secs_f64() + self.rate.time_of(self.position);
        Duration::from_secs_f64(seconds.max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(rate: &str, arrivals: Arrivals, warmup: u64, until: f64) -> Vec<f64> {
        let warmup = Duration::from_secs(warmup);
        let mut schedule = Schedule::new(rate.parse().unwrap(), arrivals, warmup, 1);
        std::iter::from_fn(|| Some(schedule.advance().as_secs_f64()))
            .take_while(|start| *start <= until + 1e-9)
            .collect()
    }

    #[test]
    fn a_constant_rate_has_equal_gaps_from_the_warm_up_on() {
        let starts = starts("4", Arrivals::Constant, 1, 2.0);
        assert_eq!(starts, [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0]);
    }

    #[test]
    fn a_changing_rate_starts_the_expected_number_of_requests() {
        let starts = starts("100..300/10s", Arrivals::Constant, 1, 16.0);
        let between = |from: f64, to: f64| {
            starts.iter().filter(|start| **start > from && **start <= to).count() as i64
        };
        for (from, to, expected) in [
            (0.0, 1.0, 100),
            (1.0, 2.0, 110),
            (10.0, 11.0, 290),
            (1.0, 11.0, 2000),
            (11.0, 16.0, 1500),
        ] {
            assert!((between(from, to) - expected).abs() <= 1, "{from} to {to}");
        }
        assert!(starts.is_sorted());
        let falling: Rate = "300..100/10s".parse().unwrap();
        assert!((falling.time_of(falling.expected(7.0)) - 7.0).abs() < 1e-9);
    }

    #[test]
    fn poisson_arrivals_keep_the_rate_and_have_exponential_gaps() {
        let starts = starts("1000", Arrivals::Poisson, 0, 100.0);
        let count = starts.len() as f64;
        assert!((count - 100_000.0).abs() < 1500.0, "{count}");
        let gaps: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let deviation = (gaps.iter().map(|gap| (gap - 0.001).powi(2)).sum::<f64>() / count).sqrt();
        assert!((deviation - 0.001).abs() < 0.000_05, "{deviation}");
    }

    #[test]
    fn malformed_rates_are_refused() {
        for text in ["", "0", "-1", "x", "1..2", "1../3s", "1..2/0s", "1e9", "NaN", "inf"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        assert_eq!("1000..2000/120s".parse::<Rate>().unwrap().to_string(), "1,000..2,000/120s");
    }
}
