//! A gauge of what exists now, such as requests in flight.

use std::sync::atomic::{AtomicU64, Ordering};

/// Increments a gauge, and decrements it on drop.
#[derive(Debug)]
pub struct GaugeGuard<'a>(&'a AtomicU64);

impl<'a> GaugeGuard<'a> {
    /// Increments the gauge.
    pub fn up(gauge: &'a AtomicU64) -> Self {
        gauge.fetch_add(1, Ordering::Relaxed);
        Self(gauge)
    }
}

impl Drop for GaugeGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
