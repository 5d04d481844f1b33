//! The metrics of requests with files.

use std::sync::atomic::Ordering;

use telemetry::{Metric, read};

use super::UploadReceiver;

/// The metrics of requests with files.
pub const UPLOAD_METRICS: &[Metric<UploadReceiver>] = &[
    Metric::counter("starling_uploads", "Requests with files", |it| read(&it.stats.requests)),
    Metric::counter(
        "starling_uploads_overloaded",
        "Requests with files that were refused because of uploads.max_bytes_total",
        |it| read(&it.stats.overloaded),
    ),
    Metric::counter(
        "starling_uploads_broken_off",
        "Requests with files that failed while their files arrived: requests to subgraphs were aborted",
        |it| read(&it.stats.broken_off),
    ),
    Metric::counter(
        "starling_uploads_buffered",
        "Requests with a file that was kept in memory because the operation needed a later one first",
        |it| read(&it.stats.buffered),
    ),
    Metric::gauge("starling_uploads_bytes", "Bytes of requests with files in memory", |it| {
        it.stats.bytes.load(Ordering::Relaxed) as u64
    }),
];
