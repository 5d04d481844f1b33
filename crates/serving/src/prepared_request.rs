//! A request of a client with a prepared operation, ready to be executed or subscribed.

use std::sync::Arc;

use admission::memory::MemoryCharge;
use bytes::Bytes;
use clients::access_log::LoggedRequest;
use clients::authentication::Identity;
use clients::client_deadline::ClientDeadline;
use execute::{ForwardedHeaders, GraphqlError, RequestCaching, Uploads};
use http::{HeaderName, HeaderValue};
use plan::Variables;
use prepare::{DecidedRequirements, Prepared};

use crate::figures::RequestFigures;
use crate::generation::ServingGraph;
use crate::operation_spans::OperationSpans;
use crate::overload::work_ticket::WorkTicket;
use crate::stream_cause::StreamCause;

/// An operation with everything that its execution needs.
#[derive(Clone, Debug)]
pub struct PreparedRequest {
    /// The generation that it was prepared for, and that executes it.
    pub loaded: Arc<ServingGraph>,
    /// The prepared operation.
    pub prepared: Arc<Prepared>,
    /// The values of its variables.
    pub variables: Variables,
    /// The text of the declared variables, in memory of its own, for subscriptions and live queries, which outlive
    /// their graph. Empty for other operations.
    pub variables_text: Bytes,
    /// The `extensions` of a subscription, the text of a JSON object; empty for other operations. A subgraph may get
    /// members of it.
    pub extensions: Bytes,
    /// The headers for subgraphs.
    pub headers: Arc<ForwardedHeaders>,
    /// The identity of the client.
    pub identity: Identity,
    /// The decisions about the requirements of the operation.
    pub decided: DecidedRequirements,
    /// The cursor after which a subscription resumes.
    pub resume: Option<Box<str>>,
    /// The estimated cost, if costs are estimated.
    pub cost: Option<u64>,
    /// True if the response contains the cost, because the client asks for it and may see it.
    pub shows_cost: bool,
    /// True if the client gets a trace if it requests one.
    pub allows_trace: bool,
    /// The files of a request with uploads.
    pub uploads: Option<Arc<Uploads>>,
    /// The use of caches; `None` if nothing is stored for the operation.
    pub caching: Option<RequestCaching>,
    /// The end of the time for which the client waits, if it has named one. It does not limit streams.
    pub client_deadline: Option<ClientDeadline>,
    /// The right to work on it, with overload protection. A batch has one for all of its operations.
    pub ticket: Option<Arc<WorkTicket>>,
    /// The memory that the operation counts with while it is in flight. A batch has one for all of its operations.
    pub memory: Option<MemoryCharge>,
    /// Its identity in the metrics of single operations and clients, if they are counted.
    pub figures: Option<RequestFigures>,
    /// The record of the operation, if its request belongs to a trace.
    pub spans: Option<Arc<OperationSpans>>,
    /// The span of the operation, if it has a stream and its request belongs to a trace.
    pub cause: Option<StreamCause>,
    /// The request of a subscription for the access log; `None` on WebSockets, and if the log is not written.
    pub logged: Option<Box<LoggedRequest>>,
}

impl PreparedRequest {
    /// Sends this header with the id of the request to subgraphs.
    pub fn set_request_id(&mut self, header: (HeaderName, HeaderValue)) {
        Arc::make_mut(&mut self.headers).request_id = Some(header);
    }
}

/// Gives a prepared operation its record, or notes why it was refused.
pub fn attach_spans(
    prepared: &mut Result<PreparedRequest, Vec<GraphqlError>>,
    spans: Option<Arc<OperationSpans>>,
) {
    let Some(spans) = spans else { return };
    match prepared {
        Ok(ready) => {
            spans.note_prepared(&ready.prepared, &ready.loaded.generation, ready.cost);
            match ready.prepared.has_stream() {
                // A stream outlives its request: opening it is all that belongs to the request.
                true => ready.cause = Some(spans.stream_cause()),
                false => ready.spans = Some(spans),
            }
        }
        Err(errors) => spans.note_refusal(errors),
    }
}
