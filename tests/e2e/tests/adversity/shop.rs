//! The graph of these tests: three subgraphs in this process, an event subgraph and the router as a program, with a
//! control subscriber that must not be affected by a test.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use e2e::router::Router;
use e2e::{HttpResponse, request};
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

/// The running graph. Everything in it ends when it is dropped.
pub(crate) struct Shop {
    pub(crate) router: Router,
    /// Subscribed since the start to a topic that no test uses.
    control_subscriber: Option<Socket>,
    subgraphs: Server,
    folder: TempDir,
    provider: &'static str,
    _runtime: Runtime,
}

impl Shop {
    /// Starts with the default configuration.
    pub(crate) fn open() -> Self {
        Self::with("")
    }

    /// Starts with these lines in the configuration file.
    pub(crate) fn with(configuration: &str) -> Self {
        let mut shop = Self::with_provider("memory/default", configuration);
        let mut control_subscriber = Socket::ready(shop.address());
        let query = r#"subscription { productChangedAt(place: "bystander") { id } }"#;
        control_subscriber.subscribe("bystander", query);
        shop.wait_for_subscribers(1);
        shop.control_subscriber = Some(control_subscriber);
        shop
    }

    /// Starts with events from this provider and without the control subscriber.
    pub(crate) fn with_provider(provider: &'static str, configuration: &str) -> Self {
        Self::started(provider, configuration, |words| Router::start(words))
    }

    /// Starts with a router that may open this number of files and without the control subscriber.
    pub(crate) fn with_descriptors(descriptors: u32, configuration: &str) -> Self {
        let start = |words: [&Path; 3]| Router::start_with_descriptors(descriptors, words);
        Self::started("memory/default", configuration, start)
    }

    /// Starts with the log written to `stderr` and without the control subscriber.
    pub(crate) fn with_stderr(configuration: &str, stderr: impl Fn() -> Stdio) -> Self {
        let start = |words: [&Path; 3]| Router::start_with_stderr(words, stderr);
        Self::started("memory/default", configuration, start)
    }

    fn started(
        provider: &'static str,
        configuration: &str,
        start: impl FnOnce([&Path; 3]) -> Router,
    ) -> Self {
        // Most tests check the errors of subgraphs; tests of the default error messages configure that themselves.
        let configuration = match configuration.contains("include_subgraph_errors") {
            true => configuration.to_owned(),
            false => format!("include_subgraph_errors: {{all: true}}\n{configuration}"),
        };
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
        Self { router, control_subscriber: None, subgraphs, folder, provider, _runtime: runtime }
    }

    /// Controls of one subgraph: `products`, `reviews` or `stock`.
    pub(crate) fn subgraph(&self, name: &str) -> &Controls {
        self.subgraphs.controls_at(&format!("/{name}")).unwrap()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.router.address()
    }

    /// Path of the supergraph file that the router reads.
    pub(crate) fn supergraph_file(&self) -> PathBuf {
        self.folder.path().join("supergraph.graphql")
    }

    /// The supergraph as it was at the start.
    pub(crate) fn supergraph(&self) -> String {
        supergraph(self.subgraphs.address(), self.provider)
    }

    /// Sends a query by POST without variables.
    pub(crate) fn query(&self, query: &str) -> HttpResponse {
        self.router.post(&json!({ "query": query }).to_string()).unwrap()
    }

    /// Sends a query and returns the response body.
    pub(crate) fn ask(&self, query: &str) -> Value {
        serde_json::from_slice(&self.query(query).body).unwrap()
    }

    /// Publishes an event through the admin listener.
    pub(crate) fn publish(&self, topic: &str, event: impl AsRef<[u8]>) {
        let target = format!("/admin/publish?provider={}&topic={topic}", self.provider);
        let response = request(self.router.admin(), "POST", &target, &[], event.as_ref()).unwrap();
        assert_eq!((response.status, response.text().as_str()), (200, "published\n"));
    }

    /// Number of subscribers that receive each event published from now on, including the control subscriber.
    pub(crate) fn subscribers(&self) -> u64 {
        let response =
            request(self.router.admin(), "GET", "/admin/subscriptions", &[], b"").unwrap();
        let topology: Value = serde_json::from_slice(&response.body).unwrap();
        let groups = topology["triggers"].as_array().unwrap().iter();
        let groups = groups.flat_map(|trigger| trigger["groups"].as_array().unwrap());
        groups.map(|group| group["subscribers"].as_u64().unwrap()).sum()
    }

    /// Waits until there are `count` subscribers, without the control subscriber.
    pub(crate) fn wait_for_subscribers(&self, count: u64) {
        let count = count + u64::from(self.control_subscriber.is_some());
        e2e::eventually(&format!("{count} subscribers"), || {
            (self.subscribers() == count).then_some(())
        });
    }

    /// Waits until a metric has this value.
    pub(crate) fn wait_for_metric(&self, name: &str, value: u64) {
        e2e::eventually(&format!("{name} to be {value}"), || {
            (self.router.metric(name).unwrap_or(0) == value).then_some(())
        });
    }

    /// Disconnects the control subscriber, for tests that end its subscription.
    pub(crate) fn without_control_subscriber(mut self) -> Self {
        self.control_subscriber = None;
        self
    }

    /// The router alone, and a value that keeps its subgraphs running.
    pub(crate) fn into_parts(self) -> (Router, impl Sized) {
        let Self { router, control_subscriber, subgraphs, folder, _runtime, .. } = self;
        (router, (control_subscriber, subgraphs, folder, _runtime))
    }

    /// Checks that other clients are not affected: queries are responded, the control subscriber receives its events,
    /// and no thread of the router has panicked.
    pub(crate) fn assert_unaffected(mut self) {
        assert_eq!(
            self.ask("{ warehouse { city } }"),
            json!({ "data": { "warehouse": { "city": "Bergen" } } })
        );
        if let Some(mut control_subscriber) = self.control_subscriber.take() {
            self.publish("products.bystander", r#"{"__typename":"Product","id":"1"}"#);
            let mut message = control_subscriber.message();
            // Other payloads have cursors, so this one must have a cursor too.
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
        assert!(!self.router.has_exited());
        assert_no_defects(&self.router.output());
    }
}

/// Checks that no thread of the router has panicked and that the router has not reported an internal error.
#[track_caller]
pub(crate) fn assert_no_defects(output: &str) {
    for word in ["panicked", "defect", "report this"] {
        assert!(!output.contains(word), "the router said `{word}`:\n{output}");
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

/// Returns an event about the product with this id.
pub(crate) fn product_event(id: impl std::fmt::Display) -> String {
    format!(r#"{{"__typename":"Product","id":"{id}"}}"#)
}

/// Returns the id of the product in `field` of a payload, for tests with numbered events.
#[track_caller]
pub(crate) fn product_number(payload: &Value, field: &str) -> usize {
    let id = payload["data"][field]["id"].as_str();
    id.unwrap_or_else(|| panic!("no event: {payload}")).parse().unwrap()
}

/// Returns the cursor of a payload.
#[track_caller]
pub(crate) fn cursor(payload: &Value) -> String {
    let cursor = payload["extensions"]["cursor"].as_str();
    cursor.unwrap_or_else(|| panic!("no cursor: {payload}")).to_owned()
}
