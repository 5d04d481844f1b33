//! The interface to brokers, for the root fields of event subgraphs.

use std::time::Instant;

use bytes::Bytes;
use graph::FieldId;
use http::{HeaderName, HeaderValue};
use telemetry::spans::OutgoingSpan;

use crate::{Claims, GraphqlError, LocalFuture};

/// A request for a root field of an event subgraph.
#[derive(Clone, Debug)]
pub struct EventRequest<'a> {
    /// The field; its directive names provider and topic.
    pub field: FieldId,
    /// All of its arguments: the text of a JSON object.
    pub arguments: Bytes,
    /// The headers that are forwarded to the event subgraph. A trace context among them is sent
    /// too.
    pub headers: &'a [(HeaderName, HeaderValue)],
    /// The claims of the client's token.
    pub claims: Option<&'a Claims>,
    /// The deadline of the operation.
    pub deadline: Instant,
    /// The span of the message, if the operation belongs to a trace. Its identity is sent in place of a trace context
    /// among the headers.
    pub span: Option<&'a OutgoingSpan>,
}

/// Publishes and sends requests for the root fields of event subgraphs. Implemented where providers
/// are known.
pub trait Publisher: Send + Sync {
    /// Publishes an event. `Ok(false)` means that the broker refused it or is not reachable, which
    /// has been logged. `Err` means that the client is not allowed to, that the field is not bound
    /// to a topic that can be published to, or that its template cannot be rendered.
    fn publish<'a>(
        &'a self,
        request: EventRequest<'a>,
    ) -> LocalFuture<'a, Result<bool, GraphqlError>>;

    /// Publishes a request and waits for its response: the JSON text of the field's value,
    /// unchanged.
    fn request<'a>(
        &'a self,
        request: EventRequest<'a>,
    ) -> LocalFuture<'a, Result<Bytes, GraphqlError>>;
}
