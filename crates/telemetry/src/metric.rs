//! Metrics as rows of a table: name, help text, type, and a function that reads the value from what is counted.
//!
//! [`crate::MetricsWriter`] writes the tables.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// A metric that is read from a `T`.
///
/// Names are `starling_<area>_<thing>_<unit>`, without the suffix `_total` of counters. The help text has no full stop
/// at its end.
pub struct Metric<T: ?Sized> {
    name: &'static str,
    help: &'static str,
    reading: Reading<T>,
}

/// The type of a metric and the way to read it.
enum Reading<T: ?Sized> {
    /// One value that only grows.
    Counter(fn(&T) -> u64),
    /// One value that goes up and down.
    Gauge(fn(&T) -> u64),
    /// Any number of values.
    Samples(MetricType, fn(&T, &mut Samples<'_, '_>) -> fmt::Result),
    /// A histogram of durations.
    Histogram(fn(&T) -> HistogramReading),
    /// A handle of the library for metrics, which contains its own labels.
    Handle(Option<Unit>, fn(&T) -> &dyn EncodeMetric),
}

/// The observations of a histogram.
#[derive(Clone, PartialEq, Debug)]
pub struct HistogramReading {
    /// The sum of all observations, in seconds.
    pub sum: f64,
    /// The upper bound of each bucket, in seconds, and the number of observations between the previous bound and this
    /// one. The last bound is infinite.
    pub buckets: Vec<(f64, u64)>,
}

/// The labels of what a table is read from: names and values.
pub(crate) type Labels<'a> = Vec<(&'a str, &'a str)>;

impl<T: ?Sized> Metric<T> {
    /// Creates a counter.
    pub const fn counter(name: &'static str, help: &'static str, value: fn(&T) -> u64) -> Self {
        Self { name, help, reading: Reading::Counter(value) }
    }

    /// Creates a gauge.
    pub const fn gauge(name: &'static str, help: &'static str, value: fn(&T) -> u64) -> Self {
        Self { name, help, reading: Reading::Gauge(value) }
    }

    /// Creates a counter with fractions, or with labels of its own.
    pub const fn counters(
        name: &'static str,
        help: &'static str,
        add: fn(&T, &mut Samples<'_, '_>) -> fmt::Result,
    ) -> Self {
        Self { name, help, reading: Reading::Samples(MetricType::Counter, add) }
    }

    /// Creates a gauge with fractions, with labels of its own, or without a value at times.
    pub const fn gauges(
        name: &'static str,
        help: &'static str,
        add: fn(&T, &mut Samples<'_, '_>) -> fmt::Result,
    ) -> Self {
        Self { name, help, reading: Reading::Samples(MetricType::Gauge, add) }
    }

    /// Creates a histogram.
    pub const fn histogram(
        name: &'static str,
        help: &'static str,
        observations: fn(&T) -> HistogramReading,
    ) -> Self {
        Self { name, help, reading: Reading::Histogram(observations) }
    }

    /// Creates a metric from a handle of the library, such as a `Family`. It is left out while the handle has no
    /// samples. Its table has one source, without labels.
    pub const fn handle(
        name: &'static str,
        help: &'static str,
        handle: fn(&T) -> &dyn EncodeMetric,
    ) -> Self {
        Self { name, help, reading: Reading::Handle(None, handle) }
    }

    /// Creates a metric from a handle with values in seconds. The name gets the suffix `_seconds`.
    pub const fn handle_in_seconds(
        name: &'static str,
        help: &'static str,
        handle: fn(&T) -> &dyn EncodeMetric,
    ) -> Self {
        Self { name, help, reading: Reading::Handle(Some(Unit::Seconds), handle) }
    }

    /// Writes the metric with the values of all sources.
    pub(crate) fn write(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        sources: &[(Labels<'_>, &T)],
    ) -> fmt::Result {
        let (kind, unit) = match &self.reading {
            Reading::Counter(_) => (MetricType::Counter, None),
            Reading::Gauge(_) => (MetricType::Gauge, None),
            Reading::Samples(kind, _) => (*kind, None),
            Reading::Histogram(_) => (MetricType::Histogram, None),
            Reading::Handle(unit, handle) => {
                let Some((_, source)) = sources.first() else { return Ok(()) };
                let handle = handle(source);
                if handle.is_empty() {
                    return Ok(());
                }
                (handle.metric_type(), unit.as_ref())
            }
        };
        let help = format!("{}.", self.help);
        let mut encoder = encoder.encode_descriptor(self.name, &help, unit, kind)?;
        for (labels, source) in sources {
            let mut samples = Samples { encoder: &mut encoder, kind, labels };
            match &self.reading {
                Reading::Counter(value) | Reading::Gauge(value) => samples.add(value(source))?,
                Reading::Samples(_, add) => add(source, &mut samples)?,
                Reading::Histogram(observations) => samples.add_histogram(&observations(source))?,
                Reading::Handle(_, handle) => return handle(source).encode(encoder),
            }
        }
        Ok(())
    }
}

/// Writer of the values of one metric of one source.
pub struct Samples<'a, 'e> {
    encoder: &'a mut MetricEncoder<'e>,
    kind: MetricType,
    labels: &'a Labels<'a>,
}

/// The value of a sample.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum SampleValue {
    /// A number of things.
    Whole(u64),
    /// A number with fractions, such as seconds.
    Fraction(f64),
}

impl From<u64> for SampleValue {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for SampleValue {
    fn from(value: f64) -> Self {
        Self::Fraction(value)
    }
}

impl From<Duration> for SampleValue {
    fn from(value: Duration) -> Self {
        Self::Fraction(value.as_secs_f64())
    }
}

impl Samples<'_, '_> {
    /// Adds a value with the labels of the source only.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn add(&mut self, value: impl Into<SampleValue>) -> fmt::Result {
        Self::write(self.encoder, self.kind, self.labels, value.into())
    }

    /// Adds a value with one more label.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn add_labelled(
        &mut self,
        label: (&str, &str),
        value: impl Into<SampleValue>,
    ) -> fmt::Result {
        let labels: Labels<'_> = self.labels.iter().copied().chain([label]).collect();
        Self::write(self.encoder, self.kind, &labels, value.into())
    }

    fn write(
        encoder: &mut MetricEncoder<'_>,
        kind: MetricType,
        labels: &Labels<'_>,
        value: SampleValue,
    ) -> fmt::Result {
        if labels.is_empty() {
            return write_value(encoder, kind, value);
        }
        write_value(&mut encoder.encode_family(labels)?, kind, value)
    }

    fn add_histogram(
        &mut self,
        HistogramReading { sum, buckets }: &HistogramReading,
    ) -> fmt::Result {
        let count = buckets.iter().map(|(_, count)| count).sum();
        if self.labels.is_empty() {
            return self.encoder.encode_histogram::<NoLabelSet>(*sum, count, buckets, None);
        }
        let mut encoder = self.encoder.encode_family(self.labels)?;
        encoder.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)
    }
}

fn write_value(
    encoder: &mut MetricEncoder<'_>,
    kind: MetricType,
    value: SampleValue,
) -> fmt::Result {
    match (kind, value) {
        (MetricType::Counter, SampleValue::Whole(value)) => {
            encoder.encode_counter::<NoLabelSet, _, f64>(&value, None)
        }
        (MetricType::Counter, SampleValue::Fraction(value)) => {
            encoder.encode_counter::<NoLabelSet, _, f64>(&value, None)
        }
        (_, SampleValue::Whole(value)) => encoder.encode_gauge(&value),
        (_, SampleValue::Fraction(value)) => encoder.encode_gauge(&value),
    }
}

/// Returns the value of a counter.
pub fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
