//! Settings of the cost of operations.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The cost of operations: estimated before anything is fetched, measured from the response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cost {
    /// The use of estimates and of the costs of responses.
    #[schemars(example = &"measure")]
    pub mode: CostMode,

    /// The maximum cost of an operation. By default only the maxima of subgraphs apply.
    #[schemars(extend("default" = null), range(min = 1, max = 1_000_000_000_000_u64), example = 2000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,

    /// The length of lists that no `@listSize` describes. `0` makes them free.
    #[schemars(range(min = 0, max = 1_000_000), example = 20)]
    pub list_size: u32,

    /// Shows the cost to clients that send the header `starling-cost: 1`: in `extensions.cost` of the response, and
    /// over HTTP in the headers `starling-cost-estimated` and `starling-cost-actual`. On a WebSocket the header of the
    /// handshake counts.
    #[schemars(example = true)]
    pub expose: bool,

    /// The maximum costs of the requests to single subgraphs.
    pub subgraphs: SubgraphCosts,
}

impl Default for Cost {
    fn default() -> Self {
        Self {
            mode: CostMode::Off,
            max: None,
            // The length of a page in many interfaces. Longer lists deserve a directive.
            list_size: 10,
            expose: false,
            subgraphs: SubgraphCosts::default(),
        }
    }
}

/// The use of estimates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CostMode {
    /// Costs are not computed.
    #[default]
    Off,
    /// Costs are counted in metrics.
    Measure,
    /// Costs are counted, and operations with an estimate above a maximum are refused with the code
    /// `COST_ESTIMATED_TOO_EXPENSIVE`.
    Enforce,
}

/// The costs of requests to subgraphs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SubgraphCosts {
    /// The settings for every subgraph.
    pub all: SubgraphCost,

    /// Other settings for single subgraphs, by the name they have in the supergraph. Keys that are left out keep the
    /// value of `cost.subgraphs.all`.
    pub subgraphs: BTreeMap<String, SubgraphCost>,
}

/// The costs of requests to one subgraph.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SubgraphCost {
    /// The maximum cost of all requests to the subgraph for one operation. Without it there is no maximum.
    #[schemars(extend("default" = null), range(min = 1, max = 1_000_000_000_000_u64), example = 500)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,

    /// The length of lists of the subgraph that no `@listSize` describes, for its own cost. Without it `cost.list_size`
    /// applies.
    #[schemars(extend("default" = null), range(min = 0, max = 1_000_000), example = 50)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list_size: Option<u32>,
}

impl Cost {
    /// Returns the maximum cost of the requests to a subgraph.
    pub fn max_of(&self, subgraph: &str) -> Option<u64> {
        let own = self.subgraphs.subgraphs.get(subgraph).and_then(|it| it.max);
        own.or(self.subgraphs.all.max)
    }

    /// Returns the length of lists of a subgraph that no directive describes.
    pub fn list_size_of(&self, subgraph: &str) -> u32 {
        let own = self.subgraphs.subgraphs.get(subgraph).and_then(|it| it.list_size);
        own.or(self.subgraphs.all.list_size).unwrap_or(self.list_size)
    }

    /// True if a subgraph may have a maximum.
    pub fn has_subgraph_max(&self) -> bool {
        let all = std::iter::once(&self.subgraphs.all).chain(self.subgraphs.subgraphs.values());
        all.into_iter().any(|it| it.max.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subgraph_inherits_the_costs_that_it_does_not_set() {
        let mut cost = Cost { list_size: 7, ..Cost::default() };
        assert!(!cost.has_subgraph_max());
        let own = SubgraphCost { max: Some(5), list_size: None };
        cost.subgraphs.subgraphs.insert("reviews".into(), own);
        assert!(cost.has_subgraph_max());
        assert_eq!((cost.max_of("reviews"), cost.max_of("users")), (Some(5), None));
        cost.subgraphs.all = SubgraphCost { max: Some(9), list_size: Some(3) };
        assert_eq!((cost.max_of("reviews"), cost.max_of("users")), (Some(5), Some(9)));
        assert_eq!((cost.list_size_of("reviews"), cost.list_size_of("users")), (3, 3));
    }
}
