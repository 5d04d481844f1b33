//! The span of a request for entities says how many representations were left out, because they equal another one.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must fail")]

mod kit;

use std::sync::Arc;
use std::time::{Duration, Instant};

use execute::{Executable, Generation, RequestContext, Seed, Trace};
use kit::notation;
use kit::subgraphs::{Rule, World};
use plan::{Fetch, FetchId, FetchKind, OperationKind, Plan, SubgraphOperation, Variables};
use telemetry::spans::{
    AttributeValue, FinishedTrace, IncomingContext, Propagation, RequestSpans, RootSpan,
    SamplingRules, Span, SpanId, SpanKind, SpanList, SpanSource, Tracer, TracerSettings,
};

/// A root fetch of subgraph `one`, and its objects' names from subgraph `two`.
fn plan(representations_max: u32) -> Arc<Plan> {
    let operation = |text: &str| SubgraphOperation {
        text: text.into(),
        kind: OperationKind::Query,
        name: None,
        variables: vec![],
    };
    let root = FetchKind::Root { operation: operation("{p}"), data_keys: vec!["p".into()] };
    let batches = vec![notation::batch("_entities r at p as P id!")];
    let entities = FetchKind::Entities { operation: operation("{names}"), batches };
    let fetch = |subgraph, kind, depends_on| Fetch {
        subgraph: graph::SubgraphId(subgraph),
        kind,
        depends_on,
        any_of: vec![],
        representations_max,
    };
    Arc::new(Plan {
        kind: OperationKind::Query,
        fetches: vec![fetch(0, root, vec![]), fetch(1, entities, vec![FetchId(0)])],
        subscription: None,
        shape: notation::shape("Query { p: [P] { name: String } }"),
    })
}

/// An execution with spans that are exported.
struct Execution {
    trace: Arc<Trace>,
    plan: Arc<Plan>,
    generation: Arc<Generation>,
}

impl SpanSource for Execution {
    fn write_spans(&self, root: SpanId, spans: &mut SpanList) {
        execute::write_spans(&self.trace, &self.plan, &self.generation, root, spans);
    }
}

impl Execution {
    fn into_spans(self) -> Vec<Span> {
        let tracer = Arc::new(Tracer::new(TracerSettings {
            sampling: SamplingRules {
                ratio: 1.0,
                follows_parent: false,
                slow: None,
                failed: false,
                has_conditions: false,
            },
            propagation: Propagation::default(),
            queue_bytes_max: 1 << 20,
            spans_max: 1000,
            batch_spans: 1,
        }));
        let request = RequestSpans::start(&tracer, IncomingContext::default());
        request.add(Box::new(self));
        let (name, kind) = ("request".into(), SpanKind::Server);
        request.finish(false, move || RootSpan { name, kind, attributes: Vec::new(), error: None });
        drop(request);
        let [trace] = <[FinishedTrace; 1]>::try_from(tracer.take_batch()).unwrap();
        trace.spans
    }
}

fn number(span: &Span, name: &str) -> Option<i64> {
    let attribute = span.attributes.iter().find(|it| it.name == name)?;
    let AttributeValue::Number(number) = attribute.value else { panic!("{attribute:?}") };
    Some(number)
}

/// Executes the plan over objects with these ids. Returns the numbers of entities and of representations that were left
/// out, for each request to `two`.
fn requests(ids: &[&str], representations_max: u32) -> Vec<(Option<i64>, Option<i64>)> {
    let objects: Vec<_> =
        ids.iter().map(|id| format!("{{\"__typename\":\"P\",\"id\":{id}}}")).collect();
    let rule = |subgraph: &str, contains: &str, reaction: String| Rule {
        subgraph: subgraph.into(),
        contains: contains.into(),
        reaction,
    };
    let entities = |list: &str| format!("{{\"data\":{{\"_entities\":[{list}]}}}}");
    let world = World::new(
        &["one".to_owned(), "two".to_owned()],
        vec![
            rule("one", "", format!("{{\"data\":{{\"p\":[{}]}}}}", objects.join(","))),
            rule("two", "},{", entities(r#"{"name":"a"},{"name":"b"}"#)),
            rule("two", "", entities(r#"{"name":"a"}"#)),
        ],
    );
    let (trace, plan) = (Arc::new(Trace::new()), plan(representations_max));
    let context = RequestContext {
        trace: Some(Arc::clone(&trace)),
        ..world.context(Instant::now() + Duration::from_secs(60))
    };
    let executable = Executable::new(Arc::clone(&plan));
    let variables = Variables::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let executing = execute::execute(&executable, &variables, None, Seed::Nothing, &context);
    assert_eq!(runtime.block_on(executing).errors, 0);
    let spans = Execution { trace, plan, generation: Arc::clone(&world.generation) }.into_spans();
    let mut requests: Vec<_> = spans
        .iter()
        .filter(|span| span.name == "POST two")
        .map(|span| {
            (number(span, "starling.fetch.entities"), number(span, "starling.fetch.deduplicated"))
        })
        .collect();
    requests.sort_unstable();
    requests
}

#[test]
fn only_representations_that_equal_another_one_of_the_request_are_counted() {
    for (ids, expected) in [
        (&["1", "2"][..], (Some(2), None)),
        (&["1", "2", "1", "1"], (Some(2), Some(2))),
        // An object without a key has no representation.
        (&["1", "null", "1"], (Some(1), Some(1))),
    ] {
        assert_eq!(requests(ids, 100), [expected], "{ids:?}");
    }
}

#[test]
fn each_part_of_a_long_list_has_its_own_number() {
    let expected = [(Some(1), None), (Some(1), Some(2))];
    assert_eq!(requests(&["1", "2", "1", "1"], 1), expected);
}
