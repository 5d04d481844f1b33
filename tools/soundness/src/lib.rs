//! Checks of plans: a plan is executed symbolically over the type system, with object types instead of objects, once
//! for each way in which the operation's conditions may hold.
//!
//! A sound plan satisfies these rules:
//! - each subgraph operation is valid for that subgraph's schema and selects only fields that the subgraph resolves at
//!   their positions,
//! - each member of a representation was produced by an earlier fetch, and the members contain a whole key and all
//!   fields that the selected fields require,
//! - no key of the tree is written twice with different meanings,
//! - the root keys of a fetch are those of its text, and entities are copied from places that have the same fields,
//! - every selection of the client is in the response exactly when its conditions hold, in order, and is read from the
//!   key under which the same field with the same arguments was stored,
//! - nothing that the client may not use is in the response, or is fetched unless a key or a requirement needs it,
//! - root fields of mutations run once each and one after the other.
//!
//! There are no objects and no resolvers here, so that one execution covers all data. Checking responses for given data
//! is the work of `federations`.
//!
//! Invariant: this crate knows nothing of how plans are made. `prepare` checks plans in debug builds, tests always do.

mod arguments;
mod assignments;
mod denied_access;
mod known_entities;
mod representations;
mod requests;
mod response;
mod subgraph_schema;
mod symbolic_execution;
mod symbolic_tree;
mod violation;

use std::sync::Arc;

use graph::Supergraph;
use plan::{Operation, Plan};

pub use violation::Unsound;

/// The maximum number of values put into trees during one check. Deep operations on interfaces have exponentially many;
/// values beyond the limit remain unchecked. A check that reaches it takes a second in a debug build.
const VALUES_MAX: usize = 100_000;

/// The maximum number of bytes of subgraph operations in one plan that are parsed: half a second in a debug build. The
/// limits on operations let few plans become that large; a larger plan remains unchecked.
const PARSED_BYTES_MAX: usize = 4 << 20;

/// A checker for plans over one supergraph.
#[derive(Debug)]
pub struct Checker {
    graph: Arc<Supergraph>,
    schemas: subgraph_schema::SubgraphSchemas,
}

impl Checker {
    /// Creates a checker for plans over `graph`. The schema of a subgraph is derived when a plan first sends an
    /// operation to it.
    pub fn new(graph: Arc<Supergraph>) -> Self {
        let schemas = subgraph_schema::SubgraphSchemas::new(&graph);
        Self { graph, schemas }
    }

    /// Checks the plan of one operation; of a very large plan only the first part.
    ///
    /// # Errors
    /// The first violation found.
    pub fn check(&self, operation: &Operation, plan: &Plan) -> Result<(), Unsound> {
        match self.check_all(operation, plan) {
            Err(unsound) if unsound.is_too_large => Ok(()),
            other => other,
        }
    }

    fn check_all(&self, operation: &Operation, plan: &Plan) -> Result<(), Unsound> {
        let graph = &*self.graph;
        if requests::total_bytes(plan) > PARSED_BYTES_MAX {
            return Err(Unsound::too_large());
        }
        let requests = requests::parse_requests(graph, &self.schemas, operation, plan)?;
        let mut values_left = VALUES_MAX;
        for variables in assignments::all_assignments(operation, plan) {
            let mut execution = symbolic_execution::SymbolicExecution::new(
                graph, operation, plan, &requests, &variables,
            );
            execution.values_left.set(values_left);
            execution.fetch_all()?;
            values_left = execution.values_left.get();
            let root = execution.into_root();
            denied_access::check_fetched(graph, operation, &root)?;
            response::check_response(graph, operation, plan, &variables, root)?;
        }
        Ok(())
    }
}
