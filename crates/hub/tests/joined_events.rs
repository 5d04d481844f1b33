//! Tests from a supergraph and an operation's text to joined payloads: bindings, planning, execution and hub together.

mod stage;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use events::{Message, Provider, SourceMessage, StreamRequest};
use execute::{Executable, ForwardedHeaders, RequestContext, Seed};
use hub::{Hub, HubSettings};
use stage::orders::{EVENT, JOINED, QUERY, Router};
use stage::{Listener, OneWorker, STEP_TIMEOUT, with_hub};

#[tokio::test]
async fn an_event_is_joined_once_for_all_equal_subscriptions() {
    with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
        let (router, mut listener) = (Router::load(), Listener::new());
        let spaced = r#"subscription{moved(region:"eu"){id,total}}"#;
        let one = router.subscribe(&hub, &listener, 1, QUERY, "").await;
        let two = router.subscribe(&hub, &listener, 2, spaced, "").await;
        assert_eq!(one.group(), two.group(), "spaces do not split a group");
        router.memory.publish(Message::new("orders.eu", EVENT)).await.expect("published");
        router.memory.publish(Message::new("orders.us", EVENT)).await.expect("published");
        assert_eq!([listener.next().await, listener.next().await], ["join", "join"]);
        assert_eq!(listener.next().await, JOINED);
        assert_eq!(router.orders.requests.load(Relaxed), 1);
        assert_eq!(hub.stats().events.load(Relaxed), 1);
    })
    .await;
}

#[tokio::test]
async fn an_event_without_fetches_is_resolved_without_a_worker() {
    let (workers, mut jobs) = OneWorker::new();
    // However long it takes on this machine.
    let own_resolving_max = Duration::from_secs(60);
    let hub = Hub::new(HubSettings { own_resolving_max, ..HubSettings::default() }, workers);
    let (router, mut listener) = (Router::load(), Listener::new());
    let query = r#"subscription { moved(region: "eu") { id } }"#;
    let _held = router.subscribe(&hub, &listener, 1, query, "").await;
    assert_eq!(listener.next().await, "join");
    // More than the budget of a task of Tokio, which is 128.
    for _ in 0..200 {
        router.memory.publish(Message::new("orders.eu", EVENT)).await.expect("published");
        assert_eq!(listener.next().await, r#"{"data":{"moved":{"id":"7"}}}"#);
    }
    assert!(jobs.try_recv().is_err());
}

/// Publishes a hundred events at once to a subgraph that takes 50 ms. Returns the number of requests and the time.
async fn burst(batch_events: usize) -> (u64, Duration) {
    let settings = HubSettings { batch_events, group_waiting: 100, ..HubSettings::default() };
    let (requests, took) = (AtomicU64::new(0), Mutex::new(Duration::ZERO));
    with_hub(settings, async |hub: Arc<Hub>| {
        let (router, mut listener) = (Router::load(), Listener::new());
        router.orders.slower.store(45, Relaxed);
        let _held = router.subscribe(&hub, &listener, 1, QUERY, "").await;
        assert_eq!(listener.next().await, "join");
        let began = tokio::time::Instant::now();
        for id in 0..100 {
            let event = EVENT.replace('7', &id.to_string());
            router.memory.publish(Message::new("orders.eu", event)).await.expect("published");
        }
        for id in 0..100 {
            assert_eq!(listener.next().await, JOINED.replace('7', &id.to_string()));
        }
        *took.lock().expect("one thread") = began.elapsed();
        requests.store(router.orders.requests.load(Relaxed), Relaxed);
        let stats = hub.stats();
        assert_eq!(stats.resolutions.load(Relaxed), 100);
        assert_eq!(stats.batches.load(Relaxed), if batch_events > 1 { 6 } else { 0 });
    })
    .await;
    (requests.into_inner(), took.into_inner().expect("nobody panicked"))
}

#[tokio::test(start_paused = true)]
async fn events_that_wait_for_a_slow_subgraph_are_joined_together() {
    let (requests, took) = burst(1).await;
    assert_eq!(requests, 100);
    assert!(took >= Duration::from_millis(13 * 50), "eight at a time: {took:?}");
    let (requests, took) = burst(16).await;
    assert_eq!(requests, 8 + 6, "eight found room, the others came in batches");
    assert!(took < Duration::from_millis(110), "{took:?}");
}

/// Publishes 600 events a second for two seconds, with a subgraph that takes 100 ms. Returns the number of dropped
/// events.
async fn stream(batch_events: usize) -> u64 {
    let dropped = AtomicU64::new(0);
    let settings = HubSettings { batch_events, ..HubSettings::default() };
    with_hub(settings, async |hub: Arc<Hub>| {
        let (router, mut listener) = (Router::load(), Listener::new());
        router.orders.slower.store(95, Relaxed);
        let _held = router.subscribe(&hub, &listener, 1, QUERY, "").await;
        assert_eq!(listener.next().await, "join");
        for id in 0..1200 {
            if id % 3 == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let event = EVENT.replace('7', &id.to_string());
            router.memory.publish(Message::new("orders.eu", event)).await.expect("published");
        }
        let last = JOINED.replace('7', "1199");
        while listener.next().await != last {}
        dropped.store(hub.stats().dropped_group_behind.load(Relaxed), Relaxed);
    })
    .await;
    dropped.into_inner()
}

#[tokio::test(start_paused = true)]
async fn a_group_keeps_up_with_a_stream_that_its_subgraph_could_not_follow_event_by_event() {
    assert_eq!(stream(HubSettings::default().batch_events).await, 0);
    let dropped = stream(1).await;
    assert!(dropped > 900, "eighty a second are what there was: {dropped}");
}

#[tokio::test]
async fn ten_thousand_partitions_that_are_equal_to_a_subgraph_share_one_request_per_event() {
    const PARTITIONS: u64 = 10_000;
    with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
        let (router, mut listener) = (Router::load(), Listener::new());
        let prepared = router.prepare(QUERY);
        let mut kept = Vec::new();
        for number in 0..PARTITIONS {
            // A header that only the event subgraph would get.
            let user = http::HeaderValue::from(number);
            let header = (http::HeaderName::from_static("x-user"), user);
            let by_subgraph = vec![(graph::SubgraphId(0), vec![header])];
            let headers = ForwardedHeaders { by_subgraph, ..ForwardedHeaders::default() };
            kept.push(router.subscribe_as(&hub, &listener, &prepared, headers, number).await);
            assert_eq!(listener.next().await, "join");
        }
        assert_eq!(hub.stats().groups.load(Relaxed), PARTITIONS);
        for event in 1..=2 {
            router.memory.publish(Message::new("orders.eu", EVENT)).await.expect("published");
            for _ in 0..PARTITIONS {
                assert_eq!(listener.next().await, JOINED);
            }
            assert_eq!(router.orders.requests.load(Relaxed), event);
        }
        assert_eq!(hub.stats().resolutions.load(Relaxed), 2 * PARTITIONS);
        assert_eq!(hub.memo_bytes(), 0, "the responses of a finished event are dropped");
    })
    .await;
}

#[tokio::test]
async fn users_that_differ_for_a_subgraph_never_share_its_response() {
    with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
        let router = Router::load();
        let prepared = router.prepare(QUERY);
        let mut listeners = [Listener::new(), Listener::new(), Listener::new()];
        let mut kept = Vec::new();
        for (listener, total) in listeners.iter().zip(["1", "2", "1"]) {
            let header = http::HeaderValue::from_static(total);
            let all = vec![(http::HeaderName::from_static("x-total"), header)];
            let headers = ForwardedHeaders { all, ..ForwardedHeaders::default() };
            // The third has the headers of the first, and another partition.
            let partition = kept.len() as u64;
            kept.push(router.subscribe_as(&hub, listener, &prepared, headers, partition).await);
        }
        router.memory.publish(Message::new("orders.eu", EVENT)).await.expect("published");
        for (listener, total) in listeners.iter_mut().zip(["1", "2", "1"]) {
            assert_eq!(listener.next().await, "join");
            assert_eq!(listener.next().await, JOINED.replace("42", total));
        }
        assert_eq!(router.orders.requests.load(Relaxed), 2);
    })
    .await;
}

#[tokio::test]
async fn a_variable_chooses_the_topic() {
    with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
        let (router, mut listener) = (Router::load(), Listener::new());
        let query = "subscription($r: String!) { moved(region: $r) { key: id } }";
        let _held = router.subscribe(&hub, &listener, 1, query, r#"{"r":"us"}"#).await;
        let source = hub.topology().await[0].source.clone();
        assert_eq!(source.topics(), ["orders.us"].map(Box::<str>::from));
        let shown = source.masked_topics();
        assert!(shown[0].starts_with("orders.{{args.region}} #"), "{shown:?}");
        router.memory.publish(Message::new("orders.us", EVENT)).await.expect("published");
        assert_eq!(listener.next().await, "join");
        assert_eq!(listener.next().await, r#"{"data":{"moved":{"key":"7"}}}"#);
        assert_eq!(router.orders.requests.load(Relaxed), 0, "the event has all requested fields");
    })
    .await;
}

#[tokio::test]
async fn a_filter_decides_before_events_are_resolved() {
    with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
        let (router, mut listener) = (Router::load(), Listener::new());
        let query = "subscription($ids: [ID!]) { some(ids: $ids) { id } }";
        let mut kept = Vec::new();
        for (number, ids) in [r#"{"ids":["1","2"]}"#, r#"{"ids":3}"#, "{}"].into_iter().enumerate()
        {
            kept.push(router.subscribe(&hub, &listener, number as u64, query, ids).await);
            assert_eq!(listener.next().await, "join");
        }
        for id in ["3", "4", "2"] {
            let event = format!(r#"{{"__typename":"Order","id":"{id}"}}"#);
            router.memory.publish(Message::new("orders.eu", event)).await.expect("published");
        }
        assert_eq!(listener.next().await, r#"{"data":{"some":{"id":"3"}}}"#);
        assert_eq!(listener.next().await, r#"{"data":{"some":{"id":"2"}}}"#);
        let stats = hub.stats();
        assert_eq!(stats.resolutions.load(Relaxed), 2);
        assert_eq!(stats.filters_evaluated.load(Relaxed), 2);
    })
    .await;
}

#[tokio::test]
async fn an_invalid_event_is_an_error_payload_and_the_subscription_continues() {
    with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
        let (router, mut listener) = (Router::load(), Listener::new());
        let _held = router.subscribe(&hub, &listener, 1, QUERY, "").await;
        assert_eq!(listener.next().await, "join");
        let deep = "[".repeat(100_000);
        for bad in [
            "not JSON",
            "[]",
            "{}",
            r#"{"__typename":"Ghost","id":"7"}"#,
            r#"{"__typename":"Order"}"#,
            &deep,
        ] {
            router
                .memory
                .publish(Message::new("orders.eu", bad.to_owned()))
                .await
                .expect("published");
            let payload = listener.next().await;
            assert!(payload.contains(r#""code":"INVALID_EVENT""#), "{bad}: {payload}");
            assert!(payload.contains(r#""data":{"moved":null}"#), "{bad}: {payload}");
        }
        router.memory.publish(Message::new("orders.eu", EVENT)).await.expect("published");
        assert_eq!(listener.next().await, JOINED);
    })
    .await;
}

#[tokio::test]
async fn the_message_of_a_mutation_reaches_subscribers_without_a_typename() {
    with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
        let (router, mut listener) = (Router::load(), Listener::new());
        let _held = router.subscribe(&hub, &listener, 1, QUERY, "").await;
        assert_eq!(listener.next().await, "join");
        // The form of `@events__publish`: the arguments.
        let event = r#"{"region":"eu","id":"7"}"#;
        router.memory.publish(Message::new("orders.eu", event)).await.expect("published");
        assert_eq!(listener.next().await, JOINED);
    })
    .await;
}

#[tokio::test]
async fn an_event_of_an_interface_must_name_its_type() {
    with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
        let (router, mut listener) = (Router::load(), Listener::new());
        let query = "subscription { anything { id ... on Order { total } } }";
        let _held = router.subscribe(&hub, &listener, 1, query, "").await;
        assert_eq!(listener.next().await, "join");
        router.memory.publish(Message::new("anything", r#"{"id":"7"}"#)).await.expect("published");
        let payload = listener.next().await;
        assert!(payload.contains("The event has no __typename."), "{payload}");
        router.memory.publish(Message::new("anything", EVENT)).await.expect("published");
        assert_eq!(listener.next().await, r#"{"data":{"anything":{"id":"7","total":42}}}"#);
    })
    .await;
}

#[tokio::test]
async fn a_key_that_an_event_carries_as_a_number_finds_its_entity() {
    with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
        let (router, mut listener) = (Router::load(), Listener::new());
        let _held = router.subscribe(&hub, &listener, 1, QUERY, "").await;
        assert_eq!(listener.next().await, "join");
        for id in ["7", "7.0", "7e0"] {
            let event = format!(r#"{{"__typename":"Order","id":{id}}}"#);
            router.memory.publish(Message::new("orders.eu", event)).await.expect("published");
            assert_eq!(listener.next().await, JOINED, "{id}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_too_large_event_is_an_error_payload_and_its_bytes_are_dropped() {
    let settings = HubSettings { event_bytes_max: 40, ..HubSettings::default() };
    with_hub(settings, async |hub: Arc<Hub>| {
        let (router, mut listener) = (Router::load(), Listener::new());
        let _held = router.subscribe(&hub, &listener, 1, QUERY, "").await;
        assert_eq!(listener.next().await, "join");
        for bytes in [41, 1 << 20] {
            let event = vec![b' '; bytes];
            router.memory.publish(Message::new("orders.eu", event)).await.expect("published");
            let message = format!("The event has {bytes} bytes, which is more than is accepted.");
            assert_eq!(
                listener.next().await,
                format!(
                    r#"{{"data":{{"moved":null}},"errors":[{{"message":"{message}","path":["moved"],"extensions":{{"code":"INVALID_EVENT"}}}}]}}"#
                )
            );
        }
        let fits = format!("{EVENT:40}");
        router.memory.publish(Message::new("orders.eu", fits)).await.expect("published");
        assert_eq!(listener.next().await, JOINED);
        assert_eq!(hub.stats().events_too_large.load(Relaxed), 2);
    })
    .await;
}

#[tokio::test]
async fn events_without_the_shape_of_the_graph_are_mapped_before_they_are_joined() {
    with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
        let (router, mut listener) = (Router::load(), Listener::new());
        let mut kept = Vec::new();
        for (number, query) in (0..).zip([
            r#"subscription { changed(id: "7") { id total } }"#,
            "subscription { keyed { id total } }",
            r#"subscription { mine(id: "7") { id total } }"#,
            "subscription { weather { wind } }",
            "subscription { count }",
        ]) {
            kept.push(router.subscribe(&hub, &listener, number, query, "").await);
            assert_eq!(listener.next().await, "join");
        }
        let nothing = r#"{"data":{"changed":null},"errors":[{"message":"The event has nothing at \"data.after\".","path":["changed"],"extensions":{"code":"INVALID_EVENT"}}]}"#;
        let no_key = r#"{"data":{"keyed":null},"errors":[{"message":"The event has nothing for key field \"id\" in its topic or key.","path":["keyed"],"extensions":{"code":"INVALID_EVENT"}}]}"#;
        let joined = r#"{"id":"7","total":42}"#;
        for (topic, key, event, payload) in [
            ("changes.7", None, r#"{"data":{"after":{"x":1}}}"#, format!(r#"{{"data":{{"changed":{joined}}}}}"#)),
            ("changes.7", None, r#"{"data":{"before":{}}}"#, nothing.into()),
            ("keyed", Some("7"), "[{},{}]", format!(r#"{{"data":{{"keyed":[{joined},{joined}]}}}}"#)),
            ("keyed", None, "[{}]", no_key.into()),
            // A filter by the key needs the key only.
            ("mine", Some("7"), "", format!(r#"{{"data":{{"mine":{joined}}}}}"#)),
            ("weather", None, r#"{"wind":5}"#, r#"{"data":{"weather":{"wind":5}}}"#.into()),
            ("count", None, r#"{"n":3}"#, r#"{"data":{"count":3}}"#.into()),
        ] {
            let key = key.map(Bytes::from);
            let message = Message { key, ..Message::new(topic, event) };
            router.memory.publish(message).await.expect("published");
            assert_eq!(listener.next().await, payload, "{topic} {event}");
        }
    })
    .await;
}

#[tokio::test]
async fn the_trace_of_an_event_is_sent_to_the_subgraphs_that_are_joined() {
    with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
        let (router, mut listener) = (Router::load(), Listener::new());
        let _held = router.subscribe(&hub, &listener, 1, QUERY, "").await;
        assert_eq!(listener.next().await, "join");
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        for trace in [Some(parent), None] {
            let headers = trace.iter().map(|it| ("traceparent".into(), (*it).into())).collect();
            let message = Message { headers, ..Message::new("orders.eu", EVENT) };
            router.memory.publish(message).await.expect("published");
            assert_eq!(listener.next().await, JOINED);
            assert_eq!(router.orders.trace.lock().expect("one thread").as_deref(), trace);
        }
    })
    .await;
}

#[tokio::test]
async fn the_current_state_comes_first_in_the_shape_of_the_events() {
    let state = r#"{"id":"7","total":42,"status":"open"}"#;
    for (query, field) in [
        (r#"subscription { watched(id: "7") { id total status } }"#, "watched"),
        (r#"subscription { asked(id: "7") { id total status } }"#, "asked"),
        // The field of the subscription decides, since the query has no default.
        (r#"subscription { asked { id total status } }"#, "asked"),
        (r#"subscription { certain(id: "7") { id total status } }"#, "certain"),
        (r#"subscription { asked: watched(id: "7") { id total status } }"#, "asked"),
    ] {
        with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
            let (router, mut listener) = (Router::load(), Listener::new());
            let _one = router.subscribe(&hub, &listener, 1, query, "").await;
            let _two = router.subscribe(&hub, &listener, 2, query, "").await;
            // Values in the event are taken from it, without a request.
            let event = EVENT.replace('}', r#","status":"gone"}"#);
            router.memory.publish(Message::new("orders.eu", event)).await.expect("published");
            let heard = [listener.next().await, listener.next().await];
            assert_eq!(heard, ["join", "join"]);
            assert_eq!(listener.next().await, format!(r#"{{"data":{{"{field}":{state}}}}}"#));
            let gone = state.replace("open", "gone");
            assert_eq!(listener.next().await, format!(r#"{{"data":{{"{field}":{gone}}}}}"#));
            let stats = hub.stats();
            let counts = [&stats.states, &stats.states_shared].map(|it| it.load(Relaxed));
            assert_eq!(counts, [1, 1], "{query}");
        })
        .await;
    }
}

#[tokio::test]
async fn a_missing_state_is_null_or_no_payload_and_a_failed_state_is_an_error() {
    let overloaded = |field: &str, data: &str| {
        let path = field;
        format!(
            r#"{{"data":{data},"errors":[{{"message":"Request to subgraph \"orders\" failed: too many requests are waiting for this subgraph.","path":["{path}"],"extensions":{{"code":"OVERLOADED","serviceName":"orders"}}}}]}}"#
        )
    };
    let not_known =
        r#"{"data":null,"errors":[{"message":"There is no current state for this selection: "#;
    for (query, field, state) in [
        (
            r#"subscription { watched(id: "unknown") { id total } }"#,
            "watched",
            Some(r#"{"data":{"watched":null}}"#.to_owned()),
        ),
        (r#"subscription { certain(id: "unknown") { id total } }"#, "certain", None),
        (r#"subscription { asked(id: "unknown") { id total } }"#, "asked", None),
        (
            r#"subscription { watched(id: "broken") { id total } }"#,
            "watched",
            Some(overloaded("watched", r#"{"watched":{"id":"broken","total":null}}"#)),
        ),
        (
            r#"subscription { asked(id: "broken") { id total } }"#,
            "asked",
            Some(overloaded("asked", "null")),
        ),
        // Only events have this field.
        (r#"subscription { watched(id: "7") { id note } }"#, "watched", Some(not_known.to_owned())),
    ] {
        with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
            let (router, mut listener) = (Router::load(), Listener::new());
            let _one = router.subscribe(&hub, &listener, 1, query, "").await;
            assert_eq!(listener.next().await, "join");
            if let Some(state) = state {
                let heard = listener.next().await;
                assert!(heard.starts_with(&state), "{query}: {heard}");
            }
            router.memory.publish(Message::new("orders.eu", EVENT)).await.expect("published");
            let heard = listener.next().await;
            assert!(
                heard.starts_with(&format!(r#"{{"data":{{"{field}":{{"id":"7","#)),
                "{query}: {heard}"
            );
        })
        .await;
    }
}

/// Responds to the next request on `topic`.
async fn response(memory: &dyn Provider, topic: &str, response: &'static str) -> Bytes {
    let mut stream = memory.subscribe(StreamRequest::new(vec![topic.into()])).await.expect("open");
    loop {
        let message = stream.messages.recv().await.expect("the provider is there");
        let SourceMessage::Event(event) = message else { continue };
        let headers = event.headers.as_ref().expect("a request says where its response goes");
        let inbox = headers.iter().find(|(name, _)| &**name == "reply-to").expect("it does");
        let inbox = std::str::from_utf8(&inbox.1).expect("a topic").to_owned();
        memory.publish(Message::new(inbox, response)).await.expect("published");
        return event.payload.clone();
    }
}

impl Router {
    async fn execute(&self, query: &str) -> String {
        let prepared = self.prepare(query);
        let context = RequestContext {
            uploads: None,
            closed_subgraphs: None,
            caching: None,
            claims: None,
            generation: Arc::clone(&self.generation),
            headers: Arc::new(ForwardedHeaders::default()),
            deadline: Instant::now() + STEP_TIMEOUT,
            sharing: None,
            trace: None,
        };
        let executable = Executable::new(Arc::clone(&prepared.plan));
        let variables = prepared.coerce(&"".into()).expect("no variables");
        let payload =
            execute::execute(&executable, &variables, None, Seed::Nothing, &context).await;
        String::from_utf8(payload.bytes.to_vec()).expect("text")
    }
}

#[tokio::test]
async fn a_field_is_requested_over_a_broker_and_its_response_joined() {
    let router = Router::load();
    let memory = &*router.memory;
    let error = |message: &str, code: &str| {
        format!(
            r#"{{"data":{{"ask":null}},"errors":[{{"message":"{message}","path":["ask"],"extensions":{{"code":"{code}"}}}}]}}"#
        )
    };
    let subgraph_error = |message: &str| {
        format!(
            r#"{{"data":{{"ask":null}},"errors":[{{"message":"{message}","path":["ask"],"extensions":{{"code":"INVALID_EVENT","serviceName":"events"}}}}]}}"#
        )
    };
    let ask = r#"{ ask(id: "7") { id total } }"#;
    assert_eq!(
        router.execute(ask).await,
        error(
            "No service responds to this field at the event provider memory/default.",
            "NO_RESPONDER"
        )
    );
    for (given, payload) in [
        (EVENT, r#"{"data":{"ask":{"id":"7","total":42}}}"#.to_owned()),
        ("null", r#"{"data":{"ask":null}}"#.to_owned()),
        ("7", subgraph_error("The response is not a JSON object.")),
        (r#"{"id":7}"#, r#"{"data":{"ask":{"id":"7","total":42}}}"#.to_owned()),
        ("{}", subgraph_error(r#"The response has no key field \"id\"."#)),
        (r#"{"__typename":"Order"}"#, subgraph_error(r#"The response has no key field \"id\"."#)),
    ] {
        let (asked, outcome_received) =
            tokio::join!(response(memory, "ask.7", given), router.execute(ask));
        assert_eq!((&*asked, outcome_received), (&br#"{"id":"7"}"#[..], payload), "{given}");
    }
    let (_, large) = tokio::join!(
        response(memory, "ask.7", Box::leak(" ".repeat(1001).into_boxed_str())),
        router.execute(ask)
    );
    assert_eq!(large, error("The response is larger than 1000 bytes.", "INVALID_EVENT"));

    let _silent = memory.subscribe(StreamRequest::new(vec!["ask.7".into()])).await.expect("open");
    let late = error("memory/default delivered no response in time.", "TIMEOUT");
    assert_eq!(router.execute(ask).await, late);
}

#[tokio::test]
async fn several_fields_are_requested_over_a_broker_at_once_also_by_a_mutation() {
    let router = Router::load();
    let memory = &*router.memory;
    let (_, _, outcome_received) = tokio::join!(
        response(memory, "ask.1", EVENT),
        response(memory, "several", r#"{"orders":[{"__typename":"Order","id":"7"}]}"#),
        router.execute(r#"{ a: ask(id: "1") { total } several { id total } }"#),
    );
    assert_eq!(
        outcome_received,
        r#"{"data":{"a":{"total":42},"several":[{"id":"7","total":42}]}}"#
    );
    assert_eq!(router.orders.requests.load(Relaxed), 1, "both are one batch");
    let (asked, outcome_received) = tokio::join!(
        response(memory, "submit", EVENT),
        router.execute(r#"mutation { submit(id: "7") { id total } }"#)
    );
    assert_eq!(asked, r#"{"id":"7"}"#);
    assert_eq!(outcome_received, r#"{"data":{"submit":{"id":"7","total":42}}}"#);
}

#[tokio::test]
async fn a_mutation_publishes_its_arguments_to_its_topic() {
    let router = Router::load();
    let topics = vec!["orders.eu".into()];
    let mut stream = router.memory.subscribe(StreamRequest::new(topics)).await.expect("open");
    let first = stream.messages.recv().await;
    assert!(matches!(first, Some(SourceMessage::Progress(_))), "{first:?}");
    let mutation = router.prepare(r#"mutation { move(region: "eu", id: 7) { success } }"#);
    let context = RequestContext {
        uploads: None,
        closed_subgraphs: None,
        caching: None,
        claims: None,
        generation: Arc::clone(&router.generation),
        headers: Arc::new(ForwardedHeaders::default()),
        deadline: Instant::now() + Duration::from_secs(10),
        sharing: None,
        trace: None,
    };
    let executable = Executable::new(Arc::clone(&mutation.plan));
    let variables = plan::Variables::default();
    let payload = execute::execute(&executable, &variables, None, Seed::Nothing, &context).await;
    assert_eq!(payload.bytes, r#"{"data":{"move":{"success":true}}}"#);
    let Some(SourceMessage::Event(event)) = stream.messages.recv().await else {
        panic!("no event")
    };
    assert_eq!(event.payload, r#"{"region":"eu","id":"7"}"#);
}
