//! The bounded queue between requests and the exporter.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::spans::FinishedTrace;

crate::counters! {
    /// Counters of traces since the start of the process.
    pub struct SpanStats;
    /// The metrics of traces.
    pub const SPAN_METRICS;
    {
        counter sampled = "starling_traces_sampled": "Traces that were selected at their beginning: by ratio, by a rule, by the client or by the publisher of the event";
        counter slow = "starling_traces_slow": "Traces that were selected at their end because they were slow";
        counter failed = "starling_traces_failed": "Traces that were selected at their end because they failed";
        counter queue_full = "starling_traces_dropped": "Traces that were dropped because too many waited for the collector";
        counter left_out = "starling_trace_spans_left_out": "Spans that were left out because their trace has too many";
        counter exported = "starling_trace_spans_exported": "Spans that the collector has accepted";
        counter lost = "starling_trace_spans_lost": "Spans that were dropped because the collector refused them or did not respond";
        counter exports = "starling_trace_exports": "Requests to the collector that succeeded";
        counter failures = "starling_trace_export_failures": "Requests to the collector that failed";
        gauge queued_bytes = "starling_trace_queue_bytes": "Memory of the traces that wait for the collector, by estimate";
    }
}

/// Traces that wait for the exporter.
#[derive(Debug)]
pub(crate) struct SpanQueue {
    bytes_max: usize,
    state: Mutex<QueueState>,
}

#[derive(Debug, Default)]
struct QueueState {
    traces: VecDeque<(usize, FinishedTrace)>,
    bytes: usize,
    spans: usize,
}

impl SpanQueue {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, state: Mutex::default() }
    }

    /// Adds a trace and returns the number of waiting spans, or `None` if there is no room.
    pub(crate) fn push(&self, trace: FinishedTrace, stats: &SpanStats) -> Option<usize> {
        let bytes = trace.bytes();
        let mut state = self.lock();
        if state.bytes + bytes > self.bytes_max {
            drop(state);
            stats.queue_full.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        state.bytes += bytes;
        state.spans += trace.spans.len();
        state.traces.push_back((bytes, trace));
        stats.queued_bytes.store(state.bytes as u64, Ordering::Relaxed);
        Some(state.spans)
    }

    /// Takes traces until they have `spans_max` spans, at least one trace if there is one.
    pub(crate) fn take(&self, spans_max: usize, stats: &SpanStats) -> Vec<FinishedTrace> {
        let mut state = self.lock();
        let (mut taken, mut spans) = (Vec::new(), 0);
        while let Some((_, next)) = state.traces.front()
            && (taken.is_empty() || spans + next.spans.len() <= spans_max)
        {
            let Some((bytes, trace)) = state.traces.pop_front() else { break };
            spans += trace.spans.len();
            state.spans -= trace.spans.len();
            state.bytes -= bytes;
            taken.push(trace);
        }
        stats.queued_bytes.store(state.bytes as u64, Ordering::Relaxed);
        taken
    }

    /// Locks the state. No code panics under this lock, so a poisoned lock holds a valid state.
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
