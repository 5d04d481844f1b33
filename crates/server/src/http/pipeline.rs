//! The whole path of a request, from its head to its answer.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use coding::Coding;
use execute::{ClientKey, ErrorCode, GraphqlError};
use http::header::{
    ACCEPT_ENCODING, CONNECTION, HeaderValue, ORIGIN, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, Request, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use plan::OperationKind;

use super::answer::{self, Answer};
use super::body::{self, BodyError};
use super::client_connection::ClientRequest;
use super::compression::{ExpansionBounds, NotExpanded};
use super::media::{self, AnswerType};
use super::request::{self, Malformed, Requested};
use super::{authority, batch, cache_control, compression, cors, framing, known_bodies, page};
use crate::forwarding::ClientHeaders::OfMessage;
use crate::live::{once, single, sse, websocket};
use crate::metrics::TimeoutPhase;
use crate::offload::{INLINE_BYTES_MAX, NotDone};
use crate::operation::{self, Ready};
use crate::router::Router;
use crate::trace::RequestTrace;

/// Answers one request. Never fails: what goes wrong becomes an answer.
pub(crate) async fn handle(
    router: &Arc<Router>,
    client: &ClientRequest,
    mut request: Request<Incoming>,
) -> Answer {
    client.connection().admit().await;
    let origin = request.headers().get(ORIGIN).cloned();
    let coding = router.compressor.wanted(request.headers());
    let (checked, version) = (framing::check(&request), request.version());
    let mut answer = match checked.and_then(|()| authority::settle(&mut request)) {
        Ok(()) => route(router, client, request).await,
        Err(reason) => {
            let error = GraphqlError::new(ErrorCode::BadRequest, reason);
            let mut answer = answer::refused(StatusCode::BAD_REQUEST, &[error], AnswerType::Json);
            if version < Version::HTTP_2 {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            answer
        }
    };
    router.compressor.compress(coding, &mut answer).await;
    answer.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    cors::apply(&router.config.cors, origin.as_ref(), &mut answer);
    router.metrics.answer(answer.status());
    answer
}

async fn route(router: &Arc<Router>, client: &ClientRequest, request: Request<Incoming>) -> Answer {
    if let Some(answer) = cors::preflight(request.method(), request.headers()) {
        return answer;
    }
    if request.uri().path() == router.config.path {
        if page::is_wanted(router, request.method(), request.uri(), request.headers()) {
            let mut answer = page::index(router, request.headers());
            answer.headers_mut().append(VARY, HeaderValue::from_static("accept"));
            return answer;
        }
        let token_header = router.authentication.as_ref().map(|it| it.token_source().header);
        let is_personal = cache_control::is_personal(request.headers(), token_header);
        let mut answer = endpoint(router, client, request).await;
        answer::keep_out_of_caches(&mut answer, is_personal);
        return answer;
    }
    page::asset(router, &request)
}

/// The GraphQL endpoint: every transport begins here.
async fn endpoint(
    router: &Arc<Router>,
    client: &ClientRequest,
    request: Request<Incoming>,
) -> Answer {
    if request.method() == Method::OPTIONS {
        return answer::options(answer::ENDPOINT_METHODS);
    }
    let identity = match router.identify(request.headers()).await {
        Ok(identity) => identity,
        Err(refusal) => return refusal.answer(),
    };
    // RFC 9110, section 7.8: in a request by HTTP/1.0 the wish is to be ignored.
    if request.version() > Version::HTTP_10 && websocket::is_wanted(request.headers()) {
        // Who has no token yet may bring it with `connection_init`.
        return websocket::upgrade(router, &request, identity);
    }
    if request.method() == Method::GET && !cors::may_get(&router.config.cors, request.headers()) {
        let message = "pages of this origin may not use the endpoint: it is neither this host nor listed in \
                       `cors.origins` (\"*\" is for requests without cookies)";
        let error = GraphqlError::new(ErrorCode::BadRequest, message);
        return answer::refused(StatusCode::FORBIDDEN, &[error], AnswerType::Json);
    }
    let token = single::token_of(request.uri(), request.headers());
    // Whoever has the token of a stream has been let in when it was reserved; `EventSource` sends no header.
    let is_of_a_stream = token.is_some()
        && match *request.method() {
            Method::GET => single::is_opened_by(request.uri(), request.headers()),
            Method::DELETE => true,
            _ => false,
        };
    if !is_of_a_stream && let Err(refusal) = router.admit(&identity) {
        return refusal.answer();
    }
    let whose_stream = || identity.client_key().unwrap_or(client.connection().client());
    match (request.method(), &token) {
        (&Method::PUT, _) => return single::reserve(router, whose_stream()),
        (&Method::DELETE, Some(token)) => return single::stop(router, token, request.uri()),
        (&Method::GET, Some(token)) if is_of_a_stream => {
            return single::open(router, token, request.version());
        }
        _ => {}
    }
    if !answer::is_endpoint_method(request.method()) {
        let message = "the GraphQL endpoint answers GET and POST, PUT for a stream that carries several \
                       operations, and DELETE with the token of one";
        let error = GraphqlError::new(ErrorCode::BadRequest, message);
        return answer::method_not_allowed(answer::ENDPOINT_METHODS, &error);
    }
    let Some(accepted) = media::negotiate(request.headers()) else {
        let message = "nothing in `accept` can be served: ask for application/graphql-response+json, \
                       application/json, text/event-stream or multipart/mixed";
        let error = GraphqlError::new(ErrorCode::BadRequest, message);
        return answer::refused(StatusCode::NOT_ACCEPTABLE, &[error], AnswerType::Json);
    };
    let media = accepted.result;
    let (head, body) = request.into_parts();
    let address = client.connection().client();
    let whose = || identity.client_key().unwrap_or(address);
    let parsed = read(router, whose, &head, body, media).await;
    client.begin_work().await;
    let operation = match parsed {
        Ok(Requested::One(operation)) => operation,
        Ok(Requested::Batch(operations)) => {
            let from = (&identity, address);
            return batch::answer(router, &operations, &head.headers, from, media).await;
        }
        Err(answer) => return *answer,
    };
    if let Some(token) = token {
        let whose = (identity, address);
        return single::start(router, &token, &operation, &head, whose).await;
    }
    let mut trace = RequestTrace::wanted(&router.config, &head.headers);
    let headers = OfMessage(&head.headers);
    let ready = match operation::prepare_for(router, &operation, headers, identity, address).await {
        Ok(ready) => ready,
        Err(errors) if answer::is_overloaded(&errors) => return answer::overloaded(&errors, media),
        Err(errors) if media == AnswerType::EventStream => return sse::failed(&errors),
        Err(errors) => return answer::request_errors(&errors, media, false),
    };
    if head.method == Method::GET && ready.prepared.kind == OperationKind::Mutation {
        return answer::mutation_by_get();
    }
    let is_subscription = ready.prepared.kind == OperationKind::Subscription;
    // Reads claims, which most requests need not.
    let whose = |ready: &Ready| {
        let key = ready.identity.client_key().unwrap_or(address);
        (key, client.connection().kept())
    };
    if is_subscription && once::is_wanted(&head.uri) {
        let whose = whose(&ready);
        return once::answer(router, ready, media.whole(), whose).await;
    }
    if let Some(kind) = if is_subscription { accepted.stream } else { media.stream() } {
        let whose = whose(&ready);
        return sse::answer(router, ready, kind, head.version, whose);
    }
    if is_subscription {
        let error = GraphqlError::new(ErrorCode::BadRequest, operation::NEEDS_A_STREAM);
        return answer::refused(StatusCode::NOT_ACCEPTABLE, &[error], media);
    }
    if let Some(trace) = &mut trace {
        trace.prepared();
    }
    // Both are slices of what the connection has read: without them it reads on into the same memory.
    drop((head, operation));
    match operation::run(router, ready, trace).await {
        Ok(payload) => answer::payload(payload, media),
        Err(errors) => answer::request_errors(&errors, media, false),
    }
}

/// The GraphQL request in an HTTP request, or the answer that says why there is none.
async fn read<B>(
    router: &Router,
    client: impl Fn() -> ClientKey,
    head: &http::request::Parts,
    body: B,
    media: AnswerType,
) -> Result<Requested, Box<Answer>>
where
    B: Body<Data = Bytes>,
    B::Error: std::error::Error,
{
    let malformed = |status, message: String| malformed(status, message, media);
    let bad = |message: String| malformed(StatusCode::BAD_REQUEST, message);
    if head.method == Method::GET {
        // It means nothing here, but it is a part of the request: what is wrong with it has to come out, and over
        // HTTP/1.1 the next request stands behind it.
        if !body.is_end_stream() {
            receive(router, head, body, media).await?;
        }
        let request = request::from_query_string(head.uri.query().unwrap_or_default());
        return request.map(Requested::One).map_err(|error| not_read(error, media));
    }
    let coding = match body_coding(head, media) {
        Ok(coding) => coding,
        Err(answer) => {
            // RFC 9113, section 8.1.1: what is wrong with the rest of the stream is an error of the stream, and the
            // library sees it only while somebody reads. Over HTTP/1.1 nobody is made to send what is not wanted.
            if head.version == Version::HTTP_2 {
                receive(router, head, body, media).await?;
            }
            return Err(answer);
        }
    };
    let mut body = receive(router, head, body, media).await?;
    let deadline = Instant::now() + router.config.limits.time;
    let not_done = |reason: NotDone| {
        let error = reason.error();
        router.metrics.refused(error.code);
        Box::new(answer::request_errors(&[error], media, true))
    };
    if let Some(coding) = coding {
        let limits = &router.config.limits;
        let bounds =
            ExpansionBounds { bytes_max: limits.body, ratio_max: limits.body_expansion_ratio };
        let whose = (client(), deadline);
        let expanded = compression::expand(&router.offload, whose, coding, body, bounds).await;
        body = expanded.map_err(|reason| {
            let too_large = |limit, key| {
                let message =
                    format!("the request body expands to more than {limit} bytes (`limits.{key}`)");
                malformed(StatusCode::PAYLOAD_TOO_LARGE, message)
            };
            match reason {
                NotExpanded::TooLarge(limit) => too_large(limit, "body"),
                NotExpanded::TooDense(limit) => {
                    let mut answer = too_large(limit, "body_expansion_ratio");
                    if head.version < Version::HTTP_2 {
                        // Such bodies are made to cost the router more than the client: one for each connection.
                        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    }
                    answer
                }
                NotExpanded::Broken(error) => bad(format!("the request body: {error}")),
                NotExpanded::NotDone(reason) => not_done(reason),
            }
        })?;
    }
    let batching = &router.config.http.batching;
    let batch_max = if batching.enabled { usize::from(batching.max_operations) } else { 0 };
    let read = move |body| request::from_json(&body, batch_max);
    let requested = if body.len() <= INLINE_BYTES_MAX {
        known_bodies::recall(body, read)
    } else {
        let (client, size) = (client(), body.len());
        let requested = router.offload.run(client, size, deadline, move || read(body)).await;
        requested.map_err(not_done)?
    };
    requested.map_err(|error| not_read(error, media))
}

/// The answer to a request that is not a well-formed GraphQL request.
fn not_read(error: Malformed, media: AnswerType) -> Box<Answer> {
    match error {
        Malformed::Request(message) => malformed(StatusCode::BAD_REQUEST, message, media),
        Malformed::PersistedQuery { batch } => {
            let code = ErrorCode::PersistedQueryNotSupported;
            let error = GraphqlError::new(code, error.to_string());
            Box::new(match batch {
                // A client that batches operations of several callers hands each of them one response.
                Some(count) => batch::refused(count, &error),
                None => answer::refused(StatusCode::OK, &[error], media),
            })
        }
    }
}

/// How the body of a request is compressed, or the answer that says why it cannot be read.
fn body_coding(
    head: &http::request::Parts,
    media: AnswerType,
) -> Result<Option<Coding>, Box<Answer>> {
    let unsupported = |message| malformed(StatusCode::UNSUPPORTED_MEDIA_TYPE, message, media);
    let Ok(coding) = compression::of_request(&head.headers) else {
        let mut answer = unsupported(format!(
            "the request body is compressed in a way that is not known here: send `content-encoding` with \
             one of {}, or without any",
            Coding::ACCEPT
        ));
        // RFC 9110, section 12.5.3: what could be sent instead.
        answer.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static(Coding::ACCEPT));
        return Err(answer);
    };
    if !media::is_json_body(&head.headers) {
        let message =
            "the request body must be JSON in UTF-8: send `content-type: application/json`";
        return Err(unsupported(message.to_owned()));
    }
    Ok(coding)
}

/// The whole body of a request, as it comes.
async fn receive<B>(
    router: &Router,
    head: &http::request::Parts,
    body: B,
    media: AnswerType,
) -> Result<Bytes, Box<Answer>>
where
    B: Body<Data = Bytes>,
    B::Error: std::error::Error,
{
    let (limit, time) = (router.config.limits.body, router.config.http.body_timeout);
    let error = match body::read(body, limit, time).await {
        Ok(body) => return Ok(body),
        Err(error) => error,
    };
    Err(match error {
        BodyError::TooLarge => {
            let message = format!("the request body is larger than {limit} bytes (`limits.body`)");
            malformed(StatusCode::PAYLOAD_TOO_LARGE, message, media)
        }
        BodyError::TooSlow => {
            router.metrics.timeout(TimeoutPhase::body);
            let message =
                format!("the request body did not arrive within {time:?} (`http.body_timeout`)");
            let mut answer = malformed(StatusCode::REQUEST_TIMEOUT, message, media);
            if head.version < Version::HTTP_2 {
                // RFC 9110, section 15.5.9: what still comes is no request.
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            answer
        }
        BodyError::Broken(reason) => {
            let message = format!("the request body broke off: {reason}");
            malformed(StatusCode::BAD_REQUEST, message, media)
        }
    })
}

fn malformed(status: StatusCode, message: String, media: AnswerType) -> Box<Answer> {
    let error = GraphqlError::new(ErrorCode::BadRequest, message);
    Box::new(answer::refused(status, &[error], media))
}
