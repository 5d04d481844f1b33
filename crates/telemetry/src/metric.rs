//! Metrics as rows of a table: name, help text, type, and a function that reads the value from what is counted.
//!
//! [`crate::MetricsWriter`] writes the tables.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::exemplar::Exemplar;

/// A metric that is read from a `T`.
///
/// Names are `starling_<area>_<thing>_<unit>`, without the suffix `_total` of counters. The help text has no full stop
/// at its end.
pub struct Metric<T: ?Sized> {
    head: MetricHead,
    reading: Reading<T>,
}

/// The name, help text and type of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetricHead {
    /// The name, without the suffix `_total` of counters.
    pub name: &'static str,
    /// The help text, without a full stop at its end.
    pub help: &'static str,
    /// The type.
    pub kind: MetricKind,
}

/// The type of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// Values that only grow.
    Counter,
    /// Values that go up and down.
    Gauge,
    /// Observations in buckets.
    Histogram,
}

/// The way to read a metric.
enum Reading<T: ?Sized> {
    /// One value.
    Value(fn(&T) -> u64),
    /// Any number of values.
    Samples(fn(&T, &mut Samples<'_, '_>) -> fmt::Result),
    /// The observations of one histogram.
    Histogram(fn(&T) -> HistogramReading),
    /// Any number of histograms.
    Histograms(fn(&T, &mut Samples<'_, '_>) -> fmt::Result),
}

/// A receiver of metrics: a text format, or the export to a collector. It gets the head of each metric, and then its
/// values. Labels are names and values.
pub trait MetricSink {
    /// Begins a metric.
    ///
    /// # Errors
    /// The text cannot be written.
    fn begin_metric(&mut self, head: &MetricHead) -> fmt::Result;

    /// Begins the values of a row of a [`crate::name_table`], or `None` after the last one. Receivers of totals need
    /// not know that.
    fn begin_row(&mut self, _row: Option<RowIdentity<'_>>) {}

    /// Adds a value of the metric, which is a counter or a gauge.
    ///
    /// # Errors
    /// The text cannot be written.
    fn add_value(&mut self, labels: &[(&str, &str)], value: SampleValue) -> fmt::Result;

    /// Adds a histogram of the metric.
    ///
    /// # Errors
    /// The text cannot be written.
    fn add_histogram(&mut self, labels: &[(&str, &str)], reading: &HistogramReading)
    -> fmt::Result;
}

/// The row of a [`crate::name_table`] that values belong to. When a row is given up, its counts move to the shared row,
/// and the same labels may later belong to another row, which begins at zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowIdentity<'a> {
    /// The number of the row, which no other row of the table ever has.
    pub number: u64,
    /// The labels of the shared row: as many as those that name this row, which are its first ones.
    pub shared_labels: &'a [(&'a str, &'a str)],
}

/// The observations of a histogram.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HistogramReading {
    /// The sum of all observations, in seconds.
    pub sum: f64,
    /// The upper bound of each bucket, in seconds, and the number of observations between the previous bound and this
    /// one. The last bound is infinite.
    pub buckets: Vec<(f64, u64)>,
    /// Recent observations of requests with an exported trace, each with the index of its bucket, ascending.
    pub exemplars: Vec<(usize, Exemplar)>,
}

impl HistogramReading {
    /// Returns the number of observations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

/// The labels of what a table is read from: names and values.
pub(crate) type Labels<'a> = Vec<(&'a str, &'a str)>;

impl<T: ?Sized> Metric<T> {
    /// Creates a counter.
    pub const fn counter(name: &'static str, help: &'static str, value: fn(&T) -> u64) -> Self {
        Self::new(name, help, MetricKind::Counter, Reading::Value(value))
    }

    /// Creates a gauge.
    pub const fn gauge(name: &'static str, help: &'static str, value: fn(&T) -> u64) -> Self {
        Self::new(name, help, MetricKind::Gauge, Reading::Value(value))
    }

    /// Creates a counter with fractions, or with labels of its own.
    pub const fn counters(
        name: &'static str,
        help: &'static str,
        add: fn(&T, &mut Samples<'_, '_>) -> fmt::Result,
    ) -> Self {
        Self::new(name, help, MetricKind::Counter, Reading::Samples(add))
    }

    /// Creates a gauge with fractions, with labels of its own, or without a value at times.
    pub const fn gauges(
        name: &'static str,
        help: &'static str,
        add: fn(&T, &mut Samples<'_, '_>) -> fmt::Result,
    ) -> Self {
        Self::new(name, help, MetricKind::Gauge, Reading::Samples(add))
    }

    /// Creates a histogram.
    pub const fn histogram(
        name: &'static str,
        help: &'static str,
        observations: fn(&T) -> HistogramReading,
    ) -> Self {
        Self::new(name, help, MetricKind::Histogram, Reading::Histogram(observations))
    }

    /// Creates a histogram with labels of its own.
    pub const fn histograms(
        name: &'static str,
        help: &'static str,
        add: fn(&T, &mut Samples<'_, '_>) -> fmt::Result,
    ) -> Self {
        Self::new(name, help, MetricKind::Histogram, Reading::Histograms(add))
    }

    const fn new(
        name: &'static str,
        help: &'static str,
        kind: MetricKind,
        reading: Reading<T>,
    ) -> Self {
        Self { head: MetricHead { name, help, kind }, reading }
    }

    /// Writes the metric with the values of all sources. The first ones are those `rows` of a table.
    pub(crate) fn write(
        &self,
        sink: &mut dyn MetricSink,
        sources: &[(Labels<'_>, &T)],
        rows: &[RowIdentity<'_>],
    ) -> fmt::Result {
        sink.begin_metric(&self.head)?;
        for (index, (labels, source)) in sources.iter().enumerate() {
            if index <= rows.len() {
                sink.begin_row(rows.get(index).copied());
            }
            let mut samples = Samples { sink: &mut *sink, labels };
            match &self.reading {
                Reading::Value(value) => samples.add(value(source))?,
                Reading::Samples(add) | Reading::Histograms(add) => add(source, &mut samples)?,
                Reading::Histogram(observations) => {
                    samples.sink.add_histogram(labels, &observations(source))?;
                }
            }
        }
        Ok(())
    }
}

/// Writer of the values of one metric of one source.
pub struct Samples<'a, 's> {
    sink: &'s mut dyn MetricSink,
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
        self.sink.add_value(self.labels, value.into())
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
        self.add_with_labels(&[label], value)
    }

    /// Adds a value with further labels.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn add_with_labels(
        &mut self,
        labels: &[(&str, &str)],
        value: impl Into<SampleValue>,
    ) -> fmt::Result {
        let labels: Labels<'_> = self.labels.iter().chain(labels).copied().collect();
        self.sink.add_value(&labels, value.into())
    }

    /// Adds the values of the rows of a table with one more label, and then that of the shared row. Its value of the
    /// label is `shared`. Rows are given by their number, their value of the label, and their count.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn add_rows<'r>(
        &mut self,
        label: &str,
        rows: impl IntoIterator<Item = (u64, &'r str, u64)>,
        (shared, shared_count): (&str, u64),
    ) -> fmt::Result {
        let shared_labels: Labels<'_> =
            self.labels.iter().copied().chain([(label, shared)]).collect();
        for (number, value, count) in rows {
            let shared_labels = &shared_labels;
            self.sink.begin_row(Some(RowIdentity { number, shared_labels }));
            self.add_labelled((label, value), count)?;
        }
        self.sink.begin_row(None);
        self.add_labelled((label, shared), shared_count)
    }

    /// Adds a histogram with one more label.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn add_histogram(
        &mut self,
        label: (&str, &str),
        reading: &HistogramReading,
    ) -> fmt::Result {
        let labels: Labels<'_> = self.labels.iter().copied().chain([label]).collect();
        self.sink.add_histogram(&labels, reading)
    }
}

/// Returns the value of a counter.
pub fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
