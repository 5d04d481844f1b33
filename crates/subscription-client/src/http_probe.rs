//! A request that a subgraph must refuse, to find out whether it serves subscriptions over HTTP. No subscription
//! begins, because the operation has a field that no schema has.
//!
//! Servers of event streams, among them npm's graphql-sse and GraphQL Yoga, send the errors as an event: that proves
//! the protocol. Others respond with JSON, as they do to a query. The plugin of Apollo Server sends callbacks even for
//! an invalid operation: `check`, then `complete`. A router that runs refuses them, because it does not know the id. If
//! a callback fails, Apollo Server responds with the status 500. While it waits for the response to a callback, it does
//! not respond at all.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use events::SubgraphSubscription;
use http::StatusCode;

use crate::callback_endpoint::CallbackEndpoint;
use crate::callback_operation::{self, NOT_JSON};
use crate::endpoint::SubscriptionEndpoint;
use crate::http_exchange::{self, AttemptFailure};
use crate::http_request::OperationRequest;
use crate::http_stream;
use crate::operation_task::NO_CALLBACKS;
use crate::probe_outcome::{ProbeError, ProbeErrorKind, ProbeOutcome};
use crate::refusal::{is_json, read_refusal};

/// The operation. Its names show the operators of the subgraph that `starling check` has sent it.
const OPERATION: &str = concat!(
    r#"{"query":"subscription StarlingCheck { starlingCheckHasNoSuchField }","#,
    r#""operationName":"StarlingCheck"}"#
);

/// The reason why errors as JSON do not prove a stream.
const NO_STREAM_SEEN: &str =
    "it refused an invalid operation with JSON, and only a subscription shows whether it streams";

/// The reason why errors as JSON do not prove callbacks.
const NO_CALLBACK_SEEN: &str =
    "it responds to requests, and only a subscription shows whether it sends callbacks";

/// The bounds of the stream with the errors, which the server should end after them.
const BODY_BYTES_MAX: usize = 64 * 1024;
const BODY_TIME_MAX: Duration = Duration::from_secs(1);

/// Sends the request without headers of clients, and looks at the response.
pub(crate) async fn probe(
    endpoint: &SubscriptionEndpoint,
    callbacks: Option<&Arc<CallbackEndpoint>>,
) -> Result<ProbeOutcome, ProbeError> {
    let is_callback = endpoint.settings.protocol.is_callback();
    let request = match is_callback {
        true => callback_request(endpoint, callbacks),
        false => http_stream::operation_request(endpoint, &operation()),
    };
    let request = request.map_err(of_failure)?;
    let of_exchange = |failure| of_exchange(failure, is_callback);
    let mut response = http_exchange::send(endpoint, request).await.map_err(of_exchange)?;
    let status = response.head.status;
    let of_status = || of_failure(AttemptFailure::of_status(status));
    if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return Err(ProbeError { kind: ProbeErrorKind::NeedsCredentials, ..of_status() });
    }
    http_stream::check_coding(&response).map_err(of_failure)?;
    if !is_json(&response) {
        // The status that some servers give to errors of validation, also in an event stream.
        let is_refusal = status.is_success() || status == StatusCode::BAD_REQUEST;
        return match http_stream::body_format(&response) {
            Ok(_) if is_refusal && !is_callback => {
                // Some servers fail if the connection is closed while they write.
                let _ = response.read_body(BODY_BYTES_MAX, BODY_TIME_MAX).await;
                Ok(ProbeOutcome::Proven)
            }
            _ if !status.is_success() => Err(of_status()),
            Err(error) if !is_callback => Err(ProbeError::new(error.to_string())),
            _ => Err(ProbeError::new(NOT_JSON)),
        };
    }
    if is_callback && status.is_server_error() {
        return Err(ProbeError { kind: ProbeErrorKind::CallbackFailed, ..of_status() });
    }
    match read_refusal(endpoint, &mut response).await.map_err(of_exchange)? {
        Some(_) if is_callback => Ok(ProbeOutcome::Unproven { reason: NO_CALLBACK_SEEN }),
        Some(_) => Ok(ProbeOutcome::Unproven { reason: NO_STREAM_SEEN }),
        None => Err(ProbeError::new(
            "the subgraph responded with JSON without errors to an operation with an unknown field",
        )),
    }
}

/// Makes the request of a subscription with an unknown id, so that the router refuses callbacks to it.
fn callback_request(
    endpoint: &SubscriptionEndpoint,
    callbacks: Option<&Arc<CallbackEndpoint>>,
) -> Result<OperationRequest, AttemptFailure> {
    let callbacks = callbacks.ok_or_else(|| AttemptFailure::permanent(NO_CALLBACKS))?;
    let extension = callbacks.unused_extension().map_err(AttemptFailure::permanent)?;
    callback_operation::begin_request(endpoint, &operation(), &extension)
}

fn operation() -> SubgraphSubscription {
    SubgraphSubscription {
        field: "Subscription".into(),
        request: Bytes::from_static(OPERATION.as_bytes()),
        headers: Arc::default(),
        trace: Arc::default(),
        partition: Box::default(),
    }
}

/// Returns the error of a request without a whole response.
fn of_exchange(failure: AttemptFailure, is_callback: bool) -> ProbeError {
    let kind = match is_callback && failure.is_timeout {
        true => ProbeErrorKind::CallbackTimeout,
        false => ProbeErrorKind::Unusable,
    };
    ProbeError { reason: failure.reason, kind }
}

fn of_failure(failure: AttemptFailure) -> ProbeError {
    ProbeError::new(failure.reason)
}
