//! Tests of the directives of event subgraphs, from supergraph SDL to topics and error messages.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bindings::{Bindings, EventPublisher, Source};
use events::{
    Durable, EventFuture, EventStream, Memory, MemorySettings, Message, Nats, NatsSettings,
    Provider, ProviderStats, Providers, PublishError, Redis, RedisSettings, Retry, SourceError,
    SourceMessage, Start, StreamRequest,
};
use execute::{ErrorCode, EventRequest, Publisher};
use graph::{FieldId, SubgraphId, Supergraph};
use plan::{EventField, Value, VariableId, Variables};

const HEAD: &str = r#"
schema
  @link(url: "https://specs.apollo.dev/link/v1.0")
  @link(url: "https://specs.apollo.dev/join/v0.5", for: EXECUTION)
{ query: Query mutation: Mutation subscription: Subscription }
enum join__Graph {
  EVENTS @join__graph(name: "events", url: "")
  ORDERS @join__graph(name: "orders", url: "http://orders")
}
type Query @join__type(graph: ORDERS) { orders: [Order] @join__field(graph: ORDERS) }
type Order
  @join__type(graph: EVENTS, key: "id", resolvable: false) @join__type(graph: ORDERS, key: "id")
{ id: ID! total: Int @join__field(graph: ORDERS) }
type edfs__PublishResult @join__type(graph: EVENTS) { success: Boolean! }
input Filter @join__type(graph: EVENTS) { id: ID! region: String }
"#;

/// Returns a supergraph with these root fields: `field(arguments)`, then its directive with its arguments.
fn supergraph(subscriptions: &[(&str, &str)], mutations: &[(&str, &str)]) -> Supergraph {
    let fields = |fields: &[(&str, &str)], ty: &str| -> String {
        let field = |(field, directive): &(&str, &str)| {
            let (name, arguments) = directive.split_once(' ').expect("name and arguments");
            format!(
                "{field}: {ty} @join__field(graph: EVENTS) \
                 @join__directive(graphs: [EVENTS], name: \"{name}\", args: {arguments})\n"
            )
        };
        fields.iter().map(field).collect()
    };
    // Root types must not be empty.
    let subscriptions = [
        &[("tick", r#"events__subscribe {topics: ["tick"], providerId: "memory/default"}"#)],
        subscriptions,
    ]
    .concat();
    let mutations = [
        &[("tock", r#"events__publish {topic: "tick", providerId: "memory/default"}"#)],
        mutations,
    ]
    .concat();
    let sdl = format!(
        "{HEAD}type Subscription @join__type(graph: EVENTS) {{ {} }}\n\
         type Mutation @join__type(graph: EVENTS) {{ {} }}",
        fields(&subscriptions, "Order"),
        fields(&mutations, "edfs__PublishResult!"),
    );
    Supergraph::from_sdl(&sdl, "supergraph.graphql").unwrap_or_else(|errors| panic!("{errors}"))
}

/// Returns `memory/default`, `nats/default` and `redis/default`. The brokers do not exist, which bindings do not need.
fn providers() -> Providers {
    let nats = Nats::start(NatsSettings {
        retry: Retry { initial: Duration::from_secs(3600), max: Duration::from_secs(3600) },
        ..NatsSettings::new("default", "nats://127.0.0.1:1")
    });
    let redis = Redis::start(RedisSettings {
        retry: Retry { initial: Duration::from_secs(3600), max: Duration::from_secs(3600) },
        ..RedisSettings::new("default", vec!["redis://127.0.0.1:1".into()])
    });
    let memory = Memory::new("default", MemorySettings::default());
    let list: [Arc<dyn Provider>; 3] =
        [Arc::new(nats.expect("settings")), Arc::new(redis.expect("settings")), Arc::new(memory)];
    Providers::new(list).expect("names differ")
}

fn problems(graph: &Supergraph) -> Vec<String> {
    match Bindings::load(graph, &providers()) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

fn field(graph: &Supergraph, name: &str) -> FieldId {
    let roots = [graph.subscription, graph.mutation].into_iter().flatten();
    roots.into_iter().find_map(|root| graph.field_named(root, name)).expect("the field exists")
}

fn source(
    graph: &Supergraph,
    name: &str,
    arguments: Vec<(Box<str>, Value)>,
    variables: &[&str],
) -> Result<Source, execute::GraphqlError> {
    let event = EventField {
        subgraph: SubgraphId(0),
        field: field(graph, name),
        data_key: name.into(),
        arguments,
    };
    let values = variables.iter().map(|json| Some((*json).into())).collect();
    Bindings::load(graph, &providers()).expect("the bindings are right").source(
        &event,
        &Variables { values },
        &Default::default(),
    )
}

fn string(value: &str) -> Value {
    Value::String(value.into())
}

#[tokio::test]
async fn a_filter_is_declared_next_to_the_topic_that_it_filters() {
    let filter = |path: &str| {
        let condition =
            format!(r#"{{IN: {{fieldPath: "{path}", values: ["{{{{ args.id }}}}"]}}}}"#);
        format!(
            r#"@join__directive(graphs: [EVENTS], name: "openfed__subscriptionFilter", args: {{condition: {condition}}})"#
        )
    };
    let topic = r#"events__subscribe {topics: ["a"], providerId: "memory/default"}"#;
    let with = |directive: &str, filters: &[String]| {
        let (binding, arguments) = directive.split_once(' ').expect("name and arguments");
        // The helper closes the directive; the text before it is a directive of its own.
        format!("{binding} {arguments}) {}", filters.join(" ").trim_end_matches(')'))
    };
    let right = with(topic, &[filter("id")]);
    let graph = supergraph(&[("moved(id: ID!)", &right)], &[]);
    assert_eq!(problems(&graph), [""; 0]);
    let event = EventField {
        subgraph: SubgraphId(0),
        field: field(&graph, "moved"),
        data_key: "moved".into(),
        arguments: vec![("id".into(), string("7"))],
    };
    let bindings = Bindings::load(&graph, &providers()).expect("the bindings are right");
    assert!(
        bindings
            .filter(&event, &Variables::default(), &Default::default())
            .expect("a value")
            .is_some()
    );
    let unfiltered = EventField { field: field(&graph, "tick"), ..event };
    assert!(
        bindings
            .filter(&unfiltered, &Variables::default(), &Default::default())
            .expect("none")
            .is_none()
    );

    let publish = r#"events__publish {topic: "a", providerId: "memory/default"}"#;
    let graph = supergraph(
        &[
            ("unknown(id: ID!)", &with(topic, &[filter("ghost")])),
            ("twice(id: ID!)", &with(topic, &[filter("id"), filter("id")])),
        ],
        &[("published(id: ID!)", &with(publish, &[filter("id")]))],
    );
    assert_eq!(
        problems(&graph),
        [
            "Mutation.published @openfed__subscriptionFilter: it filters the events of a topic, but the field is bound to no topic",
            "Subscription.unknown @openfed__subscriptionFilter: fieldPath \"ghost\": `Order` has no field `ghost`",
            "Subscription.twice @openfed__subscriptionFilter: a second filter of the same field is not supported; use AND",
        ]
    );
}

#[tokio::test]
async fn topics_are_rendered_from_literals_and_variables() {
    let graph = supergraph(
        &[
            (
                "moved(id: ID!, filter: Filter)",
                r#"edfs__natsSubscribe {subjects: ["orders.{{ args.id }}.moved", "orders.{{args.filter.region}}"]}"#,
            ),
            ("any", r#"events__subscribe {topics: "orders", providerId: "nats/default"}"#),
        ],
        &[],
    );
    let filter = Value::Object(vec![("region".into(), Value::Variable(VariableId(0)))]);
    let arguments = vec![("id".into(), string("7")), ("filter".into(), filter)];
    let moved = source(&graph, "moved", arguments, &["\"eu\""]).expect("renders");
    assert_eq!(moved.name(), "nats/default");
    assert_eq!(moved.topics(), ["orders.7.moved", "orders.eu"].map(Box::<str>::from));
    let any = source(&graph, "any", vec![], &[]).expect("renders");
    assert_eq!(format!("{any:?}"), r#"nats/default ["orders"]"#);
    let tick = source(&graph, "tick", vec![], &[]).expect("renders");
    assert_eq!(format!("{tick:?}"), r#"memory/default ["tick"]"#);
}

#[tokio::test]
async fn a_client_cannot_widen_its_subject_or_forge_another() {
    let graph = supergraph(
        &[
            ("moved(id: ID)", r#"edfs__natsSubscribe {subjects: ["orders.{{ args.id }}"]}"#),
            (
                "named(subject: String!)",
                r#"edfs__natsSubscribe {subjects: ["{{ args.subject }}"]}"#,
            ),
        ],
        &[],
    );
    let refused = |name: &str, argument: &str, value: Value| {
        let error = source(&graph, name, vec![(argument.into(), value)], &[]).unwrap_err();
        assert_eq!(error.code, ErrorCode::BadUserInput);
        error.message.into_owned()
    };
    for (value, reason) in [
        (
            string("*"),
            "Argument \"id\" cannot be part of a topic: it contains a wildcard (* or >).",
        ),
        (
            string("7.>"),
            "Argument \"id\" cannot be part of a topic: it contains a wildcard (* or >).",
        ),
        (string("7 8"), "Argument \"id\" cannot be part of a topic: it contains a space."),
        (
            string("7\r\nPUB x 0\r\n"),
            "Argument \"id\" cannot be part of a topic: it contains a control character.",
        ),
        (string(""), "Argument \"id\" cannot be part of a topic: it is empty."),
        (
            string("7."),
            "Argument \"id\" cannot be part of a topic: it contains a character that separates the parts of this topic.",
        ),
        (Value::Null, "Argument \"id\" cannot be part of a topic: it is null."),
        (Value::List(vec![]), "Argument \"id\" cannot be part of a topic: it is an empty list."),
    ] {
        assert_eq!(refused("moved", "id", value), reason);
    }
    assert_eq!(
        refused("named", "subject", string("$SYS.ACCOUNT.A.CONNECT")),
        "Argument \"subject\" cannot be part of a topic: it leads to a subject of the broker itself."
    );
    source(&graph, "moved", vec![("id".into(), string("a-7"))], &[]).expect("one token");
}

#[tokio::test]
async fn a_value_spans_tokens_of_a_subject_only_where_the_template_allows_it() {
    let graph = supergraph(
        &[(
            "moved(id: ID)",
            r#"edfs__natsSubscribe {subjects: ["orders.{{ args.id | tokens }}"]}"#,
        )],
        &[],
    );
    let moved = |id: &str| source(&graph, "moved", vec![("id".into(), string(id))], &[]);
    assert_eq!(format!("{:?}", moved("eu.7").expect("renders")), r#"nats/default ["orders.eu.7"]"#);
    for (id, reason) in [("eu.*", "wildcard"), ("eu..7", "empty token"), ("7.", "empty token")] {
        assert!(moved(id).unwrap_err().message.contains(reason), "{id}");
    }
}

#[tokio::test]
async fn redis_channels_may_be_patterns_but_client_values_may_not() {
    let graph = supergraph(
        &[(
            "moved(id: ID)",
            r#"edfs__redisSubscribe {channels: ["orders.{{ args.id }}", "orders.{{ args.id }}.*"]}"#,
        )],
        &[],
    );
    let moved = |id: &str| source(&graph, "moved", vec![("id".into(), string(id))], &[]);
    let seven = moved("7").expect("renders");
    assert_eq!(format!("{seven:?}"), r#"redis/default ["orders.7", "orders.7.*"]"#);
    for id in ["*", "?", "[0-9]", "7\\"] {
        let error = moved(id).unwrap_err();
        assert_eq!(error.code, ErrorCode::BadUserInput);
        assert_eq!(
            error.message,
            "Argument \"id\" cannot be part of a topic: it contains a pattern character (* ? [ ] ^ \\)."
        );
    }
    let wrong = supergraph(
        &[
            ("a", r#"edfs__redisSubscribe {channels: ["x"], providerId: "orders"}"#),
            ("b", r#"edfs__redisSubscribe {channels: ["a[b"]}"#),
        ],
        &[("p", r#"edfs__redisPublish {channel: "orders.*"}"#)],
    );
    assert_eq!(
        problems(&wrong),
        [
            r#"Mutation.p @edfs__redisPublish: topic "orders.*": a channel to publish to has no pattern characters (* ? [ \)"#,
            r#"Subscription.a @edfs__redisSubscribe: no provider "orders" is configured; configured: redis/default"#,
            r#"Subscription.b @edfs__redisSubscribe: topic "a[b": a pattern closes each [ by ] and does not end in a single \"#,
        ]
    );
}

#[tokio::test]
async fn all_errors_are_listed_with_their_fields() {
    let graph = supergraph(
        &[
            ("a", r#"edfs__natsSubscribe {subjects: ["x"], providerId: "orders"}"#),
            ("b", r#"events__subscribe {topics: ["x"]}"#),
            ("c(id: ID)", r#"edfs__natsSubscribe {subjects: ["x.{{ args.key }}", "y.{{ key }}"]}"#),
            ("d", r#"edfs__natsSubscribe {subjects: []}"#),
            ("e", r#"edfs__natsSubscribe {subject: "x", streamConfiguration: {}}"#),
            (
                "f(ids: [[ID]], filter: Filter, id: ID)",
                r#"edfs__natsSubscribe {subjects: ["{{args.ids}}", "{{args.filter}}", "{{args.id.x}}"]}"#,
            ),
            ("g", r#"edfs__natsSubscribe {subjects: ["a..b", 7], providerId: 7}"#),
            ("h", r#"edfs__natsSubscribe {subjects: ["a b", "orders.*"]}"#),
        ],
        &[("p", r#"edfs__natsPublish {subject: "orders.*"}"#)],
    );
    assert_eq!(
        problems(&graph),
        [
            r#"Mutation.p @edfs__natsPublish: topic "orders.*": a subject to publish to has no wildcards"#,
            r#"Subscription.a @edfs__natsSubscribe: no provider "orders" is configured; configured: nats/default"#,
            r#"Subscription.b @events__subscribe: provider id "default" is ambiguous: write one of nats/default, redis/default"#,
            r#"Subscription.c @edfs__natsSubscribe: topic "x.{{ args.key }}": there is no argument "key"; the field has id"#,
            r#"Subscription.c @edfs__natsSubscribe: topic "y.{{ key }}": {{ key }} is not understood; write {{ args.name }}"#,
            r#"Subscription.d @edfs__natsSubscribe: subjects is empty"#,
            r#"Subscription.e @edfs__natsSubscribe: argument "subject" is not supported; known are "subjects", "providerId" and "streamConfiguration""#,
            r#"Subscription.e @edfs__natsSubscribe: subjects is missing"#,
            r#"Subscription.e @edfs__natsSubscribe: streamConfiguration.streamName is missing"#,
            r#"Subscription.f @edfs__natsSubscribe: topic "{{args.ids}}": argument "ids" is a list of lists, which cannot stand in a topic"#,
            r#"Subscription.f @edfs__natsSubscribe: topic "{{args.filter}}": argument "filter" is an input object; name one of its fields"#,
            r#"Subscription.f @edfs__natsSubscribe: topic "{{args.id.x}}": argument "id" is no input object and has no fields"#,
            r#"Subscription.g @edfs__natsSubscribe: providerId must be a string"#,
            r#"Subscription.g @edfs__natsSubscribe: subjects must be a list of strings"#,
            r#"Subscription.h @edfs__natsSubscribe: topic "a b": a subject contains no spaces"#,
        ]
    );
}

#[tokio::test]
async fn lists_of_a_client_are_several_topics_up_to_a_bound() {
    let graph = supergraph(
        &[(
            "moved(ids: [ID!]!)",
            r#"events__subscribe {topics: ["a.{{ args.ids }}", "b"], providerId: "nats/default"}"#,
        )],
        &[],
    );
    let moved = |json: &str| {
        source(&graph, "moved", vec![("ids".into(), Value::Variable(VariableId(0)))], &[json])
    };
    let source = moved(r#"["2","1","2"]"#).expect("renders");
    assert_eq!(source.topics(), ["a.1", "a.2", "b"].map(Box::<str>::from));
    let error = moved(r#"["1","*"]"#).unwrap_err();
    assert_eq!(
        error.message,
        "Argument \"ids\" cannot be part of a topic: it contains a wildcard (* or >)."
    );
    let many = |count: usize| format!("[{}]", vec!["1"; count].join(","));
    moved(&many(255)).expect("255 and one more");
    let error = moved(&many(257)).unwrap_err();
    assert_eq!(error.message, "The arguments name more than 256 topics.");
    assert_eq!(error.code, ErrorCode::BadUserInput);
}

#[tokio::test]
async fn an_invalid_mapping_or_message_is_an_error_at_load() {
    let subscribe = |rest: &str| {
        format!(r#"events__subscribe {{topics: ["t"], providerId: "memory/default", {rest}}}"#)
    };
    let publish = |rest: &str| {
        format!(r#"events__publish {{topic: "t", providerId: "memory/default", {rest}}}"#)
    };
    let subscriptions = [
        r#"select: "a..b""#,
        "select: 7",
        r#"key: "id""#,
        r#"key: {field: "ghost", from: KEY}"#,
        r#"key: {field: "id", from: TOKEN}"#,
        r#"key: {field: "id", from: SUBJECT, token: 0}"#,
        r#"key: {field: "id", from: KEY, token: 1}"#,
    ]
    .map(subscribe);
    let mutations = [
        "key: {}",
        r#"key: "{{ args.ghost }}""#,
        r#"headers: {name: "a:b", value: "c"}"#,
        r#"headers: [{name: "a"}]"#,
        r#"headers: [{name: "a", value: "{{ id }}"}]"#,
        r#"timeout: "2s""#,
    ]
    .map(publish);
    let names = |prefix: &str, directives: &[String]| -> Vec<(String, String)> {
        let numbered = directives.iter().enumerate();
        numbered.map(|(number, it)| (format!("{prefix}{number}"), it.clone())).collect()
    };
    fn borrowed(fields: &[(String, String)]) -> Vec<(&str, &str)> {
        fields.iter().map(|(name, directive)| (name.as_str(), directive.as_str())).collect()
    }
    let (subscriptions, mutations) = (names("s", &subscriptions), names("m", &mutations));
    let graph = supergraph(&borrowed(&subscriptions), &borrowed(&mutations));
    assert_eq!(
        problems(&graph),
        [
            "Mutation.m0 @events__publish: key must be a string",
            r#"Mutation.m1 @events__publish: key "{{ args.ghost }}": there is no argument "ghost""#,
            r#"Mutation.m2 @events__publish: headers: "a:b" is no name of a header"#,
            "Mutation.m3 @events__publish: headers.value is missing",
            r#"Mutation.m4 @events__publish: headers "{{ id }}": {{ id }} is not understood; write {{ args.name }}"#,
            r#"Mutation.m5 @events__publish: argument "timeout" is not supported; known are "topic", "providerId", "key", "headers", "stream" and "authorize""#,
            r#"Subscription.s0 @events__subscribe: select: "a..b" has an empty name"#,
            r#"Subscription.s1 @events__subscribe: select must be a string such as "data.after""#,
            "Subscription.s2 @events__subscribe: key must be an object",
            "Subscription.s3 @events__subscribe: key.field: `Order` has no field `ghost`",
            "Subscription.s4 @events__subscribe: key.from must be SUBJECT or KEY",
            "Subscription.s5 @events__subscribe: key.token is counted from 1",
            "Subscription.s6 @events__subscribe: key.token and key.separator are for from: SUBJECT",
        ]
    );
}

#[tokio::test]
async fn key_headers_and_trace_context_are_part_of_the_message() {
    let graph = supergraph(
        &[],
        &[(
            "announce(id: ID!, kind: String)",
            r#"events__publish {topic: "news", providerId: "memory/default", key: "{{ args.id }}", headers: [{name: "kind", value: "k-{{ args.kind }}"}, {name: "source", value: "router"}]}"#,
        )],
    );
    let providers = providers();
    let memory = providers.resolve("memory/default").expect("it is there");
    let mut stream = memory.subscribe(StreamRequest::new(vec!["news".into()])).await.expect("open");
    let bindings = Bindings::load(&graph, &providers).expect("the bindings are right");
    let publisher = EventPublisher::new(Arc::new(bindings), Duration::from_secs(5), 100);
    let headers = [
        (
            http::HeaderName::from_static("traceparent"),
            http::HeaderValue::from_static(
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            ),
        ),
        (http::HeaderName::from_static("authorization"), http::HeaderValue::from_static("secret")),
    ];
    let request = |arguments: &'static str| EventRequest {
        claims: None,
        span: None,
        field: field(&graph, "announce"),
        arguments: arguments.into(),
        headers: &headers,
        deadline: Instant::now() + Duration::from_secs(5),
    };
    for arguments in [r#"{"id":7,"kind":"a"}"#, r#"{"id":"8","kind":null}"#] {
        assert_eq!(publisher.publish(request(arguments)).await, Ok(true));
    }
    let mut heard = Vec::new();
    while heard.len() < 2 {
        if let Some(SourceMessage::Event(event)) = stream.messages.recv().await {
            let headers: Vec<_> = event.headers.iter().flat_map(|it| it.iter()).collect();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let headers = headers.iter().map(|(name, value)| format!("{name}: {}", text(value)));
            heard.push((event.key.as_deref().map(text), headers.collect::<Vec<_>>().join(", ")));
        }
    }
    let trace = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    assert_eq!(
        heard,
        [
            (Some("7".into()), format!("kind: k-a, source: router, {trace}")),
            (Some("8".into()), format!("source: router, {trace}")),
        ]
    );
    let error = publisher.publish(request("{\"id\":\"a\\nb\"}")).await.unwrap_err();
    assert_eq!(error.message, "The arguments make a key with a control character.");
}

#[tokio::test]
async fn a_header_that_controls_the_broker_is_an_error_at_load() {
    let published_with = |name: &str| {
        let directive = format!(
            r#"events__publish {{topic: "news", providerId: "nats/default", headers: [{{name: "{name}", value: "all"}}]}}"#
        );
        let graph = supergraph(&[], &[("announce(id: ID!)", directive.as_str())]);
        Bindings::load(&graph, &providers())
    };
    let errors = published_with("Nats-Rollup").expect_err("it would purge the stream");
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            "Mutation.announce @events__publish: headers: \"Nats-Rollup\" cannot be sent: headers that begin with Nats- are \
             commands to JetStream; only Nats-Msg-Id may be sent"
        ]
    );
    published_with("Nats-Msg-Id").expect("an id is no command");
}

#[tokio::test]
async fn messages_to_a_stream_are_marked_as_stored_and_all_name_their_topic_in_the_schema() {
    /// A provider that keeps the published messages.
    #[derive(Default)]
    struct Kept(ProviderStats, Mutex<Vec<Message>>);
    impl Provider for Kept {
        fn name(&self) -> &str {
            "kept/default"
        }
        fn subscribe(&self, _: StreamRequest) -> EventFuture<'_, Result<EventStream, SourceError>> {
            Box::pin(std::future::pending())
        }
        fn publish(&self, message: Message) -> EventFuture<'_, Result<(), PublishError>> {
            self.1.lock().expect("nobody panicked").push(message);
            Box::pin(std::future::ready(Ok(())))
        }
        fn is_connected(&self) -> bool {
            true
        }
        fn stats(&self) -> &ProviderStats {
            &self.0
        }
    }
    let publish = |stream: &str| {
        format!(r#"events__publish {{topic: "t", providerId: "kept/default"{stream}}}"#)
    };
    let (stored, passed_on) = (publish(", stream: {}"), publish(""));
    let moved = r#"events__publish {topic: "moved.{{ args.id }}", providerId: "kept/default"}"#;
    let fields = [("store", &*stored), ("pass", &*passed_on), ("move(id: ID!)", moved)];
    let graph = supergraph(&[], &fields);
    let kept = Arc::new(Kept::default());
    let provider: Arc<dyn Provider> = Arc::clone(&kept) as _;
    let memory: Arc<dyn Provider> = Arc::new(Memory::new("default", MemorySettings::default()));
    let providers = Providers::new([provider, memory]).expect("names differ");
    let bindings = Bindings::load(&graph, &providers).expect("the bindings are right");
    let publisher = EventPublisher::new(Arc::new(bindings), Duration::from_secs(5), 100);
    for (name, arguments) in [("store", "{}"), ("pass", "{}"), ("move", r#"{"id":"7"}"#)] {
        let request = EventRequest {
            claims: None,
            span: None,
            field: field(&graph, name),
            arguments: arguments.into(),
            headers: &[],
            deadline: Instant::now() + Duration::from_secs(5),
        };
        assert_eq!(publisher.publish(request).await, Ok(true));
    }
    let published = kept.1.lock().expect("nobody panicked");
    let facts = published.iter().map(|Message { topic, durable, schema_topic, .. }| {
        let name = schema_topic.as_ref().map(|it| (&*it.name, it.has_placeholders));
        (&**topic, *durable, name)
    });
    let expected = [
        ("t", true, Some(("t", false))),
        ("t", false, Some(("t", false))),
        ("moved.7", false, Some(("moved.{{args.id}}", true))),
    ];
    assert_eq!(facts.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_stream_begins_where_the_directive_says_and_reads_what_the_broker_stores() {
    let graph = supergraph(
        &[
            (
                "all",
                r#"events__subscribe {topics: ["t"], providerId: "memory/default", start: ALL}"#,
            ),
            (
                "again",
                r#"events__subscribe {topics: ["t"], providerId: "memory/default", start: "ALL"}"#,
            ),
            (
                "new",
                r#"events__subscribe {topics: ["t"], providerId: "memory/default", start: NEW}"#,
            ),
            (
                "latest",
                r#"events__subscribe {topics: ["t"], providerId: "memory/default", start: LAST}"#,
            ),
            (
                "each",
                r#"events__subscribe {topics: ["t"], providerId: "memory/default", start: LAST_PER_SUBJECT}"#,
            ),
            (
                "since",
                r#"events__subscribe {topics: ["t"], providerId: "memory/default", since: "2026-01-31T08:00:00Z"}"#,
            ),
            (
                "seventh",
                r#"events__subscribe {topics: ["t"], providerId: "memory/default", sequence: 7}"#,
            ),
            (
                "stored",
                r#"events__subscribe {topics: ["t"], providerId: "nats/default", stream: {}}"#,
            ),
            (
                "named",
                r#"events__subscribe {topics: ["t"], providerId: "nats/default", stream: {name: "s", consumer: "c", inactiveThreshold: 90}}"#,
            ),
            (
                "replayed",
                r#"events__subscribe {topics: ["t"], providerId: "nats/default", stream: {}, start: ALL, until: NOW}"#,
            ),
            (
                "edfs",
                r#"edfs__natsSubscribe {subjects: ["t"], streamConfiguration: {consumerName: "c", streamName: "s"}}"#,
            ),
            (
                "lasting",
                r#"edfs__natsSubscribe {subjects: ["t"], streamConfiguration: {consumerName: "c", streamName: "s", consumerInactiveThreshold: 0}}"#,
            ),
        ],
        &[],
    );
    let wanted = |name: &str| {
        let source = source(&graph, name, vec![], &[]).expect("renders");
        {
            let wanted = source.wanted().expect("topics");
            (wanted.start.clone(), wanted.durable.as_deref().cloned())
        }
    };
    let since = SystemTime::UNIX_EPOCH + Duration::from_secs(1_769_846_400);
    for (name, start) in [
        ("new", Start::New),
        ("all", Start::All),
        ("latest", Start::Last),
        ("each", Start::LastPerTopic),
        ("since", Start::Since(since)),
        ("seventh", Start::At(7)),
    ] {
        assert_eq!(wanted(name), (start, None), "{name}");
    }
    let durable = |stream: &str, consumer: &str, seconds: u64| Durable {
        stream: Some(stream.into()),
        consumer: Some(consumer.into()),
        inactive_threshold: (seconds > 0).then(|| Duration::from_secs(seconds)),
    };
    for (name, durable) in [
        ("stored", Durable::default()),
        ("named", durable("s", "c", 90)),
        ("edfs", durable("s", "c", 30)),
        ("lasting", durable("s", "c", 0)),
    ] {
        assert_eq!(wanted(name), (Start::New, Some(durable)), "{name}");
    }
    let replayed = source(&graph, "replayed", vec![], &[]).expect("renders");
    let wanted = replayed.wanted().expect("topics");
    assert!(wanted.bounded && wanted.start == Start::All);
    let all = source(&graph, "all", vec![], &[]).expect("renders");
    assert!(!all.wanted().expect("topics").bounded);
    let providers = providers();
    let bindings = Bindings::load(&graph, &providers).expect("the bindings are right");
    let of = |name: &str| {
        let event = EventField {
            subgraph: SubgraphId(0),
            field: field(&graph, name),
            data_key: name.into(),
            arguments: vec![],
        };
        bindings.source(&event, &Variables::default(), &Default::default()).expect("renders")
    };
    assert_eq!(of("all"), of("again"), "one trigger for both");
    assert_ne!(of("all"), of("new"), "they start at different events");
    assert_ne!(of("edfs"), of("lasting"), "the consumers differ");
}

#[tokio::test]
async fn an_invalid_start_is_an_error_at_load() {
    let graph = supergraph(
        &[
            ("a", r#"events__subscribe {topics: ["t"], providerId: "nats/default", start: ALL}"#),
            (
                "b",
                r#"events__subscribe {topics: ["t"], providerId: "memory/default", start: FIRST}"#,
            ),
            (
                "c",
                r#"events__subscribe {topics: ["t"], providerId: "memory/default", start: ALL, sequence: 7}"#,
            ),
            (
                "d",
                r#"events__subscribe {topics: ["t"], providerId: "memory/default", since: "yesterday"}"#,
            ),
            (
                "e",
                r#"events__subscribe {topics: ["t"], providerId: "memory/default", sequence: -1}"#,
            ),
            (
                "f",
                r#"events__subscribe {topics: ["t"], providerId: "memory/default", stream: {names: "s"}}"#,
            ),
            (
                "g",
                r#"events__subscribe {topics: ["t"], providerId: "memory/default", stream: "s"}"#,
            ),
            (
                "h",
                r#"edfs__natsSubscribe {subjects: ["t"], streamConfiguration: {streamName: "s", consumerName: ""}}"#,
            ),
            (
                "i",
                r#"edfs__natsSubscribe {subjects: ["t"], streamConfiguration: {streamName: "s", consumerName: "c", consumerInactiveThreshold: 604801}}"#,
            ),
            ("j", r#"edfs__kafkaSubscribe {topics: ["t"], providerId: "orders", start: ALL}"#),
            (
                "k",
                r#"events__subscribe {topics: ["t"], providerId: "memory/default", start: ALL, until: NOW}"#,
            ),
            (
                "l",
                r#"events__subscribe {topics: ["t"], providerId: "nats/default", stream: {}, until: "later"}"#,
            ),
        ],
        &[("p", r#"edfs__kafkaPublish {topic: "t"}"#)],
    );
    assert_eq!(
        problems(&graph),
        [
            r#"Mutation.p @edfs__kafkaPublish: no provider "default" is configured; there are none of this kind"#,
            "Subscription.a @events__subscribe: nats/default forwards events without storing them, so a stream cannot begin in the past; if the broker stores the events, name its stream by stream: {…}",
            "Subscription.b @events__subscribe: start: FIRST is none of NEW, ALL, LAST and LAST_PER_SUBJECT",
            "Subscription.c @events__subscribe: only one of start, since and sequence may be given",
            r#"Subscription.d @events__subscribe: since: "yesterday" is not a time such as 2026-01-31T08:00:00Z"#,
            "Subscription.e @events__subscribe: sequence must be a whole number of 0 or more",
            r#"Subscription.f @events__subscribe: stream has no member "names"; known are "name", "consumer" and "inactiveThreshold""#,
            "Subscription.g @events__subscribe: stream must be an object",
            "Subscription.h @edfs__natsSubscribe: streamConfiguration.consumerName must be a string that is not empty",
            "Subscription.i @edfs__natsSubscribe: streamConfiguration.consumerInactiveThreshold is longer than a week",
            r#"Subscription.j @edfs__kafkaSubscribe: argument "start" is not supported; known are "topics" and "providerId""#,
            r#"Subscription.j @edfs__kafkaSubscribe: no provider "orders" is configured; there are none of this kind"#,
            "Subscription.k @events__subscribe: until: memory/default does not know where its events end; JetStream does: name its stream by stream: {…}",
            "Subscription.l @events__subscribe: until must be NOW",
        ]
    );
}

#[tokio::test]
async fn a_mutation_publishes_the_json_of_its_arguments() {
    let graph = supergraph(
        &[],
        &[(
            "announce(id: ID!, text: String)",
            r#"events__publish {topic: "news.{{ args.id }}", providerId: "memory/default"}"#,
        )],
    );
    let providers = providers();
    let memory = providers.resolve("memory/default").expect("it is there");
    let mut stream =
        memory.subscribe(StreamRequest::new(vec!["news.7".into()])).await.expect("open");
    let first = stream.messages.recv().await;
    assert!(matches!(first, Some(SourceMessage::Progress(_))), "{first:?}");
    let bindings = Bindings::load(&graph, &providers).expect("the bindings are right");
    let publisher = EventPublisher::new(Arc::new(bindings), Duration::from_secs(5), 100);
    let deadline = Instant::now() + Duration::from_secs(5);
    let announce = field(&graph, "announce");

    let arguments = r#"{"id":"7","text":"hello"}"#;
    let request = |field, arguments: &'static str| EventRequest {
        claims: None,
        span: None,
        field,
        arguments: arguments.into(),
        headers: &[],
        deadline,
    };
    assert_eq!(publisher.publish(request(announce, arguments)).await, Ok(true));
    let Some(SourceMessage::Event(event)) = stream.messages.recv().await else {
        panic!("no event")
    };
    assert_eq!((&*event.topic, &*event.payload), ("news.7", arguments.as_bytes()));

    let error = publisher.publish(request(announce, r#"{"id":null}"#)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::BadUserInput);
    let error = publisher.publish(request(field(&graph, "tick"), "{}")).await.unwrap_err();
    assert_eq!(error.message, "This field is not bound to a topic.");
}

#[tokio::test]
async fn an_unavailable_broker_makes_a_publication_unsuccessful() {
    let graph = supergraph(&[], &[("p", r#"edfs__natsPublish {subject: "x"}"#)]);
    let bindings = Bindings::load(&graph, &providers()).expect("the bindings are right");
    let publisher = EventPublisher::new(Arc::new(bindings), Duration::from_secs(5), 100);
    let deadline = Instant::now() + Duration::from_millis(50);
    let request = EventRequest {
        claims: None,
        span: None,
        field: field(&graph, "p"),
        arguments: "{}".into(),
        headers: &[],
        deadline,
    };
    assert_eq!(publisher.publish(request).await, Ok(false));
}

#[tokio::test]
async fn errors_of_a_current_state_are_reported_when_the_graph_is_loaded() {
    let sdl = |fields: &str| {
        format!(
            r#"
schema
  @link(url: "https://specs.apollo.dev/link/v1.0")
  @link(url: "https://specs.apollo.dev/join/v0.5", for: EXECUTION)
{{ query: Query subscription: Subscription }}
enum join__Graph {{
  EVENTS @join__graph(name: "events", url: "")
  ORDERS @join__graph(name: "orders", url: "http://orders")
}}
interface Node @join__type(graph: EVENTS) @join__type(graph: ORDERS) {{ id: ID! }}
type Query @join__type(graph: ORDERS) {{
  order(id: ID!): Order @join__field(graph: ORDERS)
  orders(ids: [ID!]): [Order] @join__field(graph: ORDERS)
  paged(id: ID!, first: Int!): Order @join__field(graph: ORDERS)
}}
type Order implements Node
  @join__implements(graph: EVENTS, interface: "Node") @join__implements(graph: ORDERS, interface: "Node")
  @join__type(graph: EVENTS, key: "id", resolvable: false) @join__type(graph: ORDERS, key: "id")
{{ id: ID! total: Int @join__field(graph: ORDERS) }}
type Line
  @join__type(graph: EVENTS, key: "order number", resolvable: false)
  @join__type(graph: EVENTS, key: "product {{ id }}", resolvable: false)
  @join__type(graph: ORDERS, key: "order number")
{{ order: ID! number: Int! product: Product }}
type Product @join__type(graph: EVENTS) @join__type(graph: ORDERS) {{ id: ID! }}
type Orphan @join__type(graph: EVENTS, key: "id", resolvable: false) {{ id: ID! }}
type Plain @join__type(graph: EVENTS) {{ id: ID! }}
type Subscription @join__type(graph: EVENTS) {{ {fields} }}
"#
        )
    };
    let field = |text: &str, more: &str| {
        format!(
            r#"{text} @join__field(graph: EVENTS) @join__directive(graphs: [EVENTS], name: "events__subscribe", args: {{topics: ["a"], providerId: "memory/default", {more}}})"#
        )
    };
    let problem = |text: &str, more: &str| {
        let sdl = sdl(&field(text, more));
        let graph = Supergraph::from_sdl(&sdl, "supergraph.graphql");
        let graph = graph.unwrap_or_else(|errors| panic!("{errors}"));
        problems(&graph).join("; ")
    };
    let entity = "initial: ENTITY";
    for (text, more) in [
        ("moved(id: ID!): Order", entity),
        ("moved(id: String!, other: Int): Order", "initial: \"ENTITY\""),
        ("moved(order: ID!, number: Int!): Line!", entity),
        ("moved(id: ID!): Order!", "initial: {field: \"order\"}"),
        ("moved(ids: [ID!]): [Order]", "initial: {field: \"orders\"}, start: NEW"),
        ("moved(ids: [ID!]!): [Order]", "initial: {field: \"orders\"}"),
        ("moved(id: ID!): Order", "initial: null"),
    ] {
        assert_eq!(problem(text, more), "", "{text} {more}");
    }
    let instead = "; initial: {field: \"…\"} takes the state from a root field of the query";
    for (text, more, expected) in [
        ("moved: Order", entity, "initial: ENTITY needs an argument for each field of a key of `Order`, such as \"id\": there is no argument \"id\"".to_owned()),
        ("moved(id: ID): Order", entity, "initial: ENTITY needs an argument for each field of a key of `Order`, such as \"id\": argument \"id\" may be null; its type must be `ID!`".into()),
        ("moved(id: Int!): Order", entity, "initial: ENTITY needs an argument for each field of a key of `Order`, such as \"id\": argument \"id\" has the type `Int!`, and the key field `ID`".into()),
        ("moved(order: ID!): Line", entity, "initial: ENTITY needs an argument for each field of a key of `Line`, such as \"order number\": there is no argument \"number\"".into()),
        ("moved(id: ID!): [Order]", entity, format!("initial: ENTITY is one object, and the field is a list{instead}")),
        ("moved(id: ID!): Node", entity, format!("initial: ENTITY needs to know the object's type, and `Node` stands for several{instead}")),
        ("moved(id: ID!): Int", entity, format!("initial: ENTITY: `Int` is not an entity{instead}")),
        ("moved(id: ID!): Plain", entity, format!("initial: ENTITY: `Plain` has no @key in the event subgraph{instead}")),
        ("moved(id: ID!): Orphan", entity, format!("initial: ENTITY: no subgraph resolves `Orphan` by \"id\"{instead}")),
        ("moved(id: ID!): Order", "initial: YES", "initial must be ENTITY or {field: \"…\"}".into()),
        ("moved(id: ID!): Order", "initial: {field: 7}", "initial must be ENTITY or {field: \"…\"}".into()),
        ("moved(id: ID!): Order", "initial: {field: \"ghost\"}", "initial: there is no root field `Query.ghost`".into()),
        ("moved(ids: [ID!]): Order", "initial: {field: \"orders\"}", "initial: `Query.orders` has another type than the subscription's field".into()),
        ("moved(ids: [ID!]): [Order!]", "initial: {field: \"orders\"}", "initial: `Query.orders` has another type than the subscription's field".into()),
        ("moved(id: ID!, region: String): Order", "initial: {field: \"order\"}", "initial: `Query.order` has no argument \"region\"".into()),
        ("moved(id: ID): Order", "initial: {field: \"order\"}", "initial: `Query.order` takes `ID!` as argument \"id\", and the subscription's field `ID`".into()),
        ("moved(id: ID!): Order", "initial: {field: \"paged\"}", "initial: `Query.paged` needs the argument \"first\", which the subscription's field does not have".into()),
        ("moved(id: ID!): Order", "initial: ENTITY, start: ALL", "initial fetches the state before the next published event; a stream that begins in the past delivers that state by its events".into()),
    ] {
        let expected = format!("Subscription.moved @events__subscribe: {expected}");
        assert_eq!(problem(text, more), expected, "{text} {more}");
    }
}
