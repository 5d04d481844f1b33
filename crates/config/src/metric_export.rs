//! Settings of the export of metrics to a collector.

use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::collector::{self, OtlpProtocol};
use super::findings::{Findings, KeyPlaces};
use super::format::{DurationText, FileText, HttpUrlText};
use super::headers::{HeaderInsertion, HeaderInsertionKeys};
use super::quantity;

/// The export of all metrics to a collector, and the way to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MetricExport {
    /// Exports the metrics of `/metrics`, with equal names, labels and buckets. The router has the name and the
    /// attributes of `tracing.service_name` and `tracing.resource`, also while traces are off.
    #[schemars(example = true)]
    pub enabled: bool,

    /// The way to the collector.
    #[schemars(example = &"grpc")]
    pub protocol: OtlpProtocol,

    /// The URL that metrics are sent to: by `http` with its path, by `grpc` without one. The default is
    /// `http://localhost:4318/v1/metrics`, or for `grpc` `http://localhost:4317`. Redirections are not followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<HttpUrlText>", extend("default" = null), example = &"https://collector.internal:4318/v1/metrics")]
    pub endpoint: Option<String>,

    /// Headers of each request, such as one with a token.
    #[schemars(with = "Vec<HeaderInsertionKeys>", length(max = 16))]
    #[schemars(example = [serde_json::json!({"name": "authorization", "value": "Bearer ${COLLECTOR_TOKEN}"})])]
    pub headers: Vec<HeaderInsertion>,

    /// The time limit of one request. All metrics are some requests of up to a megabyte.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"5s")]
    pub timeout: Duration,

    /// The time between two exports.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"15s")]
    pub interval: Duration,

    /// The meaning of the values of counters and histograms.
    #[schemars(example = &"delta")]
    pub temporality: MetricTemporality,

    /// The certificate authorities that may have signed the collector's certificate, in PEM. They replace those that
    /// the system trusts.
    #[schemars(with = "Option<FileText>", extend("default" = null), example = &"certificates/internal-ca.pem")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

/// The meaning of the values of counters and histograms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MetricTemporality {
    /// The total since the start, as Prometheus has it.
    #[default]
    Cumulative,
    /// The growth since the last export that the collector has taken.
    Delta,
}

impl Default for MetricExport {
    fn default() -> Self {
        Self {
            enabled: false,
            protocol: OtlpProtocol::Http,
            endpoint: None,
            headers: Vec::new(),
            timeout: Duration::from_secs(10),
            // That of OpenTelemetry's SDKs.
            interval: Duration::from_mins(1),
            temporality: MetricTemporality::Cumulative,
            ca: None,
        }
    }
}

impl MetricExport {
    /// Returns the URL of the collector.
    pub fn url(&self) -> &str {
        let default = self.protocol.local_url("http://localhost:4318/v1/metrics");
        self.endpoint.as_deref().unwrap_or(default)
    }

    /// Resolves relative paths against `folder`.
    pub(super) fn resolve(&mut self, folder: &Path) {
        if let Some(path) = &mut self.ca {
            *path = folder.join(&*path);
        }
    }

    /// Reports settings that are not safe.
    pub(super) fn check(&self, places: &KeyPlaces, findings: &mut Findings) {
        if self.enabled {
            let (path, url) = ("metrics.otlp.endpoint", self.url());
            collector::check_headers(path, url, &self.headers, places, findings);
        }
    }
}
