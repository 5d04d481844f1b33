//! The values of counters and gauges for readers in the process, such as a history.

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
    /// The name of the metric that is collected.
    name: &'static str,
}

impl MetricSample {
    /// Returns the value of a label; empty if there is none.
    pub fn label(&self, name: &str) -> &str {
        self.labels.iter().find(|(label, _)| label == name).map_or("", |(_, value)| value)
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
        let labels = labels.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        self.values.push(MetricSample { name: self.name, labels: labels.collect(), value });
        Ok(())
    }

    fn add_histogram(&mut self, _: &[(&str, &str)], _: &HistogramReading) -> fmt::Result {
        Ok(())
    }
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
        Metric::histogram("took_seconds", "Durations", |()| HistogramReading::default()),
    ];

    #[test]
    fn values_are_those_of_the_tables() {
        let exporter = MetricsExporter::new(|out| {
            let sources = [(vec![("kind", "a")], &()), (vec![("kind", "b")], &())];
            out.write_each(METRICS, &sources)
        });
        let samples = MetricSamples::read(&exporter);
        let refused: Vec<_> = samples.named("refused").map(|it| it.value).collect();
        assert_eq!(refused, [2.0, 3.0, 2.0, 3.0]);
        let first = samples.named("refused").next().expect("a sample");
        assert_eq!((first.label("kind"), first.label("code"), first.value), ("a", "A", 2.0));
        assert_eq!((first.label("other"), samples.named("other").count()), ("", 0));
        assert_eq!(samples.named("took_seconds").count(), 0, "a histogram is no value");
    }
}
