//! A request of a client with a prepared operation, ready to be executed or subscribed.

use std::sync::Arc;

use bytes::Bytes;
use execute::ForwardedHeaders;
use plan::Variables;
use prepare::Prepared;

use crate::authentication::Identity;
use crate::generation::ServingGraph;

/// An operation with everything that its execution needs.
#[derive(Debug)]
pub(crate) struct PreparedRequest {
    /// The generation that it was prepared for, and that executes it.
    pub(crate) loaded: Arc<ServingGraph>,
    /// The prepared operation.
    pub(crate) prepared: Arc<Prepared>,
    /// The values of its variables.
    pub(crate) variables: Variables,
    /// The text of the declared variables, in memory of its own, for subscriptions, which outlive their graph. Empty
    /// for other operations.
    pub(crate) variables_text: Bytes,
    /// The headers for subgraphs.
    pub(crate) headers: Arc<ForwardedHeaders>,
    /// The identity of the client.
    pub(crate) identity: Identity,
    /// The cursor after which a subscription resumes.
    pub(crate) resume: Option<Box<str>>,
}
