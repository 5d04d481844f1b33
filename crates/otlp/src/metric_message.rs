//! The messages with metrics.
//!
//! Names, labels and buckets are those of the text formats, without the suffix `_total` of counters, which collectors
//! add for Prometheus. Names that end with a unit have that unit, so that nothing is added for it.

use std::fmt;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Exemplar as ProtoExemplar, Gauge, Histogram, HistogramDataPoint,
    Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, exemplar, metric,
    number_data_point,
};
use prost::Message;
use telemetry::{
    Exemplar, HistogramReading, MetricHead, MetricKind, MetricSink, MetricsExporter, RowIdentity,
    SampleValue,
};

use crate::message::{RouterIdentity, SCHEMA, shown_reason, text};
use crate::metric_streams::{
    MetricStreams, StreamKey, StreamPoint, StreamRow, StreamValue, Temporality,
};

/// The maximum size of one request, but for a single point that is larger. Collectors take 4 MiB by default.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// The bytes before a point in its message: its tag and its length.
const POINT_HEAD_BYTES: usize = 4;

/// A request with metrics.
#[derive(Debug)]
pub(crate) struct MetricRequest {
    /// The message.
    pub(crate) body: Bytes,
    /// The number of values in it.
    pub(crate) points: u64,
    /// The values up to which it has the growth of streams; empty if it has totals.
    pub(crate) values: Vec<(StreamKey, StreamValue)>,
}

/// Reads all metrics at `now`, in nanoseconds since 1970.
pub(crate) fn read_metrics(
    metrics: &MetricsExporter,
    identity: &RouterIdentity,
    streams: &mut MetricStreams,
    now: u64,
) -> Vec<MetricRequest> {
    let mut reading = MetricReading {
        identity,
        streams,
        now,
        head: None,
        row: None,
        metrics: Vec::new(),
        bytes: 0,
        points: 0,
        values: Vec::new(),
        requests: Vec::new(),
    };
    // Nothing here can fail.
    let _ = metrics.collect(&mut reading);
    reading.end_request();
    let requests = reading.requests;
    streams.end_reading(now);
    requests
}

/// Reads a response of success: the number of values that the collector has refused, and its reason. A body that cannot
/// be read says nothing.
pub(crate) fn read_refused(body: &[u8]) -> (u64, String) {
    let response = ExportMetricsServiceResponse::decode(body).unwrap_or_default();
    let partial = response.partial_success.unwrap_or_default();
    let refused = u64::try_from(partial.rejected_data_points).unwrap_or_default();
    (refused, shown_reason(&partial.error_message))
}

/// The metrics that were read, in requests.
struct MetricReading<'a> {
    identity: &'a RouterIdentity,
    streams: &'a mut MetricStreams,
    now: u64,
    /// The metric that values belong to.
    head: Option<MetricHead>,
    /// The row of a table that they belong to.
    row: Option<StreamRow>,
    /// The metrics of the current request. The last one is that of `head`, unless it has no values in this request.
    metrics: Vec<Metric>,
    bytes: usize,
    points: u64,
    values: Vec<(StreamKey, StreamValue)>,
    requests: Vec<MetricRequest>,
}

impl MetricReading<'_> {
    /// Ends the current request, if it has values.
    fn end_request(&mut self) {
        let metrics = std::mem::take(&mut self.metrics);
        if metrics.is_empty() {
            return;
        }
        let message = ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.identity.resource()),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(self.identity.scope()),
                    metrics,
                    schema_url: SCHEMA.into(),
                }],
                schema_url: SCHEMA.into(),
            }],
        };
        self.requests.push(MetricRequest {
            body: message.encode_to_vec().into(),
            points: std::mem::take(&mut self.points),
            values: std::mem::take(&mut self.values),
        });
        self.bytes = 0;
    }

    /// Makes room for a point of that size, and returns the metric that it belongs to; `None` if there is no metric.
    fn place(&mut self, bytes: usize) -> Option<&mut metric::Data> {
        let head = self.head?;
        let bytes = bytes + POINT_HEAD_BYTES;
        if self.bytes + bytes > REQUEST_BYTES_MAX {
            self.end_request();
        }
        if self.metrics.last().is_none_or(|it| it.name != head.name) {
            let metric = new_metric(&head, self.streams.temporality);
            self.bytes += metric.encoded_len();
            self.metrics.push(metric);
        }
        self.bytes += bytes;
        self.points += 1;
        self.metrics.last_mut()?.data.as_mut()
    }

    /// Adds a value of a stream, and returns what is exported.
    fn add_to_stream(
        &mut self,
        labels: &[(&str, &str)],
        value: StreamValue,
    ) -> (StreamPoint, Option<(StreamKey, StreamValue)>) {
        let name = self.head.map_or("", |head| head.name);
        let row = self.row.as_ref();
        match self.streams.temporality {
            Temporality::Cumulative => (self.streams.add(name, labels, row, value), None),
            Temporality::Delta => {
                let point = self.streams.add(name, labels, row, value.clone());
                let key = point.key;
                (point, Some((key, value)))
            }
        }
    }
}

impl MetricSink for MetricReading<'_> {
    fn begin_metric(&mut self, head: &MetricHead) -> fmt::Result {
        self.head = Some(*head);
        self.row = None;
        Ok(())
    }

    fn begin_row(&mut self, row: Option<RowIdentity<'_>>) {
        self.row = row.map(StreamRow::from);
    }

    fn add_value(&mut self, labels: &[(&str, &str)], value: SampleValue) -> fmt::Result {
        let is_counter = self.head.is_some_and(|head| head.kind == MetricKind::Counter);
        let (since, value, total) = match is_counter {
            true => {
                let (point, total) = self.add_to_stream(labels, value.into());
                (point.since, point.value, total)
            }
            false => (0, value.into(), None),
        };
        let point = NumberDataPoint {
            attributes: labels.iter().map(|(name, value)| text(name, value)).collect(),
            start_time_unix_nano: since,
            time_unix_nano: self.now,
            value: Some(number(&value)),
            ..NumberDataPoint::default()
        };
        match self.place(point.encoded_len()) {
            Some(metric::Data::Sum(sum)) => sum.data_points.push(point),
            Some(metric::Data::Gauge(gauge)) => gauge.data_points.push(point),
            _ => {}
        }
        self.values.extend(total);
        Ok(())
    }

    fn add_histogram(
        &mut self,
        labels: &[(&str, &str)],
        reading: &HistogramReading,
    ) -> fmt::Result {
        let (point, total) = self.add_to_stream(labels, reading.into());
        let StreamValue::Histogram { sum, counts } = point.value else { return Ok(()) };
        let bounds = reading.buckets.iter().map(|(bound, _)| *bound);
        let last = self.streams.last_reading();
        let exemplars = reading.exemplars.iter().map(|(_, it)| proto_exemplar(it));
        let point = HistogramDataPoint {
            attributes: labels.iter().map(|(name, value)| text(name, value)).collect(),
            start_time_unix_nano: point.since,
            time_unix_nano: self.now,
            count: counts.iter().sum(),
            sum: Some(sum),
            bucket_counts: counts.into(),
            // The bucket after the last bound has none.
            explicit_bounds: bounds.filter(|bound| bound.is_finite()).collect(),
            exemplars: exemplars.filter(|it| it.time_unix_nano >= last).collect(),
            ..HistogramDataPoint::default()
        };
        if let Some(metric::Data::Histogram(histogram)) = self.place(point.encoded_len()) {
            histogram.data_points.push(point);
        }
        self.values.extend(total);
        Ok(())
    }
}

fn new_metric(head: &MetricHead, temporality: Temporality) -> Metric {
    let aggregation_temporality = match temporality {
        Temporality::Cumulative => AggregationTemporality::Cumulative,
        Temporality::Delta => AggregationTemporality::Delta,
    };
    let aggregation_temporality = aggregation_temporality.into();
    let data = match head.kind {
        MetricKind::Counter => metric::Data::Sum(Sum {
            data_points: Vec::new(),
            aggregation_temporality,
            is_monotonic: true,
        }),
        MetricKind::Gauge => metric::Data::Gauge(Gauge::default()),
        MetricKind::Histogram => {
            let data_points = Vec::new();
            metric::Data::Histogram(Histogram { data_points, aggregation_temporality })
        }
    };
    Metric {
        name: head.name.into(),
        description: head.help.into(),
        unit: unit(head.name).into(),
        data: Some(data),
        ..Metric::default()
    }
}

/// Returns the unit that ends a name, as UCUM writes it.
fn unit(name: &str) -> &'static str {
    match name.rsplit('_').next() {
        Some("seconds") => "s",
        Some("bytes") => "By",
        _ => "",
    }
}

fn number(value: &StreamValue) -> number_data_point::Value {
    match value {
        StreamValue::Whole(value) => match i64::try_from(*value) {
            Ok(value) => number_data_point::Value::AsInt(value),
            Err(_) => number_data_point::Value::AsDouble(*value as f64),
        },
        StreamValue::Fraction(value) | StreamValue::Histogram { sum: value, .. } => {
            number_data_point::Value::AsDouble(*value)
        }
    }
}

fn proto_exemplar(exemplar: &Exemplar) -> ProtoExemplar {
    let at = exemplar.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    ProtoExemplar {
        // 2^64 ns are 584 years.
        time_unix_nano: at.as_nanos() as u64,
        trace_id: exemplar.trace.get().to_be_bytes().into(),
        span_id: exemplar.span.get().to_be_bytes().into(),
        value: Some(exemplar::Value::AsDouble(exemplar.value)),
        ..ProtoExemplar::default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use telemetry::Metric as Row;
    use telemetry::spans::{SpanId, TraceId};

    use super::*;

    const ROWS: &[Row<u64>] = &[
        Row::counter("requests", "Requests", |it| *it),
        Row::gauge("queue_bytes", "Waiting bytes", |it| *it),
        Row::histogram("wait_seconds", "Waits", |it| HistogramReading {
            sum: *it as f64,
            buckets: vec![(0.5, *it), (f64::INFINITY, 1)],
            exemplars: [1, 3].map(|at| (1, exemplar_at(at))).into(),
        }),
    ];

    fn exemplar_at(at: u64) -> Exemplar {
        Exemplar {
            trace: TraceId::new(7).expect("an id"),
            span: SpanId::new(u64::from(at == 3) + 1).expect("an id"),
            value: 0.75,
            at: UNIX_EPOCH + Duration::from_nanos(at),
        }
    }

    fn identity() -> RouterIdentity {
        RouterIdentity {
            attributes: vec![("service.name".into(), "shop".into())],
            version: "1.2.3",
        }
    }

    fn read(value: u64, streams: &mut MetricStreams, now: u64) -> Vec<Metric> {
        let metrics = MetricsExporter::new(move |out| out.write(ROWS, &value));
        let [request] = &read_metrics(&metrics, &identity(), streams, now)[..] else {
            panic!("more than one request")
        };
        streams.note_taken(request.values.clone(), now);
        assert_eq!(request.points, 3);
        metrics_of(request)
    }

    fn metrics_of(request: &MetricRequest) -> Vec<Metric> {
        let message = ExportMetricsServiceRequest::decode(&*request.body).expect("a message");
        message
            .resource_metrics
            .into_iter()
            .flat_map(|it| it.scope_metrics)
            .flat_map(|it| it.metrics)
            .collect()
    }

    #[test]
    fn each_kind_of_metric_has_its_type_unit_and_time() {
        let mut streams = MetricStreams::new(Temporality::Cumulative, 2);
        let metrics = read(9, &mut streams, 5);
        let heads: Vec<_> = metrics.iter().map(|it| (&*it.name, &*it.unit)).collect();
        assert_eq!(heads, [("requests", ""), ("queue_bytes", "By"), ("wait_seconds", "s")]);
        let [
            Some(metric::Data::Sum(sum)),
            Some(metric::Data::Gauge(gauge)),
            Some(metric::Data::Histogram(histogram)),
        ] = [0, 1, 2].map(|index| metrics[index].data.clone())
        else {
            panic!("{metrics:?}")
        };
        assert!(
            sum.is_monotonic
                && sum.aggregation_temporality == AggregationTemporality::Cumulative as i32
        );
        let point = &sum.data_points[0];
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (2, 5));
        assert_eq!(point.value, Some(number_data_point::Value::AsInt(9)));
        assert_eq!(gauge.data_points[0].value, Some(number_data_point::Value::AsInt(9)));
        let point = &histogram.data_points[0];
        assert_eq!(
            (&*point.bucket_counts, &*point.explicit_bounds, point.count),
            (&[9, 1][..], &[0.5][..], 10)
        );
        assert_eq!(point.sum, Some(9.0));
        let [exemplar] = &point.exemplars[..] else {
            panic!("the older one was exported before: {point:?}")
        };
        assert_eq!((exemplar.span_id.last(), exemplar.trace_id.last()), (Some(&2), Some(&7)));
    }

    #[test]
    fn growth_is_exported_on_demand() {
        let mut streams = MetricStreams::new(Temporality::Delta, 2);
        read(9, &mut streams, 5);
        let metrics = read(11, &mut streams, 8);
        let Some(metric::Data::Sum(sum)) = &metrics[0].data else { panic!("{metrics:?}") };
        let point = &sum.data_points[0];
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (5, 8));
        assert_eq!(point.value, Some(number_data_point::Value::AsInt(2)));
        let Some(metric::Data::Histogram(histogram)) = &metrics[2].data else {
            panic!("{metrics:?}")
        };
        assert_eq!(*histogram.data_points[0].bucket_counts, [2, 0]);
    }

    #[test]
    fn many_values_are_divided_into_requests_without_loss() {
        const MANY: &[Row<u64>] = &[
            Row::counter("first", "First", |it| *it),
            Row::counters("many", "Many", |it, samples| {
                (0..*it).try_for_each(|number| {
                    samples.add_labelled(("name", &format!("{number:0>200}")), number)
                })
            }),
        ];
        let metrics = MetricsExporter::new(|out| out.write(MANY, &20_000));
        let mut streams = MetricStreams::new(Temporality::Cumulative, 0);
        let requests = read_metrics(&metrics, &identity(), &mut streams, 1);
        assert!(requests.len() > 4, "{}", requests.len());
        assert!(requests.iter().all(|it| it.body.len() <= REQUEST_BYTES_MAX + 4_096));
        assert_eq!(requests.iter().map(|it| it.points).sum::<u64>(), 20_001);
        let names: Vec<_> = requests.iter().map(|it| metrics_of(it).len()).collect();
        assert!(names[0] == 2 && names[1..].iter().all(|count| *count == 1), "{names:?}");
    }
}
