//! The path of a request, from its head to its response.

use std::sync::Arc;

use cache::{BodyCopies, FoldedPolicy};
use clients::access_log::AccessLog;
use clients::authentication::{ClientAuthentication, Identity, TokenUse};
use clients::cache_control;
use clients::client_deadline::DeadlineHeaders;
use clients::generation_note::{GENERATION_HEADER, GenerationNote};
use clients::request_ids::{AssignedId, RequestIds};
use execute::{ErrorCode, GraphqlError};
use http::header::{CONNECTION, HeaderValue, ORIGIN, VARY, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Request, StatusCode, Version};
use hyper::body::Incoming;
use telemetry::spans::Tracer;

use super::callback::CallbackRoute;
use super::client_caching::{self, CachedRequest, ClientCacheRules, ClientCopy};
use super::client_connection::ClientRequest;
use super::compression::Compressor;
use super::cors::CrossOriginAccess;
use super::cors_rules::CorsRules;
use super::csrf::CsrfRules;
use super::endpoint::{Endpoint, Endpoints};
use super::first_turn::FirstTurns;
use super::load_report::LoadReports;
use super::media::{self, AcceptedFormats, ResponseFormat};
use super::metrics::HttpMetrics;
use super::received_request::{ReceivedRequest, RequestReceiver};
use super::refusal_pacing::RefusalPacer;
use super::request::ParsedRequest;
use super::request_record::RequestRecord;
use super::response::{self, Response};
use super::server_span::ServerSpan;
use super::service::{
    ArrivingHandshake, GraphqlBatch, GraphqlRequest, GraphqlResponse, GraphqlService, RequestClient,
};
use super::single_connection::StreamRequest;
use super::transport::{self, EndpointRequest, RequestHead, RequestKind};
use super::uploads::{self, UploadReceiver};
use super::{authority, batch, cors, framing, page, single_connection, stream_response, websocket};

/// The parts of the router through which each request passes.
pub struct Pipeline {
    /// Verifies the tokens of clients.
    pub authentication: Arc<ClientAuthentication>,
    /// The rules for pages of other origins.
    pub cors: CorsRules,
    /// The rules for requests that a foreign page may have made.
    pub csrf: CsrfRules,
    /// Compresses responses.
    pub compressor: Compressor,
    /// The endpoints of the graphs.
    pub endpoints: Endpoints,
    /// Receives the bodies of requests.
    pub receiver: RequestReceiver,
    /// Receives requests with files, if they are accepted.
    pub uploads: Option<UploadReceiver>,
    /// True if messages on WebSockets may be compressed.
    pub has_websocket_compression: bool,
    /// The endpoint for callbacks of subgraphs, if the listener for clients serves it.
    pub callbacks: Option<CallbackRoute>,
    /// The headers for clients and their caches; `None` if they must not store anything.
    pub caching: Option<ClientCacheRules>,
    /// The counters of responses.
    pub metrics: HttpMetrics,
    /// The access log, if it is written.
    pub access_log: Option<Arc<AccessLog>>,
    /// Gives requests their ids, if they have any.
    pub request_ids: Option<Arc<RequestIds>>,
    /// The headers by which clients say how long they wait.
    pub deadline_headers: DeadlineHeaders,
    /// The load reports of responses, if any are sent.
    pub load_reports: Option<Arc<LoadReports>>,
    /// True if responses say which generation of the graph served them, to clients that ask for it.
    pub shows_generation: bool,
    /// Records the traces of requests, if any are exported.
    pub tracer: Option<Arc<Tracer>>,
    /// Holds the refusals of an overloaded router that are too many.
    pub refusals: RefusalPacer,
    /// The places of connections that begin their first requests.
    pub first_turns: FirstTurns,
}

/// Responds to one request. Never fails: errors become responses.
pub(super) async fn handle(
    pipeline: &Pipeline,
    client: &ClientRequest,
    mut request: Request<Incoming>,
) -> Response {
    let deadline = pipeline.deadline_headers.deadline(request.headers());
    if let Some(deadline) = deadline {
        request.extensions_mut().insert(deadline);
    }
    client.connection().wait_for_turn().await;
    let request_id = pipeline.request_ids.as_ref().map(|ids| {
        let assigned = AssignedId(ids.header().clone(), ids.id_of(request.headers()));
        request.extensions_mut().insert(assigned.clone());
        assigned
    });
    let served = pipeline.endpoints.of(&request);
    let graph = served.graph_of(request.uri().path());
    let mut record = pipeline.access_log.as_deref().map(|it| {
        let names = (request_id.as_ref().map(|it| &it.1), graph.map(|it| &**it));
        RequestRecord::begin(it, client.connection().origin(), names, &mut request)
    });
    let span = pipeline.tracer.as_ref().map(|it| {
        let (origin, endpoint) = (client.connection().origin(), (&*served.page.path, graph));
        ServerSpan::begin(it, origin, endpoint, &mut request)
    });
    if let Some(record) = &mut record {
        record.set_trace(span.as_ref().map(ServerSpan::trace));
    }
    let origin = request.headers().get(ORIGIN).cloned();
    let coding = pipeline.compressor.negotiate(request.headers());
    let reports = pipeline.load_reports.as_deref();
    let report = reports.and_then(|it| Some((it, it.format_for(request.headers())?)));
    let generation =
        if pipeline.shows_generation { GenerationNote::begin(&mut request) } else { None };
    let mut copies = None;
    let (checked, version) = (framing::check_framing(&request), request.version());
    let mut response = match checked.and_then(|()| authority::normalize_host(&mut request)) {
        Ok(()) => route(pipeline, served, client, request, &mut copies).await,
        Err(reason) => {
            let error = GraphqlError::new(ErrorCode::BadRequest, reason);
            let status = StatusCode::BAD_REQUEST;
            let mut response = response::refused(status, &[error], ResponseFormat::Json);
            if version < Version::HTTP_2 {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
    };
    pipeline.compressor.compress(coding, copies, &mut response).await;
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    cors::apply(&pipeline.cors, origin.as_ref(), &mut response);
    response::join_vary(&mut response);
    if let Some(AssignedId(header, id)) = &request_id {
        response.headers_mut().insert(header, id.clone());
    }
    if let Some(id) = generation.as_ref().and_then(GenerationNote::id) {
        response.headers_mut().insert(GENERATION_HEADER, id.clone());
    }
    if let Some((reports, format)) = report {
        reports.add(format, &mut response);
    }
    if let Some(record) = record {
        record.finish(&response);
    }
    if let Some(span) = span {
        span.finish(&response);
    }
    pipeline.metrics.count_response(response.status());
    pipeline.first_turns.note_response(response.status());
    // After the span has ended and the line of the access log is written: the pause is no work, and refusals must not
    // count as slow requests, which are exported.
    pipeline.refusals.hold(&response, deadline, client.connection()).await;
    response
}

/// Classifies a request and passes it to its handler. `copies` gets the compressed copies of a response from memory.
async fn route(
    pipeline: &Pipeline,
    served: &Endpoint,
    client: &ClientRequest,
    request: Request<Incoming>,
    copies: &mut Option<BodyCopies>,
) -> Response {
    if let Some(callbacks) = &pipeline.callbacks
        && callbacks.has_path(request.uri().path())
    {
        return Box::pin(receive_callback(callbacks, client, request)).await;
    }
    let head = RequestHead {
        method: request.method(),
        version: request.version(),
        uri: request.uri(),
        headers: request.headers(),
    };
    match transport::classify(head, &served.page) {
        RequestKind::Preflight => cors::preflight_response(&pipeline.cors, request.headers()),
        RequestKind::Page => {
            let mut response = page::index(&served.page, request.headers());
            response.headers_mut().append(VARY, HeaderValue::from_static("accept"));
            response
        }
        RequestKind::File => page::asset(&served.page, &request),
        RequestKind::Endpoint(kind) => {
            let tokens = pipeline.authentication.token_sources();
            let is_personal = cache_control::is_personal(request.headers(), tokens);
            let cached = CachedRequest::of(request.method(), request.headers(), is_personal);
            let mut policy = None;
            let service = &*served.service;
            let mut response =
                endpoint(pipeline, service, client, kind, request, &mut policy).await;
            let copy = match (&pipeline.caching, policy) {
                (Some(caching), Some(policy)) => {
                    let is_compressible = pipeline.compressor.is_candidate(&response);
                    *copies = policy.copies.clone();
                    caching.apply(&cached, &policy, is_compressible, &mut response)
                }
                _ => ClientCopy::Forbidden,
            };
            match copy {
                ClientCopy::Allowed => {}
                ClientCopy::Known => client_caching::remove_body(&mut response),
                ClientCopy::Forbidden => {
                    response::keep_out_of_caches(&mut response, is_personal, tokens);
                }
            }
            response
        }
    }
}

/// Passes a callback of a subgraph to its subscription. It needs no token: the subgraph knows a secret of the
/// subscription.
async fn receive_callback(
    callbacks: &CallbackRoute,
    client: &ClientRequest,
    request: Request<Incoming>,
) -> Response {
    match callbacks.read(request).await {
        Ok(received) => {
            client.begin_work().await;
            callbacks.respond(&received)
        }
        Err(response) => *response,
    }
}

/// The policy of a response that clients and caches may store; `None` for others. It travels beside the response to the
/// end of the pipeline.
type ResponsePolicy = Option<Arc<FoldedPolicy>>;

/// Authenticates and authorizes the client of a request to the GraphQL endpoint, and passes the request to its handler.
/// Seldom used handlers are boxed: their state would be moved with that of every request.
async fn endpoint(
    pipeline: &Pipeline,
    service: &dyn GraphqlService,
    client: &ClientRequest,
    kind: EndpointRequest,
    mut request: Request<Incoming>,
    policy: &mut ResponsePolicy,
) -> Response {
    if kind == EndpointRequest::Options {
        return response::options(response::ENDPOINT_METHODS);
    }
    let access = match kind {
        EndpointRequest::WebSocket => Some(CrossOriginAccess::WebSocket),
        _ if request.method() == Method::GET => Some(CrossOriginAccess::Get),
        _ => None,
    };
    // Before the token is verified, which may remove cookies: they are ambient credentials, with and without a token.
    let refused = access.and_then(|it| cors::refusal(&pipeline.cors, it, request.headers()));
    if let Some(refused) = refused {
        return refused;
    }
    // Opening a stream has no effect, and its token is a secret of the page that has reserved it.
    let opens_stream = matches!(kind, EndpointRequest::Stream(StreamRequest::Open(_)));
    if access == Some(CrossOriginAccess::Get)
        && !opens_stream
        && let Some(refused) = pipeline.csrf.refuse_get(request.headers())
    {
        return refused;
    }
    let usage = match kind {
        EndpointRequest::WebSocket => TokenUse::Connection,
        _ => TokenUse::Request,
    };
    let authenticated = pipeline.authentication.authenticate(request.headers_mut(), usage);
    let identity = match authenticated.await {
        Ok(identity) => identity,
        Err(refusal) => return response::refuse(refusal.refusal(), ResponseFormat::Json),
    };
    if kind.requires_authorization()
        && let Err(refusal) = pipeline.authentication.authorize(&identity)
    {
        return response::refuse(refusal.refusal(), ResponseFormat::Json);
    }
    match kind {
        EndpointRequest::Options => response::options(response::ENDPOINT_METHODS),
        EndpointRequest::WebSocket => {
            let arriving = ArrivingHandshake {
                path: request.uri().path(),
                headers: request.headers(),
                client: RequestClient::of(client, identity.clone()),
            };
            if let Err(refusal) = service.admit_handshake(arriving).await {
                return response::refuse(refusal, ResponseFormat::Json);
            }
            let has_compression = pipeline.has_websocket_compression;
            let client = (identity, client.connection().origin());
            websocket::upgrade(service, has_compression, &request, client)
        }
        EndpointRequest::Operation => {
            run_operation(pipeline, service, client, request, (identity, None), policy).await
        }
        EndpointRequest::Document(id) => {
            run_operation(pipeline, service, client, request, (identity, Some(id)), policy).await
        }
        EndpointRequest::Stream(kind) => {
            let parts = (service, &pipeline.receiver, &pipeline.metrics);
            Box::pin(single_connection::respond(parts, client, kind, request, identity)).await
        }
        EndpointRequest::UnsupportedMethod => {
            let message = "the GraphQL endpoint supports GET and POST, PUT for a stream that carries several \
                           operations, and DELETE with the token of one";
            let error = GraphqlError::new(ErrorCode::BadRequest, message);
            response::method_not_allowed(response::ENDPOINT_METHODS, &error)
        }
    }
}

/// Runs the operations of a request by GET or POST. `path_id` is the id of a persisted document in the path.
async fn run_operation(
    pipeline: &Pipeline,
    service: &dyn GraphqlService,
    client: &ClientRequest,
    request: Request<Incoming>,
    (identity, path_id): (Identity, Option<Box<str>>),
    policy: &mut ResponsePolicy,
) -> Response {
    if let Some(uploads) = &pipeline.uploads
        && path_id.is_none()
        && request.method() == Method::POST
        && uploads::is_form(request.headers())
    {
        return Box::pin(run_upload(pipeline, service, uploads, client, request, identity)).await;
    }
    let received = match pipeline.receiver.receive(client, &identity, request, path_id).await {
        Ok(received) => received,
        Err(response) => return *response,
    };
    let ReceivedRequest { head, parsed, accepted } = received;
    let client = RequestClient::of(client, identity);
    match parsed {
        ParsedRequest::One(operation) => {
            let request = GraphqlRequest { head, operation, client, accepted, uploads: None };
            let mut response = service.execute(request).await;
            if let GraphqlResponse::Payload(payload) = &mut response {
                *policy = payload.caching.take().filter(|_| payload.errors == 0);
            }
            render(response, accepted)
        }
        ParsedRequest::Batch(operations) => {
            let batch = GraphqlBatch { head: &head, operations, client };
            let metrics = &pipeline.metrics;
            Box::pin(batch::respond(service, metrics, batch, accepted.result)).await
        }
    }
}

/// Runs the operation of a request with files.
async fn run_upload(
    pipeline: &Pipeline,
    service: &dyn GraphqlService,
    uploads: &UploadReceiver,
    client: &ClientRequest,
    request: Request<Incoming>,
    identity: Identity,
) -> Response {
    // Browsers send forms of any page without a preflight, so this holds whatever `csrf.enabled` says.
    if let Some(refused) = pipeline.csrf.refuse_form(request.headers()) {
        uploads.discard(request.into_body()).await;
        return refused;
    }
    let accepted = media::negotiate(request.headers());
    let accepted =
        accepted.unwrap_or(AcceptedFormats { result: ResponseFormat::Json, stream: None });
    let (head, body) = request.into_parts();
    let received = uploads.begin(&head.headers, body).await;
    client.begin_work().await;
    let (media, version) = (accepted.result, head.version);
    let (operation, uploads, files) = match received {
        Ok(upload) => upload.into_parts(),
        Err(refusal) => return pipeline.receiver.refuse_upload(refusal, version, media),
    };
    let client = RequestClient::of(client, identity);
    let request = GraphqlRequest { head, operation, client, accepted, uploads: Some(uploads) };
    match files.run(service.execute(request)).await {
        Ok(response) => render(response, accepted),
        Err(refusal) => pipeline.receiver.refuse_upload(refusal, version, media),
    }
}

/// Returns the response to an operation in a format that the client accepts.
fn render(response: GraphqlResponse, accepted: AcceptedFormats) -> Response {
    let media = accepted.result;
    match response {
        GraphqlResponse::Payload(payload) => response::payload(payload, media.whole()),
        GraphqlResponse::NotPrepared(errors)
            if media == ResponseFormat::EventStream && !response::is_to_be_retried(&errors) =>
        {
            stream_response::failed(&errors)
        }
        GraphqlResponse::NotPrepared(errors) => response::request_errors(&errors, media, false),
        GraphqlResponse::NotRun(errors) => response::request_errors(&errors, media.whole(), false),
        GraphqlResponse::MutationByGet => response::mutation_by_get(),
        GraphqlResponse::Refused(refusal) => response::refuse(refusal, media),
        GraphqlResponse::Stream(kind, body) => stream_response::with_stream(kind, body),
    }
}
