//! The exporter of metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderMap, Response, StatusCode};
use http_body_util::Full;
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{NumberDataPoint, metric};
use otlp::{
    CollectorSettings, ExportProtocol, ExporterTask, MetricExportStats, MetricExporter,
    MetricExporterSettings, RouterIdentity, Temporality,
};
use prost::Message;
use telemetry::{Metric, MetricsExporter, read};

use crate::mock_collector::{MockCollector, status};

const METRICS: &[Metric<AtomicU64>] = &[Metric::counter("requests", "Requests", read)];

/// Returns the value of the next request, and the time since which it counts.
async fn next_value(collector: &mut MockCollector) -> (i64, u64) {
    let point = point(&collector.next().await.body);
    let Some(Value::AsInt(value)) = point.value else { panic!("{point:?}") };
    (value, point.start_time_unix_nano)
}

/// Returns the only value of a request.
fn point(body: &[u8]) -> NumberDataPoint {
    let mut message = ExportMetricsServiceRequest::decode(body).expect("a message");
    let mut scope = message.resource_metrics.remove(0).scope_metrics.remove(0);
    let Some(metric::Data::Sum(mut sum)) = scope.metrics.remove(0).data else {
        panic!("a counter")
    };
    sum.data_points.remove(0)
}

/// Starts an exporter of one counter.
fn start(
    collector: &MockCollector,
    temporality: Temporality,
    interval: Duration,
) -> (Arc<AtomicU64>, Arc<MetricExportStats>, ExporterTask) {
    let exporter = MetricExporter::new(MetricExporterSettings {
        collector: CollectorSettings {
            protocol: ExportProtocol::Http,
            url: format!("http://{}/v1/metrics", collector.address).into(),
            tls: None,
            headers: HeaderMap::new(),
            timeout: Duration::from_secs(3600),
        },
        interval,
        temporality,
        identity: RouterIdentity { attributes: Vec::new(), version: "1.2.3" },
    });
    let exporter = exporter.expect("a URL");
    let (counter, stats) = (Arc::new(AtomicU64::new(7)), Arc::clone(exporter.stats()));
    let counted = Arc::clone(&counter);
    let metrics = MetricsExporter::new(move |out| out.write(METRICS, &*counted));
    (counter, stats, exporter.start(Arc::new(metrics)))
}

const SOON: Duration = Duration::from_millis(5);

#[tokio::test]
async fn totals_are_exported_in_each_interval() {
    let mut collector = MockCollector::start(|_| Some(status(StatusCode::OK))).await;
    let (counter, _, task) = start(&collector, Temporality::Cumulative, SOON);
    let (first, since) = next_value(&mut collector).await;
    counter.store(9, Ordering::Relaxed);
    let (last, since_again) = loop {
        let received = next_value(&mut collector).await;
        if received.0 != first {
            break received;
        }
    };
    assert_eq!((first, last, since), (7, 9, since_again));
    task.end().await;
}

#[tokio::test]
async fn growth_that_was_not_taken_is_exported_again() {
    let mut collector = MockCollector::start(|number| match number {
        0 => Some(status(StatusCode::BAD_REQUEST)),
        _ => Some(status(StatusCode::OK)),
    })
    .await;
    let (_, stats, task) = start(&collector, Temporality::Delta, SOON);
    let (refused, taken, after) = (
        next_value(&mut collector).await,
        next_value(&mut collector).await,
        next_value(&mut collector).await,
    );
    assert_eq!((refused, taken.0, after.0), (taken, 7, 0));
    assert!(after.1 > taken.1, "it counts since the one before");
    assert_eq!(read(&stats.failures), 1);
    task.end().await;
}

#[tokio::test]
async fn a_collector_that_is_busy_gets_the_same_request_once_more() {
    let mut collector = MockCollector::start(|number| match number {
        0 => Some(status(StatusCode::SERVICE_UNAVAILABLE)),
        _ => Some(status(StatusCode::OK)),
    })
    .await;
    let (counter, stats, task) = start(&collector, Temporality::Delta, SOON);
    assert_eq!(next_value(&mut collector).await.0, 7);
    counter.store(100, Ordering::Relaxed);
    assert_eq!(next_value(&mut collector).await.0, 7, "the same reading");
    assert_eq!(next_value(&mut collector).await.0, 93);
    assert_eq!(read(&stats.failures), 1);
    task.end().await;
}

#[tokio::test]
async fn values_that_the_collector_refuses_are_counted() {
    let mut collector = MockCollector::start(|_| {
        let partial =
            ExportMetricsPartialSuccess { rejected_data_points: 1, error_message: "no".into() };
        let message = ExportMetricsServiceResponse { partial_success: Some(partial) };
        Some(Response::new(Full::from(message.encode_to_vec())))
    })
    .await;
    let (_, stats, task) = start(&collector, Temporality::Cumulative, SOON);
    // The response to the first one has been read when the second one comes.
    collector.next().await;
    collector.next().await;
    assert!(read(&stats.refused) >= 1 && read(&stats.points) == 0);
    task.end().await;
}

#[tokio::test]
async fn the_end_of_the_router_exports_the_last_values() {
    let mut collector = MockCollector::start(|_| Some(status(StatusCode::OK))).await;
    let hour = Duration::from_secs(3600);
    let (counter, stats, task) = start(&collector, Temporality::Delta, hour);
    counter.store(11, Ordering::Relaxed);
    task.end().await;
    assert_eq!((next_value(&mut collector).await.0, read(&stats.points)), (11, 1));
}
