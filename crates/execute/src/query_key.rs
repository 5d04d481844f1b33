//! The identity of queries to subgraphs, by which they are shared.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use graph::SubgraphId;

use crate::ForwardedHeaders;

/// The identity of a query.
#[derive(Clone, Debug)]
pub(crate) struct QueryKey {
    pub(crate) epoch: u64,
    pub(crate) generation: u64,
    pub(crate) subgraph: SubgraphId,
    pub(crate) body: Bytes,
    /// The headers for all subgraphs; only those for this one count.
    pub(crate) headers: Arc<ForwardedHeaders>,
}

impl PartialEq for QueryKey {
    fn eq(&self, other: &Self) -> bool {
        self.epoch == other.epoch
            && self.generation == other.generation
            && self.subgraph == other.subgraph
            && self.body == other.body
            && self.headers.of(self.subgraph).forwarded
                == other.headers.of(other.subgraph).forwarded
    }
}

impl Eq for QueryKey {}

impl Hash for QueryKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.epoch.hash(state);
        self.generation.hash(state);
        self.subgraph.hash(state);
        self.body.hash(state);
        self.headers.of(self.subgraph).forwarded.hash(state);
    }
}
