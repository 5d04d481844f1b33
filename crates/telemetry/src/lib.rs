//! Metrics, the log and the traces of the process.
//!
//! A crate that counts declares its counters by [`counters!`], or a table of [`Metric`]s beside them: name, help text,
//! and a function that reads the value. One [`MetricsExporter`] walks all tables and passes them to a [`MetricSink`]: a
//! text format for the admin listener, or the export to a collector. No other list of metrics exists. To add a metric,
//! add a counter and a row to the table beside it. A new table also needs a line where the exporter is filled.
//!
//! Log lines pass through a bounded queue ([`logging`]); a [`LogLimit`] bounds the lines that clients can cause. Other
//! logs, such as that of requests, have a [`LineWriter`] of their own and write [`LogLine`]s.
//!
//! Counters by names that clients choose are in a [`name_table`], which bounds their number. Counters that all workers
//! write to at the same time are [`Striped`]. A [`TracedHistogram`] has [`Exemplars`]: traces of some observations.
//!
//! [`spans`] records the spans of requests. [`history`] keeps what metrics were in the last hour. A
//! [`ValueFingerprint`] replaces a value of a client where operators may not see it.
//!
//! This crate depends on no other crate of the router, so that each of them can use it. It knows neither GraphQL nor
//! HTTP.

mod counters;
mod duration_histogram;
mod exemplar;
mod exporter;
mod gauge_guard;
mod hex_digits;
pub mod history;
mod labelled_counters;
mod line_queue;
mod line_writer;
mod log_limit;
mod log_line;
mod log_writer;
pub mod logging;
mod metric;
pub mod metric_samples;
pub mod name_table;
mod prometheus_text;
mod rotating_file;
pub mod spans;
mod striped;
mod traced_histogram;
mod value_fingerprint;

pub use duration_histogram::{Buckets, DurationHistogram, WorkBuckets};
pub use exemplar::{Exemplar, Exemplars};
pub use exporter::{MetricsExporter, MetricsWriter};
pub use gauge_guard::GaugeGuard;
pub use hex_digits::HexDigits;
pub use labelled_counters::LabelledCounters;
pub use line_writer::{LineDestination, LineWriter};
pub use log_limit::LogLimit;
pub use log_line::{LINE_TEXT_BYTES_MAX, LineFormat, LogLine};
pub use log_writer::LOG_METRICS;
pub use metric::{
    HistogramReading, Metric, MetricHead, MetricKind, MetricSink, RowIdentity, SampleValue,
    Samples, read,
};
pub use prometheus_text::TextFormat;
pub use spans::ExemplarSpan;
pub use striped::Striped;
pub use traced_histogram::TracedHistogram;
pub use value_fingerprint::ValueFingerprint;
