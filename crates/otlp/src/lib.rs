//! Export of traces and metrics to a collector, by OTLP over HTTP with Protocol Buffers or over gRPC (OpenTelemetry
//! Protocol 1.5).
//!
//! - [`TraceExporter`] takes finished traces from the queue of a [`telemetry::spans::Tracer`] and sends them in
//!   batches. `message` and `span_encoding` encode them.
//! - [`MetricExporter`] reads the metrics of a [`telemetry::MetricsExporter`] once in each interval. `metric_message`
//!   encodes them, and `metric_streams` knows what was sent before: the beginning of each counter, and its growth.
//! - `collector_client` sends both and logs failures, over HTTP or gRPC by `transport`. `exporter_task` ends them with
//!   the router.
//!
//! A collector that is slow or absent costs bounded memory: that of the queue of traces, and that of one reading of the
//! metrics. Nothing that serves clients waits for it.

mod collector;
mod collector_client;
mod exporter_task;
mod grpc;
mod message;
mod metric_exporter;
mod metric_message;
mod metric_streams;
mod span_encoding;
mod trace_exporter;
mod transport;

pub use collector::{CollectorSettings, ExportProtocol, exporter_tls};
pub use exporter_task::ExporterTask;
pub use message::RouterIdentity;
pub use metric_exporter::{
    METRIC_EXPORT_METRICS, MetricExportStats, MetricExporter, MetricExporterSettings,
};
pub use metric_streams::Temporality;
pub use trace_exporter::{ExporterSettings, RetryTimes, TraceExporter};
