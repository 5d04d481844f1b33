//! The supergraph model: types, fields, the subgraphs that resolve them, keys and jumps.
//!
//! Invariant: this crate knows nothing of operations. A supergraph is read once per generation and never changes
//! afterwards.
//!
//! - `model` has the types: [`Supergraph`], [`Type`], [`Field`], with small integers as names (`ids`, `subgraph_set`).
//! - `sdl` reads them from supergraph SDL; `errors` has the errors of a schema. A new federation directive is read
//!   there and becomes a fact of the model.
//! - `access` has the requirements of fields and types (`@authenticated`, `@requiresScopes`, `@policy`),
//!   `denied_access` those that a client may not use.
//! - `api` derives the schema that clients see.
//! - `jumps` computes which subgraphs are reachable from others, for the planner.
//! - `cache_hints` has the hints of subgraphs about caching (`@cacheControl`, `@cacheTag`).
//! - `costs` has the weights and list sizes of `@cost` and `@listSize`.
//! - `event_role` and `initial` describe root fields of event subgraphs, `override_labels` the variants of a graph.

mod access;
mod api;
mod cache_hints;
mod costs;
mod denied_access;
mod errors;
mod event_role;
mod ids;
mod initial;
mod jumps;
mod model;
mod override_labels;
mod sdl;
mod subgraph_set;
mod visible_schema;

pub use access::{AccessRules, Alternatives, REQUIREMENTS_MAX, Requirement, RequirementSet};
pub use cache_hints::{CACHE_TAGS_MAX, CacheControlHint, CacheHints, ElementHints, PopulateHint};
pub use costs::{Costs, FieldCosts, IGNORED_MAX, ListSize, WEIGHT_PARTS, Weight};
pub use denied_access::DeniedAccess;
pub use errors::{ERRORS_MAX, SchemaError, SchemaErrors, Span};
pub use event_role::EventRole;
pub use ids::{FieldId, SubgraphId, TypeId};
pub use initial::InitialState;
pub use jumps::{Jumps, Reachable};
pub use model::{
    ApiSchema, AppliedDirective, Argument, ConstValue, ContextArgument, Field, FieldInSubgraph,
    FieldSet, FieldSetItem, Key, ProgressiveOverride, SUBSCRIPTION_PROTOCOLS, Subgraph,
    SubgraphKind, SubscriptionEndpoint, Supergraph, Type, TypeInSubgraph, TypeKind, TypeRef,
    TypeRefShape,
};
pub use override_labels::{OVERRIDE_LABELS_MAX, OverrideLabels};
pub use sdl::SDL_BYTES_MAX;
pub use subgraph_set::{SUBGRAPHS_MAX, SubgraphSet};
