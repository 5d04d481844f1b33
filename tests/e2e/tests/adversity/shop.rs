//! The graph that the tests mistreat: three subgraphs in this process, an event subgraph, and the
//! router as a program, with an innocent bystander on it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use e2e::router::Router;
use e2e::{Answer, request};
use load::subgraph::{Controls, Server, Subgraph};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::socket::Socket;

/// The supergraph, with `$SERVER` for the address of the subgraphs and `$PROVIDER` for the broker.
pub(crate) const SUPERGRAPH: &str = include_str!("shop.graphql");

const PRODUCTS: &str = r#"
type Query {
  product(id: ID!): Product
  products(filter: ProductFilter, first: Int = 10): [Product!]!
}
type Product @key(fields: "id") { id: ID! name: String! price: Int }
input ProductFilter { name: String! maxPrice: Int colours: [Colour!] }
enum Colour { BLUE RED }
"#;

const REVIEWS: &str = r#"
type Query { latestReview: Review }
type Mutation { addReview(product: ID!, text: String!): Review }
type Product @key(fields: "id") { id: ID! reviews: [Review!]! }
type Review @key(fields: "id") { id: ID! text: String! product: Product! }
"#;

const STOCK: &str = r#"
type Query { warehouse: Warehouse! }
type Product @key(fields: "id") { id: ID! inStock: Int! }
type Warehouse { city: String! }
"#;

/// The graph in service. Everything of it ends when it is dropped.
pub(crate) struct Shop {
    pub(crate) router: Router,
    /// Subscribed since the start to a topic that no test uses.
    bystander: Option<Socket>,
    subgraphs: Server,
    folder: TempDir,
    provider: &'static str,
    _runtime: Runtime,
}

impl Shop {
    /// With a default configuration.
    pub(crate) fn open() -> Self {
        Self::with("")
    }

    /// With these lines in its configuration file.
    pub(crate) fn with(configuration: &str) -> Self {
        let mut shop = Self::with_provider("memory/default", configuration);
        let mut bystander = Socket::ready(shop.address());
        let query = r#"subscription { productChangedAt(place: "bystander") { id } }"#;
        bystander.subscribe("bystander", query);
        shop.wait_for_subscribers(1);
        shop.bystander = Some(bystander);
        shop
    }

    /// With its events at this provider, and no bystander.
    pub(crate) fn with_provider(provider: &'static str, configuration: &str) -> Self {
        Self::started(provider, configuration, |words| Router::start(words))
    }

    /// With a router that may open so many files, and no bystander.
    pub(crate) fn with_descriptors(descriptors: u32, configuration: &str) -> Self {
        let start = |words: [&Path; 3]| Router::start_with_descriptors(descriptors, words);
        Self::started("memory/default", configuration, start)
    }

    fn started(
        provider: &'static str,
        configuration: &str,
        start: impl FnOnce([&Path; 3]) -> Router,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let subgraphs = runtime.block_on(serve_subgraphs());
        let folder = tempfile::tempdir().unwrap();
        let supergraph = supergraph(subgraphs.address(), provider);
        std::fs::write(folder.path().join("supergraph.graphql"), supergraph).unwrap();
        let file = folder.path().join("starling.yaml");
        std::fs::write(&file, configuration).unwrap();
        let router = start([Path::new("serve"), Path::new("--config"), &file]);
        Self { router, bystander: None, subgraphs, folder, provider, _runtime: runtime }
    }

    /// The hand on one subgraph: `products`, `reviews` or `stock`.
    pub(crate) fn subgraph(&self, name: &str) -> &Controls {
        self.subgraphs.controls_at(&format!("/{name}")).unwrap()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.router.address()
    }

    /// The file of the supergraph that serves.
    pub(crate) fn supergraph_file(&self) -> PathBuf {
        self.folder.path().join("supergraph.graphql")
    }

    /// The supergraph as it was at the start.
    pub(crate) fn supergraph(&self) -> String {
        supergraph(self.subgraphs.address(), self.provider)
    }

    /// A query by POST, without variables.
    pub(crate) fn query(&self, query: &str) -> Answer {
        self.router.post(&json!({ "query": query }).to_string()).unwrap()
    }

    /// The answer's body.
    pub(crate) fn ask(&self, query: &str) -> Value {
        serde_json::from_slice(&self.query(query).body).unwrap()
    }

    /// Publishes an event through the admin listener.
    pub(crate) fn publish(&self, topic: &str, event: impl AsRef<[u8]>) {
        let target = format!("/admin/publish?provider={}&topic={topic}", self.provider);
        let answer = request(self.router.admin(), "POST", &target, &[], event.as_ref()).unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (200, "published\n"));
    }

    /// How many subscribers get each event from now on, the bystander among them.
    pub(crate) fn subscribers(&self) -> u64 {
        let answer = request(self.router.admin(), "GET", "/admin/subscriptions", &[], b"").unwrap();
        let topology: Value = serde_json::from_slice(&answer.body).unwrap();
        let groups = topology["triggers"].as_array().unwrap().iter();
        let groups = groups.flat_map(|trigger| trigger["groups"].as_array().unwrap());
        groups.map(|group| group["subscribers"].as_u64().unwrap()).sum()
    }

    /// Until there are so many, the bystander not counted.
    pub(crate) fn wait_for_subscribers(&self, count: u64) {
        let count = count + u64::from(self.bystander.is_some());
        e2e::eventually(&format!("{count} subscribers"), || {
            (self.subscribers() == count).then_some(())
        });
    }

    /// Until a metric has this value.
    pub(crate) fn wait_for_metric(&self, name: &str, value: u64) {
        e2e::eventually(&format!("{name} to be {value}"), || {
            (self.router.metric(name).unwrap_or(0) == value).then_some(())
        });
    }

    /// The bystander goes: for tests that end what it has subscribed to.
    pub(crate) fn without_bystander(mut self) -> Self {
        self.bystander = None;
        self
    }

    /// The router alone, and what keeps its subgraphs running.
    pub(crate) fn into_parts(self) -> (Router, impl Sized) {
        let Self { router, bystander, subgraphs, folder, _runtime, .. } = self;
        (router, (bystander, subgraphs, folder, _runtime))
    }

    /// Nobody else has noticed: queries are answered, the bystander gets its events, and no thread of
    /// the router has panicked.
    pub(crate) fn assert_unharmed(mut self) {
        assert_eq!(
            self.ask("{ warehouse { city } }"),
            json!({ "data": { "warehouse": { "city": "Bergen" } } })
        );
        if let Some(mut bystander) = self.bystander.take() {
            self.publish("products.bystander", r#"{"__typename":"Product","id":"1"}"#);
            let mut message = bystander.message();
            // Where payloads have cursors, so has this one.
            if let Some(payload) = message["payload"].as_object_mut() {
                payload.remove("extensions");
            }
            assert_eq!(
                message,
                json!({
                    "id": "bystander",
                    "type": "next",
                    "payload": { "data": { "productChangedAt": { "id": "1" } } },
                })
            );
        }
        assert!(!self.router.has_ended());
        assert_sound(&self.router.said());
    }
}

/// No thread of the router has panicked, and it has not called anything a defect of its own.
#[track_caller]
pub(crate) fn assert_sound(said: &str) {
    for word in ["panicked", "defect", "report this"] {
        assert!(!said.contains(word), "the router said `{word}`:\n{said}");
    }
}

fn supergraph(subgraphs: SocketAddr, provider: &str) -> String {
    SUPERGRAPH.replace("$SERVER", &format!("http://{subgraphs}")).replace("$PROVIDER", provider)
}

async fn serve_subgraphs() -> Server {
    let products = [
        json!({ "id": "1", "name": "Kettle", "price": 30 }),
        json!({ "id": "2", "name": "Lamp", "price": 45 }),
    ];
    let keys = [json!({ "id": "1" }), json!({ "id": "2" })];
    let products = Subgraph::builder(PRODUCTS)
        .records("Query", [json!({ "products": keys })])
        .records("Product", products)
        .resolver("Query", "product", |call| Ok(json!({ "id": call.argument("id") })))
        .build()
        .unwrap();
    let reviews = Subgraph::builder(REVIEWS)
        .records("Query", [json!({ "latestReview": { "id": "b" } })])
        .records(
            "Review",
            [
                json!({ "id": "a", "text": "Boils.", "product": { "id": "1" } }),
                json!({ "id": "b", "text": "Shines.", "product": { "id": "2" } }),
            ],
        )
        .records(
            "Product",
            [
                json!({ "id": "1", "reviews": [{ "id": "a" }] }),
                json!({ "id": "2", "reviews": [{ "id": "b" }] }),
            ],
        )
        .resolver("Mutation", "addReview", |_| Ok(json!({ "id": "a" })))
        .build()
        .unwrap();
    let stock = Subgraph::builder(STOCK)
        .records("Query", [json!({ "warehouse": { "city": "Bergen" } })])
        .records(
            "Product",
            [json!({ "id": "1", "inStock": 7 }), json!({ "id": "2", "inStock": 0 })],
        )
        .build()
        .unwrap();
    Server::builder()
        .subgraph("/products", products)
        .subgraph("/reviews", reviews)
        .subgraph("/stock", stock)
        .start()
        .await
        .unwrap()
}
