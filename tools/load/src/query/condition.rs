//! A condition on a run: `p50<200ms`, `p99<2s and errors<0.1%`.

use std::fmt;
use std::str::FromStr;

use crate::report::Run;
use crate::units::{format_duration, parse_duration, parse_share};

/// A condition on a run; all parts must hold.
#[derive(Debug, Clone, PartialEq)]
pub struct RunCondition(Vec<ConditionPart>);

#[derive(Debug, Clone, Copy, PartialEq)]
enum ConditionPart {
    /// This share of the responses takes less than `seconds`; a share of 1 means all responses.
    Quantile { share: f64, seconds: f64 },
    /// The mean is less than `seconds`.
    Mean { seconds: f64 },
    /// The share of failures is less than `share`.
    Failures { share: f64 },
}

impl RunCondition {
    /// True if the run meets the condition. Without a part about errors, a single failure violates it.
    pub fn holds(&self, run: &Run) -> bool {
        let has_failure_limit =
            self.0.iter().any(|part| matches!(part, ConditionPart::Failures { .. }));
        (has_failure_limit || run.failed == 0)
            && run.requests > run.failed
            && self.0.iter().all(|part| match *part {
                ConditionPart::Quantile { share, seconds } => {
                    run.quantile_us(share) < seconds * 1e6
                }
                ConditionPart::Mean { seconds } => run.latency.mean_us < seconds * 1e6,
                ConditionPart::Failures { share } => {
                    (run.failed as f64) < share * (run.requests as f64).max(1.0)
                }
            })
    }
}

impl FromStr for RunCondition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.replace(" and ", ",").split(',').map(part).collect::<Result<_, _>>().map(Self)
    }
}

fn part(text: &str) -> Result<ConditionPart, String> {
    let wrong = || {
        format!(
            "`{text}` is not a condition: write p50<200ms, p99.9<1s, mean<5ms, max<2s or errors<1%"
        )
    };
    let (what, limit) = text.split_once('<').ok_or_else(wrong)?;
    let (what, limit) = (what.trim(), limit.trim().trim_start_matches('='));
    let seconds = || parse_duration(limit).map(|duration| duration.as_secs_f64());
    match what {
        "errors" | "failures" => Ok(ConditionPart::Failures { share: parse_share(limit)? }),
        "mean" => Ok(ConditionPart::Mean { seconds: seconds()? }),
        "max" => Ok(ConditionPart::Quantile { share: 1.0, seconds: seconds()? }),
        _ => {
            let percent = what.strip_prefix('p').and_then(|number| number.parse::<f64>().ok());
            let percent = percent.filter(|percent| *percent > 0.0 && *percent < 100.0);
            let share = percent.ok_or_else(wrong)? / 100.0;
            Ok(ConditionPart::Quantile { share, seconds: seconds()? })
        }
    }
}

impl fmt::Display for RunCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(" and ")?;
            }
            match *part {
                ConditionPart::Quantile { share, seconds } if share >= 1.0 => {
                    write!(f, "max < {}", format_duration(seconds))?;
                }
                ConditionPart::Quantile { share, seconds } => {
                    let percent = (share * 1e5).round() / 1e3;
                    write!(f, "p{percent} < {}", format_duration(seconds))?;
                }
                ConditionPart::Mean { seconds } => {
                    write!(f, "mean < {}", format_duration(seconds))?;
                }
                ConditionPart::Failures { share } => write!(f, "errors < {}%", share * 100.0)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Histogram;
    use crate::report::LatencySummary;

    #[test]
    fn conditions_are_read_and_shown() {
        for (text, expected) in [
            ("p50<200ms", Some("p50 < 200 ms")),
            ("p99.9 < 2s and errors<0.5%", Some("p99.9 < 2.00 s and errors < 0.5%")),
            ("mean<=3ms,max<1s", Some("mean < 3.00 ms and max < 1.00 s")),
            ("p0<1s", None),
            ("p100<1s", None),
            ("p50>1s", None),
            ("p50<1", None),
            ("median<1s", None),
            ("", None),
        ] {
            let read = text.parse::<RunCondition>().ok().map(|condition| condition.to_string());
            assert_eq!(read.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_failure_violates_a_condition_that_does_not_tolerate_it() {
        let mut histogram = Histogram::default();
        (0..99).for_each(|_| histogram.record(1_000_000));
        let mut run = Run {
            requests: 100,
            failed: 1,
            latency: LatencySummary::from_histogram(&histogram),
            histogram: histogram.buckets(),
            ..Run::default()
        };
        let holds = |text: &str, run: &Run| text.parse::<RunCondition>().unwrap().holds(run);
        assert!(!holds("p50<2ms", &run));
        assert!(holds("p50<2ms and errors<2%", &run));
        assert!(!holds("p50<2ms and errors<1%", &run));
        run.failed = 0;
        assert!(holds("p50<2ms", &run));
        assert!(!holds("p50<1ms", &run));
        run.requests = 0;
        assert!(!holds("p50<2ms", &run), "a run without responses meets no condition");
    }
}
