//! From a supergraph and an operation's text to joined payloads: bindings, planning, execution and hub together.

mod stage;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use events::{Memory, MemorySettings, Position, Provider, Providers, SourceMessage};
use execute::{
    Executable, FetchError, ForwardedHeaders, Generation, LocalFuture, RequestContext, Seed,
    Subgraph, SubgraphAnswer, SubgraphRequest,
};
use graph::Supergraph;
use hub::{
    Bindings, EVENT_BYTES_MAX, EventPublisher, EventResolver, GroupKey, Hub, HubSettings, Member,
    Outlet, Resolve, SubscribeRequest, Subscription,
};
use plan::SubscriptionRoot;
use prepare::{PrepareSettings, Prepared, Preparer};
use stage::{Listener, PATIENCE, with_hub};

const SUPERGRAPH: &str = r#"
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
type Subscription @join__type(graph: EVENTS) {
  moved(region: String!): Order @join__field(graph: EVENTS)
    @join__directive(graphs: [EVENTS], name: "events__subscribe", args: {topics: ["orders.{{ args.region }}"]})
}
type Mutation @join__type(graph: EVENTS) {
  move(region: String!, id: ID!): edfs__PublishResult! @join__field(graph: EVENTS)
    @join__directive(graphs: [EVENTS], name: "events__publish", args: {topic: "orders.{{ args.region }}"})
}
"#;

/// `orders` answers for every order that its total is 42.
#[derive(Default)]
struct Orders {
    requests: AtomicU64,
}

impl Subgraph for Orders {
    fn fetch<'a>(
        &'a self,
        request: SubgraphRequest<'a>,
    ) -> LocalFuture<'a, Result<SubgraphAnswer, FetchError>> {
        self.requests.fetch_add(1, Relaxed);
        let body = String::from_utf8_lossy(&request.body).into_owned();
        assert!(body.contains(r#"[{"__typename":"Order","id":"7"}]"#), "{body}");
        let answer = SubgraphAnswer {
            status: http::StatusCode::OK,
            headers: http::HeaderMap::new(),
            body: r#"{"data":{"_entities":[{"__typename":"Order","total":42}]}}"#.into(),
        };
        Box::pin(std::future::ready(Ok(answer)))
    }
}

/// A loaded graph over `memory/default`.
struct Router {
    memory: Arc<dyn Provider>,
    bindings: Arc<Bindings>,
    generation: Arc<Generation>,
    preparer: Preparer,
    orders: Arc<Orders>,
}

impl Router {
    fn load() -> Self {
        let graph = Supergraph::from_sdl(SUPERGRAPH, "supergraph.graphql");
        let graph = Arc::new(graph.unwrap_or_else(|errors| panic!("{errors}")));
        let memory: Arc<dyn Provider> = Arc::new(Memory::new("default", MemorySettings::default()));
        let providers = Providers::new([Arc::clone(&memory)]).expect("one provider");
        let bindings =
            Arc::new(Bindings::load(&graph, &providers).expect("the bindings are right"));
        let orders = Arc::new(Orders::default());
        let subgraph = || Arc::clone(&orders) as Arc<dyn Subgraph>;
        let generation = Arc::new(Generation {
            number: 1,
            graph_id: 1,
            graph: Arc::clone(&graph),
            // The first stands for the event subgraph, which no fetch goes to.
            subgraphs: vec![subgraph(), subgraph()],
            publisher: Arc::new(EventPublisher::new(Arc::clone(&bindings), PATIENCE)),
            disclosure: Default::default(),
        });
        let preparer = Preparer::new(graph, 1, PrepareSettings::default());
        Self { memory, bindings, generation, preparer, orders }
    }

    fn prepare(&self, query: &str) -> Prepared {
        self.preparer.prepare_now(query.as_bytes(), None).expect("a valid operation")
    }

    fn resolver(&self, prepared: &Prepared, variables: &'static str) -> EventResolver {
        EventResolver {
            executable: Arc::new(Executable::new(Arc::clone(&prepared.plan))),
            variables: Arc::new(prepared.coerce(&variables.into()).expect("valid variables")),
            generation: Arc::clone(&self.generation),
            headers: Arc::new(ForwardedHeaders::default()),
            timeout: PATIENCE,
        }
    }

    async fn subscribe(
        &self,
        hub: &Hub,
        listener: &Listener,
        connection: u64,
        query: &str,
        variables: &'static str,
    ) -> Subscription {
        let prepared = self.prepare(query);
        let resolver = self.resolver(&prepared, variables);
        let Some(SubscriptionRoot::Event(field)) = &prepared.plan.subscription else {
            panic!("an event field is planned as one: {:?}", prepared.plan)
        };
        let request = SubscribeRequest {
            source: self.bindings.source(field, &resolver.variables).expect("a topic"),
            group: GroupKey {
                generation: self.generation.number,
                operation_id: prepared.operation_id,
                variables: Arc::clone(&resolver.variables),
                partition: Bytes::new(),
            },
            resolve: Arc::new(resolver),
            outlet: Arc::clone(&listener.outlet) as Arc<dyn Outlet>,
            member: Member { connection, operation: 1 },
        };
        hub.subscribe(request).await.expect("the provider is there")
    }
}

const QUERY: &str = r#"subscription { moved(region: "eu") { id total } }"#;
const EVENT: &str = r#"{"__typename":"Order","id":"7"}"#;
const JOINED: &str = r#"{"data":{"moved":{"id":"7","total":42}}}"#;

#[tokio::test]
async fn an_event_is_joined_once_for_all_who_ask_the_same() {
    with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
        let (router, mut listener) = (Router::load(), Listener::new());
        let spaced = r#"subscription{moved(region:"eu"){id,total}}"#;
        let one = router.subscribe(&hub, &listener, 1, QUERY, "").await;
        let two = router.subscribe(&hub, &listener, 2, spaced, "").await;
        assert_eq!(one.group(), two.group(), "spaces do not split a group");
        router.memory.publish("orders.eu", EVENT.into()).await.expect("published");
        router.memory.publish("orders.us", EVENT.into()).await.expect("published");
        assert_eq!([listener.next().await, listener.next().await], ["join", "join"]);
        assert_eq!(listener.next().await, JOINED);
        assert_eq!(router.orders.requests.load(Relaxed), 1);
        assert_eq!(hub.stats().events.load(Relaxed), 1);
    })
    .await;
}

#[tokio::test]
async fn a_variable_chooses_the_topic() {
    with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
        let (router, mut listener) = (Router::load(), Listener::new());
        let query = "subscription($r: String!) { moved(region: $r) { key: id } }";
        let _held = router.subscribe(&hub, &listener, 1, query, r#"{"r":"us"}"#).await;
        assert_eq!(hub.topology().await[0].topics, ["orders.us"].map(Box::<str>::from));
        router.memory.publish("orders.us", EVENT.into()).await.expect("published");
        assert_eq!(listener.next().await, "join");
        assert_eq!(listener.next().await, r#"{"data":{"moved":{"key":"7"}}}"#);
        assert_eq!(router.orders.requests.load(Relaxed), 0, "the event has all that is asked for");
    })
    .await;
}

#[tokio::test]
async fn a_bad_event_is_an_error_payload_and_the_subscription_lives_on() {
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
            router.memory.publish("orders.eu", bad.to_owned().into()).await.expect("published");
            let payload = listener.next().await;
            assert!(payload.contains(r#""code":"INVALID_EVENT""#), "{bad}: {payload}");
            assert!(payload.contains(r#""data":{"moved":null}"#), "{bad}: {payload}");
        }
        router.memory.publish("orders.eu", EVENT.into()).await.expect("published");
        assert_eq!(listener.next().await, JOINED);
    })
    .await;
}

#[tokio::test]
async fn an_event_that_is_too_large_is_an_error_payload() {
    let router = Router::load();
    let resolver = Arc::new(router.resolver(&router.prepare(QUERY), ""));
    let payload = resolver.resolve(vec![b' '; EVENT_BYTES_MAX + 1].into()).await;
    assert_eq!(
        payload.bytes,
        r#"{"errors":[{"message":"The event is larger than 8 MiB.","extensions":{"code":"INVALID_EVENT"}}]}"#
    );
}

#[tokio::test]
async fn a_mutation_publishes_its_arguments_to_its_topic() {
    let router = Router::load();
    let topics = vec!["orders.eu".into()];
    let mut stream = router.memory.subscribe(topics, Position::New).await.expect("open");
    let mutation = router.prepare(r#"mutation { move(region: "eu", id: 7) { success } }"#);
    let context = RequestContext {
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
