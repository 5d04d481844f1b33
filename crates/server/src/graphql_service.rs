//! The GraphQL service behind the HTTP server: queries and mutations run, subscriptions go to the live layer.

use std::sync::Arc;

use bytes::Bytes;
use clients::access_log::OperationNote;
use clients::generation_note::GenerationNote;
use clients::refusal::Refusal;
use clients::request_ids::AssignedId;
use clients::request_source::RequestSource;
use execute::{ClientKey, ErrorCode, GraphqlError, LocalFuture, Payload};
use frontend::service::{
    AcceptedHandshake, ArrivingHandshake, GraphqlBatch, GraphqlRequest, GraphqlResponse,
    GraphqlService, SharedStreamService, StreamBody,
};
use frontend::takeover::Takeover;
use futures_util::future::join_all;
use http::{Extensions, Method, StatusCode, Version};
use live::client_context::ClientContext;
use live::first_event::{self, NoFirstEvent};
use live::live_server::LiveServer;
use live::sse;
use live::sse_single_connection::requests::{self, StreamOperation};
use live::takeover::{AcceptedWebSocket, LiveBody, LiveConnection};
use live::websocket_settings::NegotiatedProtocol;
use plan::OperationKind;
use prepare::OperationRequest;
use serving::forwarding::ClientHeaders::OfMessage;
use serving::operation::{self, OperationClient};
use serving::operation_spans::OperationSpans;
use serving::overload::work_ticket::WorkResult;
use serving::prepared_request::{PreparedRequest, attach_spans};
use serving::serving::Serving;
use serving::trace::RequestTrace;
use telemetry::spans::RequestSpans;

/// Executes the operations of requests over HTTP.
pub(crate) struct GraphqlEndpoint {
    serving: Arc<Serving>,
    live: Arc<LiveServer>,
}

/// An operation that is ready to run, with its trace if the client requested one.
type PreparedOperation = (PreparedRequest, Option<RequestTrace>);

impl GraphqlEndpoint {
    /// Creates the service.
    pub(crate) fn new(serving: &Arc<Serving>, live: &Arc<LiveServer>) -> Self {
        Self { serving: Arc::clone(serving), live: Arc::clone(live) }
    }

    async fn execute_operation(&self, request: GraphqlRequest<'_>) -> GraphqlResponse {
        let serving = &*self.serving;
        let mut trace = serving.start_trace(&request.head.headers);
        let headers = OfMessage(&request.head.headers);
        let (identity, address) = (request.client.identity.clone(), request.client.address);
        let spans = begin_spans(&request.head.extensions);
        let source = RequestSource::of_head(&request.head, request.client.origin);
        let source = RequestSource { trace: spans.as_ref().map(|it| it.trace()), ..source };
        let operation = &request.operation;
        let client = OperationClient { headers, identity, address, source };
        let mut prepared = operation::prepare_for(serving, operation, client).await;
        attach_spans(&mut prepared, spans);
        let mut ready = match prepared {
            Ok(ready) => ready,
            Err(errors) => return GraphqlResponse::NotPrepared(errors),
        };
        self.note_operation(&request.head.extensions, &mut ready);
        self.live.runner().keep_logged_request(&mut ready, &request.head, request.client.origin);
        let kind = ready.prepared.kind;
        if request.head.method == Method::GET && kind == OperationKind::Mutation {
            self.count_refused(&ready);
            return GraphqlResponse::MutationByGet;
        }
        let has_stream = ready.prepared.has_stream();
        ready.uploads.clone_from(&request.uploads);
        if has_stream && ready.uploads.is_some() {
            let message = "subscriptions and live queries carry no files";
            let error = GraphqlError::new(ErrorCode::BadRequest, message);
            self.count_refused(&ready);
            return GraphqlResponse::Refused(Refusal::new(StatusCode::BAD_REQUEST, error));
        }
        if has_stream && request.wants_first_event() {
            return Box::pin(self.first_event(&request, ready)).await;
        }
        let accepted = request.accepted;
        let stream = if has_stream { accepted.stream } else { accepted.result.stream() };
        // The result of an operation with files is a whole body, whatever the client prefers.
        if let Some(kind) = stream.filter(|_| ready.uploads.is_none()) {
            let (client, version) = (&request.client, request.head.version);
            let client = (client.key(), client.kept);
            let body = sse::open_result_stream(&self.live, ready, kind, version, client);
            return GraphqlResponse::Stream(kind, self.stream_body(body));
        }
        if has_stream {
            let error = operation::needs_a_stream(&ready.prepared);
            self.count_refused(&ready);
            return GraphqlResponse::Refused(Refusal::new(StatusCode::NOT_ACCEPTABLE, error));
        }
        if let Some(trace) = &mut trace {
            trace.prepared();
        }
        // Head and operation are slices of the connection's read buffer: once they are dropped, the connection reads
        // into the same memory.
        drop(request);
        match operation::run(serving, ready, trace).await {
            Ok(payload) => GraphqlResponse::Payload(payload),
            Err(errors) => GraphqlResponse::NotRun(errors),
        }
    }

    async fn first_event(
        &self,
        request: &GraphqlRequest<'_>,
        ready: PreparedRequest,
    ) -> GraphqlResponse {
        let client = (request.client.key(), request.client.kept);
        match first_event::wait_for_first_event(&self.live, ready, client).await {
            Ok(payload) => GraphqlResponse::Payload(payload),
            Err(NoFirstEvent::Failed(errors)) => GraphqlResponse::NotRun(errors),
            Err(NoFirstEvent::Refused(refusal)) => GraphqlResponse::Refused(refusal),
        }
    }

    async fn run_batch(&self, batch: GraphqlBatch<'_>) -> Result<Vec<Bytes>, Refusal> {
        let client = &batch.client;
        let (headers, source) =
            (&batch.head.headers, RequestSource::of_head(batch.head, client.origin));
        let (identity, address) = (&client.identity, client.address);
        let admitted =
            operation::admit(&self.serving, &batch.operations, headers, identity, address, source);
        let admitted = admitted.await.map_err(Refusal::of_errors)?;
        // Its memory is released with the work.
        let Some(ticket) = &admitted.ticket else {
            let results = self.run_admitted_batch(batch).await;
            return Ok(results.into_iter().map(|it| it.bytes).collect());
        };
        let results = ticket.measure(self.run_admitted_batch(batch)).await;
        ticket.set_result(batch_result(&results));
        Ok(results.into_iter().map(|it| it.bytes).collect())
    }

    async fn run_admitted_batch(&self, batch: GraphqlBatch<'_>) -> Vec<Payload> {
        let prepare = |operation| self.prepare_of_batch(&batch, operation);
        let ready = join_all(batch.operations.iter().map(prepare)).await;
        let changes =
            |(ready, _): &PreparedOperation| ready.prepared.kind == OperationKind::Mutation;
        // A client that puts a query behind a mutation expects the query to see the effect of the mutation.
        if ready.iter().flatten().any(changes) {
            let mut responses = Vec::with_capacity(ready.len());
            for ready in ready {
                responses.push(self.run_of_batch(ready).await);
            }
            responses
        } else {
            join_all(ready.into_iter().map(|ready| self.run_of_batch(ready))).await
        }
    }

    async fn prepare_of_batch(
        &self,
        batch: &GraphqlBatch<'_>,
        operation: &OperationRequest,
    ) -> Result<PreparedOperation, Vec<GraphqlError>> {
        let trace = self.serving.start_trace(&batch.head.headers);
        let (headers, client) = (OfMessage(&batch.head.headers), &batch.client);
        let (identity, address) = (client.identity.clone(), client.address);
        let spans = begin_spans(&batch.head.extensions);
        let source = RequestSource::of_head(batch.head, client.origin);
        let source = RequestSource { trace: spans.as_ref().map(|it| it.trace()), ..source };
        let serving = &self.serving;
        let client = OperationClient { headers, identity, address, source };
        let mut prepared = operation::prepare_in_batch(serving, operation, client).await;
        attach_spans(&mut prepared, spans);
        let mut ready = prepared?;
        note_generation(&batch.head.extensions, &ready);
        self.set_request_id(&batch.head.extensions, &mut ready);
        Ok((ready, trace))
    }

    /// Notes the operation of a request for the access log and the generation that serves it, and passes the id of the
    /// request to subgraphs.
    fn note_operation(&self, extensions: &Extensions, ready: &mut PreparedRequest) {
        note_generation(extensions, ready);
        let log = self.live.runner().access_log.as_ref();
        if let Some((log, note)) = log.zip(extensions.get::<OperationNote>()) {
            note.set(log.operation(&ready.prepared, ready.cost, ready.identity.claims()));
        }
        self.set_request_id(extensions, ready);
    }

    /// Counts a prepared operation that does not fit its request.
    fn count_refused(&self, ready: &PreparedRequest) {
        self.serving.count_refused(ready.figures, ErrorCode::BadRequest);
    }

    fn set_request_id(&self, extensions: &Extensions, ready: &mut PreparedRequest) {
        // The events of a subscription and the executions of a live query are not its request.
        if !ready.prepared.has_stream()
            && let Some(AssignedId(header, id)) = extensions.get::<AssignedId>()
        {
            ready.set_request_id((header.clone(), id.clone()));
        }
    }

    async fn run_of_batch(&self, ready: Result<PreparedOperation, Vec<GraphqlError>>) -> Payload {
        let outcome = match ready {
            Ok((ready, mut trace)) => {
                if let Some(trace) = &mut trace {
                    trace.prepared();
                }
                operation::run(&self.serving, ready, trace).await
            }
            Err(errors) => Err(errors),
        };
        outcome.unwrap_or_else(|errors| execute::request_error(&errors))
    }

    fn stream_body(&self, body: LiveBody) -> StreamBody {
        match body {
            LiveBody::Pieces(pieces) => StreamBody::Pieces(pieces),
            LiveBody::Connection(framing, connection) => {
                StreamBody::Takeover(framing, self.takeover(connection))
            }
        }
    }

    /// Returns the takeover of a connection by a reactor.
    fn takeover(&self, connection: LiveConnection) -> Takeover {
        let live = Arc::clone(&self.live);
        Takeover::new(move |taken_over| live.adopt(connection, taken_over))
    }
}

/// Begins the record of an operation, if its request belongs to a trace.
fn begin_spans(extensions: &Extensions) -> Option<Arc<OperationSpans>> {
    extensions.get::<Arc<RequestSpans>>().map(OperationSpans::begin)
}

/// Notes the generation that serves an operation, if its client asks for it.
fn note_generation(extensions: &Extensions, ready: &PreparedRequest) {
    if let Some(note) = extensions.get::<GenerationNote>() {
        note.set(&ready.loaded.generation.id());
    }
}

impl GraphqlService for GraphqlEndpoint {
    fn execute<'a>(&'a self, request: GraphqlRequest<'a>) -> LocalFuture<'a, GraphqlResponse> {
        Box::pin(self.execute_operation(request))
    }

    fn execute_batch<'a>(
        &'a self,
        batch: GraphqlBatch<'a>,
    ) -> LocalFuture<'a, Result<Vec<Bytes>, Refusal>> {
        Box::pin(self.run_batch(batch))
    }

    fn admit_handshake<'a>(
        &'a self,
        handshake: ArrivingHandshake<'a>,
    ) -> LocalFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            let ArrivingHandshake { path, headers, client } = handshake;
            let source = RequestSource::of_websocket(path, client.origin);
            let admitted = operation::admit_handshake(
                &self.serving,
                headers,
                &client.identity,
                client.address,
                source,
            );
            admitted.await.map_err(Refusal::of_errors)
        })
    }

    fn open_websocket(&self, accepted: AcceptedHandshake) -> Takeover {
        let AcceptedHandshake {
            subprotocol,
            accepts_compression,
            headers,
            identity,
            origin,
            logged,
        } = accepted;
        self.takeover(LiveConnection::WebSocket(AcceptedWebSocket {
            negotiated: NegotiatedProtocol { subprotocol, deflates: accepts_compression },
            context: ClientContext { headers, identity, origin },
            logged,
        }))
    }
}

impl SharedStreamService for GraphqlEndpoint {
    fn reserve_stream(&self, token: &str, client: ClientKey) -> Result<(), Refusal> {
        requests::reserve(&self.live, token, client)
    }

    fn open_stream(&self, token: &str, version: Version) -> Result<StreamBody, Refusal> {
        requests::open(&self.live, token, version).map(|body| self.stream_body(body))
    }

    fn start_on_stream<'a>(
        &'a self,
        token: &'a str,
        request: GraphqlRequest<'a>,
    ) -> LocalFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            let GraphqlRequest { head, operation, client, .. } = &request;
            let (identity, address, origin) =
                (client.identity.clone(), client.address, client.origin);
            let operation = StreamOperation { operation, head, identity, address, origin };
            requests::start(&self.live, token, operation).await
        })
    }

    fn stop_on_stream(&self, token: &str, id: Option<&str>) -> Result<(), Refusal> {
        requests::stop(&self.live, token, id)
    }
}

/// Returns the result of a batch as a whole. Its time is no measure of load if a part has errors, which may be those of
/// a slow or a failing subgraph, or if no part needed a subgraph.
fn batch_result(parts: &[Payload]) -> WorkResult {
    let has_errors = parts.iter().any(|it| it.errors > 0);
    match has_errors || parts.iter().all(|it| it.subgraph_requests == 0) {
        true => WorkResult::Unmeasured,
        false => WorkResult::Executed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_measured_if_a_part_is_executed_and_none_has_errors() {
        let part = |errors, subgraph_requests| Payload {
            errors,
            subgraph_requests,
            ..execute::request_error(&[GraphqlError::new(ErrorCode::BadRequest, "no")])
        };
        let of = |parts: &[(u32, u32)]| {
            let parts: Vec<_> = parts.iter().map(|it| part(it.0, it.1)).collect();
            matches!(batch_result(&parts), WorkResult::Executed)
        };
        assert!(of(&[(0, 1), (0, 0)]));
        assert!(!of(&[(0, 1), (1, 0)]));
        assert!(!of(&[(0, 0), (0, 0)]));
    }
}
