//! The values of metrics for readers in the process, such as a history.

use std::fmt;

use crate::{HistogramReading, MetricHead, MetricSink, MetricsExporter, SampleValue};

/// Names and values of labels.
pub type Labels = Vec<(String, String)>;

/// One value of a counter or gauge.
#[derive(Clone, PartialEq, Debug)]
pub struct MetricSample {
    /// The name, without the suffix `_total` of counters.
    pub name: &'static str,
    /// Names and values of the labels.
    pub labels: Labels,
    /// The value.
    pub value: f64,
}

/// The values of some tables.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct MetricSamples {
    values: Vec<MetricSample>,
    /// Histograms with the names of their metrics, and their labels.
    histograms: Vec<(&'static str, Labels, HistogramReading)>,
    /// The name of the metric that is collected.
    name: &'static str,
}

impl MetricSample {
    /// Returns the value of a label; empty if there is none.
    pub fn label(&self, name: &str) -> &str {
        label(&self.labels, name)
    }
}

impl MetricSamples {
    /// Reads the values of all tables of the exporter. Meant for tables with few values.
    pub fn read(exporter: &MetricsExporter) -> Self {
        let mut samples = Self::default();
        // Nothing is written as a text, so nothing fails.
        let _ = exporter.collect(&mut samples);
        samples
    }

    /// Iterates over the values of that name.
    pub fn named(&self, name: &str) -> impl Iterator<Item = &MetricSample> {
        self.values.iter().filter(move |it| it.name == name)
    }

    /// Returns the sum of all values of that name.
    pub fn sum(&self, name: &str) -> f64 {
        self.named(name).map(|it| it.value).sum()
    }

    /// Returns the histogram of that name: the sum of those for whose value of the label `by` `wanted` is true. All
    /// histograms of a metric have the same bounds.
    pub fn histogram(
        &self,
        name: &str,
        by: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> HistogramReading {
        let mut sum = HistogramReading::default();
        for (_, labels, reading) in self.histograms.iter().filter(|it| it.0 == name) {
            if !wanted(label(labels, by)) {
                continue;
            }
            if sum.buckets.is_empty() {
                sum.buckets = reading.buckets.iter().map(|&(bound, _)| (bound, 0)).collect();
            }
            sum.sum += reading.sum;
            for (all, (_, count)) in sum.buckets.iter_mut().zip(&reading.buckets) {
                all.1 += count;
            }
        }
        sum
    }
}

impl MetricSink for MetricSamples {
    fn begin_metric(&mut self, head: &MetricHead) -> fmt::Result {
        self.name = head.name;
        Ok(())
    }

    fn add_value(&mut self, labels: &[(&str, &str)], value: SampleValue) -> fmt::Result {
        let value = match value {
            SampleValue::Whole(value) => value as f64,
            SampleValue::Fraction(value) => value,
        };
        self.values.push(MetricSample { name: self.name, labels: owned(labels), value });
        Ok(())
    }

    fn add_histogram(
        &mut self,
        labels: &[(&str, &str)],
        reading: &HistogramReading,
    ) -> fmt::Result {
        self.histograms.push((self.name, owned(labels), reading.clone()));
        Ok(())
    }
}

fn owned(labels: &[(&str, &str)]) -> Labels {
    labels.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn label<'a>(labels: &'a [(String, String)], name: &str) -> &'a str {
    labels.iter().find(|(label, _)| label == name).map_or("", |(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Metric;

    const METRICS: &[Metric<()>] = &[
        Metric::counters("refused", "Refused requests", |(), samples| {
            samples.add_labelled(("code", "A"), 2)?;
            samples.add_labelled(("code", "B"), 3)
        }),
        Metric::histogram("took_seconds", "Durations", |()| HistogramReading {
            sum: 1.5,
            buckets: vec![(0.1, 4), (1.0, 2), (f64::INFINITY, 1)],
            ..HistogramReading::default()
        }),
    ];

    #[test]
    fn values_are_those_of_the_tables() {
        let exporter = MetricsExporter::new(|out| {
            let sources = [(vec![("kind", "a")], &()), (vec![("kind", "b")], &())];
            out.write_each(METRICS, &sources)
        });
        let samples = MetricSamples::read(&exporter);
        assert_eq!(samples.sum("refused"), 10.0);
        let first = samples.named("refused").next().expect("a sample");
        assert_eq!((first.label("kind"), first.label("code"), first.value), ("a", "A", 2.0));
        assert_eq!((first.label("other"), samples.named("other").count()), ("", 0));
        let of_a = samples.histogram("took_seconds", "kind", |kind| kind == "a");
        let buckets = vec![(0.1, 4), (1.0, 2), (f64::INFINITY, 1)];
        assert_eq!(of_a, HistogramReading { sum: 1.5, buckets, ..HistogramReading::default() });
        let all = samples.histogram("took_seconds", "kind", |_| true);
        assert_eq!((all.sum, all.buckets[1].1), (3.0, 4));
        let none = samples.histogram("other", "kind", |_| true);
        assert_eq!(none, HistogramReading::default());
    }
}
