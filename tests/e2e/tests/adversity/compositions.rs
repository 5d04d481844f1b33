//! A router that composes its graph: changes of schema files and of running subgraphs, errors, and unreachable subgraphs.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use e2e::router::{Program, Router, run};
use e2e::{eventually, request};
use load::subgraph::{Server, Subgraph};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::socket::Socket;

const PRODUCTS: &str = r#"extend schema @link(url: "https://specs.apollo.dev/federation/v2.7", import: ["@key"])

type Query {
  product: Product
}

type Product @key(fields: "id") {
  id: ID!
  name: String
}
"#;

const STOCK: &str = "type Query { warehouse: String }";

const EVENTS: &str = r#"type Subscription {
  productChanged: Product @events__subscribe(topics: ["products"])
}

type Product @key(fields: "id", resolvable: false) {
  id: ID!
}
"#;

const SUBSCRIPTION: &str = "subscription { productChanged { id name } }";

/// The schema of the products with another field.
fn with_field(field: &str) -> String {
    PRODUCTS.replace("  name: String\n", &format!("  name: String\n  {field}\n"))
}

/// The subgraphs and their schemas. `products` and `events` have files, `stock` is asked.
struct Subgraphs {
    folder: TempDir,
    runtime: Runtime,
    products_server: Server,
    stock: Option<Server>,
    stock_address: SocketAddr,
}

impl Subgraphs {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        // The server knows all fields from the start; the schema file decides which of them are composed.
        let sdl = with_field("price: Int").replace("id: ID!", "id: ID!\n  weight: Int");
        let kettle = json!({ "id": "1", "name": "Kettle", "price": 5, "weight": 9 });
        let products = Subgraph::builder(sdl)
            .records("Query", [json!({ "product": { "id": "1" } })])
            .records("Product", [kettle])
            .build()
            .unwrap();
        let products = runtime.block_on(Server::start(products)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut subgraphs = Self {
            folder,
            runtime,
            stock: None,
            stock_address: ([127, 0, 0, 1], 0).into(),
            products_server: products,
        };
        subgraphs.start_stock(STOCK);
        let (products, stock) = (subgraphs.products_server.url(""), subgraphs.stock_address);
        subgraphs.write("products.graphql", PRODUCTS);
        subgraphs.write("events.graphql", EVENTS);
        subgraphs.write(
            "supergraph.yaml",
            &format!(
                "subgraphs:\n  \
                 products: {{routing_url: \"{products}\", schema: {{file: products.graphql}}}}\n  \
                 stock: {{schema: {{subgraph_url: \"http://{stock}/\"}}}}\n  \
                 events: {{schema: {{file: events.graphql}}}}\n"
            ),
        );
        subgraphs.write(
            "starling.yaml",
            "supergraph: {compose: supergraph.yaml, poll_interval: 100ms}\n",
        );
        subgraphs
    }

    /// Starts the subgraph `stock`, at the same address as before.
    fn start_stock(&mut self, sdl: &str) {
        drop(self.stock.take());
        let server = eventually("the address of the subgraph to be free", || {
            let mut data = json!({ "warehouse": "Bergen" });
            if sdl.contains("shelves") {
                data["shelves"] = json!(7);
            }
            let stock = Subgraph::builder(sdl).records("Query", [data]).build().unwrap();
            let builder = Server::builder().listen(self.stock_address).subgraph("/", stock);
            self.runtime.block_on(builder.start()).ok()
        });
        self.stock_address = server.address();
        self.stock = Some(server);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes as deployments do: to a new file, then renamed.
    fn write(&self, name: &str, text: &str) {
        let beside = self.path("new");
        fs::write(&beside, text).unwrap();
        fs::rename(beside, self.path(name)).unwrap();
    }

    fn serve(&self) -> Router {
        Router::start([PathBuf::from("serve"), "--config".into(), self.path("starling.yaml")])
    }
}

fn wait_for(router: &Router, metric: &str, value: u64) {
    eventually(&format!("{metric} to be {value}"), || {
        (router.metric(metric) == Some(value)).then_some(())
    });
}

fn wait_for_output(router: &Router, text: &str) {
    eventually(&format!("the log to contain {text}"), || {
        router.output().contains(text).then_some(())
    });
}

#[track_caller]
fn ask(router: &Router, query: &str) -> Value {
    let response = router.post(&json!({ "query": query }).to_string()).unwrap();
    serde_json::from_slice(&response.body).unwrap()
}

fn publish(router: &Router) {
    let target = "/admin/publish?provider=memory/default&topic=products";
    let event = br#"{"__typename":"Product","id":"1"}"#;
    assert_eq!(request(router.admin(), "POST", target, &[], event).unwrap().status, 200);
}

fn assert_event_arrives(router: &Router, socket: &mut Socket) {
    publish(router);
    let data = json!({ "productChanged": { "id": "1", "name": "Kettle" } });
    assert_eq!(socket.message(), json!({ "id": "1", "type": "next", "payload": { "data": data } }));
}

const GENERATION: &str = "starling_graph_generation";
const REFUSED: &str = r#"starling_graph_loads_total{result="refused"}"#;
const ERRORS: &str = "starling_composition_errors";
const UNREACHABLE: &str = "starling_composition_unreachable_subgraphs";

#[test]
fn a_changed_schema_file_is_composed_and_errors_leave_the_last_good_graph() {
    let subgraphs = Subgraphs::start();
    let router = subgraphs.serve();
    let mut socket = Socket::ready(router.address());
    socket.subscribe("1", SUBSCRIPTION);
    wait_for(&router, "starling_hub_subscribers", 1);
    assert_event_arrives(&router, &mut socket);
    // A new field.
    subgraphs.write("products.graphql", &with_field("price: Int"));
    wait_for(&router, GENERATION, 2);
    let price = json!({ "data": { "product": { "price": 5 }, "warehouse": "Bergen" } });
    assert_eq!(ask(&router, "{ product { price } warehouse }"), price);
    assert_event_arrives(&router, &mut socket);
    // An invalid schema.
    subgraphs.write("products.graphql", &with_field("price: Money"));
    wait_for(&router, REFUSED, 1);
    assert_eq!(router.metric(ERRORS), Some(1));
    wait_for_output(
        &router,
        "the subgraphs do not compose; the last good graph continues to serve",
    );
    let log = router.output();
    let place = format!("{}:10:10", subgraphs.path("products.graphql").display());
    assert!(log.contains("INVALID_GRAPHQL") && log.contains(&place), "{log}");
    assert_eq!(ask(&router, "{ product { price } warehouse }"), price);
    assert_event_arrives(&router, &mut socket);
    // A schema that is valid by itself and does not fit the others.
    let conflicting = PRODUCTS.replace("product: Product", "product: Product\n  warehouse: Int");
    subgraphs.write("products.graphql", &conflicting);
    wait_for(&router, REFUSED, 2);
    wait_for_output(&router, "FIELD_TYPE_MISMATCH");
    // A missing file.
    fs::remove_file(subgraphs.path("products.graphql")).unwrap();
    wait_for(&router, REFUSED, 3);
    // An invalid list of subgraphs.
    let list = fs::read_to_string(subgraphs.path("supergraph.yaml")).unwrap();
    subgraphs.write("supergraph.yaml", "subgraphs: []\n");
    wait_for(&router, REFUSED, 4);
    assert_eq!(ask(&router, "{ product { price } warehouse }"), price);
    // Everything is corrected.
    subgraphs.write("products.graphql", &with_field("weight: Int"));
    subgraphs.write("supergraph.yaml", &list);
    wait_for(&router, GENERATION, 3);
    assert_eq!(router.metric(ERRORS), Some(0));
    let weight = json!({ "data": { "product": { "weight": 9 } } });
    assert_eq!(ask(&router, "{ product { weight } }"), weight);
    assert_event_arrives(&router, &mut socket);
}

#[test]
fn a_running_subgraph_with_another_schema_is_composed_and_one_that_is_down_keeps_its_schema() {
    let mut subgraphs = Subgraphs::start();
    let router = subgraphs.serve();
    subgraphs.start_stock("type Query { warehouse: String shelves: Int }");
    wait_for(&router, GENERATION, 2);
    assert_eq!(ask(&router, "{ shelves }"), json!({ "data": { "shelves": 7 } }));
    subgraphs.stock = None;
    wait_for(&router, UNREACHABLE, 1);
    subgraphs.write("products.graphql", &with_field("price: Int"));
    wait_for(&router, GENERATION, 3);
    assert_eq!(
        ask(&router, "{ product { price } __type(name: \"Query\") { fields { name } } }"),
        json!({ "data": {
            "product": { "price": 5 },
            "__type": { "fields": [{ "name": "product" }, { "name": "warehouse" }, { "name": "shelves" }] },
        } })
    );
    assert_eq!((router.metric(REFUSED), router.metric(ERRORS)), (Some(0), Some(0)));
    subgraphs.start_stock("type Query { warehouse: String }");
    wait_for(&router, GENERATION, 4);
    wait_for(&router, UNREACHABLE, 0);
}

#[test]
fn a_composition_that_fails_at_the_start_is_reported_as_by_the_command_compose() {
    let mut subgraphs = Subgraphs::start();
    let config = subgraphs.path("starling.yaml");
    let list = subgraphs.path("supergraph.yaml");
    let serve = || {
        let port = "127.0.0.1:0";
        let words = ["serve", "--config", config.to_str().unwrap(), "--listen", port];
        run(words.into_iter().chain(["--admin-listen", port]))
    };
    let check = || run(["check", "--config", config.to_str().unwrap()]);
    let compose = || run(["compose", "--config", list.to_str().unwrap()]);
    let (code, _, err) = check();
    assert_eq!(code, Some(0), "{err}");
    // The list of subgraphs in place of the configuration of the router.
    for command in ["serve", "check"] {
        let (code, _, err) = run([command, "--config", list.to_str().unwrap()]);
        assert_eq!(code, Some(1));
        assert!(err.contains("is a composition configuration"), "{err}");
        assert!(!err.contains("unknown key"), "{err}");
    }
    let (code, _, err) = run(["dev", "--config", "no-such-file.yaml"]);
    assert_eq!(code, Some(1));
    assert!(err.contains("there is no file no-such-file.yaml"), "{err}");
    subgraphs.write("products.graphql", &with_field("price: Money"));
    let (_, _, composed) = compose();
    let excerpt = "10 |   price: Money";
    assert!(
        composed.contains("error[INVALID_GRAPHQL]") && composed.contains(excerpt),
        "{composed}"
    );
    let first = composed.split("\n\n").next().unwrap();
    let (code, _, checked) = check();
    assert_eq!(code, Some(1));
    assert!(checked.contains(first), "{checked}\n---\n{composed}");
    let (code, out, err) = serve();
    assert_eq!(code, Some(1));
    assert!(format!("{out}{err}").contains("INVALID_GRAPHQL"), "{out}{err}");
    // A subgraph that is down has no schema yet.
    subgraphs.write("products.graphql", PRODUCTS);
    subgraphs.stock = None;
    for (code, out, err) in [check(), serve()] {
        assert_eq!(code, Some(1));
        assert!(format!("{out}{err}").contains("unreachable-subgraph"), "{out}{err}");
    }
    subgraphs.start_stock(STOCK);
    let router = subgraphs.serve();
    assert_eq!(ask(&router, "{ warehouse }"), json!({ "data": { "warehouse": "Bergen" } }));
}

#[test]
fn the_url_in_the_configuration_of_the_router_replaces_that_of_the_composition() {
    let subgraphs = Subgraphs::start();
    let url = subgraphs.products_server.url("");
    let list = fs::read_to_string(subgraphs.path("supergraph.yaml")).unwrap();
    subgraphs.write("supergraph.yaml", &list.replace(&url, "http://127.0.0.1:1/"));
    let settings = format!(
        "supergraph: {{compose: supergraph.yaml}}\nsubgraphs: {{products: {{url: \"{url}\"}}}}\n"
    );
    subgraphs.write("starling.yaml", &settings);
    let router = subgraphs.serve();
    let name = json!({ "data": { "product": { "name": "Kettle" } } });
    assert_eq!(ask(&router, "{ product { name } }"), name);
}

/// Writes schemas into a folder, and a configuration that names the folder and the URLs of `products` and `stock`.
fn write_schema_folder(subgraphs: &Subgraphs, schemas: &[(&str, &str)]) {
    fs::create_dir(subgraphs.path("schemas")).unwrap();
    for (name, text) in schemas {
        subgraphs.write(&format!("schemas/{name}"), text);
    }
    let (products, stock) = (subgraphs.products_server.url(""), subgraphs.stock_address);
    subgraphs.write(
        "starling.yaml",
        &format!(
            "supergraph: {{directory: schemas}}\n\
             subgraphs: {{products: {{url: \"{products}\"}}, stock: {{url: \"http://{stock}/\"}}}}\n"
        ),
    );
}

#[test]
fn a_folder_of_schemas_is_composed_and_its_changes_are_followed() {
    let subgraphs = Subgraphs::start();
    write_schema_folder(&subgraphs, &[("products.graphql", PRODUCTS), ("events.gql", EVENTS)]);
    let router = subgraphs.serve();
    let mut socket = Socket::ready(router.address());
    socket.subscribe("1", SUBSCRIPTION);
    wait_for(&router, "starling_hub_subscribers", 1);
    assert_event_arrives(&router, &mut socket);
    // A new subgraph.
    subgraphs.write("schemas/stock.graphqls", STOCK);
    wait_for(&router, GENERATION, 2);
    let both = json!({ "data": { "product": { "name": "Kettle" }, "warehouse": "Bergen" } });
    assert_eq!(ask(&router, "{ product { name } warehouse }"), both);
    assert_event_arrives(&router, &mut socket);
    // A changed schema.
    subgraphs.write("schemas/products.graphql", &with_field("price: Int"));
    wait_for(&router, GENERATION, 3);
    let price = json!({ "data": { "product": { "price": 5 } } });
    assert_eq!(ask(&router, "{ product { price } }"), price);
    // Two files for one subgraph: at the change, and when an operator asks to read the folder again.
    subgraphs.write("schemas/stock.graphql", STOCK);
    wait_for(&router, REFUSED, 1);
    wait_for_output(&router, "are both the schema of the subgraph `stock`");
    let reloaded = request(router.admin(), "POST", "/admin/reload", &[], b"").unwrap();
    assert_eq!(reloaded.status, 422, "{}", reloaded.text());
    assert_eq!(router.metric(ERRORS), Some(1));
    assert_eq!(ask(&router, "{ product { name } warehouse }"), both);
    // The subgraph is removed.
    fs::remove_file(subgraphs.path("schemas/stock.graphql")).unwrap();
    fs::remove_file(subgraphs.path("schemas/stock.graphqls")).unwrap();
    wait_for(&router, GENERATION, 4);
    assert_eq!(router.metric(ERRORS), Some(0));
    assert!(ask(&router, "{ warehouse }")["errors"].is_array());
    assert_eq!(ask(&router, "{ product { price } }"), price);
    assert_event_arrives(&router, &mut socket);
}

#[test]
fn a_folder_of_schemas_with_mistakes_is_reported_by_check_and_at_the_start() {
    let subgraphs = Subgraphs::start();
    write_schema_folder(&subgraphs, &[]);
    let config = subgraphs.path("starling.yaml");
    let run_command = |words: &[&str]| {
        let (code, out, err) = run([words, &["--config", config.to_str().unwrap()]].concat());
        (code, format!("{out}{err}"))
    };
    let serve = ["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let assert_refused = |message: &str| {
        for words in [&["check"][..], &serve] {
            let (code, output) = run_command(words);
            assert_eq!(code, Some(1), "{output}");
            assert!(output.contains(message), "{output}");
        }
    };
    assert_refused("add one file for each subgraph");
    subgraphs.write("schemas/products.graphql", PRODUCTS);
    subgraphs.write("schemas/reviews.graphql", "type Query { review: String }");
    assert_refused("set `subgraphs.reviews.url` in the configuration of the router");
    fs::remove_file(subgraphs.path("schemas/reviews.graphql")).unwrap();
    let (code, output) = run_command(&["check"]);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("`subgraphs.stock` has no effect"), "{output}");
}

#[test]
fn the_command_dev_waits_for_a_first_graph_and_prints_each_change() {
    let subgraphs = Subgraphs::start();
    subgraphs.write("products.graphql", &with_field("price: Money"));
    let list = subgraphs.path("supergraph.yaml");
    let words = ["dev", "--no-open", "--config", list.to_str().unwrap()];
    let ports = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let dev = Program::start(words.into_iter().chain(ports), "Waiting for a change");
    let wait_for = |text: &str| {
        eventually(&format!("{text} in the output"), || dev.output().contains(text).then_some(()));
    };
    assert!(dev.output().contains("error[INVALID_GRAPHQL]"), "{}", dev.output());
    subgraphs.write("products.graphql", PRODUCTS);
    wait_for("Open     http://127.0.0.1:");
    let output = dev.stdout();
    let address = output.split("http://").nth(1).unwrap().split('/').next().unwrap();
    let address: SocketAddr = address.parse().unwrap();
    assert_eq!(request(address, "GET", "/", &[], b"").unwrap().status, 200);
    subgraphs.write("products.graphql", &with_field("price: Int"));
    wait_for("Another graph serves: + Product.price\n");
    subgraphs.write("products.graphql", &with_field("price: Money"));
    wait_for("The last good graph continues to serve.");
    subgraphs.write("products.graphql", PRODUCTS);
    wait_for("Another graph serves: - Product.price\n");
    // Also the graph to which an operator returns.
    let output = dev.stdout();
    let admin = output.split("Console  http://").nth(1).unwrap().split('/').next().unwrap();
    let rolled_back = request(admin.parse().unwrap(), "POST", "/admin/rollback", &[], b"").unwrap();
    assert_eq!(rolled_back.status, 200);
    eventually("the graph before", || {
        let added = dev.output().matches("Another graph serves: + Product.price\n").count();
        (added == 2).then_some(())
    });
}
