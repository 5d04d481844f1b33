//! Settings of hedging: requests to subgraphs that are sent a second time because their response is late.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::HedgeDelayText;
use super::quantity::{self, Quantity};

/// The lowest percentile. A lower one would send most requests twice, were it not for the budget.
const PERCENT_MIN: u8 = 50;

/// The highest percentile. A higher one needs more requests than most subgraphs get within half a minute.
const PERCENT_MAX: u8 = 99;

/// Requests that are sent a second time because their response is late.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HedgePolicy {
    /// Turns hedging on.
    #[schemars(example = true)]
    pub enabled: bool,

    /// The time without a complete response after which the second request is sent: a duration, or the percentile of
    /// the latencies of the last 30 to 60 seconds, from `p50` to `p99`. A percentile needs 20 requests in this time, a
    /// high one more (`p99`: 100); with fewer nothing is sent.
    #[serde(with = "quantity::text")]
    #[schemars(with = "HedgeDelayText", example = &"150ms")]
    pub after: HedgeDelay,

    /// The maximum number of second requests in percent of the number of requests: the load that hedging adds to a
    /// subgraph. There is no reserve, and at most ten second requests are saved up.
    #[schemars(range(min = 1, max = 100), example = 2)]
    pub budget_percent: u32,
}

impl Default for HedgePolicy {
    fn default() -> Self {
        Self { enabled: false, after: HedgeDelay::Percentile(95), budget_percent: 5 }
    }
}

/// The hedging settings that are different for one subgraph.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HedgeOverride {
    /// The value of `traffic.all.hedge.enabled` for this subgraph.
    #[schemars(example = true)]
    pub enabled: Option<bool>,

    /// The value of `traffic.all.hedge.after` for this subgraph.
    #[serde(with = "quantity::optional_text")]
    #[schemars(with = "Option<HedgeDelayText>", example = &"p90")]
    pub after: Option<HedgeDelay>,

    /// The value of `traffic.all.hedge.budget_percent` for this subgraph.
    #[schemars(range(min = 1, max = 100), example = 2)]
    pub budget_percent: Option<u32>,
}

/// The time without a response after which a request is sent a second time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HedgeDelay {
    /// This time.
    Fixed(Duration),
    /// The time in which this percentage of the recent requests had their response.
    Percentile(u8),
}

impl Quantity for HedgeDelay {
    fn parse(text: &str) -> Result<Self, String> {
        let Some(percent) = text.strip_prefix('p') else {
            return match Duration::parse(text)? {
                zero if zero.is_zero() => Err("it must be longer than zero".into()),
                duration => Ok(Self::Fixed(duration)),
            };
        };
        match percent.parse() {
            Ok(percent) if (PERCENT_MIN..=PERCENT_MAX).contains(&percent) => {
                Ok(Self::Percentile(percent))
            }
            _ => Err(format!("it is no percentile from `p{PERCENT_MIN}` to `p{PERCENT_MAX}`")),
        }
    }

    fn print(&self) -> String {
        match self {
            Self::Fixed(duration) => duration.print(),
            Self::Percentile(percent) => format!("p{percent}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_a_duration_or_a_percentile() {
        for (text, expected) in [
            ("150ms", Ok(HedgeDelay::Fixed(Duration::from_millis(150)))),
            ("p50", Ok(HedgeDelay::Percentile(50))),
            ("p99", Ok(HedgeDelay::Percentile(99))),
            ("p49", Err("it is no percentile from `p50` to `p99`")),
            ("p99.9", Err("it is no percentile from `p50` to `p99`")),
            ("p", Err("it is no percentile from `p50` to `p99`")),
            ("0s", Err("it must be longer than zero")),
            ("95", Err("the unit is missing")),
        ] {
            let parsed = HedgeDelay::parse(text);
            assert_eq!(parsed, expected.map_err(str::to_owned), "{text}");
            if let Ok(delay) = parsed {
                assert_eq!(delay.print(), text);
            }
        }
    }
}
