//! Histograms of durations for many threads, with exemplars.

use std::time::Duration;

use crate::duration_histogram::{Buckets, DurationHistogram};
use crate::exemplar::Exemplars;
use crate::metric::HistogramReading;
use crate::spans::ExemplarSpan;
use crate::striped::Striped;

/// A histogram of durations that all workers add to, with one exemplar for each bucket.
#[derive(Debug)]
pub struct TracedHistogram<B> {
    durations: Striped<DurationHistogram<B>>,
    exemplars: Exemplars,
}

impl<B> Default for TracedHistogram<B> {
    fn default() -> Self {
        Self { durations: Striped::default(), exemplars: Exemplars::default() }
    }
}

impl<B: Buckets> TracedHistogram<B> {
    /// Adds one observation, with its span if that is exported.
    // hot path: two atomic operations on memory that other threads seldom write to; exemplars are for selected requests
    pub fn add(&self, duration: Duration, span: Option<ExemplarSpan>) {
        self.durations.local().add(duration);
        if let Some(span) = span {
            let bucket = DurationHistogram::<B>::bucket(duration);
            self.exemplars.record(bucket, duration, span);
        }
    }

    /// Returns the current observations.
    pub fn read(&self) -> HistogramReading {
        let sum = DurationHistogram::<B>::default();
        self.durations.iter().for_each(|it| sum.add_all(it));
        HistogramReading { exemplars: self.exemplars.read(), ..sum.read() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkBuckets;
    use crate::spans::{SpanId, TraceId};

    #[test]
    fn an_exemplar_belongs_to_the_bucket_of_its_observation() {
        let histogram = TracedHistogram::<WorkBuckets>::default();
        histogram.add(Duration::from_micros(200), None);
        let span = ExemplarSpan { trace: TraceId::random(), span: SpanId::random() };
        histogram.add(Duration::from_millis(3), Some(span));
        let HistogramReading { sum, buckets, exemplars } = histogram.read();
        assert!((sum - 0.003_2).abs() < 1e-9, "{sum}");
        assert_eq!((buckets[0].1, buckets[3].1), (1, 1));
        let [(3, exemplar)] = exemplars[..] else { panic!("{exemplars:?}") };
        assert_eq!((exemplar.trace, exemplar.value), (span.trace, 0.003));
    }
}
