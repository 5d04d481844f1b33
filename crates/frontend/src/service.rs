//! The border between HTTP and GraphQL: the front end receives requests and writes responses, and a [`GraphqlService`]
//! executes the operations. Each request costs one boxed future.

use std::sync::Arc;

use bytes::Bytes;
use clients::access_log::LoggedHandshake;
use clients::authentication::Identity;
use clients::kept_operations::KeptTotal;
use clients::refusal::Refusal;
use clients::request_source::ConnectionOrigin;
use execute::{ClientKey, GraphqlError, LocalFuture, Payload, Uploads};
use http::request::Parts;
use http::{HeaderMap, Version};
use prepare::OperationRequest;
use tokio::sync::mpsc;
use wire::http1::Framing;
use wire::result_stream::StreamFormat;

use super::client_connection::ClientRequest;
use super::media::AcceptedFormats;
use super::request;
use super::takeover::Takeover;

/// The execution of operations, as the front end needs it.
pub trait GraphqlService: SharedStreamService {
    /// Executes one operation. Never fails: errors are responses.
    fn execute<'a>(&'a self, request: GraphqlRequest<'a>) -> LocalFuture<'a, GraphqlResponse>;

    /// Executes the operations of a batch. Returns the text of a response for each, in their order.
    ///
    /// # Errors
    /// The router is overloaded, and executes none of them.
    fn execute_batch<'a>(
        &'a self,
        batch: GraphqlBatch<'a>,
    ) -> LocalFuture<'a, Result<Vec<Bytes>, Refusal>>;

    /// Admits a WebSocket handshake, if there is overload protection. While the limit is reached, it waits.
    ///
    /// # Errors
    /// The router is overloaded.
    fn admit_handshake<'a>(
        &'a self,
        handshake: ArrivingHandshake<'a>,
    ) -> LocalFuture<'a, Result<(), Refusal>>;

    /// Returns the takeover of a connection that a WebSocket handshake has left.
    fn open_websocket(&self, accepted: AcceptedHandshake) -> Takeover;
}

/// Single connection mode of GraphQL over SSE: event streams that requests of their own reserve, open and use. Each is
/// identified by its token.
pub trait SharedStreamService: Send + Sync {
    /// Reserves a stream for a client.
    ///
    /// # Errors
    /// Too many streams are reserved.
    fn reserve_stream(&self, token: &str, client: ClientKey) -> Result<(), Refusal>;

    /// Opens a reserved stream as the body of a response over this version of HTTP.
    ///
    /// # Errors
    /// No stream has the token, or it is open already.
    fn open_stream(&self, token: &str, version: Version) -> Result<StreamBody, Refusal>;

    /// Starts an operation that sends its results over a stream.
    fn start_on_stream<'a>(
        &'a self,
        token: &'a str,
        request: GraphqlRequest<'a>,
    ) -> LocalFuture<'a, Result<(), Refusal>>;

    /// Stops the operation with this id on a stream.
    ///
    /// # Errors
    /// No stream has the token, or there is no id.
    fn stop_on_stream(&self, token: &str, id: Option<&str>) -> Result<(), Refusal>;
}

/// The client of a request.
#[derive(Clone, Debug)]
pub struct RequestClient<'a> {
    /// The identity of the client.
    pub identity: Identity,
    /// The key of the client's address, under which an anonymous client is counted.
    pub address: ClientKey,
    /// The origin of the connection.
    pub origin: ConnectionOrigin,
    /// The sum of the live subscriptions of the connection.
    pub kept: &'a Arc<KeptTotal>,
}

impl<'a> RequestClient<'a> {
    /// Returns the client of a request with this identity.
    pub(super) fn of(request: &'a ClientRequest, identity: Identity) -> Self {
        let connection = request.connection();
        Self {
            identity,
            address: connection.client(),
            origin: connection.origin(),
            kept: connection.kept(),
        }
    }

    /// Returns the key under which work for the client is queued and counted. Parses the claims of the token.
    pub fn key(&self) -> ClientKey {
        self.identity.client_key().unwrap_or(self.address)
    }
}

/// An operation that a client has requested.
// Owned by the service, which drops it before the execution: head and operation are slices of the connection's read
// buffer, and once they are dropped, the connection reads into the same memory.
#[derive(Debug)]
pub struct GraphqlRequest<'a> {
    /// The head of the request.
    pub head: Parts,
    /// The operation.
    pub operation: OperationRequest,
    /// The client.
    pub client: RequestClient<'a>,
    /// The formats of the response that the client accepts.
    pub accepted: AcceptedFormats,
    /// The files of the request, if it has any.
    pub uploads: Option<Arc<Uploads>>,
}

impl GraphqlRequest<'_> {
    /// True if the client wants the first event of a subscription as a plain response. Parses the URL.
    pub fn wants_first_event(&self) -> bool {
        request::wants_first_event(&self.head.uri)
    }
}

/// Several operations in one request.
#[derive(Debug)]
pub struct GraphqlBatch<'a> {
    /// The head of the request.
    pub head: &'a Parts,
    /// The operations.
    pub operations: Vec<OperationRequest>,
    /// The client.
    pub client: RequestClient<'a>,
}

/// The response to an operation.
#[derive(Debug)]
pub enum GraphqlResponse {
    /// The result of the operation, or the first event of a subscription.
    Payload(Payload),
    /// The errors of an operation that could not be prepared.
    NotPrepared(Vec<GraphqlError>),
    /// The errors of a prepared operation that did not run.
    NotRun(Vec<GraphqlError>),
    /// A mutation that was not sent by POST.
    MutationByGet,
    /// A refusal with a status of its own.
    Refused(Refusal),
    /// A stream of results in this format.
    Stream(StreamFormat, StreamBody),
}

/// The body of a stream of results.
#[derive(Debug)]
pub enum StreamBody {
    /// Pieces as they are made; the end of the sender is the end of the body.
    Pieces(mpsc::Receiver<Bytes>),
    /// The takeover of the connection, which writes a body with this framing. HTTP/1.1 and 1.0 only.
    Takeover(Framing, Takeover),
}

/// A WebSocket handshake that has arrived.
#[derive(Debug)]
pub struct ArrivingHandshake<'a> {
    /// The path of the request.
    pub path: &'a str,
    /// The headers of the request.
    pub headers: &'a HeaderMap,
    /// The client.
    pub client: RequestClient<'a>,
}

/// A WebSocket handshake that was accepted.
#[derive(Debug)]
pub struct AcceptedHandshake {
    /// The subprotocol, if the client named one.
    pub subprotocol: Option<&'static str>,
    /// True if the client accepts compressed messages.
    pub accepts_compression: bool,
    /// The headers of the handshake.
    pub headers: HeaderMap,
    /// The identity of the client.
    pub identity: Identity,
    /// The origin of the connection.
    pub origin: ConnectionOrigin,
    /// The handshake for the access log, if that is written.
    pub logged: Option<LoggedHandshake>,
}
