//! The model of costs that holds for all operations of one graph: settings, and the weights of inputs.

use std::sync::Arc;

use graph::Supergraph;

use crate::CostStats;
use crate::input_weights::InputWeights;

/// The settings of cost estimates.
#[derive(Clone, Debug)]
pub struct CostSettings {
    /// The length of lists that no directive describes.
    pub list_size: u64,
    /// The length of such lists in requests to each subgraph, by [`graph::SubgraphId`]; empty if costs of single
    /// subgraphs are not needed.
    pub subgraph_list_sizes: Vec<u64>,
    /// The counters of all costs.
    pub stats: Arc<CostStats>,
}

/// The cost of a mutation in addition to the cost of its fields: writing is dearer than reading, also if the result is
/// a leaf.
pub(crate) const MUTATION_WEIGHT: u64 = 10 * graph::WEIGHT_PARTS as u64;

/// The costs of one graph with settings and counters.
#[derive(Debug)]
pub struct CostModel {
    pub(crate) settings: CostSettings,
    pub(crate) inputs: InputWeights,
}

impl CostModel {
    /// Creates the model of `graph`.
    pub fn new(graph: &Supergraph, settings: CostSettings) -> Self {
        Self { settings, inputs: InputWeights::of(graph) }
    }
}
