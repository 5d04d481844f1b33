//! Counters of requests with files.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use telemetry::{Metric, read};

use super::UploadReceiver;

/// Counters of requests with files.
#[derive(Debug, Default)]
pub(crate) struct UploadMetrics {
    /// The bytes of requests with files that are in memory.
    pub(super) bytes: AtomicUsize,
    pub(super) requests: AtomicU64,
    pub(super) overloaded: AtomicU64,
    pub(super) broken_off: AtomicU64,
    pub(super) buffered: AtomicU64,
}

/// The metrics of requests with files.
pub const UPLOAD_METRICS: &[Metric<UploadReceiver>] = &[
    Metric::counter("starling_uploads", "Requests with files", |it| read(&it.metrics.requests)),
    Metric::counter(
        "starling_uploads_overloaded",
        "Requests with files that were refused because of uploads.max_bytes_total",
        |it| read(&it.metrics.overloaded),
    ),
    Metric::counter(
        "starling_uploads_broken_off",
        "Requests with files that failed while their files arrived: requests to subgraphs were aborted",
        |it| read(&it.metrics.broken_off),
    ),
    Metric::counter(
        "starling_uploads_buffered",
        "Requests with a file that was kept in memory because the operation needed a later one first",
        |it| read(&it.metrics.buffered),
    ),
    Metric::gauge("starling_uploads_bytes", "Bytes of requests with files in memory", |it| {
        it.metrics.bytes.load(Ordering::Relaxed) as u64
    }),
];
