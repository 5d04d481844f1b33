//! Planning: converts a normalised operation to a plan of subgraph fetches and the shape of the response.
//!
//! Invariant: pure functions over plain data. No I/O, no operation text of clients, no clock.
//!
//! - The input is an [`Operation`] that `prepare` has normalised (`operation`), planned over a [`graph::Supergraph`].
//! - [`plan()`] is the only entry. The head of `planner` lists its steps, and says where a new rule belongs.
//! - The output is a [`Plan`] (`fetch_plan`) with the [`Shape`] of the response (`shape`). `execute` interprets both
//!   together with the values of [`Variables`].
//! - `text_format`, `json_format` and `mermaid_format` print plans. `state_query` converts a subscription to the query
//!   for its current state.

mod fetch_plan;
mod json_format;
mod mermaid_format;
mod operation;
mod planner;
mod shape;
mod state_query;
mod text_format;
mod variables;

pub use fetch_plan::{
    ContextSource, ContextVariable, EntityBatch, EventField, Fetch, FetchId, FetchKind, Path,
    PathStep, Plan, Representation, RepresentationField, Requirement, ReusePlace, ReusedValue,
    SubgraphOperation, SubscriptionRoot,
};
pub use operation::{
    Condition, Field, FieldTarget, Fragment, Operation, OperationKind, Selection, SelectionSet,
    Value, Variable,
};
pub use planner::{BatchLimits, Batching, Effort, Limits, PlanError, plan, plan_with_effort};
pub use shape::{
    Leaf, ObjectShape, ObjectShapeId, Shape, ShapeField, ValueKind, ValueShape, Variant,
};
pub use variables::{VariableId, Variables};
