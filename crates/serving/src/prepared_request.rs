//! A request of a client with a prepared operation, ready to be executed or subscribed.

use std::sync::Arc;

use bytes::Bytes;
use clients::authentication::Identity;
use execute::{ForwardedHeaders, RequestCaching, Uploads};
use http::{HeaderName, HeaderValue};
use plan::Variables;
use prepare::{DecidedRequirements, Prepared};

use crate::generation::ServingGraph;
use crate::operation_spans::OperationSpans;
use crate::overload::work_ticket::WorkTicket;

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
    /// The files of a request with uploads.
    pub uploads: Option<Arc<Uploads>>,
    /// The use of caches; `None` if nothing is stored for the operation.
    pub caching: Option<RequestCaching>,
    /// The right to work on it, with overload protection. A batch has one for all of its operations.
    pub ticket: Option<Arc<WorkTicket>>,
    /// The record of the operation, if its request belongs to a trace.
    pub spans: Option<Arc<OperationSpans>>,
}

impl PreparedRequest {
    /// Sends this header with the id of the request to subgraphs.
    pub fn set_request_id(&mut self, header: (HeaderName, HeaderValue)) {
        Arc::make_mut(&mut self.headers).request_id = Some(header);
    }
}
