//! The supergraph model: types, fields, the subgraphs that resolve them, keys and jumps.
//!
//! Invariant: this crate knows nothing of operations. A supergraph is read once per generation and never changes
//! afterwards.

mod api;
mod errors;
mod event_role;
mod ids;
mod initial;
mod jumps;
mod model;
mod override_labels;
mod sdl;
mod subgraph_set;

pub use errors::{ERRORS_MAX, SchemaError, SchemaErrors, Span};
pub use event_role::EventRole;
pub use ids::{FieldId, SubgraphId, TypeId};
pub use initial::Initial;
pub use jumps::{Jumps, Reachable};
pub use model::{
    AppliedDirective, Argument, ConstValue, ContextArgument, Field, FieldInSubgraph, FieldSet,
    FieldSetItem, Key, Subgraph, SubgraphKind, Supergraph, Type, TypeInSubgraph, TypeKind, TypeRef,
    TypeRefShape,
};
pub use override_labels::{OVERRIDE_LABELS_MAX, OverrideLabels, ProgressiveOverride};
pub use sdl::SDL_BYTES_MAX;
pub use subgraph_set::{SUBGRAPHS_MAX, SubgraphSet};

/// The schema that clients see, in the form that the parser and validator of operations require. Join and link
/// machinery and everything `@inaccessible` are removed.
#[derive(Clone, Debug)]
pub struct ApiSchema(
    pub std::sync::Arc<apollo_compiler::validation::Valid<apollo_compiler::Schema>>,
);
