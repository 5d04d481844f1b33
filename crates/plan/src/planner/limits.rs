//! The limits of planning, and of the requests of a plan.

use std::sync::Arc;

/// Bounds on planning, and on the requests of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The number of steps after which greedy choices replace exact ones. Planning ends after four times as many.
    pub steps: u64,
    /// The bounds on batches of entities.
    pub batching: Batching,
}

impl Default for Limits {
    fn default() -> Self {
        Self { steps: 1_000_000, batching: Batching::default() }
    }
}

/// The bounds on batches of entities, by subgraph.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batching {
    /// The bounds, indexed by the subgraph's number. Missing entries have the defaults.
    pub subgraphs: Arc<[BatchLimits]>,
}

impl Batching {
    /// Returns the bounds of one subgraph.
    pub(super) fn of(&self, subgraph: graph::SubgraphId) -> BatchLimits {
        self.subgraphs.get(usize::from(subgraph.0)).copied().unwrap_or_default()
    }
}

/// Bounds of one request for entities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchLimits {
    /// The maximum number of aliases of `_entities`; 1 turns batching over different selections off.
    pub aliases: u32,
    /// The maximum number of representations.
    pub representations: u32,
}

impl Default for BatchLimits {
    /// Returns bounds that respect the usual limits of subgraphs. The strictest known default for aliases or root
    /// fields is 15, for the size of a request 100 kB: a thousand representations have some 50 bytes each.
    fn default() -> Self {
        Self { aliases: 15, representations: 1000 }
    }
}

/// The factor on [`Limits::steps`] after which planning ends with an error. The bound holds for all of planning:
/// choosing, writing the requests, and the shape of the response.
pub(super) const STEPS_FACTOR_MAX: u64 = 4;
