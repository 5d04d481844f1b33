//! The path of a request, from its head to its response.

use std::sync::Arc;

use execute::{ErrorCode, GraphqlError};
use http::header::{CONNECTION, HeaderValue, ORIGIN, VARY, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Request, StatusCode, Version};
use hyper::body::Incoming;
use plan::OperationKind;

use super::client_connection::ClientRequest;
use super::cors::CrossOriginAccess;
use super::media::ResponseFormat;
use super::received_request::{ReceivedRequest, receive_request};
use super::request::ParsedRequest;
use super::response::{self, Response};
use super::transport::{self, EndpointRequest, RequestHead, RequestKind};
use super::{authority, batch, cache_control, cors, framing, page, single_connection};
use crate::authentication::Identity;
use crate::forwarding::ClientHeaders::OfMessage;
use crate::live::{first_event, sse, websocket};
use crate::operation;
use crate::prepared_request::PreparedRequest;
use crate::router::Router;
use crate::trace::RequestTrace;

/// Responds to one request. Never fails: errors become responses.
pub(crate) async fn handle(
    router: &Arc<Router>,
    client: &ClientRequest,
    mut request: Request<Incoming>,
) -> Response {
    client.connection().wait_for_turn().await;
    let origin = request.headers().get(ORIGIN).cloned();
    let coding = router.compressor.negotiate(request.headers());
    let (checked, version) = (framing::check_framing(&request), request.version());
    let mut response = match checked.and_then(|()| authority::normalize_host(&mut request)) {
        Ok(()) => route(router, client, request).await,
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
    router.compressor.compress(coding, &mut response).await;
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    cors::apply(&router.config.cors, origin.as_ref(), &mut response);
    router.metrics.http.count_response(response.status());
    response
}

/// Classifies a request and passes it to its handler.
async fn route(
    router: &Arc<Router>,
    client: &ClientRequest,
    request: Request<Incoming>,
) -> Response {
    let head = RequestHead {
        method: request.method(),
        version: request.version(),
        uri: request.uri(),
        headers: request.headers(),
    };
    match transport::classify(head, &router.config.path, router.page.is_some()) {
        RequestKind::Preflight => cors::preflight_response(request.headers()),
        RequestKind::Page => {
            let mut response = page::index(router, request.headers());
            response.headers_mut().append(VARY, HeaderValue::from_static("accept"));
            response
        }
        RequestKind::File => page::asset(router, &request),
        RequestKind::Endpoint(kind) => {
            let token_header = router.authentication.as_ref().map(|it| it.token_source().header);
            let is_personal = cache_control::is_personal(request.headers(), token_header);
            let mut response = endpoint(router, client, kind, request).await;
            response::keep_out_of_caches(&mut response, is_personal);
            response
        }
    }
}

/// Authenticates and authorizes the client of a request to the GraphQL endpoint, and passes the request to its handler.
async fn endpoint(
    router: &Arc<Router>,
    client: &ClientRequest,
    kind: EndpointRequest,
    request: Request<Incoming>,
) -> Response {
    if kind == EndpointRequest::Options {
        return response::options(response::ENDPOINT_METHODS);
    }
    let identity = match router.authenticate(request.headers()).await {
        Ok(identity) => identity,
        Err(refusal) => return refusal.response(),
    };
    let access = match kind {
        EndpointRequest::WebSocket => Some(CrossOriginAccess::WebSocket),
        _ if request.method() == Method::GET => Some(CrossOriginAccess::Get),
        _ => None,
    };
    let refused = access.and_then(|it| cors::refusal(&router.config.cors, it, request.headers()));
    if let Some(refused) = refused {
        return refused;
    }
    if kind.requires_authorization()
        && let Err(refusal) = router.authorize(&identity)
    {
        return refusal.response();
    }
    match kind {
        EndpointRequest::Options => response::options(response::ENDPOINT_METHODS),
        EndpointRequest::WebSocket => websocket::upgrade(router, &request, identity),
        EndpointRequest::Operation => run_operation(router, client, request, identity).await,
        EndpointRequest::Stream(kind) => {
            single_connection::respond(router, client, kind, request, identity).await
        }
        EndpointRequest::UnsupportedMethod => {
            let message = "the GraphQL endpoint supports GET and POST, PUT for a stream that carries several \
                           operations, and DELETE with the token of one";
            let error = GraphqlError::new(ErrorCode::BadRequest, message);
            response::method_not_allowed(response::ENDPOINT_METHODS, &error)
        }
    }
}

/// Runs the operations of a request by GET or POST.
async fn run_operation(
    router: &Arc<Router>,
    client: &ClientRequest,
    request: Request<Incoming>,
    identity: Identity,
) -> Response {
    let received = receive_request(router, client, &identity, request).await;
    let ReceivedRequest { head, parsed, accepted } = match received {
        Ok(received) => received,
        Err(response) => return *response,
    };
    let (address, media) = (client.connection().client(), accepted.result);
    let operation = match parsed {
        ParsedRequest::One(operation) => operation,
        ParsedRequest::Batch(operations) => {
            let from = (&identity, address);
            return batch::respond(router, &operations, &head.headers, from, media).await;
        }
    };
    let mut trace = RequestTrace::wanted(&router.config, &head.headers);
    let headers = OfMessage(&head.headers);
    let ready = match operation::prepare_for(router, &operation, headers, identity, address).await {
        Ok(ready) => ready,
        Err(errors) if response::is_overloaded(&errors) => {
            return response::overloaded(&errors, media);
        }
        Err(errors) if media == ResponseFormat::EventStream => return sse::failed(&errors),
        Err(errors) => return response::request_errors(&errors, media, false),
    };
    if head.method == Method::GET && ready.prepared.kind == OperationKind::Mutation {
        return response::mutation_by_get();
    }
    let is_subscription = ready.prepared.kind == OperationKind::Subscription;
    // Reads the claims, which only live operations need.
    let client_of = |ready: &PreparedRequest| {
        let key = ready.identity.client_key().unwrap_or(address);
        (key, client.connection().kept())
    };
    if is_subscription && first_event::is_wanted(&head.uri) {
        let client = client_of(&ready);
        return first_event::respond(router, ready, media.whole(), client).await;
    }
    if let Some(stream) = if is_subscription { accepted.stream } else { media.stream() } {
        let client = client_of(&ready);
        return sse::respond(router, ready, stream, head.version, client);
    }
    if is_subscription {
        let error = GraphqlError::new(ErrorCode::BadRequest, operation::NEEDS_A_STREAM);
        return response::refused(StatusCode::NOT_ACCEPTABLE, &[error], media);
    }
    if let Some(trace) = &mut trace {
        trace.prepared();
    }
    // Both are slices of the connection's read buffer: once they are dropped, the connection reads into the same
    // memory.
    drop((head, operation));
    match operation::run(router, ready, trace).await {
        Ok(payload) => response::payload(payload, media),
        Err(errors) => response::request_errors(&errors, media, false),
    }
}
