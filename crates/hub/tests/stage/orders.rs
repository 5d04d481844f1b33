//! A graph over the memory provider that joins events with the subgraph `orders`, and subscriptions to it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bindings::{Bindings, EventPublisher};
use events::{Memory, MemorySettings, Provider, Providers};
use execute::{
    Executable, FetchError, ForwardedHeaders, Generation, LocalFuture, Subgraph, SubgraphRequest,
    SubgraphResponse,
};
use graph::Supergraph;
use hub::{
    EventResolver, GroupKey, Hub, LiveOperation, Outlet, SubscribeRequest, Subscriber,
    Subscription, TransportId,
};
use plan::SubscriptionRoot;
use prepare::{OperationRequest, PrepareSettings, Prepared, Preparer};

use super::{Listener, STEP_TIMEOUT};

const SUPERGRAPH: &str = r#"
schema
  @link(url: "https://specs.apollo.dev/link/v1.0")
  @link(url: "https://specs.apollo.dev/join/v0.5", for: EXECUTION)
{ query: Query mutation: Mutation subscription: Subscription }
enum join__Graph {
  EVENTS @join__graph(name: "events", url: "")
  ORDERS @join__graph(name: "orders", url: "http://orders")
}
type Query @join__type(graph: ORDERS) @join__type(graph: EVENTS) {
  orders: [Order] @join__field(graph: ORDERS)
  order(id: ID!): Order @join__field(graph: ORDERS)
  ask(id: ID!): Order @join__field(graph: EVENTS)
    @join__directive(graphs: [EVENTS], name: "events__request", args: {topic: "ask.{{ args.id }}", timeout: "200ms"})
  several: [Order!] @join__field(graph: EVENTS)
    @join__directive(graphs: [EVENTS], name: "events__request", args: {topic: "several", select: "orders"})
}
interface Node @join__type(graph: EVENTS) { id: ID! }
type Order implements Node @join__implements(graph: EVENTS, interface: "Node")
  @join__type(graph: EVENTS, key: "id", resolvable: false) @join__type(graph: ORDERS, key: "id")
{
  id: ID!
  total: Int @join__field(graph: ORDERS)
  status: String @join__field(graph: EVENTS) @join__field(graph: ORDERS)
  note: String @join__field(graph: EVENTS)
}
type Weather @join__type(graph: EVENTS) { wind: Int! }
type edfs__PublishResult @join__type(graph: EVENTS) { success: Boolean! }
type Subscription @join__type(graph: EVENTS) {
  moved(region: String!): Order @join__field(graph: EVENTS)
    @join__directive(graphs: [EVENTS], name: "events__subscribe", args: {topics: ["orders.{{ args.region }}"]})
  some(ids: [ID!]): Order @join__field(graph: EVENTS)
    @join__directive(graphs: [EVENTS], name: "events__subscribe", args: {topics: ["orders.eu"]})
    @join__directive(graphs: [EVENTS], name: "openfed__subscriptionFilter", args: {
      condition: {IN: {fieldPath: "id", values: ["{{ args.ids }}"]}}
    })
  changed(id: ID!): Order @join__field(graph: EVENTS)
    @join__directive(graphs: [EVENTS], name: "events__subscribe", args: {
      topics: ["changes.{{ args.id }}"], select: "data.after", key: {field: "id", from: SUBJECT, token: 2}
    })
    @join__directive(graphs: [EVENTS], name: "openfed__subscriptionFilter", args: {
      condition: {IN: {fieldPath: "id", values: ["{{ args.id }}"]}}
    })
  keyed: [Order!] @join__field(graph: EVENTS)
    @join__directive(graphs: [EVENTS], name: "events__subscribe", args: {topics: ["keyed"], key: {field: "id", from: KEY}})
  mine(id: ID!): Order @join__field(graph: EVENTS)
    @join__directive(graphs: [EVENTS], name: "events__subscribe", args: {topics: ["mine"], key: {field: "id", from: KEY}})
    @join__directive(graphs: [EVENTS], name: "openfed__subscriptionFilter", args: {
      condition: {IN: {fieldPath: "id", values: ["{{ args.id }}"]}}
    })
  watched(id: ID!): Order @join__field(graph: EVENTS)
    @join__directive(graphs: [EVENTS], name: "events__subscribe", args: {topics: ["orders.eu"], initial: ENTITY})
  certain(id: ID!): Order! @join__field(graph: EVENTS)
    @join__directive(graphs: [EVENTS], name: "events__subscribe", args: {topics: ["orders.eu"], initial: ENTITY})
  asked(id: ID! = "7"): Order! @join__field(graph: EVENTS)
    @join__directive(graphs: [EVENTS], name: "events__subscribe", args: {topics: ["orders.eu"], initial: {field: "order"}})
  anything: Node @join__field(graph: EVENTS)
    @join__directive(graphs: [EVENTS], name: "events__subscribe", args: {topics: ["anything"]})
  weather: Weather @join__field(graph: EVENTS)
    @join__directive(graphs: [EVENTS], name: "events__subscribe", args: {topics: ["weather"]})
  count: Int @join__field(graph: EVENTS)
    @join__directive(graphs: [EVENTS], name: "events__subscribe", args: {topics: ["count"], select: "n"})
}
type Mutation @join__type(graph: EVENTS) {
  submit(id: ID!): Order @join__field(graph: EVENTS)
    @join__directive(graphs: [EVENTS], name: "events__request", args: {topic: "submit"})
  move(region: String!, id: ID!): edfs__PublishResult! @join__field(graph: EVENTS)
    @join__directive(graphs: [EVENTS], name: "events__publish", args: {topic: "orders.{{ args.region }}"})
}
"#;

/// The subgraph `orders` returns the total 42 for every order, or the number in the header `x-total`, after 5 ms. It
/// does not know the order `unknown`.
#[derive(Default)]
pub(crate) struct Orders {
    pub(crate) requests: AtomicU64,
    /// The additional delay in milliseconds.
    pub(crate) slower: AtomicU64,
    /// The `traceparent` header of the last request.
    pub(crate) trace: Mutex<Option<String>>,
}

impl Subgraph for Orders {
    fn fetch<'a>(
        &'a self,
        request: SubgraphRequest<'a>,
    ) -> LocalFuture<'a, Result<SubgraphResponse, FetchError>> {
        self.requests.fetch_add(1, Relaxed);
        let body = String::from_utf8_lossy(&request.body).into_owned();
        if body.contains("broken") {
            return Box::pin(async { Err(FetchError::Overloaded) });
        }
        let header = |wanted: &str| {
            let found = request.headers.forwarded.iter().find(|(name, _)| name == wanted);
            found.and_then(|(_, value)| value.to_str().ok())
        };
        let mut trace: Option<String> = header("traceparent").map(Into::into);
        if let Some(span) = request.headers.span {
            span.write_headers(|name, value| {
                assert_eq!(name, "traceparent");
                trace = Some(value.into());
            });
        }
        *self.trace.lock().expect("one thread") = trace;
        let total = header("x-total").unwrap_or("42");
        let status = if body.contains("status") { r#","status":"open""# } else { "" };
        let order = |id: &str| match id {
            "unknown" => "null".to_owned(),
            _ => format!(r#"{{"__typename":"Order","id":"{id}","total":{total}{status}}}"#),
        };
        let body = if body.contains("_entities") {
            let rest = body.split(r#"{"__typename":"Order","id":""#).skip(1);
            let ids = rest.map(|rest| rest.split('"').next().unwrap_or_default());
            let entities: Vec<_> = ids.map(order).collect();
            assert!(!entities.is_empty(), "{body}");
            format!(r#"{{"data":{{"_entities":[{}]}}}}"#, entities.join(","))
        } else {
            let is_known = body.contains(r#"\"7\""#) || body.contains(r#""7""#);
            assert!(is_known || body.contains("unknown"), "{body}");
            let order = order(if is_known { "7" } else { "unknown" });
            format!(r#"{{"data":{{"asked":{order}}}}}"#)
        };
        let response = SubgraphResponse {
            status: http::StatusCode::OK,
            headers: http::HeaderMap::new(),
            body: body.into(),
            policy: None,
            hedge: None,
        };
        let delay = Duration::from_millis(5 + self.slower.load(Relaxed));
        Box::pin(async move {
            tokio::time::sleep(delay).await;
            Ok(response)
        })
    }
}

/// A loaded graph over `memory/default`.
pub(crate) struct Router {
    pub(crate) memory: Arc<dyn Provider>,
    pub(crate) bindings: Arc<Bindings>,
    pub(crate) generation: Arc<Generation>,
    pub(crate) preparer: Preparer,
    pub(crate) orders: Arc<Orders>,
}

impl Router {
    pub(crate) fn load() -> Self {
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
            // The first is the event subgraph, which no fetch goes to.
            subgraphs: vec![subgraph(), subgraph()],
            publisher: Arc::new(EventPublisher::new(Arc::clone(&bindings), STEP_TIMEOUT, 1000)),
            disclosure: Default::default(),
            caches: None,
            memory: admission::memory::MemoryAccount::unlimited(),
        });
        let preparer = Preparer::new(graph, 1, PrepareSettings::default());
        Self { memory, bindings, generation, preparer, orders }
    }

    pub(crate) fn prepare(&self, query: &str) -> Prepared {
        self.preparer.prepare_now(query.as_bytes(), None).expect("a valid operation")
    }

    pub(crate) fn resolver(&self, prepared: &Prepared, variables: &'static str) -> EventResolver {
        EventResolver {
            decided: Default::default(),
            claims: Default::default(),
            executable: Arc::new(Executable::new(Arc::clone(&prepared.plan))),
            state: prepared.state.clone(),
            variables: Arc::new(prepared.coerce(&variables.into()).expect("valid variables")),
            generation: Arc::clone(&self.generation),
            has_mixed_headers: false,
            headers: Arc::new(ForwardedHeaders::default()),
            payload: match &prepared.plan.subscription {
                Some(SubscriptionRoot::Event(field)) => self.bindings.payload_mapping(field.field),
                _ => None,
            },
            timeout: STEP_TIMEOUT,
            request: OperationRequest::default(),
            cause: None,
            held: None,
        }
    }

    pub(crate) async fn subscribe(
        &self,
        hub: &Hub,
        listener: &Listener,
        connection: u64,
        query: &str,
        variables: &'static str,
    ) -> Subscription {
        let prepared = self.prepare(query);
        let resolver = self.resolver(&prepared, variables);
        self.join(hub, listener, connection, &prepared, resolver, "").await
    }

    /// Subscribes with these headers.
    pub(crate) async fn subscribe_as(
        &self,
        hub: &Hub,
        listener: &Listener,
        prepared: &Prepared,
        headers: ForwardedHeaders,
        partition: u64,
    ) -> Subscription {
        let mut resolver = self.resolver(prepared, "");
        resolver.headers = Arc::new(headers);
        self.join(hub, listener, partition, prepared, resolver, &partition.to_string()).await
    }

    /// Subscribes with a cursor.
    pub(crate) async fn resume(
        &self,
        hub: &Hub,
        listener: &Listener,
        connection: u64,
        query: &str,
        cursor: &str,
    ) -> Subscription {
        let prepared = self.prepare(query);
        let resolver = self.resolver(&prepared, "");
        let request = self.request(listener, connection, &prepared, resolver, "");
        let request = SubscribeRequest { resume: Some(cursor.into()), ..request };
        hub.subscribe(request).await.expect("the provider has the events")
    }

    pub(crate) async fn join(
        &self,
        hub: &Hub,
        listener: &Listener,
        connection: u64,
        prepared: &Prepared,
        resolver: EventResolver,
        partition: &str,
    ) -> Subscription {
        let request = self.request(listener, connection, prepared, resolver, partition);
        hub.subscribe(request).await.expect("the provider is there")
    }

    fn request(
        &self,
        listener: &Listener,
        connection: u64,
        prepared: &Prepared,
        resolver: EventResolver,
        partition: &str,
    ) -> SubscribeRequest {
        let Some(SubscriptionRoot::Event(field)) = &prepared.plan.subscription else {
            panic!("an event field is planned as one: {:?}", prepared.plan)
        };
        SubscribeRequest {
            resume: None,
            operation: LiveOperation {
                bound_to: Box::default(),
                field: "Subscription.field".into(),
                generation: self.generation.number,
                source: self
                    .bindings
                    .source(field, &resolver.variables, &resolver.claims)
                    .expect("a topic"),
                filter: self
                    .bindings
                    .filter(field, &resolver.variables, &resolver.claims)
                    .expect("a filter"),
                group: GroupKey {
                    operation_id: prepared.operation_id,
                    variables: Arc::clone(&resolver.variables),
                    partition: partition.as_bytes().into(),
                },
                resolve: Arc::new(resolver),
            },
            outlet: Arc::clone(&listener.outlet) as Arc<dyn Outlet>,
            member: Subscriber { connection, operation: 1 },
            transport: TransportId::new(0),
        }
    }
}

pub(crate) const QUERY: &str = r#"subscription { moved(region: "eu") { id total } }"#;
pub(crate) const EVENT: &str = r#"{"__typename":"Order","id":"7"}"#;
pub(crate) const JOINED: &str = r#"{"data":{"moved":{"id":"7","total":42}}}"#;
