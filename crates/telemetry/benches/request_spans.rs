//! The cost of one request's trace: of one that is only passed on, of one that is watched and dropped at its end, and of
//! one that is exported. Run with `cargo bench -p telemetry --bench request_spans`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use divan::{AllocProfiler, Bencher};
use telemetry::spans::{
    Attribute, IncomingContext, Propagation, RequestSpans, RootSpan, SamplingRules, Span, SpanId,
    SpanKind, SpanList, SpanSource, Tracer, TracerSettings,
};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

fn tracer(ratio: f64, slow: Option<Duration>) -> Arc<Tracer> {
    Arc::new(Tracer::new(TracerSettings {
        sampling: SamplingRules { ratio, follows_parent: true, slow, failed: slow.is_some() },
        propagation: Propagation::default(),
        queue_bytes_max: 16 << 20,
        spans_max: 1_000,
        batch_spans: 512,
    }))
}

/// A record that becomes eight spans with eight attributes each, as a query with four fetches does.
struct Operation {
    at: Instant,
}

impl SpanSource for Operation {
    fn write_spans(&self, root: SpanId, spans: &mut SpanList<'_>) {
        for _ in 0..8 {
            let at = spans.time(self.at);
            spans.push(Span {
                id: SpanId::random(),
                parent: Some(root),
                name: "POST products".into(),
                kind: SpanKind::Client,
                began: at,
                ended: at,
                attributes: (0..8).map(|it| Attribute::number("starling.number", it)).collect(),
                error: None,
                links: Vec::new(),
            });
        }
    }
}

fn run_request(tracer: &Arc<Tracer>) {
    let request = RequestSpans::start(tracer, IncomingContext::default());
    request.add(Box::new(Operation { at: Instant::now() }));
    request.finish(false, || RootSpan {
        name: "POST /graphql".into(),
        kind: SpanKind::Server,
        attributes: vec![Attribute::number("http.response.status_code", 200)],
        error: None,
    });
    drop(black_box(request));
}

#[divan::bench]
fn passed_on(bencher: Bencher<'_, '_>) {
    let tracer = tracer(0.0, None);
    bencher.bench_local(|| run_request(&tracer));
}

#[divan::bench]
fn watched(bencher: Bencher<'_, '_>) {
    let tracer = tracer(0.0, Some(Duration::from_secs(1)));
    bencher.bench_local(|| run_request(&tracer));
}

#[divan::bench]
fn exported(bencher: Bencher<'_, '_>) {
    let tracer = tracer(1.0, None);
    bencher.bench_local(|| {
        run_request(&tracer);
        black_box(tracer.take_batch());
    });
}
