//! Which operations in flight are one: what sharing whole operations needs beside `flights`.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use execute::{GraphqlError, Payload, SubgraphFlights};
use flights::Flights;

use crate::config;
use crate::operation::Ready;

/// Work in flight that several requests wait for. Process-wide, and older than any generation.
#[derive(Debug)]
pub(crate) struct Sharing {
    /// Whole operations; `None`: turned off.
    pub(crate) operations: Option<Arc<OperationFlights>>,
    /// Queries to subgraphs, and the epoch that mutations advance.
    pub(crate) subgraphs: Arc<execute::Sharing>,
}

/// Operations in flight.
pub(crate) type OperationFlights = Flights<OperationKey, Result<Payload, Vec<GraphqlError>>>;

impl Sharing {
    /// As configured.
    pub(crate) fn new(config: &config::Sharing) -> Self {
        let subgraph_queries = config.subgraph_queries.then(SubgraphFlights::default);
        Self {
            operations: config.operations.then(Arc::default),
            subgraphs: Arc::new(execute::Sharing { subgraph_queries, ..Default::default() }),
        }
    }
}

/// What makes two operations one: generation, operation, variables, every forwarded header, and that no mutation
/// has ended between them.
#[derive(Clone, Debug)]
pub(crate) struct OperationKey {
    /// See [`execute::Epoch`].
    pub(crate) epoch: u64,
    /// The rest.
    pub(crate) ready: Arc<Ready>,
}

impl PartialEq for OperationKey {
    fn eq(&self, other: &Self) -> bool {
        let (ours, theirs) = (&*self.ready, &*other.ready);
        self.epoch == other.epoch
            && ours.loaded.generation.number == theirs.loaded.generation.number
            && ours.prepared.operation_id == theirs.prepared.operation_id
            && ours.variables == theirs.variables
            && ours.headers == theirs.headers
    }
}

impl Eq for OperationKey {}

impl Hash for OperationKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let ready = &*self.ready;
        self.epoch.hash(state);
        ready.loaded.generation.number.hash(state);
        ready.prepared.operation_id.hash(state);
        ready.variables.hash(state);
        ready.headers.hash(state);
    }
}
