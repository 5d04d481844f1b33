//! The export of all tables of metrics: one walk over them, for the text formats and for other receivers.

use std::fmt;

use crate::metric::{Metric, MetricSink, RowIdentity};
use crate::prometheus_text::{TextFormat, TextSink};

/// The metrics of a process, read whenever they are requested.
pub struct MetricsExporter(Box<WriteTables>);

/// A function that writes all tables.
type WriteTables = dyn Fn(&mut MetricsWriter<'_>) -> fmt::Result + Send + Sync;

impl fmt::Debug for MetricsExporter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("MetricsExporter")
    }
}

impl MetricsExporter {
    /// Creates an exporter. `write` writes all tables.
    pub fn new(
        write: impl Fn(&mut MetricsWriter<'_>) -> fmt::Result + Send + Sync + 'static,
    ) -> Self {
        Self(Box::new(write))
    }

    /// Returns the current values as text.
    ///
    /// # Errors
    /// A value cannot be written.
    pub fn text(&self, format: TextFormat) -> Result<String, fmt::Error> {
        let mut sink = TextSink::new(format);
        self.collect(&mut sink)?;
        Ok(sink.finish())
    }

    /// Passes all metrics with their current values to `sink`.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn collect(&self, sink: &mut dyn MetricSink) -> fmt::Result {
        (self.0)(&mut MetricsWriter(sink))
    }
}

/// Writer of tables.
pub struct MetricsWriter<'s>(&'s mut dyn MetricSink);

impl MetricsWriter<'_> {
    /// Writes the metrics of a table with the values of `source`.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn write<T: ?Sized>(&mut self, table: &[Metric<T>], source: &T) -> fmt::Result {
        self.write_each(table, &[(Vec::new(), source)])
    }

    /// Writes the metrics of a table with the values of several sources, which differ in their labels (names and
    /// values). Without sources only names and help texts are written.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn write_each<T: ?Sized>(
        &mut self,
        table: &[Metric<T>],
        sources: &[(Vec<(&str, &str)>, &T)],
    ) -> fmt::Result {
        table.iter().try_for_each(|metric| metric.write(self.0, sources, &[]))
    }

    /// Writes the metrics of a table with the values of the rows of a [`crate::name_table`], and then those of the row
    /// that all other names share. Rows are given by their number and their labels, of which each has as many as the
    /// shared row.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn write_rows<'a, T: ?Sized>(
        &mut self,
        table: &[Metric<T>],
        rows: impl IntoIterator<Item = (u64, Vec<(&'a str, &'a str)>, &'a T)>,
        (shared_labels, shared): (Vec<(&'a str, &'a str)>, &'a T),
    ) -> fmt::Result {
        let mut sources = Vec::new();
        let mut numbers = Vec::new();
        for (number, labels, source) in rows {
            numbers.push(number);
            sources.push((labels, source));
        }
        sources.push((shared_labels.clone(), shared));
        let identity = |number| RowIdentity { number, shared_labels: &shared_labels };
        let rows: Vec<_> = numbers.into_iter().map(identity).collect();
        table.iter().try_for_each(|metric| metric.write(self.0, &sources, &rows))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use super::*;
    use crate::labelled_counters::LabelledCounters;
    use crate::metric::{HistogramReading, read};

    #[derive(Default)]
    struct Pool {
        opened: AtomicU64,
        statuses: LabelledCounters,
    }

    const METRICS: &[Metric<Pool>] = &[
        Metric::counter("pool_opened", "Opened connections", |it| read(&it.opened)),
        Metric::gauge("pool_open", "Open connections", |_| 2),
        Metric::counters("pool_wait_seconds", "Time of waiting", |_, out| {
            out.add(Duration::from_millis(1_500))
        }),
        Metric::gauges("pool_state", "1 for the current state", |_, out| {
            out.add_labelled(("state", "idle"), 1)?;
            out.add_labelled(("state", "busy"), 0)
        }),
        Metric::histogram("pool_duration_seconds", "Durations", |_| HistogramReading {
            sum: 0.5,
            buckets: vec![(0.25, 1), (f64::INFINITY, 2)],
            exemplars: Vec::new(),
        }),
        Metric::histograms("pool_size", "Sizes, by kind", |_, out| {
            let buckets = vec![(f64::INFINITY, 1)];
            let reading = HistogramReading { sum: 2.0, buckets, exemplars: Vec::new() };
            out.add_histogram(("kind", "x"), &reading)
        }),
        Metric::counters("pool_responses", "Responses, by status", |it, out| {
            it.statuses.write("status", out)
        }),
    ];

    fn text(
        write: impl Fn(&mut MetricsWriter<'_>) -> fmt::Result + Send + Sync + 'static,
    ) -> String {
        MetricsExporter::new(write).text(TextFormat::OpenMetrics).expect("a text")
    }

    #[test]
    fn a_table_is_written_once_for_all_its_sources() {
        let text = text(|out| {
            let (a, b) = (Pool { opened: 7.into(), ..Pool::default() }, Pool::default());
            let sources = [(vec![("pool", "a")], &a), (vec![("pool", "b")], &b)];
            out.write_each(&METRICS[..1], &sources)
        });
        let expected = "# HELP pool_opened Opened connections.\n# TYPE pool_opened counter\n\
            pool_opened_total{pool=\"a\"} 7\npool_opened_total{pool=\"b\"} 0\n# EOF\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn each_kind_of_metric_is_written_with_its_type_and_labels() {
        let pool = Pool::default();
        pool.statuses.add("ok", 1);
        let text = text(move |out| out.write_each(METRICS, &[(vec![("pool", "a")], &pool)]));
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "pool_opened_total{pool=\"a\"} 0",
            "pool_open{pool=\"a\"} 2",
            "pool_wait_seconds_total{pool=\"a\"} 1.5",
            "pool_state{pool=\"a\",state=\"idle\"} 1",
            "pool_state{pool=\"a\",state=\"busy\"} 0",
            "pool_duration_seconds_sum{pool=\"a\"} 0.5",
            "pool_duration_seconds_count{pool=\"a\"} 3",
            "pool_duration_seconds_bucket{le=\"0.25\",pool=\"a\"} 1",
            "pool_duration_seconds_bucket{le=\"+Inf\",pool=\"a\"} 3",
            "pool_size_sum{pool=\"a\",kind=\"x\"} 2.0",
            "pool_size_count{pool=\"a\",kind=\"x\"} 1",
            "pool_size_bucket{le=\"+Inf\",pool=\"a\",kind=\"x\"} 1",
            "pool_responses_total{pool=\"a\",status=\"ok\"} 1",
        ];
        assert_eq!(samples, expected);
    }
}
