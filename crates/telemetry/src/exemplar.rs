//! Exemplars: for each bucket of a histogram, the trace of one recent observation.

use std::sync::{Mutex, OnceLock, TryLockError};
use std::time::{Duration, SystemTime};

use crate::spans::{ExemplarSpan, SpanId, TraceId};

/// An observation of a request with an exported trace.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Exemplar {
    /// The trace.
    pub trace: TraceId,
    /// The span that was measured.
    pub span: SpanId,
    /// The observation, in seconds.
    pub value: f64,
    /// The time of the observation.
    pub at: SystemTime,
}

/// The last exemplar of each bucket. It is allocated with the first one, so that a histogram without traces costs
/// nothing.
#[derive(Debug, Default)]
pub struct Exemplars(OnceLock<Box<Mutex<BucketExemplars>>>);

type BucketExemplars = Vec<Option<Exemplar>>;

impl Exemplars {
    /// Records the exemplar of a bucket, in place of an earlier one. Never waits: while another thread has the
    /// exemplars, this one is left out.
    pub fn record(&self, bucket: usize, value: Duration, span: ExemplarSpan) {
        let ExemplarSpan { trace, span } = span;
        let slots = self.0.get_or_init(Box::default);
        let mut slots = match slots.try_lock() {
            Ok(slots) => slots,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if slots.len() <= bucket {
            slots.resize(bucket + 1, None);
        }
        let (value, at) = (value.as_secs_f64(), SystemTime::now());
        slots[bucket] = Some(Exemplar { trace, span, value, at });
    }

    /// Adds the exemplars of other observations. Of two for one bucket the later one is kept.
    pub fn add_all(&self, other: &Self) {
        let more = other.read();
        if more.is_empty() {
            return;
        }
        let slots = self.0.get_or_init(Box::default);
        let mut slots = slots.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for (bucket, exemplar) in more {
            if slots.len() <= bucket {
                slots.resize(bucket + 1, None);
            }
            if slots[bucket].is_none_or(|own| own.at < exemplar.at) {
                slots[bucket] = Some(exemplar);
            }
        }
    }

    /// Returns the exemplars with the indexes of their buckets, ascending.
    pub fn read(&self) -> Vec<(usize, Exemplar)> {
        let Some(slots) = self.0.get() else { return Vec::new() };
        let slots = slots.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        slots.iter().enumerate().filter_map(|(index, it)| Some((index, (*it)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_keeps_its_last_exemplar() {
        let exemplars = Exemplars::default();
        assert!(exemplars.read().is_empty());
        let span = |trace| ExemplarSpan {
            trace: TraceId::new(trace).expect("an id"),
            span: SpanId::random(),
        };
        for (bucket, trace) in [(3, 1), (0, 2), (3, 3)] {
            exemplars.record(bucket, Duration::from_millis(1_500), span(trace));
        }
        let kept: Vec<_> =
            exemplars.read().iter().map(|(index, it)| (*index, it.trace.get(), it.value)).collect();
        assert_eq!(kept, [(0, 2, 1.5), (3, 3, 1.5)]);
    }

    #[test]
    fn the_later_one_of_two_exemplars_is_kept() {
        let (one, other) = (Exemplars::default(), Exemplars::default());
        let record = |exemplars: &Exemplars, bucket, trace| {
            let trace = TraceId::new(trace).expect("an id");
            let span = ExemplarSpan { trace, span: SpanId::random() };
            exemplars.record(bucket, Duration::from_millis(1), span);
        };
        record(&other, 0, 1);
        record(&one, 0, 2);
        record(&one, 1, 3);
        record(&other, 1, 4);
        record(&other, 4, 5);
        one.add_all(&other);
        one.add_all(&Exemplars::default());
        let kept: Vec<_> = one.read().iter().map(|(index, it)| (*index, it.trace.get())).collect();
        assert_eq!(kept, [(0, 2), (1, 4), (4, 5)]);
    }
}
