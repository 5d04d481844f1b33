//! Responses: a whole body, a stream of events, or the takeover of the connection.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use astjson::{Document, PathSegment};
use bytes::Bytes;
use clients::authentication::TokenSources;
use clients::cache_control;
use clients::error_mapping;
use clients::rate_limit_headers::rate_limit_headers;
use clients::refusal::{Refusal, retry_after};
use execute::{ErrorCode, GraphqlError, Payload};
use http::StatusCode;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER, VARY};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use super::media::ResponseFormat;
use super::takeover::Takeover;

/// The body of every response.
#[derive(Debug)]
pub enum ResponseBody {
    /// A complete body.
    Whole(Bytes),
    /// Pieces as they are made; the end of the sender is the end of the body.
    Stream(mpsc::Receiver<Bytes>),
    /// No body by HTTP: once the head is written, the connection is taken over. HTTP/1.1 only.
    Takeover(Takeover),
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Stream(pieces) => {
                pieces.poll_recv(context).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
            }
            Self::Takeover(_) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Stream(_) => false,
            Self::Takeover(_) => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream(_) => SizeHint::default(),
            Self::Takeover(_) => SizeHint::with_exact(0),
        }
    }
}

/// The GraphQL errors of a response, for the access log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseErrors {
    /// The number of errors.
    pub(crate) count: u64,
    /// The code of the first error, if the operation did not run.
    pub(crate) code: Option<ErrorCode>,
}

/// A response to a client.
pub type Response = http::Response<ResponseBody>;

/// Returns a payload as a response, with status 503 if it contains nothing but refusals.
pub fn payload(payload: Payload, media: ResponseFormat) -> Response {
    let is_refused = payload.errors > 0 && is_refused(&payload.bytes);
    let mut response = with_type(StatusCode::OK, media.content_type(), payload.bytes);
    if is_refused {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response.headers_mut().insert(RETRY_AFTER, retry_after(&[]));
    }
    if payload.errors > 0 {
        let errors = ResponseErrors { count: payload.errors.into(), code: None };
        response.extensions_mut().insert(errors);
    }
    for (name, value) in payload.headers.iter().flat_map(|it| it.iter()) {
        response.headers_mut().append(name.clone(), value.clone());
    }
    response
}

/// True if a response contains nothing but refusals: a queue for a subgraph was full (`OVERLOADED`), and no root field
/// has a value. For the client that is the same as a refusal of the router itself.
fn is_refused(text: &Bytes) -> bool {
    let code = ErrorCode::Overloaded.as_str();
    if text.len() > REFUSAL_BYTES_MAX || !contains(text, code.as_bytes()) {
        return false;
    }
    let (mut has_value, mut is_overloaded) = (false, false);
    let read = astjson::outline_members(text, |name, value| match &*name {
        "data" => {
            let fields = astjson::outline_members(&value, |_, value| {
                has_value |= *value != *b"null";
            });
            has_value |= fields.is_err();
        }
        "errors" => is_overloaded = all_have_code(&value, code),
        _ => {}
    });
    read.is_ok() && is_overloaded && !has_value
}

/// The maximum size of a response that may be a refusal: an error for each root field is short.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// True if each of these errors has this code.
fn all_have_code(errors: &Bytes, code: &str) -> bool {
    let mut document = Document::new();
    let Ok(errors) = document.parse(errors.clone()) else { return false };
    let has_code = |error| {
        let found =
            document.get_path(error, &[PathSegment::Key("extensions"), PathSegment::Key("code")]);
        found.is_some_and(|found| document.str_eq(found, code))
    };
    document.elements(errors).all(has_code)
}

/// Returns request errors: nothing was executed. Clients of `application/json` get status 200, unless `malformed`
/// states that the request was not a GraphQL request at all (GraphQL over HTTP, section 6.4.1).
pub(crate) fn request_errors(
    errors: &[GraphqlError],
    media: ResponseFormat,
    malformed: bool,
) -> Response {
    if is_overloaded(errors) {
        return overloaded(errors, media);
    }
    let status = match (media, errors.first()) {
        (ResponseFormat::Json, Some(error)) if is_about_the_sender(error) => {
            error_mapping::status(error.code)
        }
        (ResponseFormat::Json, _) if !malformed => StatusCode::OK,
        (_, Some(error)) => error_mapping::status(error.code),
        (_, None) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    refused(status, errors, media)
}

/// True if the router refused the request because it is overloaded.
pub(crate) fn is_overloaded(errors: &[GraphqlError]) -> bool {
    errors.first().is_some_and(|error| error.code == ErrorCode::Overloaded)
}

/// True if the client should send the request again later. Clients look for that in the status, before a stream begins.
pub(crate) fn is_to_be_retried(errors: &[GraphqlError]) -> bool {
    let code = errors.first().map(|error| error.code);
    matches!(code, Some(ErrorCode::Overloaded | ErrorCode::RateLimited))
}

/// Returns the refusal of an overloaded router: status 503 with `retry-after`, whatever the media type, because proxies
/// and clients that retry look at the status.
pub fn overloaded(errors: &[GraphqlError], media: ResponseFormat) -> Response {
    let mut response = refused(StatusCode::SERVICE_UNAVAILABLE, errors, media);
    response.headers_mut().insert(RETRY_AFTER, retry_after(errors));
    response
}

/// True if the error is about the client, about the form of its request, or a decision of the operator, and not a
/// mistake in the operation. Proxies and clients look for that in the status.
fn is_about_the_sender(error: &GraphqlError) -> bool {
    matches!(
        error.code,
        ErrorCode::Unauthenticated
            | ErrorCode::Forbidden
            | ErrorCode::OperationBlocked
            | ErrorCode::RateLimited
            | ErrorCode::BadRequest
            | ErrorCode::PersistedQueryHashMismatch
            | ErrorCode::PersistedDocumentNotFound
            | ErrorCode::PersistedDocumentRequired
    )
}

/// Returns request errors with a status that the HTTP layer chose.
pub fn refused(status: StatusCode, errors: &[GraphqlError], media: ResponseFormat) -> Response {
    // Before a stream begins, an error is a single document.
    let text = execute::request_error(errors).bytes;
    let mut response = with_type(status, media.whole().content_type(), text);
    let code = errors.first().map(|error| error.code);
    response.extensions_mut().insert(ResponseErrors { count: errors.len() as u64, code });
    if let Some(limit) = errors.first().and_then(|error| error.rate_limit.as_deref()) {
        for (name, value) in rate_limit_headers(limit) {
            response.headers_mut().extend(value.map(|value| (name, value)));
        }
    }
    response
}

/// Returns 405 with the allowed methods.
pub(crate) fn method_not_allowed(allowed: &'static str, error: &GraphqlError) -> Response {
    let errors = std::slice::from_ref(error);
    let mut response = refused(StatusCode::METHOD_NOT_ALLOWED, errors, ResponseFormat::Json);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// Returns the response to a mutation that was not sent by POST.
pub fn mutation_by_get() -> Response {
    refuse(Refusal::mutation_by_get(), ResponseFormat::Json)
}

/// Returns a refusal as a response.
pub fn refuse(refusal: Refusal, media: ResponseFormat) -> Response {
    let mut response = refused(refusal.status, &refusal.errors, media);
    if let Some((name, value)) = refusal.header {
        response.headers_mut().insert(name, value);
    }
    response
}

/// Returns the response to OPTIONS: the allowed methods.
pub fn options(allowed: &'static str) -> Response {
    let mut response = empty(StatusCode::NO_CONTENT);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// Restricts the caching of a response of the endpoint, which is for one client and depends on `accept`. Event streams
/// have stricter headers of their own. A rule for headers of subgraphs may allow caches to store responses that are not
/// personal; then caches must not give them to clients with `tokens`.
pub(crate) fn keep_out_of_caches(
    response: &mut Response,
    is_personal: bool,
    tokens: Option<&TokenSources>,
) {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return;
    }
    let headers = response.headers_mut();
    cache_control::restrict(headers, is_personal);
    headers.append(VARY, HeaderValue::from_static("accept"));
    if let Some(tokens) = tokens
        && cache_control::may_be_stored(headers)
    {
        headers.append(VARY, tokens.vary().clone());
    }
}

/// Joins all `vary` fields into one. Some caches, among them nginx before 1.23, read only the last one, and would give
/// clients the responses of others.
pub(crate) fn join_vary(response: &mut Response) {
    let mut values = response.headers().get_all(VARY).iter();
    let (Some(first), Some(second)) = (values.next(), values.next()) else { return };
    let mut joined = first.as_bytes().to_vec();
    for value in std::iter::once(second).chain(values) {
        joined.extend_from_slice(b", ");
        joined.extend_from_slice(value.as_bytes());
    }
    // Values of headers that are joined by commas are the value of a header.
    if let Ok(joined) = HeaderValue::try_from(joined) {
        response.headers_mut().insert(VARY, joined);
    }
}

/// Returns a plain text for people.
pub fn text(status: StatusCode, text: impl Into<Bytes>) -> Response {
    with_type(status, "text/plain; charset=utf-8", text.into())
}

/// Returns a response without a body.
pub fn empty(status: StatusCode) -> Response {
    let mut response = http::Response::new(ResponseBody::Whole(Bytes::new()));
    *response.status_mut() = status;
    response
}

/// Returns a response with a body of any type.
pub fn with_type(status: StatusCode, content_type: &'static str, body: Bytes) -> Response {
    let mut response = http::Response::new(ResponseBody::Whole(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The methods of the endpoint, for `allow`. PUT and DELETE belong to streams that carry several operations.
pub(crate) const ENDPOINT_METHODS: &str = "GET, POST, PUT, DELETE, OPTIONS";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_fields_of_vary_become_one() {
        let vary = |values: &[&'static str]| {
            let mut response = empty(StatusCode::OK);
            for value in values {
                response.headers_mut().append(VARY, HeaderValue::from_static(value));
            }
            join_vary(&mut response);
            let all = response.headers().get_all(VARY).iter();
            all.map(|it| it.to_str().expect("text").to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(vary(&[]), [""; 0]);
        assert_eq!(vary(&["accept"]), ["accept"]);
        assert_eq!(vary(&["x-a, x-b", "accept", "origin"]), ["x-a, x-b, accept, origin"]);
    }

    #[test]
    fn a_response_with_nothing_but_refusals_is_a_refusal() {
        let overloaded = r#"{"message":"full","extensions":{"code":"OVERLOADED"}}"#;
        let other = r#"{"message":"OVERLOADED","extensions":{"code":"TIMEOUT"}}"#;
        for (data, errors, expected) in [
            ("null", overloaded.to_owned(), true),
            (r#"{"a":null,"b":null}"#, format!("{overloaded},{overloaded}"), true),
            (r#"{"a":null,"b":1}"#, overloaded.to_owned(), false),
            ("null", format!("{overloaded},{other}"), false),
            ("null", other.to_owned(), false),
        ] {
            let text = Bytes::from(format!(r#"{{"data":{data},"errors":[{errors}]}}"#));
            assert_eq!(is_refused(&text), expected, "{text:?}");
        }
    }
}
