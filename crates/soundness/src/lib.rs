//! Is a plan right? Executes it symbolically over the type system: over object types instead of
//! objects, once for each way in which the operation's conditions may hold.
//!
//! It says that
//! - each subgraph operation is valid for that subgraph's schema and selects only what the subgraph
//!   resolves where it stands,
//! - each member of a representation was produced by a fetch that comes before, and a whole key and
//!   all that the selected fields require is among them,
//! - nothing is written twice with different meanings,
//! - every selection of the client is in the answer exactly when its conditions hold, in order, and
//!   is read from where the same field with the same arguments was put,
//! - root fields of mutations run once each and one after the other.
//!
//! Invariant: knows nothing of how plans are made. `prepare` asks it in debug builds; tests always do.

mod answer;
mod arguments;
mod assignments;
mod places;
mod representations;
mod requests;
mod run;
mod subgraph_schema;

use std::sync::Arc;

use graph::Supergraph;
use plan::{Operation, Plan};

/// Values put into trees during one check. Deep operations on interfaces have exponentially many: what
/// is beyond remains unchecked. A check that reaches it takes a second in a debug build.
const ENTRIES_MAX: usize = 100_000;

/// Bytes of subgraph operations in one plan that are validated against the subgraphs' schemas, which costs
/// more than all the rest: enough for operations of 1,700 lines over many subgraphs. What comes after is
/// parsed and executed only, which also sees what a subgraph does not resolve.
const VALIDATED_BYTES_MAX: usize = 256 << 10;

/// Bytes of subgraph operations in one plan that are parsed: half a second in a debug build. The limits on
/// operations let few plans become that large; such a one remains unchecked.
const PARSED_BYTES_MAX: usize = 4 << 20;

/// What is wrong with a plan.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the plan is not sound: {message}")]
pub struct Unsound {
    message: Box<str>,
    /// Nothing is wrong: [`ENTRIES_MAX`] or [`PARSED_BYTES_MAX`] was reached.
    gave_up: bool,
}

impl Unsound {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into().into(), gave_up: false }
    }

    fn gave_up() -> Self {
        Self { message: "it is too large to be checked".into(), gave_up: true }
    }
}

/// Returns an [`Unsound`] with the message.
macro_rules! unsound {
    ($($text:tt)*) => { return Err(crate::Unsound::new(format!($($text)*))) };
}
use unsound;

/// Checks plans over one supergraph.
#[derive(Debug)]
pub struct Checker {
    graph: Arc<Supergraph>,
    schemas: subgraph_schema::Schemas,
}

impl Checker {
    /// A checker for plans over `graph`. The schema of a subgraph is derived when a plan first asks it.
    pub fn new(graph: Arc<Supergraph>) -> Self {
        let schemas = subgraph_schema::Schemas::new(&graph);
        Self { graph, schemas }
    }

    /// Checks the plan of one operation; of a very large one the first part.
    ///
    /// # Errors
    /// The first thing found that is not as it must be.
    pub fn check(&self, operation: &Operation, plan: &Plan) -> Result<(), Unsound> {
        match self.check_all(operation, plan) {
            Err(unsound) if unsound.gave_up => Ok(()),
            other => other,
        }
    }

    fn check_all(&self, operation: &Operation, plan: &Plan) -> Result<(), Unsound> {
        let graph = &*self.graph;
        if requests::bytes(plan) > PARSED_BYTES_MAX {
            return Err(Unsound::gave_up());
        }
        let requests = requests::read(graph, &self.schemas, operation, plan)?;
        let mut entries_left = ENTRIES_MAX;
        for variables in assignments::all(operation, plan) {
            let mut run = run::Run::new(graph, operation, plan, &requests, &variables);
            run.entries_left.set(entries_left);
            run.fetch_all()?;
            entries_left = run.entries_left.get();
            answer::check(graph, operation, plan, &variables, run.into_root())?;
        }
        Ok(())
    }
}
