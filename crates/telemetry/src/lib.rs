//! Metrics, the log and the traces of the process.
//!
//! A crate that counts declares its counters by [`counters!`], or a table of [`Metric`]s beside them: name, help text,
//! and a function that reads the value. The admin listener walks all tables through one [`MetricsExporter`]; no other
//! list of metrics exists. To add a metric, add a counter and a row to the table beside it. A new table also needs a
//! line where the exporter is filled.
//!
//! Log lines pass through a bounded queue ([`logging`]); a [`LogLimit`] bounds the lines that clients can cause. Other
//! logs, such as that of requests, have a [`LineWriter`] of their own and write [`LogLine`]s.
//!
//! [`spans`] records the spans of requests.
//!
//! This crate depends on no other crate of the router, so that each of them can use it. It knows neither GraphQL nor
//! HTTP.

mod counters;
mod duration_histogram;
mod exporter;
mod line_queue;
mod line_writer;
mod log_limit;
mod log_line;
mod log_writer;
pub mod logging;
mod metric;
mod prometheus_text;
mod rotating_file;
pub mod spans;

pub use duration_histogram::{Buckets, DurationHistogram, WorkBuckets};
pub use exporter::{MetricsExporter, MetricsWriter, TextFormat};
pub use line_writer::{LineDestination, LineWriter};
pub use log_limit::LogLimit;
pub use log_line::{LINE_TEXT_BYTES_MAX, LineFormat, LogLine};
pub use log_writer::LOG_METRICS;
pub use metric::{HistogramReading, Metric, SampleValue, Samples, read};
