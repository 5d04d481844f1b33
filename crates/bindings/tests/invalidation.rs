//! `invalidate: true`: the topics that say what is stale, and what is refused when a graph is loaded.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must fail")]

use std::sync::Arc;
use std::time::Duration;

use bindings::Bindings;
use events::{
    Memory, MemorySettings, Nats, NatsSettings, Provider, Providers, Redis, RedisSettings, Retry,
    Start,
};
use graph::Supergraph;

/// Loads one subscription field `moved` of a type, with these arguments of `@events__subscribe`. Returns the provider
/// and the topic of each stream that says what is stale.
fn load(ty: &str, arguments: &str) -> Result<Vec<(String, String)>, String> {
    let sdl = format!(
        r#"
schema
  @link(url: "https://specs.apollo.dev/link/v1.0")
  @link(url: "https://specs.apollo.dev/join/v0.5", for: EXECUTION)
{{ query: Query subscription: Subscription }}
enum join__Graph {{
  EVENTS @join__graph(name: "events", url: "")
  ORDERS @join__graph(name: "orders", url: "http://orders")
}}
type Query @join__type(graph: ORDERS) {{ orders: [Order] @join__field(graph: ORDERS) }}
type Order
  @join__type(graph: EVENTS, key: "id", resolvable: false) @join__type(graph: ORDERS, key: "id")
{{ id: ID! total: Int @join__field(graph: ORDERS) }}
type Plain @join__type(graph: EVENTS) {{ id: ID! }}
type Subscription @join__type(graph: EVENTS) {{
  moved(id: ID!, region: String): {ty} @join__field(graph: EVENTS)
    @join__directive(graphs: [EVENTS], name: "events__subscribe", args: {{{arguments}}})
}}"#
    );
    let graph = Supergraph::from_sdl(&sdl, "supergraph.graphql");
    let graph = graph.unwrap_or_else(|errors| panic!("{errors}"));
    let retry = Retry { initial: Duration::from_secs(3600), max: Duration::from_secs(3600) };
    let nats = NatsSettings { retry, ..NatsSettings::new("default", "nats://127.0.0.1:1") };
    let urls = vec!["redis://127.0.0.1:1".into()];
    let redis = RedisSettings { retry, ..RedisSettings::new("default", urls) };
    let memory = Memory::new("default", MemorySettings::default());
    let list: [Arc<dyn Provider>; 3] = [
        Arc::new(Nats::start(nats).unwrap()),
        Arc::new(Redis::start(redis).unwrap()),
        Arc::new(memory),
    ];
    let bindings = Bindings::load(&graph, &Providers::new(list).unwrap());
    let bindings = bindings.map_err(|errors| {
        errors.iter().map(|error| error.message.to_string()).collect::<Vec<_>>().join("; ")
    })?;
    let all = bindings.invalidating_topics().iter().map(|it| {
        assert_eq!((&*it.coordinate, &it.wanted.start), ("Subscription.moved", &Start::New));
        let durable = it.wanted.durable.as_deref();
        assert!(durable.is_none_or(|durable| durable.consumer.is_none()), "{durable:?}");
        (it.provider.name().to_owned(), it.wanted.topics.join(","))
    });
    Ok(all.collect())
}

#[tokio::test]
async fn a_wildcard_stands_for_each_placeholder() {
    for (arguments, expected) in [
        (r#"topics: ["moved"], providerId: "memory/default""#, vec![]),
        (r#"topics: ["moved"], providerId: "memory/default", invalidate: false"#, vec![]),
        (
            r#"topics: ["a", "b"], providerId: "memory/default", invalidate: true"#,
            vec![("memory/default", "a"), ("memory/default", "b")],
        ),
        (
            r#"topics: ["orders.{{ args.id }}.moved", "all.>"], providerId: "nats/default", invalidate: true"#,
            vec![("nats/default", "orders.*.moved"), ("nats/default", "all.>")],
        ),
        (
            r#"topics: ["orders.{{ args.id }}"], providerId: "nats/default", stream: {name: "O", consumer: "c"}, start: ALL, invalidate: true"#,
            vec![("nats/default", "orders.*")],
        ),
        (
            r#"topics: ["orders:{{ args.region }}-{{ args.id }}"], providerId: "redis/default", invalidate: true"#,
            vec![("redis/default", "orders:*-*")],
        ),
    ] {
        let expected: Vec<_> =
            expected.into_iter().map(|(name, topic)| (name.to_owned(), topic.to_owned())).collect();
        assert_eq!(load("Order", arguments), Ok(expected), "{arguments}");
    }
}

#[tokio::test]
async fn a_topic_that_cannot_be_followed_is_an_error_at_load() {
    for (ty, arguments, message) in [
        (
            "Order",
            r#"topics: ["orders.{{ args.id }}"], providerId: "memory/default", invalidate: true"#,
            r#"topic "orders.{{…}}" depends on arguments, and memory/default has no wildcards"#,
        ),
        (
            "Order",
            r#"topics: ["orders.{{ args.id }}"], providerId: "redis/default", stream: {}, invalidate: true"#,
            "redis/default has no wildcards",
        ),
        (
            "Order",
            r#"topics: ["orders.id-{{ args.id }}"], providerId: "nats/default", invalidate: true"#,
            "is not exactly one token",
        ),
        (
            "Order",
            r#"topics: ["orders.{{ args.id | tokens }}"], providerId: "nats/default", invalidate: true"#,
            "is not exactly one token",
        ),
        (
            "Plain",
            r#"topics: ["moved"], providerId: "memory/default", invalidate: true"#,
            "Plain has no key",
        ),
        (
            "Order",
            r#"topics: ["moved"], providerId: "memory/default", invalidate: "yes""#,
            "invalidate must be true or false",
        ),
    ] {
        let problem = load(ty, arguments).expect_err(arguments);
        assert!(problem.contains(message), "{problem}");
    }
}
