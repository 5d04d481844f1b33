//! SharedWork of whole operations in flight: the key that decides whether two operations are equal.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::prepared_request::PreparedRequest;
use execute::{GraphqlError, Payload, SubgraphFlights};
use single_flight::SingleFlight;

/// Work in flight that several requests share. It belongs to the process and outlives generations.
#[derive(Clone, Debug)]
pub struct SharedWork {
    /// Whole operations; `None` if turned off.
    pub operations: Option<Arc<OperationFlights>>,
    /// Queries to subgraphs, and the epoch that mutations advance.
    pub subgraphs: Arc<execute::Sharing>,
}

/// Operations in flight.
pub type OperationFlights = SingleFlight<OperationKey, Result<Payload, Vec<GraphqlError>>>;

impl SharedWork {
    /// Creates the state from the configuration.
    pub fn new(config: &config::Sharing) -> Self {
        let subgraph_queries = config.subgraph_queries.then(SubgraphFlights::default);
        Self {
            operations: config.operations.then(Arc::default),
            subgraphs: Arc::new(execute::Sharing { subgraph_queries, ..Default::default() }),
        }
    }
}

/// The key of an operation in flight. Two operations are equal if generation, operation, variables and every forwarded
/// header are equal, and no mutation has ended between them.
#[derive(Clone, Debug)]
pub struct OperationKey {
    /// The epoch, see [`execute::Epoch`].
    pub epoch: u64,
    /// The operation, which contains the rest of the key.
    pub ready: Arc<PreparedRequest>,
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
