//! The GraphQL request in an HTTP request: its body is received, expanded and parsed, within the limits.

use std::cell::LazyCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::memory::{CHARGED_BYTES_MIN, MemoryCharge, MemoryKind};
use bytes::Bytes;
use clients::authentication::Identity;
use clients::client_limits::ClientLimits;
use clients::connection_metrics::{ConnectionMetrics, TimeoutPhase};
use clients::memory_refusal::memory_used_up;
use clients::offload::{INLINE_BYTES_MAX, OffloadError};
use clients::operation_metrics::OperationMetrics;
use coding::Coding;
use config::{Batching, Config, Limits};
use execute::{ClientKey, ErrorCode, GraphqlError};
use http::header::{ACCEPT_ENCODING, CONNECTION, HeaderValue};
use http::request::Parts;
use http::{Method, Request, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;

use super::body::{self, BodyError};
use super::client_connection::ClientRequest;
use super::compression::{self, ExpansionBounds, NotExpanded};
use super::media::{self, AcceptedFormats, ResponseFormat};
use super::request::{self, OperationPlace, ParsedRequest, RequestError};
use super::request_cache;
use super::response::{self, Response};
use super::uploads::UploadRefusal;

/// A GraphQL request that was received and parsed.
pub(super) struct ReceivedRequest {
    pub(super) head: Parts,
    pub(super) parsed: ParsedRequest,
    /// The formats of the response that the client accepts.
    pub(super) accepted: AcceptedFormats,
}

/// Receives GraphQL requests within the configured limits.
#[derive(Debug)]
pub struct RequestReceiver {
    limits: Limits,
    body_timeout: Duration,
    batching: Batching,
    clients: Arc<ClientLimits>,
    connection_metrics: Arc<ConnectionMetrics>,
    operation_metrics: Arc<OperationMetrics>,
}

impl RequestReceiver {
    /// Creates a receiver with the limits of the configuration.
    pub fn new(
        config: &Config,
        clients: &Arc<ClientLimits>,
        connection_metrics: &Arc<ConnectionMetrics>,
        operation_metrics: &Arc<OperationMetrics>,
    ) -> Self {
        Self {
            limits: config.limits.clone(),
            body_timeout: config.http.body_timeout,
            batching: config.http.batching.clone(),
            clients: Arc::clone(clients),
            connection_metrics: Arc::clone(connection_metrics),
            operation_metrics: Arc::clone(operation_metrics),
        }
    }

    /// Receives a GraphQL request, then waits until its client may have one more request in progress. `path_id` is the
    /// id of a persisted document in the path.
    ///
    /// # Errors
    /// The response to a request that cannot be read.
    pub(super) async fn receive(
        &self,
        client: &ClientRequest,
        identity: &Identity,
        request: Request<Incoming>,
        path_id: Option<Box<str>>,
    ) -> Result<ReceivedRequest, Box<Response>> {
        let Some(accepted) = media::negotiate(request.headers()) else {
            let message = "nothing in `accept` can be served: ask for application/graphql-response+json, \
                           application/json, text/event-stream or multipart/mixed";
            return Err(bad_request(StatusCode::NOT_ACCEPTABLE, message, ResponseFormat::Json));
        };
        let (head, body) = request.into_parts();
        let client_key = || identity.client_key().unwrap_or(client.connection().client());
        let media = accepted.result;
        let place = if path_id.is_some() { OperationPlace::Path } else { OperationPlace::Request };
        let parsed = parse(self, client_key, &head, (body, place), media).await;
        client.begin_work().await;
        let parsed = match path_id {
            None => parsed?,
            Some(id) => parsed?.with_path_id(id).map_err(|error| invalid_request(&error, media))?,
        };
        Ok(ReceivedRequest { head, parsed, accepted })
    }
}

impl RequestReceiver {
    /// Returns the response to a request with files that cannot be received.
    pub(super) fn refuse_upload(
        &self,
        refusal: UploadRefusal,
        version: Version,
        media: ResponseFormat,
    ) -> Response {
        match refusal {
            UploadRefusal::Invalid(status, reason) => *bad_request(status, reason, media),
            UploadRefusal::TooSlow(reason) => *self.too_slow(reason, version, media),
            UploadRefusal::Overloaded => {
                self.operation_metrics.count_refusal(ErrorCode::Overloaded);
                let message =
                    "too many files are in transit (`uploads.max_bytes_total`, `limits.memory`)";
                response::request_errors(&[GraphqlError::no_room(message)], media, true)
            }
        }
    }

    /// Returns the response to a request that the router has no memory for.
    fn memory_used_up(&self, version: Version, media: ResponseFormat) -> Box<Response> {
        let error = memory_used_up(&self.clients.memory);
        self.operation_metrics.count_refusal(error.code);
        let mut response = Box::new(response::request_errors(&[error], media, true));
        if version < Version::HTTP_2 {
            // The rest of the body is not read.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// Returns the response to a request with a body that did not arrive in time.
    fn too_slow(&self, message: String, version: Version, media: ResponseFormat) -> Box<Response> {
        self.connection_metrics.count_timeout(TimeoutPhase::Body);
        let mut response = bad_request(StatusCode::REQUEST_TIMEOUT, message, media);
        if version < Version::HTTP_2 {
            // RFC 9110, section 15.5.9: further bytes are not a request.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Parses the GraphQL request in an HTTP request.
///
/// # Errors
/// The response to a request that cannot be read.
async fn parse<B>(
    receiver: &RequestReceiver,
    client: impl Fn() -> ClientKey,
    head: &Parts,
    (body, place): (B, OperationPlace),
    media: ResponseFormat,
) -> Result<ParsedRequest, Box<Response>>
where
    B: Body<Data = Bytes>,
    B::Error: std::error::Error,
{
    if head.method == Method::GET {
        // The body of a GET has no meaning but is a part of the request: it is read so that its defects are noticed,
        // and because over HTTP/1.1 the next request follows it.
        if !body.is_end_stream() {
            Box::pin(receive_body(receiver, head, body, media)).await?;
        }
        let request = request::parse_query_string(head.uri.query().unwrap_or_default(), place);
        return request.map(ParsedRequest::One).map_err(|error| invalid_request(&error, media));
    }
    let coding = match body_coding(head, media) {
        Ok(coding) => coding,
        Err(response) => {
            // RFC 9113, section 8.1.1: a defect of the rest of the stream is an error of the stream, and the library
            // notices it only while the body is read. Over HTTP/1.1 a client need not send an unwanted body.
            if head.version == Version::HTTP_2 {
                Box::pin(receive_body(receiver, head, body, media)).await?;
            }
            return Err(response);
        }
    };
    let mut body = receive_body(receiver, head, body, media).await?;
    // hot path: a short body that is not compressed is parsed at once, and needs no deadline.
    let deadline = LazyCell::new(|| Instant::now() + receiver.limits.time);
    if let Some(coding) = coding {
        let bounds = (client(), *deadline);
        body = Box::pin(expand_body(receiver, bounds, head, coding, body, media)).await?;
    }
    let batching = &receiver.batching;
    let batch_max = if batching.enabled { usize::from(batching.max_operations) } else { 0 };
    let parse = move |body| request::parse_body(&body, place, batch_max);
    let parsed = if body.len() > INLINE_BYTES_MAX {
        let (client, size, deadline) = (client(), body.len(), *deadline);
        let parse = move || parse(body);
        let parsed = Box::pin(receiver.clients.offload.run(client, size, deadline, parse)).await;
        parsed.map_err(|reason| not_done(receiver, reason, media))?
    } else {
        request_cache::find_or_parse(body, parse)
    };
    parsed.map_err(|error| invalid_request(&error, media))
}

/// Returns the response to a request that is not a well-formed GraphQL request.
fn invalid_request(error: &RequestError, media: ResponseFormat) -> Box<Response> {
    bad_request(StatusCode::BAD_REQUEST, error.to_string(), media)
}

/// Returns the coding of a request body.
///
/// # Errors
/// The response to a body with an unsupported coding or media type.
fn body_coding(head: &Parts, media: ResponseFormat) -> Result<Option<Coding>, Box<Response>> {
    let unsupported =
        |message: String| bad_request(StatusCode::UNSUPPORTED_MEDIA_TYPE, message, media);
    let Ok(coding) = compression::request_coding(&head.headers) else {
        let mut response = unsupported(format!(
            "the compression of the request body is not supported: send `content-encoding` with one of {}, or without \
             any",
            Coding::ACCEPT
        ));
        // RFC 9110, section 12.5.3: the codings that the client may use instead.
        response.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static(Coding::ACCEPT));
        return Err(response);
    };
    if !media::is_json_body(&head.headers) {
        let message =
            "the request body must be JSON in UTF-8: send `content-type: application/json`";
        return Err(unsupported(message.to_owned()));
    }
    Ok(coding)
}

/// Receives the whole body of a request, without expanding it.
///
/// # Errors
/// The response to a body that is too large, too slow, or broken off.
async fn receive_body<B>(
    receiver: &RequestReceiver,
    head: &Parts,
    body: B,
    media: ResponseFormat,
) -> Result<Bytes, Box<Response>>
where
    B: Body<Data = Bytes>,
    B::Error: std::error::Error,
{
    let (limit, time) = (receiver.limits.body, receiver.body_timeout);
    let read = body::read_counted(body, limit, time, &receiver.clients.memory).await;
    let error = match read {
        Ok(body) => return Ok(body),
        Err(error) => error,
    };
    Err(match error {
        BodyError::TooLarge => {
            let message = format!("the request body is larger than {limit} bytes (`limits.body`)");
            bad_request(StatusCode::PAYLOAD_TOO_LARGE, message, media)
        }
        BodyError::TooSlow => {
            let message =
                format!("the request body did not arrive within {time:?} (`http.body_timeout`)");
            receiver.too_slow(message, head.version, media)
        }
        BodyError::MemoryUsedUp => receiver.memory_used_up(head.version, media),
        BodyError::Broken(reason) => {
            let message = format!("the request body broke off: {reason}");
            bad_request(StatusCode::BAD_REQUEST, message, media)
        }
    })
}

/// The ratio of the expanded size of a body to its compressed size for which memory is counted ahead. Usual JSON
/// becomes 5 to 40 times smaller.
const EXPANSION_RATIO: usize = 8;

/// Expands the compressed body of a request, for a client and until a deadline.
///
/// # Errors
/// The response to a body that cannot be expanded within the limits.
async fn expand_body(
    receiver: &RequestReceiver,
    client_and_deadline: (ClientKey, Instant),
    head: &Parts,
    coding: Coding,
    body: Bytes,
    media: ResponseFormat,
) -> Result<Bytes, Box<Response>> {
    let limits = &receiver.limits;
    let bounds = ExpansionBounds { bytes_max: limits.body, ratio_max: limits.body_expansion_ratio };
    // Counted ahead as the size that usual JSON expands to, and then as what it is.
    let ahead = body.len().saturating_mul(EXPANSION_RATIO).min(limits.body);
    let mut charge = MemoryCharge::empty(&receiver.clients.memory, MemoryKind::RequestBodies);
    if ahead >= CHARGED_BYTES_MIN && charge.try_promise(ahead as u64).is_err() {
        return Err(receiver.memory_used_up(head.version, media));
    }
    let expanded =
        compression::expand(&receiver.clients.offload, client_and_deadline, coding, body, bounds)
            .await;
    expanded.map(|body| charge.hold(body)).map_err(|reason| {
        let too_large = |limit, key| {
            let message =
                format!("the request body expands to more than {limit} bytes (`limits.{key}`)");
            bad_request(StatusCode::PAYLOAD_TOO_LARGE, message, media)
        };
        match reason {
            NotExpanded::TooLarge(limit) => too_large(limit, "body"),
            NotExpanded::TooDense(limit) => {
                let mut response = too_large(limit, "body_expansion_ratio");
                if head.version < Version::HTTP_2 {
                    // Such a body is made to cost the router more than its client: each one costs the client a
                    // connection.
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                response
            }
            NotExpanded::Broken(error) => {
                let message = format!("the request body: {error}");
                bad_request(StatusCode::BAD_REQUEST, message, media)
            }
            NotExpanded::OffloadError(reason) => not_done(receiver, reason, media),
        }
    })
}

/// Returns the response to a request whose work was refused or given up.
fn not_done(
    receiver: &RequestReceiver,
    reason: OffloadError,
    media: ResponseFormat,
) -> Box<Response> {
    let error = reason.error();
    receiver.operation_metrics.count_refusal(error.code);
    Box::new(response::request_errors(&[error], media, true))
}

fn bad_request(
    status: StatusCode,
    message: impl Into<String>,
    media: ResponseFormat,
) -> Box<Response> {
    let error = GraphqlError::new(ErrorCode::BadRequest, message.into());
    Box::new(response::refused(status, &[error], media))
}
