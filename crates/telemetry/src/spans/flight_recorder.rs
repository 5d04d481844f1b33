//! The flight recorder: the last traces of slow, failed and selected requests and of slow and failed events, for
//! operators without a collector.
//! Whether a trace is exported does not matter here.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::spans::FinishedTrace;

crate::counters! {
    /// Counters of the flight recorder.
    pub struct RecorderStats;
    /// The metrics of the flight recorder.
    pub const RECORDER_METRICS;
    {
        counter slow = "starling_recorder_slow": "Slow requests and events that the flight recorder has kept";
        counter failed = "starling_recorder_failed": "Failed requests and events that the flight recorder has kept";
        counter selected = "starling_recorder_selected": "Requests that the flight recorder has kept only because of admin.console.recorder.when";
        counter evicted = "starling_recorder_evicted": "Requests and events that the flight recorder has dropped for newer ones";
        counter too_large = "starling_recorder_too_large": "Requests and events that alone are larger than the flight recorder may be";
        gauge traces = "starling_recorder_traces": "Requests and events in the flight recorder";
        gauge bytes = "starling_recorder_bytes": "Memory of the flight recorder, by estimate";
    }
}

/// The settings of a flight recorder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecorderSettings {
    /// The duration from which a request or event is slow.
    pub slow: Duration,
    /// The maximum number of traces.
    pub traces_max: usize,
    /// The maximum memory of the traces, by estimate.
    pub bytes_max: usize,
}

/// The reason why a trace was kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordReason {
    /// It took long.
    Slow,
    /// It has failed.
    Failed,
    /// A condition has selected it.
    Selected,
}

impl RecordReason {
    /// Returns the name that operators see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Failed => "failed",
            Self::Selected => "selected",
        }
    }
}

/// A trace in the recorder.
#[derive(Clone, Debug)]
pub struct RecordedTrace {
    /// The number of the trace: each has a higher one than those before.
    pub number: u64,
    /// The reason why it was kept.
    pub reason: RecordReason,
    /// The number of spans that were left out because there were too many.
    pub left_out: u64,
    /// The spans; the first one is the root.
    pub trace: FinishedTrace,
}

/// The last traces that were slow, failed or selected.
#[derive(Debug)]
pub struct FlightRecorder {
    settings: RecorderSettings,
    state: Mutex<RecorderState>,
    /// The counters.
    pub stats: RecorderStats,
}

#[derive(Debug, Default)]
struct RecorderState {
    /// The oldest first, each with its size.
    traces: VecDeque<(usize, Arc<RecordedTrace>)>,
    bytes: usize,
    last_number: u64,
}

impl FlightRecorder {
    /// Creates an empty recorder.
    pub fn new(settings: RecorderSettings) -> Self {
        Self { settings, state: Mutex::default(), stats: RecorderStats::default() }
    }

    /// Returns the reason to keep a trace; `None` if there is none.
    pub(crate) fn reason(
        &self,
        duration: Duration,
        has_failed: bool,
        is_selected: bool,
    ) -> Option<RecordReason> {
        if has_failed {
            Some(RecordReason::Failed)
        } else if duration >= self.settings.slow {
            Some(RecordReason::Slow)
        } else {
            is_selected.then_some(RecordReason::Selected)
        }
    }

    /// Keeps a trace in place of the oldest ones.
    pub(crate) fn keep(&self, trace: FinishedTrace, left_out: u64, reason: RecordReason) {
        let bytes = trace.bytes();
        if bytes > self.settings.bytes_max {
            self.stats.too_large.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let counter = match reason {
            RecordReason::Slow => &self.stats.slow,
            RecordReason::Failed => &self.stats.failed,
            RecordReason::Selected => &self.stats.selected,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        // Freeing a trace takes as long as its spans are many, and failing requests wait for the lock: the evicted ones
        // are dropped after the lock is released.
        let mut evicted = Vec::new();
        let mut state = self.lock();
        while state.traces.len() >= self.settings.traces_max
            || state.bytes + bytes > self.settings.bytes_max
        {
            let Some((freed, trace)) = state.traces.pop_front() else { break };
            state.bytes -= freed;
            evicted.push(trace);
            self.stats.evicted.fetch_add(1, Ordering::Relaxed);
        }
        state.last_number += 1;
        let recorded = RecordedTrace { number: state.last_number, reason, left_out, trace };
        state.traces.push_back((bytes, Arc::new(recorded)));
        state.bytes += bytes;
        self.stats.traces.store(state.traces.len() as u64, Ordering::Relaxed);
        self.stats.bytes.store(state.bytes as u64, Ordering::Relaxed);
        drop(state);
        drop(evicted);
    }

    /// Returns all traces, the newest first.
    pub fn traces(&self) -> Vec<Arc<RecordedTrace>> {
        self.lock().traces.iter().rev().map(|(_, trace)| Arc::clone(trace)).collect()
    }

    /// Returns the trace with that number; `None` if it was dropped.
    pub fn trace(&self, number: u64) -> Option<Arc<RecordedTrace>> {
        let state = self.lock();
        let place = state.traces.binary_search_by_key(&number, |(_, trace)| trace.number);
        state.traces.get(place.ok()?).map(|(_, trace)| Arc::clone(trace))
    }

    /// Locks the state. No code panics under this lock, so a poisoned lock holds a valid state.
    fn lock(&self) -> MutexGuard<'_, RecorderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read;
    use crate::spans::{
        Attribute, IncomingContext, Propagation, RequestSpans, RootSpan, SamplingRules, SpanKind,
        Tracer, TracerSettings,
    };

    const NEVER: SamplingRules = SamplingRules {
        ratio: 0.0,
        follows_parent: false,
        slow: None,
        failed: false,
        has_conditions: false,
    };

    fn tracer(sampling: SamplingRules, recorder: RecorderSettings) -> Arc<Tracer> {
        let settings = TracerSettings {
            sampling,
            propagation: Propagation::new([]),
            queue_bytes_max: 1 << 20,
            spans_max: 10,
            batch_spans: 100,
        };
        Arc::new(Tracer::new(settings).with_recorder(FlightRecorder::new(recorder)))
    }

    fn settings(traces_max: usize, bytes_max: usize) -> RecorderSettings {
        RecorderSettings { slow: Duration::from_millis(100), traces_max, bytes_max }
    }

    /// Runs a request that takes `millis`.
    fn run(tracer: &Arc<Tracer>, millis: u64, has_failed: bool, text_bytes: usize) {
        let request = RequestSpans::start(tracer, IncomingContext::default());
        let end = request.began() + Duration::from_millis(millis);
        request.finish_at(end, has_failed, move || RootSpan {
            name: format!("{millis} ms").into(),
            kind: SpanKind::Server,
            attributes: vec![Attribute::text("text", "x".repeat(text_bytes))],
            error: None,
        });
    }

    fn recorded(tracer: &Tracer) -> Vec<(u64, &'static str, String)> {
        let traces = tracer.recorder().expect("a recorder").traces();
        let view = |it: &Arc<RecordedTrace>| {
            (it.number, it.reason.as_str(), it.trace.spans[0].name.to_string())
        };
        traces.iter().map(view).collect()
    }

    #[test]
    fn slow_and_failed_requests_are_kept_although_nothing_is_exported() {
        let tracer = tracer(NEVER, settings(10, 1 << 20));
        for (millis, has_failed) in [(99, false), (100, false), (5, true), (500, true)] {
            run(&tracer, millis, has_failed, 0);
        }
        let expected = [(3, "failed", "500 ms"), (2, "failed", "5 ms"), (1, "slow", "100 ms")];
        let expected = expected.map(|(number, reason, name)| (number, reason, name.to_owned()));
        assert_eq!(recorded(&tracer), expected);
        assert!(tracer.take_batch().is_empty());
        let recorder = tracer.recorder().expect("a recorder");
        assert_eq!(recorder.trace(2).map(|it| it.number), Some(2));
        assert!(recorder.trace(4).is_none() && recorder.trace(0).is_none());
        let stats = &recorder.stats;
        assert_eq!((read(&stats.slow), read(&stats.failed), read(&stats.traces)), (1, 2, 3));
    }

    #[test]
    fn an_exported_trace_is_kept_only_if_it_is_slow_or_failed() {
        let tracer = tracer(SamplingRules { ratio: 1.0, ..NEVER }, settings(10, 1 << 20));
        run(&tracer, 1, false, 0);
        run(&tracer, 200, false, 0);
        assert_eq!(tracer.take_batch().len(), 2);
        assert_eq!(recorded(&tracer), [(1, "slow", "200 ms".to_owned())]);
    }

    #[test]
    fn a_selected_request_is_kept_also_if_it_is_neither_slow_nor_failed() {
        let tracer = tracer(NEVER, settings(10, 1 << 20));
        for (millis, has_failed) in [(1, false), (200, false), (1, true)] {
            let request = RequestSpans::start(&tracer, IncomingContext::default());
            request.select_for_recorder();
            let end = request.began() + Duration::from_millis(millis);
            request.finish_at(end, has_failed, || RootSpan {
                name: "request".into(),
                kind: SpanKind::Server,
                attributes: Vec::new(),
                error: None,
            });
        }
        run(&tracer, 1, false, 0);
        let reasons: Vec<_> = recorded(&tracer).into_iter().map(|it| it.1).collect();
        assert_eq!(reasons, ["failed", "slow", "selected"]);
        assert_eq!(read(&tracer.recorder().expect("a recorder").stats.selected), 1);
        assert!(tracer.take_batch().is_empty(), "a selected trace is not exported");
    }

    #[test]
    fn the_oldest_traces_are_dropped_at_either_bound() {
        let few = tracer(NEVER, settings(3, 1 << 20));
        (0..10).for_each(|index| run(&few, 100 + index, false, 0));
        let numbers: Vec<_> = recorded(&few).iter().map(|it| it.0).collect();
        assert_eq!(numbers, [10, 9, 8]);
        assert_eq!(read(&few.recorder().expect("a recorder").stats.evicted), 7);

        let small = tracer(NEVER, settings(100, 10_000));
        (0..10).for_each(|_| run(&small, 100, false, 3_000));
        let stats = &small.recorder().expect("a recorder").stats;
        assert!(read(&stats.bytes) <= 10_000 && read(&stats.traces) < 4, "{stats:?}");
        run(&small, 100, false, 20_000);
        assert_eq!(read(&stats.too_large), 1);
        assert_eq!(read(&stats.traces) as usize, recorded(&small).len());
    }
}
