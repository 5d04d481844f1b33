//! Prepares operations: parses, validates, normalises, plans and caches them.
//!
//! Invariant: knows nothing of sockets. All state belongs to one supergraph; a reload creates a new preparer.
//!
//! A [`Preparer`] looks an [`OperationRequest`] up in its cache (`preparer`). On a miss the operation waits for a
//! permit (`concurrency_limit`), and one caller runs the pipeline (`pipeline`):
//!
//! 1. `lexical` counts tokens, then the text is parsed.
//! 2. `limits` checks the syntax tree before fragments are inlined.
//! 3. `apollo-compiler` validates; `field_merging` bounds that, and `variable_usage` adds checks. `diagnostic_text`
//!    words the messages.
//! 4. `normalise` makes the [`plan::Operation`], `literal_extraction` replaces its literals by variables, and
//!    `identity` hashes it.
//!    `live_directive` reads `@live`.
//! 5. `plan_cache` has one plan for all texts with one identity; `override_labels` selects the variant of the graph.
//! 6. The result is [`Prepared`] (`prepared`). For each request `coerce` then coerces the values of variables to the
//!    types in `input_types`, and `introspection` executes `__schema` and `__type`, on a part of the schema
//!    (`visible_schemas`) if the client may not use all of it.
//!
//! `steps` records the times of these steps for traces.
//!
//! A new limit on operations is a field of [`Limits`] with its check in `limits`, and a variant of [`Limit`] with its
//! unit and configuration key in `error`. A new reason to refuse an operation is a variant of [`PrepareError`]; the
//! router maps it to a GraphQL error.

mod access;
mod changed_entities;
mod coerce;
mod compact_text;
mod concurrency_limit;
mod diagnostic_text;
mod error;
mod fetch_caching;
mod field_merging;
mod field_use;
mod identity;
mod input_types;
mod introspection;
mod introspection_size;
mod keyed_selection;
mod lexical;
mod limits;
mod literal_extraction;
mod live_directive;
mod metrics;
mod normalise;
mod operation_variant;
mod override_labels;
mod pipeline;
mod plan_cache;
mod populated_entities;
mod prepared;
mod preparer;
mod root_division;
mod settings;
mod stats;
mod steps;
mod text_key;
mod variable_usage;
mod visible_schemas;

#[cfg(test)]
mod tests;

pub use access::{AccessFacts, DecidedRequirements, DeniedSelection};
pub use concurrency_limit::{ConcurrencyBounds, ConcurrencyLimit, NoPermit, Permit, WhenFull};
pub use error::{Limit, PrepareError, Problem};
pub use field_use::FieldUse;
pub use limits::Limits;
pub use live_directive::LiveQuery;
pub use metrics::PREPARER_METRICS;
pub use override_labels::{LabelShare, LabelShares};
pub use prepared::{OperationRequest, Prepared};
pub use preparer::{Preparer, UsedOperation};
pub use settings::PrepareSettings;
pub use stats::PrepareStats;
pub use steps::{PrepareStep, PrepareSteps, StepRecorder};
