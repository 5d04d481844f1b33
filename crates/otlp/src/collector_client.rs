//! The client of one collector, and the log lines about its failures and its recovery.

use std::fmt;
use std::time::Instant;

use bytes::Bytes;
use http::HeaderMap;
use telemetry::LogLimit;
use upstream::TargetError;

use crate::collector::CollectorSettings;
use crate::transport::{ExportFailure, Signal, Transport};

/// Sends data of one kind to a collector.
pub(crate) struct CollectorClient {
    signal: Signal,
    transport: Transport,
    headers: HeaderMap,
    /// The URL for log lines.
    shown_url: String,
    failure_log: LogLimit,
}

/// Prints nothing secret.
impl fmt::Debug for CollectorClient {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("CollectorClient").field("url", &self.shown_url).finish_non_exhaustive()
    }
}

impl CollectorClient {
    /// Creates a client. It connects when there is something to send.
    ///
    /// # Errors
    /// The URL cannot be used.
    pub(crate) fn new(signal: Signal, settings: CollectorSettings) -> Result<Self, TargetError> {
        Ok(Self {
            signal,
            transport: Transport::new(signal, &settings)?,
            shown_url: settings.shown_url(),
            headers: settings.headers,
            failure_log: LogLimit::new(),
        })
    }

    /// Sends a batch once, and returns the response of a collector that has taken it.
    pub(crate) async fn send(&self, body: Bytes) -> Result<Bytes, ExportFailure> {
        self.transport.send(body, self.headers.clone()).await
    }

    /// Logs that the collector has not taken data, at a limited rate.
    pub(crate) fn log_failure(&self, reason: &str) {
        if let Some(failures) = self.failure_log.record(1, Instant::now()) {
            tracing::warn!(
                collector = self.shown_url,
                reason,
                failures,
                "{} cannot be exported: the collector does not take them",
                self.signal.name()
            );
        }
    }

    /// Logs that the collector has not taken the last spans before the end of the router.
    pub(crate) fn log_lost_spans(&self, spans: u64) {
        tracing::warn!(
            collector = self.shown_url,
            spans,
            "the last {} are lost: the collector did not take them in time",
            self.signal.name()
        );
    }

    /// Logs that the collector takes data again, if it did not before.
    pub(crate) fn log_success(&self) {
        if let Some(failures) = self.failure_log.record_success(Instant::now) {
            tracing::info!(
                collector = self.shown_url,
                failures,
                "{} are exported again: the collector has recovered",
                self.signal.name()
            );
        }
    }
}
