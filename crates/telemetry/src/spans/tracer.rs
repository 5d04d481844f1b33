//! The rules that select traces, and the way of selected ones to the exporter.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Notify;

use crate::spans::span_queue::SpanQueue;
use crate::spans::{FinishedTrace, Propagation, RemoteParent, SpanStats};

/// The selection of traces.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SamplingRules {
    /// The share of traces that are selected at their beginning, from 0 to 1.
    pub ratio: f64,
    /// True if the decision of a client that has a trace counts in place of the ratio.
    pub follows_parent: bool,
    /// The duration from which a trace is selected at its end, whatever was decided before.
    pub slow: Option<Duration>,
    /// True if failed requests are selected at their end.
    pub failed: bool,
}

/// The settings of a tracer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TracerSettings {
    /// The selection of traces.
    pub sampling: SamplingRules,
    /// The headers with the identities of traces.
    pub propagation: Propagation,
    /// The memory of traces that wait for the exporter. Further ones are dropped.
    pub queue_bytes_max: usize,
    /// The maximum number of spans of one trace. Further ones are left out.
    pub spans_max: usize,
    /// The number of waiting spans at which the exporter is woken before its time.
    pub batch_spans: usize,
}

/// Decides about the traces of requests, and keeps those that are to be exported.
#[derive(Debug)]
pub struct Tracer {
    settings: TracerSettings,
    queue: SpanQueue,
    wake: Notify,
    /// The counters.
    pub stats: SpanStats,
}

impl Tracer {
    /// Creates a tracer with an empty queue.
    pub fn new(settings: TracerSettings) -> Self {
        Self {
            queue: SpanQueue::new(settings.queue_bytes_max),
            settings,
            wake: Notify::new(),
            stats: SpanStats::default(),
        }
    }

    /// Decides about a trace at its beginning, and counts it. `parent` is the span of the client.
    pub(crate) fn is_selected_early(&self, parent: Option<&RemoteParent>) -> bool {
        let rules = &self.settings.sampling;
        let parent = parent.filter(|_| rules.follows_parent);
        let is_sampled = parent.and_then(|it| it.is_sampled).unwrap_or_else(|| self.draw());
        if is_sampled {
            self.stats.sampled.fetch_add(1, Ordering::Relaxed);
        }
        is_sampled
    }

    /// True if a trace that was not selected at its beginning may be selected at its end.
    pub(crate) fn selects_late(&self) -> bool {
        self.settings.sampling.slow.is_some() || self.settings.sampling.failed
    }

    /// Decides at its end about a trace that was not selected at its beginning, and counts it.
    pub(crate) fn is_selected_late(&self, duration: Duration, has_failed: bool) -> bool {
        let rules = &self.settings.sampling;
        let counter = if has_failed && rules.failed {
            &self.stats.failed
        } else if rules.slow.is_some_and(|slow| duration >= slow) {
            &self.stats.slow
        } else {
            return false;
        };
        counter.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// The headers with the identities of traces.
    pub fn propagation(&self) -> Propagation {
        self.settings.propagation
    }

    /// The maximum number of spans of one trace.
    pub(crate) fn spans_max(&self) -> usize {
        self.settings.spans_max
    }

    /// Keeps a trace for the exporter. Never waits.
    pub(crate) fn export(&self, trace: FinishedTrace, left_out: u64) {
        if left_out > 0 {
            self.stats.left_out.fetch_add(left_out, Ordering::Relaxed);
        }
        let waiting = self.queue.push(trace, &self.stats);
        if waiting.is_some_and(|spans| spans >= self.settings.batch_spans) {
            self.wake.notify_one();
        }
    }

    /// Waits until as many spans wait as make a batch.
    pub async fn wait_for_batch(&self) {
        self.wake.notified().await;
    }

    /// Takes waiting traces with about as many spans as make a batch; empty if none wait.
    pub fn take_batch(&self) -> Vec<FinishedTrace> {
        self.queue.take(self.settings.batch_spans, &self.stats)
    }

    /// The ids of clients are not used: a client could choose those that are selected.
    fn draw(&self) -> bool {
        let ratio = self.settings.sampling.ratio;
        ratio >= 1.0 || (ratio > 0.0 && fastrand::f64() < ratio)
    }
}
