//! The rules that select traces, and the way of selected ones to the exporter.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::spans::span_queue::SpanQueue;
use crate::spans::{
    FinishedTrace, FlightRecorder, Propagation, RecordReason, RemoteParent, SpanStats,
};

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
    /// True if there are conditions that choose another share for some requests
    /// ([`choose_ratio`](crate::spans::RequestSpans::choose_ratio)).
    pub has_conditions: bool,
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
    recorder: Option<FlightRecorder>,
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
            recorder: None,
            wake: Notify::new(),
            stats: SpanStats::default(),
        }
    }

    /// Adds a flight recorder.
    pub fn with_recorder(self, recorder: FlightRecorder) -> Self {
        Self { recorder: Some(recorder), ..self }
    }

    /// Returns the flight recorder, if there is one.
    pub fn recorder(&self) -> Option<&FlightRecorder> {
        self.recorder.as_ref()
    }

    /// Returns the decision of the client or publisher with the span `parent`, if it has made one that counts.
    pub(crate) fn decision_of(&self, parent: Option<&RemoteParent>) -> Option<bool> {
        parent.filter(|_| self.settings.sampling.follows_parent)?.is_sampled
    }

    /// True if the share of all traces contains the one with this draw.
    pub(crate) fn is_drawn(&self, draw: SampleDraw) -> bool {
        draw.is_within(self.settings.sampling.ratio)
    }

    /// Counts a trace that was selected at its beginning.
    pub(crate) fn count_sampled(&self) {
        self.stats.sampled.fetch_add(1, Ordering::Relaxed);
    }

    /// True if a trace that was not selected at its beginning may be selected or kept at its end.
    pub(crate) fn selects_late(&self) -> bool {
        let SamplingRules { slow, failed, .. } = self.settings.sampling;
        slow.is_some() || failed || self.recorder.is_some()
    }

    /// Returns the reason for which the flight recorder keeps a trace, if it does.
    pub(crate) fn record_reason(
        &self,
        duration: Duration,
        has_failed: bool,
        is_selected: bool,
    ) -> Option<RecordReason> {
        self.recorder.as_ref()?.reason(duration, has_failed, is_selected)
    }

    /// Gives a trace to the flight recorder.
    pub(crate) fn record(&self, trace: FinishedTrace, left_out: u64, reason: RecordReason) {
        if let Some(recorder) = &self.recorder {
            recorder.keep(trace, left_out, reason);
        }
    }

    /// True if a request may get another share of traces than the others when its operation is known.
    pub(crate) fn has_conditions(&self) -> bool {
        self.settings.sampling.has_conditions
    }

    /// True if a trace that began then will be selected at its end, whatever follows.
    pub(crate) fn selects(&self, began: Instant, has_failed: bool) -> bool {
        let rules = &self.settings.sampling;
        (has_failed && rules.failed) || rules.slow.is_some_and(|slow| began.elapsed() >= slow)
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
}

/// A random number that decides whether a trace belongs to a share of all traces. The ids of clients are not used: a
/// client could choose those that are selected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleDraw(f64);

impl SampleDraw {
    pub(crate) fn random() -> Self {
        Self(fastrand::f64())
    }

    /// True if a share of all traces, from 0 to 1, contains this one.
    pub(crate) fn is_within(self, ratio: f64) -> bool {
        // The number is below one.
        self.0 < ratio
    }
}
