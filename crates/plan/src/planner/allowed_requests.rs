//! The requests that a solution may make. The solver finds the best solution within them.

use std::collections::BTreeSet;

use graph::{SubgraphId, Supergraph};

/// The requests that a solution may make: subgraphs and the waves of their requests.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct AllowedRequests(BTreeSet<(SubgraphId, u32)>);

impl FromIterator<(SubgraphId, u32)> for AllowedRequests {
    fn from_iter<I: IntoIterator<Item = (SubgraphId, u32)>>(requests: I) -> Self {
        Self(requests.into_iter().collect())
    }
}

impl AllowedRequests {
    /// Returns the requests, by subgraph and then by wave.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SubgraphId, u32)> + '_ {
        self.0.iter().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the last wave that may contain a request.
    pub(super) fn waves(&self) -> u32 {
        self.iter().map(|(_, wave)| wave).max().unwrap_or(0)
    }

    pub(super) fn contains(&self, request: (SubgraphId, u32)) -> bool {
        self.0.contains(&request)
    }

    /// Returns the first wave from `earliest` on that may contain a request to `subgraph`.
    pub(super) fn next(&self, subgraph: SubgraphId, earliest: u32) -> Option<u32> {
        self.0.range((subgraph, earliest)..=(subgraph, u32::MAX)).next().map(|&(_, wave)| wave)
    }

    /// Returns the requests without this one.
    pub(super) fn without(&self, request: (SubgraphId, u32)) -> Self {
        let mut less = self.clone();
        less.0.remove(&request);
        less
    }

    /// Returns all subgraphs in every wave up to `waves`.
    pub(super) fn all(graph: &Supergraph, waves: u32) -> Self {
        graph.subgraph_ids().flat_map(|it| (1..=waves).map(move |wave| (it, wave))).collect()
    }
}
