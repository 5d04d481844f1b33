//! Simulated latency and failures of subgraphs.
//!
//! They are drawn for each request from a seed and the request's number, so that a run can be reproduced.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::fault::Fault;
use crate::random::{Random, mix};
use crate::units::{format_duration, parse_duration};

/// The maximum delay of a response, whatever the distribution yields.
const DELAY_MAX: Duration = Duration::from_secs(300);

/// A distribution of the latency of responses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Latency {
    /// A constant: `20ms`.
    Fixed(Duration),
    /// Uniform between two times: `uniform(5ms,50ms)`.
    Uniform(Duration, Duration),
    /// Normal with mean and deviation: `normal(20ms,5ms)`; never below zero.
    Normal(Duration, Duration),
    /// Exponential with a mean: `exponential(20ms)`.
    Exponential(Duration),
    /// A long tail, by median and 99th percentile: `lognormal(20ms,200ms)`.
    LogNormal(Duration, Duration),
}

impl Default for Latency {
    fn default() -> Self {
        Self::Fixed(Duration::ZERO)
    }
}

impl Latency {
    /// Draws the delay of one response.
    pub fn sample(&self, random: &mut Random) -> Duration {
        let seconds = match *self {
            Self::Fixed(time) => return time,
            Self::Uniform(low, high) => {
                let (low, high) = (low.as_secs_f64(), high.as_secs_f64());
                low + (high - low) * random.unit()
            }
            Self::Normal(mean, deviation) => {
                mean.as_secs_f64() + deviation.as_secs_f64() * random.normal()
            }
            Self::Exponential(mean) => mean.as_secs_f64() * random.exponential(),
            Self::LogNormal(median, p99) => {
                // The 99th percentile of a standard normal distribution.
                const Z99: f64 = 2.326_347_874;
                let sigma = (p99.as_secs_f64() / median.as_secs_f64()).ln() / Z99;
                median.as_secs_f64() * (sigma * random.normal()).exp()
            }
        };
        Duration::from_secs_f64(seconds.clamp(0.0, DELAY_MAX.as_secs_f64()))
    }
}

impl FromStr for Latency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not a latency: write 20ms, uniform(5ms,50ms), normal(20ms,5ms), exponential(20ms) or \
                 lognormal(20ms,200ms), where the second time is the 99th percentile"
            )
        };
        let Some((kind, rest)) = text.trim().split_once('(') else {
            return parse_duration(text).map(Self::Fixed).map_err(|_| wrong());
        };
        let arguments = rest.strip_suffix(')').ok_or_else(wrong)?;
        let times: Vec<Duration> = arguments
            .split(',')
            .map(|time| parse_duration(time.trim()))
            .collect::<Result<_, _>>()
            .map_err(|_| wrong())?;
        match (kind.trim(), times.as_slice()) {
            ("uniform", [low, high]) if low <= high => Ok(Self::Uniform(*low, *high)),
            ("normal", [mean, deviation]) => Ok(Self::Normal(*mean, *deviation)),
            ("exponential", [mean]) => Ok(Self::Exponential(*mean)),
            ("lognormal", [median, p99]) if !median.is_zero() && p99 >= median => {
                Ok(Self::LogNormal(*median, *p99))
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |time: &Duration| format_duration(time.as_secs_f64());
        match self {
            Self::Fixed(time) => f.write_str(&show(time)),
            Self::Uniform(low, high) => write!(f, "uniform({}, {})", show(low), show(high)),
            Self::Normal(mean, deviation) => {
                write!(f, "normal({}, {})", show(mean), show(deviation))
            }
            Self::Exponential(mean) => write!(f, "exponential({})", show(mean)),
            Self::LogNormal(median, p99) => write!(f, "lognormal({}, {})", show(median), show(p99)),
        }
    }
}

/// The simulated latency and failures of all subgraphs of a server.
#[derive(Debug, Default)]
pub(super) struct SimulatedConditions {
    pub(super) latency: Latency,
    /// The share of requests that fail.
    pub(super) errors: f64,
    pub(super) seed: u64,
    requests: AtomicU64,
}

impl SimulatedConditions {
    /// Draws the delay of the next request, and its failure if it fails.
    pub(super) fn next(&self) -> (Duration, Option<Fault>) {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let mut random = Random::new(mix(self.seed, number));
        let delay = self.latency.sample(&mut random);
        if self.errors <= 0.0 || random.unit() >= self.errors {
            return (delay, None);
        }
        // The three common failures of subgraphs.
        let fault = match random.bits() % 3 {
            0 => Fault::InternalServerError,
            1 => Fault::GraphqlError {
                message: "a simulated failure".to_owned(),
                code: Some("SIMULATED".to_owned()),
            },
            _ => Fault::Down,
        };
        (delay, Some(fault))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_and_p99(latency: &str) -> (f64, f64) {
        let latency: Latency = latency.parse().unwrap();
        let mut random = Random::new(5);
        let mut samples: Vec<f64> =
            (0..20_000).map(|_| latency.sample(&mut random).as_secs_f64() * 1e3).collect();
        samples.sort_by(f64::total_cmp);
        (samples.iter().sum::<f64>() / samples.len() as f64, samples[samples.len() * 99 / 100])
    }

    #[test]
    fn delays_have_the_named_distribution() {
        for (latency, mean, p99) in [
            ("20ms", 20.0, 20.0),
            ("uniform(10ms, 30ms)", 20.0, 29.8),
            ("normal(20ms,5ms)", 20.0, 31.6),
            ("exponential(20ms)", 20.0, 92.1),
            ("lognormal(20ms,200ms)", 32.6, 200.0),
        ] {
            let (found_mean, found_p99) = mean_and_p99(latency);
            assert!((found_mean - mean).abs() < mean * 0.05, "{latency}: mean {found_mean}");
            assert!((found_p99 - p99).abs() < p99 * 0.1, "{latency}: p99 {found_p99}");
        }
    }

    #[test]
    fn malformed_latencies_are_refused() {
        for text in
            ["", "fast", "normal(20ms)", "uniform(5ms,1ms)", "lognormal(0s,1s)", "normal(1s,1s"]
        {
            assert!(text.parse::<Latency>().is_err(), "{text}");
        }
    }

    #[test]
    fn failures_have_the_requested_share_and_are_repeated_by_the_same_seed() {
        let draw = |seed| {
            let weather =
                SimulatedConditions { errors: 0.1, seed, ..SimulatedConditions::default() };
            (0..10_000).map(|_| weather.next().1).collect::<Vec<_>>()
        };
        let failed = draw(1).iter().filter(|fault| fault.is_some()).count();
        assert!((900..1100).contains(&failed), "{failed}");
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
