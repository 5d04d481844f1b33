//! The context of an execution beside plan and variables: the generation, the forwarded headers, the
//! deadline.

use std::sync::Arc;
use std::time::Instant;

use admission::memory::MemoryAccount;
use graph::{SubgraphId, Supergraph};
use plan::Plan;

use crate::caching::{RequestCaching, SubgraphCaches};
use crate::{Claims, Disclosure, ForwardedHeaders, Publisher, Sharing, Subgraph, Trace, Uploads};

/// One immutable loaded graph with everything that serves it. A reload creates a new one; requests
/// and subscriptions hold theirs by `Arc`.
pub struct Generation {
    /// Counts loads from 1.
    pub number: u64,
    /// Hash of the supergraph's text.
    pub graph_id: u64,
    /// The model.
    pub graph: Arc<Supergraph>,
    /// The subgraphs by [`SubgraphId`]. Event subgraphs have a stand-in that refuses requests.
    pub subgraphs: Vec<Arc<dyn Subgraph>>,
    /// Publishes and sends requests for the root fields of event subgraphs.
    pub publisher: Arc<dyn Publisher>,
    /// The errors and headers of subgraphs that clients see beside the data.
    pub disclosure: Disclosure,
    /// The caches of subgraphs' responses; `None` if nothing is stored.
    pub caches: Option<Arc<SubgraphCaches>>,
    /// The memory of the process.
    pub memory: Arc<MemoryAccount>,
}

impl Generation {
    /// Returns the id that metrics, logs and responses show: the hash of the supergraph and the number of the load. The
    /// hash is the same in all routers and after a rollback, and the number tells loads of this process apart.
    pub fn id(&self) -> String {
        format!("{:016x}-{}", self.graph_id, self.number)
    }

    /// The number of invalidations so far; 0 without caches. Work that began before one is not shared with a request
    /// that comes after it, which must not get anything older.
    pub fn invalidations(&self) -> u64 {
        self.caches.as_ref().map_or(0, |caches| caches.store.invalidations().now().0)
    }

    /// Returns the client of a subgraph.
    pub fn subgraph(&self, id: SubgraphId) -> &dyn Subgraph {
        &*self.subgraphs[usize::from(id.0)]
    }

    /// True if a plan needs a subgraph that takes several times longer than usual at present.
    pub fn needs_slow_subgraph(&self, plan: &Plan) -> bool {
        plan.fetches.iter().any(|fetch| self.subgraph(fetch.subgraph).is_slow())
    }
}

impl std::fmt::Debug for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Generation({}, {:016x})", self.number, self.graph_id)
    }
}

/// The context of one operation.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// The graph that executes the operation.
    pub generation: Arc<Generation>,
    /// Headers to send to subgraphs.
    pub headers: Arc<ForwardedHeaders>,
    /// The deadline of the whole operation.
    pub deadline: Instant,
    /// The state through which it shares requests to subgraphs; `None` if it shares none.
    pub sharing: Option<Arc<Sharing>>,
    /// The trace that records its fetches, if one was requested.
    pub trace: Option<Arc<Trace>>,
    /// The claims of the client's token, for fields of event subgraphs that depend on them.
    pub claims: Option<Claims>,
    /// The files of the request, if it has any.
    pub uploads: Option<Arc<Uploads>>,
    /// The subgraphs that the operation must do without: requests to them fail at once, as if too many waited. What is
    /// stored of their responses is used.
    pub closed_subgraphs: Option<Arc<[SubgraphId]>>,
    /// The use of the caches of subgraphs' responses; `None` for operations that neither read from them nor store
    /// anything: events and the current state before them. Mutations store the entities that they populate.
    pub caching: Option<RequestCaching>,
}

impl RequestContext {
    /// True if the operation must do without this subgraph.
    pub(crate) fn is_closed(&self, subgraph: SubgraphId) -> bool {
        self.closed_subgraphs.as_ref().is_some_and(|closed| closed.contains(&subgraph))
    }
}
