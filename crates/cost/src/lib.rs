//! The cost of an operation after the cost directives specification (`@cost`, `@listSize`): estimated before anything
//! is fetched, measured from the lists of its response.
//!
//! Invariant: pure functions over plain data; knows nothing of transports, configuration and limits.
//!
//! - [`CostModel`] (`model`) has the facts of one graph and its settings, among them the weights of input types
//!   (`input_weights`).
//! - `estimate` compiles a normalised operation to a program (`program`) with the same result for all values of
//!   variables but those that it names: lengths of lists (`list_length`), conditions, and weighted arguments
//!   (`argument_weight`). Evaluating it takes one step for each of them. `merged_fields` merges selections as execution
//!   does, for each object type that a value may have.
//! - `fetches` compiles the requests of the plan, for the costs of single subgraphs; `fetch_selection` reads their
//!   texts.
//! - `response` counts the objects of a response.
//! - [`OperationCost`] (`operation_cost`) joins them for one operation. `stats` and `histogram` have the counters.
//!
//! Costs are counted in thousandths, saturating, and rounded up at the end.

mod argument_weight;
mod estimate;
mod fetch_selection;
mod fetches;
mod graph_costs;
mod histogram;
mod input_weights;
mod list_length;
mod merged_fields;
mod metrics;
mod model;
mod operation_cost;
mod program;
mod response;
mod stats;

pub use histogram::CostHistogram;
pub use metrics::COST_METRICS;
pub use model::{CostModel, CostSettings};
pub use operation_cost::{Estimate, OperationCost};
pub use stats::CostStats;
