//! The export of all tables of metrics as text.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::metric::Metric;
use crate::prometheus_text::prometheus_text;

/// A text format of metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TextFormat {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
}

impl TextFormat {
    /// Returns the media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The metrics of a process, read whenever their text is requested.
#[derive(Debug)]
pub struct MetricsExporter(Registry);

impl MetricsExporter {
    /// Creates an exporter. `write` writes all tables.
    pub fn new(
        write: impl Fn(&mut MetricsWriter<'_>) -> fmt::Result + Send + Sync + 'static,
    ) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(TableCollector(write)));
        Self(registry)
    }

    /// Returns the current values as text.
    ///
    /// # Errors
    /// A value cannot be written.
    pub fn text(&self, format: TextFormat) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.0)?;
        Ok(match format {
            TextFormat::OpenMetrics => text,
            TextFormat::Prometheus => prometheus_text(&text),
        })
    }
}

/// Writer of tables.
#[derive(Debug)]
pub struct MetricsWriter<'e>(DescriptorEncoder<'e>);

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
        table.iter().try_for_each(|metric| metric.write(&mut self.0, sources))
    }
}

/// The only collector of the registry.
struct TableCollector<F>(F);

impl<F> fmt::Debug for TableCollector<F> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("TableCollector")
    }
}

impl<F> Collector for TableCollector<F>
where
    F: Fn(&mut MetricsWriter<'_>) -> fmt::Result + Send + Sync + 'static,
{
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        (self.0)(&mut MetricsWriter(encoder))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;

    use super::*;
    use crate::metric::{HistogramReading, read};

    #[derive(Default)]
    struct Pool {
        opened: AtomicU64,
        statuses: Family<[(&'static str, &'static str); 1], Counter>,
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
        }),
    ];

    const HANDLES: &[Metric<Pool>] =
        &[Metric::handle("pool_responses", "Responses, by status", |it| &it.statuses)];

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
        let text = text(|out| out.write_each(METRICS, &[(vec![("pool", "a")], &Pool::default())]));
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
        ];
        assert_eq!(samples, expected);
    }

    #[test]
    fn a_handle_is_left_out_until_it_has_samples() {
        assert_eq!(text(|out| out.write(HANDLES, &Pool::default())), "# EOF\n");
        let text = text(|out| {
            let pool = Pool::default();
            pool.statuses.get_or_create(&[("status", "ok")]).inc();
            out.write(HANDLES, &pool)
        });
        assert!(text.ends_with("pool_responses_total{status=\"ok\"} 1\n# EOF\n"), "{text}");
    }
}
