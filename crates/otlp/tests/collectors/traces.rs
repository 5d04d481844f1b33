//! The exporter of traces.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span as ProtoSpan;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind as ProtoKind;
use otlp::{
    CollectorSettings, ExportProtocol, ExporterSettings, ExporterTask, RetryTimes, RouterIdentity,
    TraceExporter,
};
use prost::Message;
use telemetry::read;
use telemetry::spans::{
    Attribute, IncomingContext, Propagation, RemoteParent, RequestSpans, RootSpan, SamplingRules,
    SpanId, SpanKind, TraceId, Tracer, TracerSettings,
};
use tokio::net::TcpListener;

use crate::mock_collector::{MockCollector, Received, WAIT_MAX, status};

fn message(body: &[u8]) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest::decode(body).expect("a message")
}

/// Returns the spans of a request over HTTP.
fn spans(received: &Received) -> Vec<ProtoSpan> {
    spans_of(message(&received.body))
}

fn spans_of(message: ExportTraceServiceRequest) -> Vec<ProtoSpan> {
    let scopes = message.resource_spans.into_iter().flat_map(|it| it.scope_spans);
    scopes.flat_map(|it| it.spans).collect()
}

/// Returns the spans of a call over gRPC, the message of which has a flag and its length before it.
fn spans_of_call(received: &Received) -> Vec<ProtoSpan> {
    spans_of(message(&received.body[5..]))
}

fn tracer(queue_bytes_max: usize) -> Arc<Tracer> {
    let sampling = SamplingRules {
        ratio: 1.0,
        follows_parent: true,
        slow: None,
        failed: false,
        has_conditions: false,
    };
    let settings = TracerSettings {
        sampling,
        propagation: Propagation::default(),
        queue_bytes_max,
        spans_max: 100,
        batch_spans: 10,
    };
    Arc::new(Tracer::new(settings))
}

fn settings(address: SocketAddr) -> ExporterSettings {
    let authorization = HeaderValue::from_static("Bearer secret");
    ExporterSettings {
        collector: CollectorSettings {
            protocol: ExportProtocol::Http,
            url: format!("http://{address}/v1/traces?key=secret").into(),
            tls: None,
            headers: HeaderMap::from_iter([(http::header::AUTHORIZATION, authorization)]),
            timeout: Duration::from_secs(10),
        },
        interval: Duration::from_millis(5),
        identity: RouterIdentity {
            attributes: vec![("service.name".into(), "shop".into())],
            version: "1.2.3",
        },
        retry: RetryTimes {
            pause_min: Duration::from_millis(1),
            pause_max: Duration::from_millis(10),
            time_max: Duration::from_secs(60),
        },
    }
}

fn start(settings: ExporterSettings, tracer: &Arc<Tracer>) -> ExporterTask {
    TraceExporter::new(settings).expect("a URL").start(Arc::clone(tracer))
}

fn record(tracer: &Arc<Tracer>, name: &'static str) {
    RequestSpans::start(tracer, IncomingContext::default()).finish(false, move || RootSpan {
        name: name.into(),
        kind: SpanKind::Server,
        attributes: Vec::new(),
        error: None,
    });
}

/// Exports one trace by a protocol. Returns its message without the identity of the span and the times, which differ in
/// each run.
async fn exported_by(protocol: ExportProtocol) -> ExportTraceServiceRequest {
    let mut collector = match protocol {
        ExportProtocol::Http => MockCollector::start(|_| Some(status(StatusCode::OK))).await,
        ExportProtocol::Grpc => MockCollector::start_grpc(&[]).await,
    };
    let tracer = tracer(1 << 20);
    let (trace, span) = (TraceId::new(1).expect("an id"), SpanId::new(2).expect("an id"));
    let parent = RemoteParent { trace, span, is_sampled: Some(true), state: Some("a=1".into()) };
    let incoming = IncomingContext { parent: Some(parent), baggage: None };
    RequestSpans::start(&tracer, incoming).finish(true, || RootSpan {
        name: "POST /graphql".into(),
        kind: SpanKind::Server,
        attributes: vec![
            Attribute::text("a", "b"),
            Attribute::number("n", 7_u8),
            Attribute::flag("f", false),
        ],
        error: Some("HTTP status 500".into()),
    });
    let settings = settings(collector.address);
    let way = CollectorSettings { protocol, ..settings.collector };
    let task = start(ExporterSettings { collector: way, ..settings }, &tracer);
    let received = collector.next().await;
    let mut message = match protocol {
        ExportProtocol::Http => message(&received.body),
        // A flag and the length come before the message.
        ExportProtocol::Grpc => message(&received.body[5..]),
    };
    task.end().await;
    let scopes = message.resource_spans.iter_mut().flat_map(|it| &mut it.scope_spans);
    for span in scopes.flat_map(|it| &mut it.spans) {
        assert_eq!(span.span_id.len(), 8);
        span.span_id.clear();
        (span.start_time_unix_nano, span.end_time_unix_nano) = (0, 0);
    }
    message
}

/// Waits until a counter has a value. The exporter counts after the collector has responded.
async fn reaches(counter: &AtomicU64, value: u64) {
    let reached = async {
        while read(counter) < value {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(WAIT_MAX, reached).await.expect("the counter grows");
    assert_eq!(read(counter), value);
}

#[tokio::test]
async fn a_trace_has_its_identity_and_that_of_the_router() {
    let mut collector = MockCollector::start(|_| Some(status(StatusCode::OK))).await;
    let tracer = tracer(1 << 20);
    let (trace, span) = (TraceId::new(1).expect("an id"), SpanId::new(2).expect("an id"));
    let parent = RemoteParent { trace, span, is_sampled: Some(true), state: Some("a=1".into()) };
    let incoming = IncomingContext { parent: Some(parent), baggage: None };
    RequestSpans::start(&tracer, incoming).finish(false, || RootSpan {
        name: "POST /graphql".into(),
        kind: SpanKind::Server,
        attributes: vec![Attribute::text("a", "b"), Attribute::number("n", 7_u8)],
        error: Some("HTTP status 500".into()),
    });
    let task = start(settings(collector.address), &tracer);
    let received = collector.next().await;
    assert_eq!(received.path, "/v1/traces");
    assert_eq!(received.headers["content-type"], "application/x-protobuf");
    assert_eq!(received.headers["authorization"], "Bearer secret");
    let message = message(&received.body);
    let resource = message.resource_spans[0].resource.clone().expect("a resource");
    assert_eq!(resource.attributes[0].key, "service.name");
    let span = spans_of(message).remove(0);
    assert_eq!(span.trace_id, [[0; 15].as_slice(), &[1]].concat());
    assert_eq!(span.parent_span_id, [0, 0, 0, 0, 0, 0, 0, 2]);
    assert_eq!((&*span.name, &*span.trace_state, span.flags), ("POST /graphql", "a=1", 1));
    assert_eq!(span.kind(), ProtoKind::Server);
    let values = span.attributes.into_iter().map(|it| it.value.and_then(|it| it.value));
    let values: Vec<_> = values.flatten().collect();
    assert_eq!(values, [Value::StringValue("b".into()), Value::IntValue(7)]);
    assert_eq!(span.status.expect("a status").message, "HTTP status 500");
    assert!(span.start_time_unix_nano > 0 && span.start_time_unix_nano <= span.end_time_unix_nano);
    reaches(&tracer.stats.exported, 1).await;
    task.end().await;
}

#[tokio::test]
async fn both_protocols_send_the_same_message() {
    let http = exported_by(ExportProtocol::Http).await;
    assert_eq!(http, exported_by(ExportProtocol::Grpc).await);
    let [resource] = &*http.resource_spans else { panic!("one resource: {http:?}") };
    let [scope] = &*resource.scope_spans else { panic!("one scope: {resource:?}") };
    let [span] = &*scope.spans else { panic!("one span: {scope:?}") };
    assert!(!scope.schema_url.is_empty() && scope.schema_url == resource.schema_url);
    let scope = scope.scope.as_ref().expect("a scope");
    assert_eq!((&*scope.name, &*scope.version), ("starling", "1.2.3"));
    assert_eq!((&*span.name, span.attributes.len()), ("POST /graphql", 3));
}

#[tokio::test]
async fn a_collector_that_is_busy_gets_the_same_traces_again() {
    let mut collector = MockCollector::start(|number| {
        let busy = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
        Some(status(busy.get(number).copied().unwrap_or(StatusCode::OK)))
    })
    .await;
    let tracer = tracer(1 << 20);
    record(&tracer, "one");
    let task = start(settings(collector.address), &tracer);
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(spans(&collector.next().await).remove(0).span_id);
    }
    assert!(ids.iter().all(|id| *id == ids[0]));
    reaches(&tracer.stats.exported, 1).await;
    assert_eq!((read(&tracer.stats.failures), read(&tracer.stats.lost)), (2, 0));
    task.end().await;
}

#[tokio::test]
async fn traces_that_the_collector_refuses_are_dropped_and_counted() {
    let mut collector = MockCollector::start(|number| {
        if number == 0 {
            return Some(status(StatusCode::BAD_REQUEST));
        }
        let partial =
            ExportTracePartialSuccess { rejected_spans: 1, error_message: "too\nlong".into() };
        let message = ExportTraceServiceResponse { partial_success: Some(partial) };
        Some(Response::new(Full::from(message.encode_to_vec())))
    })
    .await;
    let tracer = tracer(1 << 20);
    record(&tracer, "refused");
    let task = start(settings(collector.address), &tracer);
    collector.next().await;
    reaches(&tracer.stats.lost, 1).await;
    record(&tracer, "one");
    collector.next().await;
    reaches(&tracer.stats.lost, 2).await;
    assert_eq!(read(&tracer.stats.failures), 1);
    task.end().await;
}

#[tokio::test]
async fn a_collector_that_hangs_costs_bounded_memory_and_no_time() {
    let mut collector = MockCollector::start(|_| None).await;
    let tracer = tracer(20_000);
    record(&tracer, "first");
    let task = start(settings(collector.address), &tracer);
    collector.next().await;
    for _ in 0..1_000 {
        record(&tracer, "later");
    }
    let (dropped, queued) = (read(&tracer.stats.queue_full), read(&tracer.stats.queued_bytes));
    assert!(dropped > 500 && (1..=20_000).contains(&queued), "{dropped} {queued}");
    assert_eq!(read(&tracer.stats.exported), 0);
    drop(task);
}

#[tokio::test]
async fn traces_wait_for_a_collector_that_is_away_for_a_while_and_no_longer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let tracer = tracer(1 << 20);
    record(&tracer, "one");
    let retry = RetryTimes { time_max: Duration::from_millis(30), ..settings(address).retry };
    let task = start(ExporterSettings { retry, ..settings(address) }, &tracer);
    reaches(&tracer.stats.lost, 1).await;
    assert!(read(&tracer.stats.failures) >= 2, "it was tried again");
    task.end().await;
}

#[tokio::test]
async fn the_end_of_the_router_exports_all_that_waits() {
    let mut collector = MockCollector::start(|_| Some(status(StatusCode::OK))).await;
    let tracer = tracer(1 << 20);
    let hour = Duration::from_secs(3600);
    let task = start(ExporterSettings { interval: hour, ..settings(collector.address) }, &tracer);
    for _ in 0..25 {
        record(&tracer, "last");
    }
    task.end().await;
    let mut count = 0;
    while count < 25 {
        count += spans(&collector.next().await).len();
    }
    assert_eq!((count, read(&tracer.stats.exported)), (25, 25));
}

#[tokio::test]
async fn the_end_of_the_router_does_not_wait_for_a_request_without_a_response() {
    // The first request gets no response.
    let mut collector = MockCollector::start(|number| match number {
        1 => Some(status(StatusCode::OK)),
        _ => None,
    })
    .await;
    let tracer = tracer(1 << 20);
    let task = start(settings(collector.address), &tracer);
    record(&tracer, "first");
    collector.next().await;
    (0..10).for_each(|_| record(&tracer, "beside"));
    let end = task.end_within(Duration::from_secs(3));
    let (received, ()) = tokio::join!(collector.next(), end);
    assert_eq!(spans(&received).len(), 10);
    let stats = &tracer.stats;
    assert_eq!((read(&stats.exported), read(&stats.lost)), (10, 1));
    assert_eq!((read(&stats.exports), read(&stats.failures)), (1, 0));
}

#[tokio::test]
async fn traces_that_wait_at_the_end_are_counted_if_the_collector_hangs() {
    let mut collector = MockCollector::start(|_| None).await;
    let tracer = tracer(1 << 20);
    let task = start(settings(collector.address), &tracer);
    record(&tracer, "first");
    collector.next().await;
    (0..95).for_each(|_| record(&tracer, "more"));
    task.end_within(Duration::from_millis(50)).await;
    assert_eq!((read(&tracer.stats.exported), read(&tracer.stats.lost)), (0, 96));
    assert!(tracer.take_batch().is_empty());
}

#[tokio::test]
async fn a_collector_by_grpc_gets_the_same_traces() {
    let mut collector = MockCollector::start_grpc(&[14, 0, 3]).await;
    let tracer = tracer(1 << 20);
    record(&tracer, "one");
    let settings = settings(collector.address);
    let way = CollectorSettings { protocol: ExportProtocol::Grpc, ..settings.collector };
    let settings = ExporterSettings { collector: way, ..settings };
    let task = start(settings, &tracer);
    let first = collector.next().await;
    assert_eq!(first.path, "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    assert_eq!(first.headers["content-type"], "application/grpc");
    assert_eq!(first.headers["authorization"], "Bearer secret");
    let again = collector.next().await;
    let (first, again) = (spans_of_call(&first), spans_of_call(&again));
    assert_eq!(first[0].span_id, again[0].span_id, "it was unavailable");
    reaches(&tracer.stats.exported, 1).await;
    record(&tracer, "invalid");
    collector.next().await;
    reaches(&tracer.stats.lost, 1).await;
    record(&tracer, "two");
    collector.next().await;
    reaches(&tracer.stats.exported, 2).await;
    task.end().await;
}
