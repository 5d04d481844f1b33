//! Settings of live queries.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::findings::{Findings, KeyPlaces};
use super::format::DurationOrZeroText;
use super::quantity;

/// Queries that are executed again when something has changed that their result was made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LiveQueries {
    /// Allows `query @live { … }` over every transport of subscriptions. Needs `cache.enabled`.
    #[schemars(example = true)]
    pub enabled: bool,

    /// The minimum time between two executions of one live query. Clients can ask for a longer one with
    /// `@live(throttle:)`.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationOrZeroText", example = &"500ms")]
    pub throttle_min: Duration,

    /// The maximum number of different live queries, each with any number of watchers. Further ones are refused with
    /// the code `OVERLOADED`.
    #[schemars(range(min = 1, max = 1_000_000), example = 1000)]
    pub max_queries: u32,

    /// The maximum number of tags that all live queries watch: entities, types, subgraphs and tags of responses. A live
    /// query that would exceed it is executed after every invalidation. A tag takes about 80 bytes.
    #[schemars(range(min = 1, max = 100_000_000), example = 200_000)]
    pub max_tags: u32,
}

impl Default for LiveQueries {
    fn default() -> Self {
        Self {
            enabled: false,
            throttle_min: Duration::from_millis(100),
            max_queries: 10_000,
            max_tags: 1_000_000,
        }
    }
}

impl LiveQueries {
    /// Warns if they have no effect.
    pub(super) fn check(&self, has_cache: bool, places: &KeyPlaces, findings: &mut Findings) {
        if self.enabled && !has_cache {
            findings
                .warning(
                    "no-effect",
                    "`live_queries.enabled` has no effect without `cache.enabled`",
                )
                .at_place(places.get("live_queries.enabled"), "not used")
                .help("set `cache.enabled: true`: the caches know what a result was made of");
        }
    }
}
