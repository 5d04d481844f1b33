//! Settings of subgraphs and of the requests that go to them.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::{DurationText, HttpUrlText, SizeText};
use super::{duration, size};

/// Settings of one subgraph.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SubgraphSettings {
    /// Where the subgraph is; replaces the URL that the supergraph gives.
    #[schemars(with = "Option<HttpUrlText>", example = &"http://reviews.internal:4001/graphql")]
    pub url: Option<String>,
}

/// Timeouts and bounds of requests to subgraphs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Traffic {
    /// What holds for every subgraph.
    pub all: TrafficSettings,

    /// What is different for single subgraphs, by the name they have in the supergraph. Keys that
    /// are left out keep the value of `traffic.all`.
    pub subgraphs: BTreeMap<String, TrafficOverride>,
}

impl Traffic {
    /// What holds for one subgraph.
    pub fn of(&self, subgraph: &str) -> TrafficSettings {
        let special = self.subgraphs.get(subgraph);
        TrafficSettings {
            timeout: special.and_then(|s| s.timeout).unwrap_or(self.all.timeout),
            max_response_size: special
                .and_then(|s| s.max_response_size)
                .unwrap_or(self.all.max_response_size),
            max_connections: special
                .and_then(|s| s.max_connections)
                .unwrap_or(self.all.max_connections),
        }
    }
}

/// How requests to subgraphs are bounded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrafficSettings {
    /// How long a request to a subgraph may take, from connecting to the last byte of the answer.
    /// After that its fields are null, with an error.
    #[serde(with = "duration::text")]
    #[schemars(with = "DurationText", example = &"10s")]
    pub timeout: Duration,

    /// How large an answer of a subgraph may be. Reading stops there, and the answer counts as
    /// failed.
    #[serde(with = "size::text")]
    #[schemars(with = "SizeText", example = &"16MiB")]
    pub max_response_size: usize,

    /// How many connections to one subgraph may be open at a time. Further requests wait for one
    /// until their timeout.
    #[schemars(range(min = 1, max = 100_000), example = 200)]
    pub max_connections: u32,
}

impl Default for TrafficSettings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            max_response_size: 64 << 20,
            max_connections: 1024,
        }
    }
}

/// What is different for one subgraph.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrafficOverride {
    /// As `traffic.all.timeout`, for this subgraph.
    #[serde(with = "duration::optional_text")]
    #[schemars(with = "Option<DurationText>", example = &"2s")]
    pub timeout: Option<Duration>,

    /// As `traffic.all.max_response_size`, for this subgraph.
    #[serde(with = "size::optional_text")]
    #[schemars(with = "Option<SizeText>", example = &"256MiB")]
    pub max_response_size: Option<usize>,

    /// As `traffic.all.max_connections`, for this subgraph.
    #[schemars(range(min = 1, max = 100_000), example = 50)]
    pub max_connections: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_subgraph_does_not_set_holds_for_all() {
        let mut traffic = Traffic::default();
        traffic.subgraphs.insert(
            "slow".into(),
            TrafficOverride { timeout: Some(Duration::from_secs(90)), ..Default::default() },
        );
        assert_eq!(traffic.of("other"), traffic.all);
        assert_eq!(
            traffic.of("slow"),
            TrafficSettings { timeout: Duration::from_secs(90), ..Default::default() }
        );
    }
}
