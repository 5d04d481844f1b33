//! Operations with all results in one HTTP response: server-sent events, and both forms of multipart.

use std::time::Instant;

use events::SubgraphSubscription;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use wire::upstream::result_decoder::FormatError;
use wire::upstream::{BodyFormat, ResultDecoder, ResultDecoderSettings, ResultEvent};

use crate::endpoint::SubscriptionEndpoint;
use crate::http_exchange::{self, AttemptFailure, HttpResponse, is_transient_status};
use crate::http_request::OperationRequest;
use crate::operation_outcome::{Begun, OperationOutcome};
use crate::operation_output::OperationOutput;
use crate::refusal::read_refusal;
use crate::settings::SubscriptionProtocol;

/// The only accepted type for event streams. Servers such as npm's graphql-sse compare the whole header.
const ACCEPT_EVENTS: &str = "text/event-stream";

/// The accepted types for multipart: the form of subscriptions, then the incremental form. A refusal may be JSON.
const ACCEPT_MULTIPART: &str =
    "multipart/mixed;subscriptionSpec=1.0, multipart/mixed;q=0.9, application/json;q=0.1";

/// A response with the results of an operation.
pub(crate) struct ResponseStream {
    response: HttpResponse,
    decoder: ResultDecoder,
}

impl ResponseStream {
    /// Sends the request of an operation, and checks the head of the response.
    pub(crate) async fn begin(
        endpoint: &SubscriptionEndpoint,
        wanted: &SubgraphSubscription,
    ) -> Result<Begun<Self>, AttemptFailure> {
        let settings = &endpoint.settings;
        let request = operation_request(endpoint, wanted)?;
        let mut response = http_exchange::send(endpoint, request).await?;
        let status = response.head.status;
        if is_transient_status(status) {
            return Err(AttemptFailure::of_status(status));
        }
        check_coding(&response)?;
        let format = match body_format(&response) {
            Err(FormatError::SingleResult) => {
                let refusal = read_refusal(endpoint, &mut response).await?;
                let failure = || AttemptFailure::permanent(FormatError::SingleResult.to_string());
                return refusal.map(Begun::Refused).ok_or_else(failure);
            }
            _ if !status.is_success() => return Err(AttemptFailure::of_status(status)),
            Err(error) => return Err(AttemptFailure::permanent(error.to_string())),
            Ok(format) => format,
        };
        let decoder_settings = ResultDecoderSettings {
            result_bytes_max: settings.message_bytes_max,
            idle_timeout: settings.idle_timeout,
            ..ResultDecoderSettings::default()
        };
        let decoder = ResultDecoder::new(&format, decoder_settings, Instant::now());
        Ok(Begun::Open(Self { response, decoder }))
    }

    /// Passes results on until the operation has ended or the response is lost.
    pub(crate) async fn run(mut self, output: &OperationOutput) -> OperationOutcome {
        loop {
            while let Some(event) = self.decoder.poll_event() {
                match event {
                    ResultEvent::Next(payload) => output.send_result(payload),
                    ResultEvent::Complete => return OperationOutcome::Ended(Ok(())),
                    ResultEvent::Failed(error) => return OperationOutcome::of_error(error),
                }
            }
            tokio::select! {
                chunk = self.response.next_chunk() => match chunk {
                    Ok(Some(chunk)) => self.decoder.receive(Instant::now(), &chunk),
                    Ok(None) => self.decoder.receive_eof(),
                    Err(failure) => return OperationOutcome::Lost(failure.reason),
                },
                () = sleep_until(self.decoder.poll_timeout()) => {
                    self.decoder.handle_timeout(Instant::now());
                }
            }
        }
    }
}

/// Makes the request of an operation.
pub(crate) fn operation_request(
    endpoint: &SubscriptionEndpoint,
    wanted: &SubgraphSubscription,
) -> Result<OperationRequest, AttemptFailure> {
    let target = &endpoint.target;
    let body = || wanted.request.clone();
    let request = match endpoint.settings.protocol {
        SubscriptionProtocol::SseGet => OperationRequest::get(target, wanted, ACCEPT_EVENTS),
        SubscriptionProtocol::Multipart => {
            OperationRequest::post(target, wanted, ACCEPT_MULTIPART, body())
        }
        _ => OperationRequest::post(target, wanted, ACCEPT_EVENTS, body()),
    };
    request.map_err(AttemptFailure::permanent)
}

/// Returns the format of a response with results.
pub(crate) fn body_format(response: &HttpResponse) -> Result<BodyFormat, FormatError> {
    let content_type = response.head.headers.get(CONTENT_TYPE);
    let content_type = content_type.and_then(|it| it.to_str().ok()).unwrap_or_default();
    BodyFormat::of_content_type(content_type)
}

/// The values of `Content-Encoding` for a body that is not compressed. npm's graphql-sse and GraphQL Yoga send `none`,
/// so that proxies do not compress.
const PLAIN_CODINGS: [&[u8]; 2] = [b"identity", b"none"];

/// Checks that the body is not compressed, as the request demands.
pub(crate) fn check_coding(response: &HttpResponse) -> Result<(), AttemptFailure> {
    let mut codings = response.head.headers.get_all(CONTENT_ENCODING).iter();
    let is_plain = |value: &[u8]| PLAIN_CODINGS.iter().any(|it| value.eq_ignore_ascii_case(it));
    match codings.any(|it| !is_plain(it.as_bytes())) {
        true => Err(AttemptFailure::permanent("the subgraph sent a compressed response")),
        false => Ok(()),
    }
}

/// Sleeps until `instant`, or for ever without one.
async fn sleep_until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant.into()).await,
        None => std::future::pending().await,
    }
}
