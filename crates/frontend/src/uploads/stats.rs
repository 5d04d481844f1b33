//! The counters of requests with files.

use std::sync::atomic::{AtomicU64, AtomicUsize};

/// Counters of requests with files.
#[derive(Debug, Default)]
pub(crate) struct UploadStats {
    /// The bytes of requests with files that are in memory.
    pub(super) bytes: AtomicUsize,
    pub(super) requests: AtomicU64,
    pub(super) overloaded: AtomicU64,
    pub(super) broken_off: AtomicU64,
    pub(super) buffered: AtomicU64,
}
