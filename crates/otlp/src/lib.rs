//! Export of traces to a collector, by OTLP over HTTP with Protocol Buffers or over gRPC (OpenTelemetry Protocol 1.5).
//!
//! [`TraceExporter`] takes finished traces from the queue of a [`telemetry::spans::Tracer`] and sends them in batches.
//! `message` encodes them, and `transport` sends them, over gRPC by `grpc`. A collector that is slow or absent costs the
//! bounded memory of the queue: nothing that serves clients waits for it.

mod exporter;
mod grpc;
mod message;
mod transport;

pub use exporter::{ExporterSettings, ExporterTask, RetryTimes, TraceExporter};
pub use message::RouterIdentity;
pub use transport::{ExportProtocol, exporter_tls};
