//! The whole path of a request, from its head to its answer.

use std::sync::Arc;

use bytes::Bytes;
use execute::{ErrorCode, GraphqlError};
use http::header::{HeaderValue, ORIGIN, VARY, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Request, StatusCode};
use http_body::Body;
use hyper::body::Incoming;
use plan::OperationKind;
use prepare::OperationRequest;

use super::answer::{self, Answer};
use super::body::{self, BodyError};
use super::media::{self, AnswerType};
use super::{cors, page, request};
use crate::live::{sse, websocket};
use crate::operation;
use crate::router::Router;

/// Answers one request. Never fails: what goes wrong becomes an answer.
pub(crate) async fn handle(router: &Arc<Router>, request: Request<Incoming>) -> Answer {
    let origin = request.headers().get(ORIGIN).cloned();
    let mut answer = route(router, request).await;
    answer.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    cors::apply(&router.config.cors, origin.as_ref(), &mut answer);
    router.metrics.answer(answer.status());
    answer
}

async fn route(router: &Arc<Router>, request: Request<Incoming>) -> Answer {
    if let Some(answer) = cors::preflight(request.method(), request.headers()) {
        return answer;
    }
    if request.uri().path() == router.config.path {
        if page::is_wanted(router, request.method(), request.uri(), request.headers()) {
            let mut answer = page::index(router, request.headers());
            answer.headers_mut().append(VARY, HeaderValue::from_static("accept"));
            return answer;
        }
        let mut answer = endpoint(router, request).await;
        answer::keep_out_of_caches(&mut answer);
        return answer;
    }
    page::asset(router, &request)
}

/// The GraphQL endpoint: every transport begins here.
async fn endpoint(router: &Arc<Router>, request: Request<Incoming>) -> Answer {
    if websocket::is_wanted(request.headers()) {
        return websocket::upgrade(router, request);
    }
    if request.method() == Method::OPTIONS {
        return answer::options(answer::ENDPOINT_METHODS);
    }
    if request.method() == Method::GET && !cors::may_get(&router.config.cors, request.headers()) {
        let message = "pages of this origin may not use the endpoint: it is neither this host nor in \
                       `cors.origins`";
        let error = GraphqlError::new(ErrorCode::BadRequest, message);
        return answer::refused(StatusCode::FORBIDDEN, &[error], AnswerType::Json);
    }
    if !answer::is_endpoint_method(request.method()) {
        let message = "the GraphQL endpoint answers GET and POST";
        let error = GraphqlError::new(ErrorCode::BadRequest, message);
        return answer::method_not_allowed(answer::ENDPOINT_METHODS, &error);
    }
    let Some(media) = media::negotiate(request.headers()) else {
        let message = "nothing in `accept` can be served: ask for application/graphql-response+json, \
                       application/json or text/event-stream";
        let error = GraphqlError::new(ErrorCode::BadRequest, message);
        return answer::refused(StatusCode::NOT_ACCEPTABLE, &[error], AnswerType::Json);
    };
    let (head, body) = request.into_parts();
    let parsed = read(router, &head, body, media).await;
    let operation = match parsed {
        Ok(operation) => operation,
        Err(answer) => return *answer,
    };
    let ready = match operation::prepare(router, &operation, &head.headers).await {
        Ok(ready) => ready,
        Err(errors) if media == AnswerType::EventStream => return sse::failed(&errors),
        Err(errors) => return answer::request_errors(&errors, media, false),
    };
    if head.method == Method::GET && ready.prepared.kind == OperationKind::Mutation {
        let message =
            "a mutation must be sent by POST: GET requests may be repeated by anyone on the way";
        return answer::method_not_allowed(
            "POST",
            &GraphqlError::new(ErrorCode::BadRequest, message),
        );
    }
    if media == AnswerType::EventStream {
        return sse::answer(router, ready, &head.headers);
    }
    if ready.prepared.kind == OperationKind::Subscription {
        let message = "a subscription is answered by a stream: ask with `Accept: text/event-stream`, or \
                       over a WebSocket with the subprotocol graphql-transport-ws";
        let error = GraphqlError::new(ErrorCode::BadRequest, message);
        return answer::refused(StatusCode::NOT_ACCEPTABLE, &[error], media);
    }
    match operation::run(router, &ready).await {
        Ok(payload) => answer::payload(payload, media),
        Err(errors) => answer::request_errors(&errors, media, false),
    }
}

/// The GraphQL request in an HTTP request, or the answer that says why there is none.
async fn read<B>(
    router: &Router,
    head: &http::request::Parts,
    body: B,
    media: AnswerType,
) -> Result<OperationRequest, Box<Answer>>
where
    B: Body<Data = Bytes>,
    B::Error: std::error::Error,
{
    let malformed = |status, message: String| {
        let error = GraphqlError::new(ErrorCode::BadRequest, message);
        Err(Box::new(answer::refused(status, &[error], media)))
    };
    let parsed = if head.method == Method::GET {
        request::from_query_string(head.uri.query().unwrap_or_default())
    } else {
        if !media::is_plain_body(&head.headers) {
            let message =
                "compressed request bodies are not supported: send none of `content-encoding`";
            return malformed(StatusCode::UNSUPPORTED_MEDIA_TYPE, message.to_owned());
        }
        if !media::is_json_body(&head.headers) {
            let message =
                "the request body must be JSON in UTF-8: send `content-type: application/json`";
            return malformed(StatusCode::UNSUPPORTED_MEDIA_TYPE, message.to_owned());
        }
        match body::read(body, router.config.limits.body).await {
            Ok(body) => request::from_json(body),
            Err(BodyError::TooLarge) => {
                let limit = router.config.limits.body;
                let message =
                    format!("the request body is larger than {limit} bytes (`limits.body`)");
                return malformed(StatusCode::PAYLOAD_TOO_LARGE, message);
            }
            Err(BodyError::TooSlow) => {
                let seconds = body::BODY_TIME_MAX.as_secs();
                let message = format!("the request body did not arrive within {seconds} seconds");
                return malformed(StatusCode::REQUEST_TIMEOUT, message);
            }
            Err(BodyError::Broken(reason)) => {
                return malformed(
                    StatusCode::BAD_REQUEST,
                    format!("the request body broke off: {reason}"),
                );
            }
        }
    };
    parsed.or_else(|error| malformed(StatusCode::BAD_REQUEST, error.0))
}
