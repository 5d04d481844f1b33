//! The two ways to send a batch to the collector, and the failures that are worth another attempt (OTLP, the sections
//! "Failures" of both transports).

use std::time::Duration;

use bytes::Bytes;
use execute::FetchError;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use upstream::{MessageResponse, Resource, TargetError};

use crate::collector::{CollectorSettings, ExportProtocol};
use crate::grpc::{GrpcMethod, GrpcResponse};

const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/x-protobuf");

/// The media type of responses over HTTP.
const ACCEPT: &str = "application/x-protobuf";

/// The methods of collectors that take traces and metrics.
const TRACE_METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
const METRIC_METHOD: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

/// The maximum size of a response, which has a number and a sentence.
const RESPONSE_BYTES_MAX: usize = 64 << 10;

/// The data that a collector takes, each by a method of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Signal {
    Traces,
    Metrics,
}

/// The connection to the collector.
#[derive(Debug)]
pub(crate) enum Transport {
    Http(Box<Resource>),
    Grpc(Box<GrpcMethod>),
}

/// The reason why a batch was not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ExportFailure {
    pub(crate) reason: String,
    /// True if the collector may take the same data later.
    pub(crate) is_temporary: bool,
    /// The pause that the collector asks for.
    pub(crate) pause: Option<Duration>,
}

impl Signal {
    /// Returns the name in log lines.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
        }
    }
}

impl Transport {
    /// Creates the way to a collector. Connects to nothing.
    ///
    /// # Errors
    /// The URL cannot be used.
    pub(crate) fn new(signal: Signal, collector: &CollectorSettings) -> Result<Self, TargetError> {
        let CollectorSettings { protocol, url, tls, timeout, .. } = collector;
        let (tls, timeout) = (tls.clone(), *timeout);
        let method = match signal {
            Signal::Traces => TRACE_METHOD,
            Signal::Metrics => METRIC_METHOD,
        };
        Ok(match protocol {
            ExportProtocol::Http => {
                let resource = Resource::new(url, tls, ACCEPT, RESPONSE_BYTES_MAX, timeout)?;
                Self::Http(Box::new(resource))
            }
            ExportProtocol::Grpc => {
                let method = GrpcMethod::new(url, tls, method, RESPONSE_BYTES_MAX, timeout)?;
                Self::Grpc(Box::new(method))
            }
        })
    }

    /// Sends a batch once, and returns the response of a collector that has taken it.
    pub(crate) async fn send(
        &self,
        body: Bytes,
        headers: HeaderMap,
    ) -> Result<Bytes, ExportFailure> {
        match self {
            Self::Http(resource) => {
                let response = resource.post_message(body, CONTENT_TYPE, headers).await;
                read_http(response.map_err(not_sent)?)
            }
            Self::Grpc(method) => read_grpc(method.call(&body, headers).await.map_err(not_sent)?),
        }
    }
}

fn not_sent(error: FetchError) -> ExportFailure {
    let is_temporary = match &error {
        FetchError::Connect(_) | FetchError::Closed(_) | FetchError::Timeout(_) => true,
        // The response of a proxy in front of a gRPC server.
        FetchError::Status { status, .. } => is_temporary_status(*status),
        _ => false,
    };
    ExportFailure { reason: error.to_string(), is_temporary, pause: None }
}

fn read_http(response: MessageResponse) -> Result<Bytes, ExportFailure> {
    let MessageResponse { status, headers, body } = response;
    if status.is_success() {
        return Ok(body);
    }
    let pause = headers.get(RETRY_AFTER).and_then(|it| it.to_str().ok()?.parse().ok());
    Err(ExportFailure {
        reason: format!("HTTP status {status}"),
        is_temporary: is_temporary_status(status),
        pause: pause.map(Duration::from_secs),
    })
}

fn is_temporary_status(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

fn read_grpc(response: GrpcResponse) -> Result<Bytes, ExportFailure> {
    let GrpcResponse { status, reason, has_details, message } = response;
    let is_temporary = match status {
        0 => return Ok(message),
        // Cancelled, deadline exceeded, aborted, out of range, unavailable, data loss.
        1 | 4 | 10 | 11 | 14 | 15 => true,
        // Resource exhausted: the details say when to try again, if that makes sense.
        8 => has_details,
        _ => false,
    };
    Err(ExportFailure {
        reason: format!("gRPC status {status}: {reason}"),
        is_temporary,
        pause: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_that_pass_are_worth_another_attempt() {
        let http = |status| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("7"))]);
            read_http(MessageResponse { status, headers, body: Bytes::new() })
                .expect_err("a failure")
        };
        let busy = http(StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!((busy.is_temporary, busy.pause), (true, Some(Duration::from_secs(7))));
        assert!(!http(StatusCode::BAD_REQUEST).is_temporary);
        let grpc = |status, has_details| {
            let (reason, message) = ("no".to_owned(), Bytes::new());
            read_grpc(GrpcResponse { status, reason, has_details, message })
                .map_err(|it| it.is_temporary)
        };
        assert_eq!(grpc(0, false), Ok(Bytes::new()));
        assert_eq!((grpc(14, false), grpc(3, false)), (Err(true), Err(false)));
        assert_eq!((grpc(8, false), grpc(8, true)), (Err(false), Err(true)));
        assert!(not_sent(FetchError::Timeout(Duration::ZERO)).is_temporary);
        assert!(!not_sent(FetchError::Protocol(String::new())).is_temporary);
    }
}
