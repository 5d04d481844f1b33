//! Tests of the traces of events: the tree of spans, the identity that subgraphs get, and the selection.

mod stage;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use events::{Headers, Message};
use execute::ForwardedHeaders;
use hub::{Hub, HubSettings, OutletCommand};
use stage::orders::{EVENT, JOINED, QUERY, Router};
use stage::{Listener, with_hub, with_traced_hub, with_traced_hub_and_cursors};
use telemetry::spans::{
    AttributeValue, FinishedTrace, Propagation, RemoteParent, SamplingRules, Span, SpanId,
    SpanKind, TraceId, Tracer, TracerSettings,
};

const PUBLISHER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

const NEVER: SamplingRules = SamplingRules {
    ratio: 0.0,
    follows_parent: true,
    slow: None,
    failed: false,
    has_conditions: false,
};

const ALWAYS: SamplingRules = SamplingRules { ratio: 1.0, ..NEVER };

/// A subscription with an initial state, which needs a request to the subgraph `orders`.
const WATCHED: &str = r#"subscription { watched(id: "7") { id total } }"#;
const STATE: &str = r#"{"data":{"watched":{"id":"7","total":42}}}"#;

/// Checks that the last request to the subgraph had the span of the only fetch as its parent.
fn assert_fetch_is_parent(router: &Router, trace: &FinishedTrace) {
    let fetch = trace.spans.iter().find(|it| it.kind == SpanKind::Client).expect("a fetch");
    let sent = router.orders.trace.lock().expect("one thread").clone();
    assert_eq!(sent, Some(format!("00-{}-{}-01", trace.context.trace, fetch.id)));
}

fn tracer(sampling: SamplingRules) -> Arc<Tracer> {
    tracer_of(sampling, 1000)
}

fn tracer_of(sampling: SamplingRules, spans_max: usize) -> Arc<Tracer> {
    Arc::new(Tracer::new(TracerSettings {
        sampling,
        propagation: Propagation::default(),
        queue_bytes_max: 1 << 20,
        spans_max,
        batch_spans: 1,
    }))
}

/// Waits for the next trace. It ends when the last step lets go of it, which may be after the last delivery.
async fn next_trace(tracer: &Tracer) -> FinishedTrace {
    loop {
        if let Some(trace) = tracer.take_batch().pop() {
            return trace;
        }
        tracer.wait_for_batch().await;
    }
}

fn message(headers: &[(&str, &str)]) -> Message {
    let header = |(name, value): &(&str, &str)| ((*name).into(), value.to_string().into());
    let headers: Headers = headers.iter().map(header).collect();
    Message { headers, ..Message::new("orders.eu", EVENT) }
}

/// Prints the tree of a trace: a line for each span, with its attributes but for those that differ from run to run.
fn tree(trace: &FinishedTrace) -> String {
    let mut out = String::new();
    print_below(trace, None, 0, &mut out);
    out
}

fn print_below(trace: &FinishedTrace, parent: Option<&Span>, depth: usize, out: &mut String) {
    let parent_id = parent.map(|it| it.id);
    let mut children: Vec<_> = trace.spans.iter().filter(|it| it.parent == parent_id).collect();
    children.sort_by_key(|span| (span.began, span.name.to_string()));
    for span in children {
        assert!(span.began <= span.ended, "{span:?}");
        if let Some(parent) = parent {
            assert!(
                parent.began <= span.began && span.ended <= parent.ended,
                "{span:?} {parent:?}"
            );
        }
        let kind = match span.kind {
            SpanKind::Internal => String::new(),
            kind => format!(" ({kind:?})"),
        };
        let attributes = span.attributes.iter().filter(|it| it.name != "starling.operation.id");
        let attributes = attributes.map(|it| match &it.value {
            AttributeValue::Text(text) => format!(" {}={text}", it.name),
            AttributeValue::Number(number) => format!(" {}={number}", it.name),
            AttributeValue::Flag(flag) => format!(" {}={flag}", it.name),
        });
        let error = span.error.as_ref().map(|it| format!(" error: {it}")).unwrap_or_default();
        let attributes: String = attributes.collect();
        out.push_str(&format!("{}{}{kind}{attributes}{error}\n", "  ".repeat(depth), span.name));
        print_below(trace, Some(span), depth + 1, out);
    }
}

/// Returns the lines of the tree without the attributes.
fn names(trace: &FinishedTrace) -> Vec<String> {
    let tree = tree(trace);
    let lines = tree.lines().map(|line| {
        let prefixes = [" graphql.", " starling.", " http."];
        let end = prefixes.iter().filter_map(|it| line.find(*it)).min();
        line[..end.unwrap_or(line.len())].to_owned()
    });
    lines.collect()
}

/// Returns the span of a client's operation with this decision about its trace.
fn operation_span(is_sampled: Option<bool>) -> RemoteParent {
    RemoteParent { trace: TraceId::random(), span: SpanId::random(), is_sampled, state: None }
}

const TREE: &str = "\
process field (Consumer) messaging.system=memory messaging.operation.type=process messaging.operation.name=process \
messaging.destination.name=orders.eu starling.provider=memory/default messaging.message.body.size=31 \
starling.field=field starling.graph.name=beta starling.event.groups=1 graphql.operation.type=subscription
  filter
  subscription graphql.operation.type=subscription starling.field=field starling.subscribers=2
    wait
    wave 1 starling.fetch.wave=1
      POST orders (Client) http.request.method=POST http.request.body.size=175 http.response.status_code=200 \
http.response.body.size=67 starling.fetch.entities=1 starling.fetch.sharing=alone starling.subgraph=orders \
starling.fetch.index=0 starling.fetch.wave=1
    print starling.response.bytes=40
    broadcast starling.broadcast.queued=0
";

#[tokio::test]
async fn an_event_has_a_span_for_each_step_from_its_receipt_to_the_last_subscriber() {
    let tracer = tracer(ALWAYS);
    with_traced_hub(HubSettings::default(), &tracer, async |hub: Arc<Hub>| {
        let (router, mut listener) = (Router::load(), Listener::new());
        let _one = router.subscribe(&hub, &listener, 1, QUERY, "").await;
        let _two = router.subscribe(&hub, &listener, 2, QUERY, "").await;
        assert_eq!([listener.next().await, listener.next().await], ["join", "join"]);
        router.memory.publish(message(&[])).await.expect("published");
        assert_eq!(listener.next().await, JOINED);
        let trace = next_trace(&tracer).await;
        assert_eq!(tree(&trace), TREE);
        assert_eq!(trace.spans[0].link, None);
        assert_fetch_is_parent(&router, &trace);
        router.memory.publish(Message::new("orders.us", EVENT)).await.expect("published");
        assert!(tracer.take_batch().is_empty(), "no subscriber listens to this topic");
    })
    .await;
}

#[tokio::test]
async fn an_event_that_is_read_again_has_the_same_spans_but_for_the_filters_and_says_so() {
    let tracer = tracer(ALWAYS);
    let settings =
        HubSettings { position_interval: None, ring_events: 0, ..HubSettings::default() };
    with_traced_hub_and_cursors(settings, &tracer, async |hub: Arc<Hub>| {
        let (router, mut listener) = (Router::load(), Listener::new());
        let first = router.subscribe(&hub, &listener, 1, QUERY, "").await;
        assert_eq!(listener.next().await, "join");
        router.memory.publish(message(&[])).await.expect("published");
        let payload = listener.next().await;
        let cursor = payload.split('"').nth_back(1).expect("a cursor").to_owned();
        assert!(tree(&next_trace(&tracer).await).contains("  filter\n"), "the event is new");
        drop(first);
        assert_eq!(listener.next().await, "end: unsubscribed");
        router.memory.publish(message(&[("traceparent", PUBLISHER)])).await.expect("published");
        let _again = router.resume(&hub, &listener, 2, QUERY, &cursor).await;
        assert_eq!(listener.next().await, "join");
        let payload = listener.next().await;
        assert!(payload.starts_with(JOINED.trim_end_matches('}')), "{payload}");
        let trace = next_trace(&tracer).await;
        let groups = "starling.event.groups=1";
        let expected = TREE
            .replace("  filter\n", "")
            .replace(groups, &format!("{groups} starling.event.catching_up=true"))
            .replace("starling.subscribers=2", "starling.subscribers=1");
        assert_eq!(tree(&trace), expected);
        let link =
            trace.spans[0].link.as_deref().map(|it| format!("00-{}-{}-01", it.trace, it.span));
        assert_eq!(link.as_deref(), Some(PUBLISHER));
        assert_fetch_is_parent(&router, &trace);
    })
    .await;
}

#[tokio::test]
async fn an_event_is_linked_to_its_publisher_and_follows_the_decision_of_that() {
    let tracer = tracer(NEVER);
    with_traced_hub(HubSettings::default(), &tracer, async |hub: Arc<Hub>| {
        let (router, mut listener) = (Router::load(), Listener::new());
        let _one = router.subscribe(&hub, &listener, 1, QUERY, "").await;
        assert_eq!(listener.next().await, "join");
        let not_sampled = PUBLISHER.replace("-01", "-00");
        for headers in [&[][..], &[("traceparent", &*not_sampled)]] {
            router.memory.publish(message(headers)).await.expect("published");
            assert_eq!(listener.next().await, JOINED);
            let sent = router.orders.trace.lock().expect("one thread").clone().expect("a header");
            assert!(sent.ends_with("-00") && !sent.contains("0af7651916cd43dd"), "{sent}");
        }
        router.memory.publish(message(&[("Traceparent", PUBLISHER)])).await.expect("published");
        assert_eq!(listener.next().await, JOINED);
        let trace = next_trace(&tracer).await;
        let link = trace.spans[0].link.as_deref().expect("a link");
        let linked = format!("00-{}-{}-01", link.trace, link.span);
        assert_eq!((linked.as_str(), link.is_sampled), (PUBLISHER, Some(true)));
        assert_ne!(trace.context.trace, link.trace);
        assert_eq!(telemetry::read(&tracer.stats.sampled), 1);
    })
    .await;
}

#[tokio::test]
async fn without_traces_subgraphs_get_the_trace_of_the_publisher_and_nothing_of_the_router() {
    with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
        let (router, mut listener) = (Router::load(), Listener::new());
        let _one = router.subscribe(&hub, &listener, 1, QUERY, "").await;
        assert_eq!(listener.next().await, "join");
        for (headers, expected) in
            [(&[][..], None), (&[("traceparent", PUBLISHER)], Some(PUBLISHER.to_owned()))]
        {
            router.memory.publish(message(headers)).await.expect("published");
            assert_eq!(listener.next().await, JOINED);
            assert_eq!(*router.orders.trace.lock().expect("one thread"), expected);
        }
        let _two = router.subscribe(&hub, &listener, 2, WATCHED, "").await;
        assert_eq!([listener.next().await, listener.next().await], ["join", STATE]);
        assert_eq!(*router.orders.trace.lock().expect("one thread"), None);
    })
    .await;
}

#[tokio::test]
async fn an_initial_state_has_one_trace_for_all_that_share_it_with_a_link_to_the_first_operation() {
    let tracer = tracer(NEVER);
    with_traced_hub(HubSettings::default(), &tracer, async |hub: Arc<Hub>| {
        let (router, mut listener) = (Router::load(), Listener::new());
        let prepared = router.prepare(WATCHED);
        let causes = [operation_span(Some(true)), operation_span(Some(true))];
        let mut kept = Vec::new();
        for (connection, cause) in (1..).zip(&causes) {
            let mut resolver = router.resolver(&prepared, "");
            resolver.cause = Some(Arc::new(cause.clone()));
            kept.push(router.join(&hub, &listener, connection, &prepared, resolver, "").await);
        }
        assert_eq!([listener.next().await, listener.next().await], ["join", "join"]);
        assert_eq!(listener.next().await, STATE);
        let trace = next_trace(&tracer).await;
        let expected = [
            "initial state field",
            "  subscription",
            "    wait",
            "    wave 1",
            "      POST orders (Client)",
            "    print",
            "    broadcast",
        ];
        assert_eq!(names(&trace), expected);
        let tree = tree(&trace);
        let lines: Vec<_> = tree.lines().take(2).collect();
        let root = "initial state field starling.field=field starling.graph.name=beta \
                    graphql.operation.type=subscription";
        let group = "  subscription graphql.operation.type=subscription starling.field=field \
                     starling.subscribers=2";
        assert_eq!(lines, [root, group]);
        assert_eq!(trace.spans[0].link.as_deref(), Some(&causes[0]));
        assert_ne!(trace.context.trace, causes[0].trace);
        assert_fetch_is_parent(&router, &trace);
        assert!(tracer.take_batch().is_empty(), "the second subscriber caused no state");
    })
    .await;
}

#[tokio::test]
async fn the_trace_of_an_initial_state_follows_the_decision_about_the_operation() {
    for (ratio, is_sampled) in [(1.0, Some(false)), (0.0, Some(true)), (1.0, None), (0.0, None)] {
        let tracer = tracer(SamplingRules { ratio, follows_parent: false, ..NEVER });
        let is_exported = is_sampled.unwrap_or(ratio == 1.0);
        with_traced_hub(HubSettings::default(), &tracer, async |hub: Arc<Hub>| {
            let (router, mut listener) = (Router::load(), Listener::new());
            let prepared = router.prepare(WATCHED);
            let mut resolver = router.resolver(&prepared, "");
            resolver.cause = Some(Arc::new(operation_span(is_sampled)));
            let one = router.join(&hub, &listener, 1, &prepared, resolver, "").await;
            assert_eq!([listener.next().await, listener.next().await], ["join", STATE]);
            let sent = router.orders.trace.lock().expect("one thread").clone().expect("a header");
            assert!(sent.ends_with(if is_exported { "-01" } else { "-00" }), "{sent}");
            drop(one);
            assert_eq!(listener.next().await, "end: unsubscribed");
        })
        .await;
        assert_eq!(tracer.take_batch().len(), usize::from(is_exported), "{ratio} {is_sampled:?}");
    }
}

#[tokio::test]
async fn an_initial_state_that_fails_is_selected_and_one_that_does_not_exist_has_no_error() {
    let failed = tracer(SamplingRules { failed: true, ..NEVER });
    with_traced_hub(HubSettings::default(), &failed, async |hub: Arc<Hub>| {
        let (router, mut listener) = (Router::load(), Listener::new());
        let _one = router.subscribe(&hub, &listener, 1, WATCHED, "").await;
        assert_eq!([listener.next().await, listener.next().await], ["join", STATE]);
        let broken = WATCHED.replace('7', "broken");
        let _two = router.subscribe(&hub, &listener, 2, &broken, "").await;
        assert_eq!(listener.next().await, "join");
        assert!(listener.next().await.contains("errors"));
        let trace = next_trace(&failed).await;
        let group = trace.spans.iter().find(|it| it.name == "subscription");
        assert_eq!(group.and_then(|it| it.error.as_deref()), Some("the result has errors"));
        assert!(failed.take_batch().is_empty(), "the first state has not failed");
    })
    .await;
    let all = tracer(ALWAYS);
    with_traced_hub(HubSettings::default(), &all, async |hub: Arc<Hub>| {
        let (router, mut listener) = (Router::load(), Listener::new());
        let query = r#"subscription { certain(id: "unknown") { id total } }"#;
        let _one = router.subscribe(&hub, &listener, 1, query, "").await;
        assert_eq!(listener.next().await, "join");
        let trace = next_trace(&all).await;
        let expected = [
            "initial state field",
            "  subscription",
            "    wait",
            "    wave 1",
            "      POST orders (Client)",
        ];
        assert_eq!(names(&trace), expected);
        assert!(!tree(&trace).contains("error"), "{}", tree(&trace));
    })
    .await;
}

#[tokio::test]
async fn an_outlet_can_tell_whether_a_trace_needs_its_times() {
    for (sampling, is_recorded) in [(ALWAYS, true), (NEVER, false)] {
        let tracer = tracer(sampling);
        with_traced_hub(HubSettings::default(), &tracer, async |hub: Arc<Hub>| {
            let (router, mut listener) = (Router::load(), Listener::new());
            let _one = router.subscribe(&hub, &listener, 1, QUERY, "").await;
            assert_eq!(listener.next().await, "join");
            router.memory.publish(message(&[])).await.expect("published");
            let command = listener.commands.recv().await;
            let Some(OutletCommand::Deliver { spans: Some(spans), .. }) = command else {
                panic!("the subgraph gets the identity of the trace, so there are spans")
            };
            assert_eq!(spans.is_event_recorded(), is_recorded);
        })
        .await;
    }
}

#[tokio::test]
async fn failed_and_slow_events_are_selected_at_their_end() {
    let broken = EVENT.replace('7', "broken");
    for (sampling, event, is_selected) in [
        (SamplingRules { failed: true, ..NEVER }, EVENT, false),
        (SamplingRules { failed: true, ..NEVER }, &*broken, true),
        (SamplingRules { slow: Some(Duration::from_millis(4)), ..NEVER }, EVENT, true),
        (SamplingRules { slow: Some(Duration::from_secs(3600)), ..NEVER }, &*broken, false),
    ] {
        let tracer = tracer(sampling);
        with_traced_hub(HubSettings::default(), &tracer, async |hub: Arc<Hub>| {
            let (router, mut listener) = (Router::load(), Listener::new());
            let one = router.subscribe(&hub, &listener, 1, QUERY, "").await;
            assert_eq!(listener.next().await, "join");
            let message = Message::new("orders.eu", event.to_owned());
            router.memory.publish(message).await.expect("published");
            listener.next().await;
            // The trace has ended when the hub has ended the group, because it lets go of the event first.
            drop(one);
            assert_eq!(listener.next().await, "end: unsubscribed");
        })
        .await;
        let selected = tracer.take_batch();
        assert_eq!(!selected.is_empty(), is_selected, "{sampling:?} {event}");
        if event == broken && is_selected {
            let group = selected[0].spans.iter().find(|it| it.name == "subscription");
            assert_eq!(group.and_then(|it| it.error.as_deref()), Some("the result has errors"));
        }
    }
}

#[tokio::test]
async fn groups_that_share_a_request_have_it_once_and_the_trace_has_a_bound() {
    const PARTITIONS: u64 = 200;
    for (spans_max, shown) in [(10_000, 127), (50, 50)] {
        let tracer = tracer_of(ALWAYS, spans_max);
        with_traced_hub(HubSettings::default(), &tracer, async |hub: Arc<Hub>| {
            let (router, mut listener) = (Router::load(), Listener::new());
            let prepared = router.prepare(QUERY);
            let mut kept = Vec::new();
            for number in 0..PARTITIONS {
                let headers = ForwardedHeaders::default();
                kept.push(router.subscribe_as(&hub, &listener, &prepared, headers, number).await);
                assert_eq!(listener.next().await, "join");
            }
            router.memory.publish(message(&[])).await.expect("published");
            for _ in 0..PARTITIONS {
                assert_eq!(listener.next().await, JOINED);
            }
            assert_eq!(router.orders.requests.load(Relaxed), 1);
            let trace = next_trace(&tracer).await;
            let count = |name: &str| trace.spans.iter().filter(|it| it.name == name).count();
            let left_out = telemetry::read(&tracer.stats.left_out);
            if spans_max == shown {
                assert_eq!(trace.spans.len(), shown);
                // Each group has itself, the wait, the wave, its request, the printing and the broadcast.
                assert_eq!(left_out as usize, 2 + 127 * 6 - shown + 73);
                return;
            }
            assert_eq!((count("subscription"), left_out as usize), (shown, 200 - shown));
            let sent = trace.spans.iter().filter(|it| it.kind == SpanKind::Client).count();
            assert!(sent <= 1, "the leader may be one of those that were left out: {sent}");
            let groups = trace.spans[0].attributes.iter();
            let groups = groups.filter(|it| it.name == "starling.event.groups");
            let groups: Vec<_> = groups.map(|it| it.value.clone()).collect();
            assert_eq!(groups, [AttributeValue::Number(200)]);
        })
        .await;
    }
}

#[tokio::test]
async fn events_that_a_group_drops_or_leaves_say_so() {
    let tracer = tracer(ALWAYS);
    let settings = HubSettings {
        group_in_flight: 1,
        group_waiting: 1,
        batch_events: 1,
        ..HubSettings::default()
    };
    with_traced_hub(settings, &tracer, async |hub: Arc<Hub>| {
        let (router, mut listener) = (Router::load(), Listener::new());
        let one = router.subscribe(&hub, &listener, 1, QUERY, "").await;
        assert_eq!(listener.next().await, "join");
        // The first one is being resolved and the last one waits; the subgraph responds after hours.
        router.orders.slower.store(10_000_000, Relaxed);
        for id in ["1", "2", "3"] {
            let event = EVENT.replace('7', id);
            router.memory.publish(Message::new("orders.eu", event)).await.expect("published");
        }
        let dropped = tree(&next_trace(&tracer).await);
        let (root, below) = dropped.split_once('\n').expect("a line");
        assert!(root.contains("starling.event.groups_dropped=1"), "{root}");
        assert_eq!(below, "  filter\n");
        drop(one);
        assert_eq!(listener.next().await, "end: unsubscribed");
        let left = tree(&next_trace(&tracer).await);
        let group = "  subscription graphql.operation.type=subscription starling.field=field error.type=cancelled\n    wait\n";
        assert!(left.ends_with(group), "{left}");
    })
    .await;
}

#[tokio::test]
async fn events_that_are_resolved_together_share_a_request_that_belongs_to_the_first_one() {
    let tracer = tracer(ALWAYS);
    let settings = HubSettings { group_in_flight: 1, ..HubSettings::default() };
    with_traced_hub(settings, &tracer, async |hub: Arc<Hub>| {
        let (router, mut listener) = (Router::load(), Listener::new());
        let _one = router.subscribe(&hub, &listener, 1, QUERY, "").await;
        assert_eq!(listener.next().await, "join");
        for id in ["1", "2", "3"] {
            let event = EVENT.replace('7', id);
            router.memory.publish(Message::new("orders.eu", event)).await.expect("published");
        }
        let mut traces = Vec::new();
        for id in ["1", "2", "3"] {
            assert_eq!(listener.next().await, JOINED.replace('7', id));
            traces.push(next_trace(&tracer).await);
        }
        assert_eq!(router.orders.requests.load(Relaxed), 2);
        let last_sent = router.orders.trace.lock().expect("one thread").clone().expect("a header");
        traces.sort_by_key(|it| it.spans[0].began);
        let fetches = traces.iter().map(|trace| {
            let fetch = trace.spans.iter().find(|it| it.name == "POST orders").expect("a fetch");
            let sharing = fetch.attributes.iter().find(|it| it.name == "starling.fetch.sharing");
            let sharing = sharing.map(|it| it.value.clone());
            let Some(AttributeValue::Text(sharing)) = sharing else { panic!("{fetch:?}") };
            let identity = format!("00-{}-{}-01", trace.context.trace, fetch.id);
            (sharing, fetch.kind, identity == last_sent)
        });
        let fetches: Vec<_> = fetches.collect();
        let expected = [
            ("alone".into(), SpanKind::Client, false),
            ("leader".into(), SpanKind::Client, true),
            ("follower".into(), SpanKind::Internal, false),
        ];
        assert_eq!(fetches, expected);
        assert!(tree(&traces[1]).contains("starling.event.batch=2"), "{}", tree(&traces[1]));
    })
    .await;
}
