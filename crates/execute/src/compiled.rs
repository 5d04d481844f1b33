//! The compiled forms of fetches and entity batches: everything that is constant between executions of a plan.

use std::sync::Arc;

use astjson::Shape;
use bytes::Bytes;
use plan::Fetch;

use crate::caching::{ChangedEntity, FetchCaching};
use crate::compiled_objects::{CompiledRepresentation, CompiledReusePlace, CompiledTarget};

/// The constants of one fetch, with the same index as in [`plan::Plan::fetches`].
#[derive(Debug)]
pub(crate) struct CompiledFetch {
    /// The fetches that wait for this one.
    pub(crate) dependents: Vec<u32>,
    /// The number of fetches that this one waits for.
    pub(crate) dependencies: u32,
    /// The request body up to and with the opening brace of `variables`.
    pub(crate) head: Vec<u8>,
    /// The whole request body, for root fetches without variables.
    pub(crate) constant_body: Bytes,
    /// For root fields below others: the path to the objects.
    pub(crate) below: Option<CompiledBelow>,
    /// For entity fetches: the constants of each batch.
    pub(crate) batches: Vec<CompiledBatch>,
    /// The layout of the response.
    pub(crate) response: Shape,
    /// The facts about its responses on which their storing depends; `None` if they are never stored.
    pub(crate) caching: Option<Arc<FetchCaching>>,
    /// The entities that a mutation returns and has changed.
    pub(crate) changed: Vec<ChangedEntity>,
}

/// A subscription that a subgraph serves.
#[derive(Debug)]
pub(crate) struct CompiledSubscription {
    /// The subscription as a fetch of root fields: each of its results is treated like the response to one.
    pub(crate) fetch: Fetch,
    /// The request body up to and with the opening brace of `variables`.
    pub(crate) head: Vec<u8>,
    /// The layout of a result.
    pub(crate) response: Shape,
}

/// The constants of the objects that root fields below others are for.
#[derive(Debug)]
pub(crate) struct CompiledBelow {
    pub(crate) target: CompiledTarget,
    /// True if no two objects may share values. See [`CompiledBatch::one_each`].
    pub(crate) one_each: bool,
    /// The layout of one object.
    pub(crate) object: Shape,
}

/// The constants of one entity batch.
#[derive(Debug)]
pub(crate) struct CompiledBatch {
    /// The constants of each target path.
    pub(crate) targets: Vec<CompiledTarget>,
    /// True if there are several groups among the targets.
    pub(crate) several_groups: bool,
    /// True if no two objects may share values, because values further down depend on values
    /// further up (`@fromContext`).
    pub(crate) one_each: bool,
    /// The representation of an object of the batch.
    pub(crate) representation: CompiledRepresentation,
    /// The layout of one entity.
    pub(crate) entity: Shape,
    /// The constants of each place in [`plan::EntityBatch::reuse`].
    pub(crate) reuse: Vec<CompiledReusePlace>,
}
