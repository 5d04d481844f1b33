//! The two text formats of metrics: OpenMetrics 1.0, and the older format of Prometheus.
//!
//! They are written here because no library writes both: the usual one writes OpenMetrics only, without a way to add
//! exemplars to histograms of other types than its own.
//!
//! In the format of Prometheus a `# TYPE` line announces the name of the samples themselves: `a_total` for a counter,
//! where OpenMetrics announces the family `a`. A Prometheus server that reads one format as the other takes every
//! counter for an untyped metric. Exemplars and the end mark exist in OpenMetrics only.

use std::fmt::{self, Write};
use std::time::UNIX_EPOCH;

use crate::exemplar::Exemplar;
use crate::metric::{HistogramReading, MetricHead, MetricKind, MetricSink, SampleValue};

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

/// Writer of metrics as text.
pub(crate) struct TextSink {
    format: TextFormat,
    text: String,
    /// The name of the samples of the current metric, which histograms add suffixes to.
    name: String,
}

impl TextSink {
    pub(crate) fn new(format: TextFormat) -> Self {
        Self { format, text: String::new(), name: String::new() }
    }

    /// Returns the text.
    pub(crate) fn finish(mut self) -> String {
        if self.format == TextFormat::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    /// Writes the name of a sample and its labels, and the space before its value.
    fn begin_sample(
        &mut self,
        suffix: &str,
        bound: Option<f64>,
        labels: &[(&str, &str)],
    ) -> fmt::Result {
        self.text.push_str(&self.name);
        self.text.push_str(suffix);
        let mut separator = '{';
        if let Some(bound) = bound {
            self.text.push_str("{le=\"");
            write_number(&mut self.text, bound)?;
            self.text.push('"');
            separator = ',';
        }
        for (name, value) in labels {
            self.text.push(separator);
            separator = ',';
            write_label(&mut self.text, name, value);
        }
        self.text.push_str(if separator == ',' { "} " } else { " " });
        Ok(())
    }

    fn write_exemplar(&mut self, exemplar: &Exemplar) -> fmt::Result {
        let at = exemplar.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let Exemplar { trace, span, value, .. } = exemplar;
        write!(self.text, " # {{trace_id=\"{trace}\",span_id=\"{span}\"}} ")?;
        write_number(&mut self.text, *value)?;
        write!(self.text, " {}.{:03}", at.as_secs(), at.subsec_millis())
    }
}

impl MetricSink for TextSink {
    fn begin_metric(&mut self, head: &MetricHead) -> fmt::Result {
        let kind = match head.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        self.name.clear();
        self.name.push_str(head.name);
        let mut announced = head.name;
        if head.kind == MetricKind::Counter {
            self.name.push_str("_total");
            if self.format == TextFormat::Prometheus {
                announced = &self.name;
            }
        }
        writeln!(self.text, "# HELP {announced} {}.\n# TYPE {announced} {kind}", head.help)
    }

    fn add_value(&mut self, labels: &[(&str, &str)], value: SampleValue) -> fmt::Result {
        self.begin_sample("", None, labels)?;
        match value {
            SampleValue::Whole(value) => write!(self.text, "{value}")?,
            SampleValue::Fraction(value) => write_number(&mut self.text, value)?,
        }
        self.text.push('\n');
        Ok(())
    }

    fn add_histogram(
        &mut self,
        labels: &[(&str, &str)],
        reading: &HistogramReading,
    ) -> fmt::Result {
        self.begin_sample("_sum", None, labels)?;
        write_number(&mut self.text, reading.sum)?;
        self.text.push('\n');
        self.begin_sample("_count", None, labels)?;
        writeln!(self.text, "{}", reading.count())?;
        let mut exemplars = reading.exemplars.iter().peekable();
        let mut total = 0;
        for (index, (bound, count)) in reading.buckets.iter().enumerate() {
            total += count;
            self.begin_sample("_bucket", Some(*bound), labels)?;
            write!(self.text, "{total}")?;
            if let Some((_, exemplar)) = exemplars.next_if(|it| it.0 == index)
                && self.format == TextFormat::OpenMetrics
            {
                self.write_exemplar(exemplar)?;
            }
            self.text.push('\n');
        }
        Ok(())
    }
}

/// Writes a number with fractions: `1.0`, and `+Inf` for infinity.
fn write_number(text: &mut String, value: f64) -> fmt::Result {
    match value.is_infinite() {
        true => text.write_str(if value > 0.0 { "+Inf" } else { "-Inf" }),
        false => write!(text, "{value:?}"),
    }
}

fn write_label(text: &mut String, name: &str, value: &str) {
    text.push_str(name);
    text.push_str("=\"");
    let mut rest = value;
    while let Some(at) = rest.find(['\\', '"', '\n']) {
        text.push_str(&rest[..at]);
        text.push_str(match rest.as_bytes()[at] {
            b'\n' => "\\n",
            b'"' => "\\\"",
            _ => "\\\\",
        });
        rest = &rest[at + 1..];
    }
    text.push_str(rest);
    text.push('"');
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::spans::{SpanId, TraceId};

    fn text(format: TextFormat) -> String {
        let mut sink = TextSink::new(format);
        let head = |name, help, kind| MetricHead { name, help, kind };
        let exemplar = Exemplar {
            trace: TraceId::new(0xaf).expect("an id"),
            span: SpanId::new(7).expect("an id"),
            value: 0.25,
            at: UNIX_EPOCH + Duration::from_millis(1_500_007),
        };
        let reading = HistogramReading {
            sum: 0.5,
            buckets: vec![(0.1, 1), (1.0, 2), (f64::INFINITY, 0)],
            exemplars: vec![(1, exemplar)],
        };
        let written = (|| {
            sink.begin_metric(&head("a_requests", "Requests, by kind", MetricKind::Counter))?;
            sink.add_value(&[("kind", "x")], SampleValue::Whole(1))?;
            sink.add_value(&[("kind", "a\"b\\c\nd"), ("more", "")], SampleValue::Fraction(1e-7))?;
            sink.begin_metric(&head("b_seconds", "Times", MetricKind::Histogram))?;
            sink.add_histogram(&[("kind", "x")], &reading)?;
            sink.begin_metric(&head("c", "Open", MetricKind::Gauge))?;
            sink.add_value(&[], SampleValue::Fraction(2.0))
        })();
        assert_eq!(written, Ok(()));
        sink.finish()
    }

    #[test]
    fn open_metrics_has_families_exemplars_and_an_end() {
        let expected = "# HELP a_requests Requests, by kind.\n# TYPE a_requests counter\n\
            a_requests_total{kind=\"x\"} 1\n\
            a_requests_total{kind=\"a\\\"b\\\\c\\nd\",more=\"\"} 1e-7\n\
            # HELP b_seconds Times.\n# TYPE b_seconds histogram\n\
            b_seconds_sum{kind=\"x\"} 0.5\nb_seconds_count{kind=\"x\"} 3\n\
            b_seconds_bucket{le=\"0.1\",kind=\"x\"} 1\n\
            b_seconds_bucket{le=\"1.0\",kind=\"x\"} 3 # {trace_id=\"000000000000000000000000000000af\",\
            span_id=\"0000000000000007\"} 0.25 1500.007\n\
            b_seconds_bucket{le=\"+Inf\",kind=\"x\"} 3\n# HELP c Open.\n# TYPE c gauge\nc 2.0\n# EOF\n";
        assert_eq!(text(TextFormat::OpenMetrics), expected);
    }

    #[test]
    fn the_older_format_announces_counters_under_the_name_of_their_samples() {
        let text = text(TextFormat::Prometheus);
        let first = "# HELP a_requests_total Requests, by kind.\n# TYPE a_requests_total counter\n";
        assert!(text.starts_with(first), "{text}");
        assert!(text.contains("b_seconds_bucket{le=\"1.0\",kind=\"x\"} 3\n"), "{text}");
        assert!(text.ends_with("# TYPE c gauge\nc 2.0\n"), "{text}");
    }
}
