//! `starling mock`, `serve` and `bench` together, as described in docs/load-testing.md.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // A test without its expected value has failed.

use e2e::eventually;
use e2e::router::{Program, Router, run, run_with_descriptors};
use serde_json::Value;
use std::fs;
use std::path::Path;

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/federation-benchmark");

#[test]
fn a_graph_is_mocked_served_and_measured_without_its_subgraphs() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let supergraph = format!("{FIXTURE}/supergraph.graphql");
    let operation = format!("{FIXTURE}/operation.graphql");

    let mock = Program::start(
        ["mock", "--supergraph", &supergraph, "--listen", "127.0.0.1:0"],
        "serving 4 mock subgraphs",
    );
    // The configuration is written to another pipe than the line above.
    let config = eventually("the configuration for the router", || {
        let config = mock.stdout();
        (config.matches("{url: ").count() == 4 && config.ends_with('\n')).then_some(config)
    });
    fs::write(file("mock.yaml"), config).unwrap();
    let router =
        Router::start(["serve", "--config", &file("mock.yaml"), "--supergraph", &supergraph]);

    let text = fs::read_to_string(&operation).unwrap();
    let response = router.post(&serde_json::json!({ "query": text }).to_string()).unwrap();
    let response: Value = serde_json::from_str(&response.text()).unwrap();
    assert_eq!(response.get("errors"), None, "{response}");
    let user = &response["data"]["users"][0];
    assert_eq!(user["id"], "1");
    assert!(user["reviews"][0]["product"]["shippingEstimate"].is_number(), "{user}");

    let url = format!("http://{}/graphql", router.address());
    let measure = |extra: &[&str]| {
        let mut words = vec!["bench", "query", "--url", &url, "--operation", &operation, "--quiet"];
        words.extend(["--warmup", "0s", "--duration", "300ms", "--connections", "8"]);
        words.extend(extra);
        run(words)
    };
    let (closed, open) = (file("closed.json"), file("open.json"));
    let (code, table, err) = measure(&["--check", "bytes", "--json", &closed, "--name", "closed"]);
    assert_eq!(code, Some(0), "{table}{err}");
    assert!(table.contains("responses, 1/s"), "{table}");
    let (code, table, err) = measure(&["--rate", "20", "--json", &open, "--name", "open"]);
    assert_eq!(code, Some(0), "{table}{err}");
    let runs: Value = serde_json::from_str(&fs::read_to_string(&open).unwrap()).unwrap();
    assert_eq!(runs[0]["failed"], 0);
    assert!(runs[0]["requests"].as_u64().unwrap() >= 5, "{runs}");

    let page = file("both.html");
    let (code, table, err) = run(["bench", "report", &closed, &open, "--html", &page]);
    assert_eq!(code, Some(0), "{table}{err}");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains(">closed<") && page.contains(">open<") && page.contains("<svg"));
}

#[test]
fn a_server_with_invalid_responses_is_not_measured() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let response = file("response.json", r#"{"errors":[{"message":"not today"}]}"#);
    let operation = file("operation.graphql", "{ a }");
    let floor = Program::start(
        ["bench", "floor", "--listen", "127.0.0.1:0", "--file", &response],
        "http://",
    );
    let url = floor.stdout();
    let (code, out, err) =
        run(["bench", "query", "--url", url.trim(), "--operation", &operation, "--quiet"]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains("not today"), "{err}");
}

#[test]
fn a_surge_is_cached_by_clients_refused_by_a_limit_and_shown_in_a_picture() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let graph = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/items/supergraph.graphql");
    let mock = Program::start(
        ["mock", "--supergraph", graph, "--listen", "127.0.0.1:0"],
        "serving 2 mock subgraphs",
    );
    let config = eventually("the configuration for the router", || {
        let config = mock.stdout();
        (config.matches("{url: ").count() == 2 && config.ends_with('\n')).then_some(config)
    });
    // Clients may keep responses, and those that say that they are crawlers are limited.
    let settings = "cache: {enabled: true, subgraphs: {all: {ttl: 1h}}}\n\
                    rate_limits: [{name: crawlers, when: \"request.headers['x-app'] == 'crawler'\", rate: 10, per: 1s}]\n";
    fs::write(file("mock.yaml"), format!("{config}{settings}")).unwrap();
    fs::write(file("list.graphql"), "query ($first: Int) { items(first: $first) { id name } }")
        .unwrap();
    fs::write(file("sizes.json"), r#"[{"first": 1}, {"first": 2}]"#).unwrap();
    let crawl = "query ($first: Int) { items(first: $first) { id note } }";
    fs::write(file("crawl.graphql"), crawl).unwrap();
    // So many that the caches of clients rarely help.
    let sets: Vec<Value> = (1..=40).map(|first| serde_json::json!({ "first": first })).collect();
    fs::write(file("crawled.json"), Value::from(sets).to_string()).unwrap();
    let mix = "operations:\n  \
               - {name: lists, operation: list.graphql, variables: sizes.json, weight: 2, headers: {x-app: web}}\n  \
               - {name: crawl, operation: crawl.graphql, variables: crawled.json, headers: {x-app: crawler}}\n";
    fs::write(file("mix.yaml"), mix).unwrap();
    let shape = r#"{"points": [{"seconds": 0, "rate": 20}, {"seconds": 3, "rate": 80}]}"#;
    fs::write(file("match-day.json"), shape).unwrap();
    let router = Router::start(["serve", "--config", &file("mock.yaml"), "--supergraph", graph]);
    let (url, pid) = (format!("http://{}/graphql", router.address()), router.id().to_string());
    let (json, svg) = (file("surge.json"), file("surge.svg"));
    let words = ["bench", "surge", "--url", &url, "--pid", &pid, "--name", "match <day>"];
    let more = ["--mix", &file("mix.yaml"), "--shape", &file("match-day.json"), "--clients", "3"];
    // Longer than any pause on a busy machine.
    let last =
        ["--in-time", "20s", "--patience", "30s", "--retries", "9", "--arrivals", "constant"];
    let output = ["--json", &json, "--svg", &svg];
    let (code, table, err) = run([&words[..], &more, &last, &output].concat());
    assert_eq!(code, Some(0), "{table}{err}");
    assert!(
        table.contains("goodput, 1/s") && table.contains("× refused: 429 RATE_LIMITED"),
        "{table}"
    );
    // A line for each second.
    assert!(err.contains("offered") && err.lines().count() >= 4, "{err}");

    let runs: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let it = &runs[0];
    assert_eq!(
        (&it["shape"], &it["totals"]["offered"]),
        (&"match-day".into(), &150.into()),
        "{it}"
    );
    assert_eq!(it["totals"]["failed"], 0, "{it}");
    let of = |class: usize, what: &str| it["classes"][class]["counts"][what].as_u64().unwrap();
    assert_eq!((it["classes"][0]["name"].as_str(), of(0, "refused")), (Some("lists"), 0));
    assert!(of(0, "from_cache") > 0 && of(0, "good") >= 3, "{it}");
    assert!(of(1, "refused") > 0 && of(1, "repeated") > 0, "{it}");
    assert!(it["server"]["resident_end_mib"].as_f64().unwrap() > 0.0, "{it}");
    assert_eq!(it["intervals"].as_array().unwrap().len(), 3, "{it}");
    let svg = fs::read_to_string(svg).unwrap();
    assert!(svg.starts_with("<svg xmlns") && svg.contains("match &lt;day&gt;"), "{svg}");
    assert!(svg.contains(">lists p50<") && svg.contains(">refused: 429 RATE_LIMITED<"), "{svg}");

    let page = file("both.html");
    let (code, again, err) = run(["bench", "report", &json, &json, "--html", &page]);
    assert_eq!(code, Some(0), "{again}{err}");
    assert_eq!(fs::read_to_string(page).unwrap().matches("<figure>").count(), 2);

    fs::write(file("mix.yaml"), "operations: [{name: lists, wieght: 2}]").unwrap();
    let (code, out, err) = run([&words[..], &more].concat());
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains("did you mean `weight`"), "{err}");
}

#[test]
fn subscribers_stay_connected_during_a_surge() {
    let folder = tempfile::tempdir().unwrap();
    let graph = compose("moves", folder.path());
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let mock = Program::start(
        ["mock", "--supergraph", &graph, "--listen", "127.0.0.1:0", "--event-rate", "20"],
        "serving 2 mock subgraphs",
    );
    let config = eventually("the configuration for the router", || {
        let config = mock.stdout();
        (config.matches("{url: ").count() == 2 && config.ends_with('\n')).then_some(config)
    });
    fs::write(file("mock.yaml"), config).unwrap();
    fs::write(file("query.graphql"), "{ gates }").unwrap();
    let subscription = "subscription { flightMoved(airport: \"A\") { id gate } }";
    fs::write(file("subscription.graphql"), subscription).unwrap();
    let router = Router::start(["serve", "--config", &file("mock.yaml"), "--supergraph", &graph]);
    let (url, json) = (format!("http://{}/graphql", router.address()), file("surge.json"));
    let (query, subscription) = (file("query.graphql"), file("subscription.graphql"));
    let words = ["bench", "surge", "--url", &url, "--operation", &query, "--json", &json];
    let more = ["--shape", "constant", "--rate", "20", "--duration", "3s", "--in-time", "20s"];
    let last = ["--subscription", &subscription, "--subscribers", "5"];
    let (code, table, err) = run([&words[..], &more, &last].concat());
    assert_eq!(code, Some(0), "{table}{err}");
    assert!(err.contains("5 subscribed"), "{err}");
    let runs: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let subscribers = &runs[0]["subscribers"];
    assert_eq!(
        (&subscribers["subscribed"], &subscribers["ended"]),
        (&5.into(), &Value::Array(vec![]))
    );
    let intervals = runs[0]["intervals"].as_array().unwrap();
    assert_eq!(intervals[2]["subscribers"]["subscribed"], 5, "{runs}");
    let received = |it: &Value| it["subscribers"]["results_per_second"].as_f64().unwrap() > 0.0;
    assert!(intervals.iter().any(received), "{runs}");

    fs::write(file("subscription.graphql"), "subscription { flightMoved { id } }").unwrap();
    let (code, out, err) = run([&words[..], &more, &last].concat());
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains("cannot stay subscribed: 5 × subscription failed"), "{err}");
}

#[test]
fn subscriptions_are_measured_together_with_the_floor() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let Some(nats) = e2e::nats::NatsServer::start() else { return };
    let graph = compose("ticks", folder.path());
    let mock = Program::start(
        ["mock", "--supergraph", &graph, "--listen", "127.0.0.1:0"],
        "serving 1 mock subgraphs",
    );
    let config = eventually("the configuration for the router", || {
        let config = mock.stdout();
        (config.contains("{url: ") && config.ends_with('\n')).then_some(config)
    });
    let events =
        format!("events: {{providers: {{nats: [{{id: default, url: \"{}\"}}]}}}}", nats.url());
    fs::write(file("mock.yaml"), format!("{config}{events}\n")).unwrap();
    let router = Router::start(["serve", "--config", &file("mock.yaml"), "--supergraph", &graph]);

    let (url, pid) = (format!("ws://{}/graphql", router.address()), router.id().to_string());
    let measure = |query: &str, topic: &str, extra: &[&str]| {
        let publish = format!("{}/{topic}", nats.url());
        let mut words = vec!["bench", "subscriptions", "--url", &url, "--pid", &pid, "--quiet"];
        words.extend(["--query", query, "--publish", &publish, "--clients", "30"]);
        words.extend(["--events", "20", "--rate", "50"]);
        words.extend(extra);
        run(words)
    };
    let (json, page) = (file("both.json"), file("both.html"));
    let joined = "subscription { tick { id name } }";
    let (code, table, err) =
        measure(joined, "tick", &["--floor", "--name", "router", "--json", &json, "--html", &page]);
    assert_eq!(code, Some(0), "{table}{err}");
    assert!(table.contains("router: times the floor: "), "{table}");
    let runs: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    for (run, name) in [(&runs[0], "floor"), (&runs[1], "router")] {
        assert_eq!(run["name"], name);
        assert_eq!((&run["received"], &run["missing"]), (&600.into(), &0.into()), "{run}");
    }
    let length = |run: &Value| run["message"].as_str().unwrap().len();
    assert_eq!(length(&runs[0]), length(&runs[1]));
    assert!(runs[1]["message"].as_str().unwrap().contains("\"name\":\""), "{}", runs[1]["message"]);
    assert!(runs[1]["server"]["descriptors_idle"].as_u64().unwrap() > 30);
    assert!(fs::read_to_string(&page).unwrap().contains("<svg"));
    let (code, again, err) = run(["bench", "report", &json]);
    assert_eq!((code, again), (Some(0), table), "{err}");

    let keyed = "subscription { tickOf(key: \"$K\") { id } }";
    let (code, table, err) = measure(keyed, "tick.$K", &["--scenario", "filters"]);
    assert_eq!(code, Some(0), "{table}{err}");
    let (code, table, err) = measure(keyed, "tick.$K", &["--scenario", "mass-disconnect"]);
    assert_eq!(code, Some(0), "{table}{err}");
    assert!(table.contains("all released within"), "{table}");

    let (code, table, err) = measure(joined, "tock", &[]);
    assert_eq!((code, table.as_str()), (Some(1), ""));
    assert!(err.contains("30 of 30 subscribed clients received none of the first events"), "{err}");
}

#[test]
fn subscriptions_of_a_mocked_subgraph_share_operations_and_are_measured() {
    let folder = tempfile::tempdir().unwrap();
    let graph = compose("moves", folder.path());
    let mock = Program::start(
        ["mock", "--supergraph", &graph, "--listen", "127.0.0.1:0", "--event-rate", "0"],
        "serving 2 mock subgraphs",
    );
    let config = eventually("the configuration for the router", || {
        let config = mock.stdout();
        (config.matches("{url: ").count() == 2 && config.ends_with('\n')).then_some(config)
    });
    let address = config.split_once("http://").unwrap().1.split_once('/').unwrap().0.to_owned();
    let file = folder.path().join("mock.yaml");
    fs::write(&file, config).unwrap();
    let router =
        Router::start(["serve", "--config", file.to_str().unwrap(), "--supergraph", &graph]);
    let publish = format!("http://{address}/flights/_events");
    let query = "subscription ($airport: ID!) { flightMoved(airport: $airport) { id gate } }";
    let words = ["--query", query, "--variables", r#"{"airport":"$D"}"#, "--distinct", "3"];
    let more = ["--publish", &publish, "--event", r#"{"id":"$T"}"#, "--clients", "30"];
    let last = ["--events", "20", "--rate", "50"];
    let run = successful_run(&router, folder.path(), &[&words[..], &more, &last].concat());
    assert_eq!((&run["received"], &run["missing"]), (&600.into(), &0.into()), "{run}");
    let message = run["message"].as_str().unwrap();
    assert!(message.contains("\"gate\":\""), "{message}");
    let counts =
        e2e::request(address.parse().unwrap(), "GET", "/flights/_events", &[], b"").unwrap();
    let counts: Value = serde_json::from_str(&counts.text()).unwrap();
    assert_eq!(
        (&counts["connectionsMax"], &counts["operationsMax"], &counts["operationsStarted"]),
        (&1.into(), &3.into(), &3.into()),
        "{counts}"
    );
}

#[test]
fn watchers_of_a_live_query_are_measured_while_a_mocked_subgraph_changes() {
    let folder = tempfile::tempdir().unwrap();
    let graph = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/items/supergraph.graphql");
    let mock = Program::start(
        ["mock", "--supergraph", graph, "--listen", "127.0.0.1:0"],
        "serving 2 mock subgraphs",
    );
    let config = eventually("the configuration for the router", || {
        let config = mock.stdout();
        (config.matches("{url: ").count() == 2 && config.ends_with('\n')).then_some(config)
    });
    let address = config.split_once("http://").unwrap().1.split_once('/').unwrap().0.to_owned();
    let settings = "cache: {enabled: true, subgraphs: {all: {ttl: 1h}}, \
                    invalidate: [{provider: memory/default, topic: items.changed}]}\n\
                    live_queries: {enabled: true, throttle_min: 0s}\n\
                    events: {providers: {memory: [{id: default}]}}\n";
    let file = folder.path().join("mock.yaml");
    fs::write(&file, format!("{config}{settings}")).unwrap();
    let router =
        Router::start(["serve", "--config", file.to_str().unwrap(), "--supergraph", graph]);
    let change = format!("http://{address}/prices/_entities");
    let publish = format!("memory://{}/items.changed", router.admin());
    let event = r#"{"__typename":"Item","id":"1","note":"$T"}"#;
    let words = ["--query", "query @live { items(first: 1) { id note } }", "--clients", "30"];
    let more = ["--event", event, "--change", &change, "--publish", &publish];
    // Each change waits until all watchers have the one before: two changes at once could have one result.
    let last = ["--scenario", "throughput", "--window", "1", "--duration", "500ms"];
    let run = successful_run(&router, folder.path(), &[&words[..], &more, &last].concat());
    let events = run["events"].as_u64().unwrap();
    assert!(events > 0 && run["received"] == 30 * events, "{run}");
    let message = run["message"].as_str().unwrap();
    assert!(message.contains(r#""note":"1"#), "the result of an event: {message}");
    let counts =
        e2e::request(address.parse().unwrap(), "GET", "/prices/_entities", &[], b"").unwrap();
    let counts: Value = serde_json::from_str(&counts.text()).unwrap();
    assert!(counts["changes"].as_u64().unwrap() > events, "{counts} with those of the warm-up");
    // The first execution is that of the first watcher. On a busy machine two changes of the warm-up may have one.
    let executions = router.metric("starling_live_query_executions_total").unwrap();
    assert!(
        (events + 2..=counts["changes"].as_u64().unwrap() + 1).contains(&executions),
        "{executions}"
    );
    assert_eq!(counts["requests"], executions);
}

/// Composes the subgraphs that `tests/graphs/NAME.yaml` lists, and returns the path of the supergraph in `folder`.
fn compose(name: &str, folder: &Path) -> String {
    let config = format!("{}/tests/graphs/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    let supergraph = folder.join("supergraph.graphql").to_str().unwrap().to_owned();
    let (code, _, err) = run(["compose", "--config", &config, "--output", &supergraph]);
    assert_eq!(code, Some(0), "{err}");
    supergraph
}

/// Starts a router with events from the provider `default` and this configuration. The folder must outlive the router.
fn event_router(folder: &Path, config: &str) -> Router {
    let file = folder.join("starling.yaml");
    fs::write(&file, config).unwrap();
    let graph = compose("notes", folder);
    Router::start(["serve", "--config", file.to_str().unwrap(), "--supergraph", &graph])
}

/// Runs `starling bench subscriptions`, which must succeed, and returns its only run.
fn successful_run(router: &Router, folder: &Path, words: &[&str]) -> Value {
    let json = folder.join("run.json").to_str().unwrap().to_owned();
    let (url, pid) = (format!("ws://{}/graphql", router.address()), router.id().to_string());
    let mut all = vec!["bench", "subscriptions", "--url", &url, "--pid", &pid, "--quiet"];
    // Longer than any pause on a busy machine.
    all.extend(["--json", &json, "--quiet-time", "15s"]);
    all.extend(words);
    let (code, table, err) = run(all);
    assert_eq!(code, Some(0), "{table}{err}");
    let runs: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    runs[0].clone()
}

const EVENT: &str = r#"{"__typename":"Event","id":"$T","key":"$K","note":"$P"}"#;

#[test]
fn events_are_published_as_fast_as_all_clients_receive_them_and_none_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let router = event_router(folder.path(), "");
    let publish = format!("memory://{}/bench", router.admin());
    let words = ["--scenario", "throughput", "--duration", "500ms", "--clients", "7"];
    let more = ["--query", "subscription { event { id note } }", "--event", EVENT];
    let last = ["--padding", "3000", "--window", "20", "--publish", &publish];
    let run = successful_run(&router, folder.path(), &[&words[..], &more, &last].concat());
    let events = run["events"].as_u64().unwrap();
    assert!(events > 0, "{run}");
    assert_eq!((&run["received"], &run["expected"]), (&(7 * events).into(), &(7 * events).into()));
    assert_eq!(
        (&run["lost"], &run["missing"], &run["disordered"]),
        (&0.into(), &0.into(), &0.into())
    );
    // The hub counts events since the start, including the warm-up.
    assert!(router.metric("starling_hub_events_total").unwrap() > events, "{run}");
    assert_eq!(run["throughput"]["window"], 20);
    let bytes = EVENT.replace("$T", "1790000000000001").replace("$K", "0").replace("$P", "").len();
    assert_eq!(run["throughput"]["payload_bytes"], 3000 + bytes);
}

#[test]
fn subscriptions_are_measured_over_tls_by_clients_that_trust_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let certificates = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/net/tests/certificates");
    let graph = compose("notes", folder.path());
    let config = format!(
        "listen: [{{address: '127.0.0.1:0', tls: {{cert: '{certificates}/localhost.pem', key: '{certificates}/localhost.key'}}}}]\n\
         admin: {{listen: '127.0.0.1:0'}}\nlog: {{format: json}}\n"
    );
    fs::write(file("starling.yaml"), config).unwrap();
    let router = Program::start(
        ["serve", "--config", &file("starling.yaml"), "--supergraph", &graph],
        "(TLS)",
    );
    let output = router.output();
    let port_after = |operation: &str| {
        let rest = output.split_once(operation).unwrap().1.trim_start_matches("127.0.0.1:");
        rest.split(|it: char| !it.is_ascii_digit()).next().unwrap().to_owned()
    };
    let (tls, admin) = (port_after("\"address\":\""), port_after("\"admin\":\""));
    let measure = |authority: &str| {
        let (url, publish) =
            (format!("wss://localhost:{tls}/graphql"), format!("memory://127.0.0.1:{admin}/bench"));
        let ca = format!("{certificates}/{authority}");
        let mut words = vec!["bench", "subscriptions", "--url", &url, "--ca", &ca, "--quiet"];
        words.extend(["--query", "subscription { event { id note } }", "--event", EVENT]);
        // More than one TLS record.
        words.extend(["--padding", "20000", "--clients", "5", "--events", "10", "--rate", "20"]);
        words.extend(["--publish", &publish, "--quiet-time", "15s"]);
        run(words)
    };
    let (code, table, err) = measure("ca.pem");
    assert_eq!(code, Some(0), "{table}{err}");
    let (code, table, err) = measure("other.pem");
    assert_eq!((code, table.as_str()), (Some(1), ""));
    assert!(err.contains("TLS failed"), "{err}");
}

#[test]
fn clients_that_unsubscribe_and_subscribe_again_receive_the_events_of_their_topics() {
    let folder = tempfile::tempdir().unwrap();
    let Some(nats) = e2e::nats::NatsServer::start() else { return };
    let config =
        format!("events: {{providers: {{nats: [{{id: default, url: \"{}\"}}]}}}}", nats.url());
    let router = event_router(folder.path(), &config);
    let publish = format!("{}/bench.$K", nats.url());
    let words = ["--scenario", "resubscribe", "--churn", "100", "--duration", "1s"];
    let more = ["--clients", "200", "--keys", "200", "--events", "200", "--rate", "500"];
    let operation =
        ["--query", "subscription { eventOf(key: \"$K\") { id key } }", "--event", EVENT];
    let last = ["--expect", "\"key\":\"$K\"", "--publish", &publish];
    let run =
        successful_run(&router, folder.path(), &[&words[..], &more, &operation, &last].concat());
    let again = &run["resubscribed"];
    let cycles = again["cycles"].as_u64().unwrap();
    // One cycle is already due at the beginning.
    assert!((100..=101).contains(&cycles), "{again}");
    assert_eq!((&run["expected"], &run["received"]), (&200.into(), &200.into()));
    eventually("all clients to leave", || {
        (router.metric("starling_hub_triggers") == Some(0)).then_some(())
    });
}

#[test]
fn simulated_subscribers_receive_all_events() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json").to_str().unwrap().to_owned();
    let (code, table, err) =
        run(["bench", "subscriptions", "--simulate", "2000", "--events", "3", "--json", &json]);
    assert_eq!(code, Some(0), "{table}{err}");
    let runs: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!((&runs[0]["subscribed"], &runs[0]["received"]), (&2000.into(), &6000.into()));
    // The frame of a result: its header, the id of the operation and the payload.
    let message =
        r#"{"id":"1","type":"next","payload":{"data":{"tick":{"id":"0000000000000000"}}}}"#;
    assert_eq!(runs[0]["message_bytes"].as_f64(), Some((message.len() + 2) as f64));
}

#[test]
fn simulated_subscribers_need_no_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json").to_str().unwrap().to_owned();
    let words = ["bench", "subscriptions", "--simulate", "2000", "--events", "1", "--json", &json];
    let (code, table, err) = run_with_descriptors(512, words);
    assert_eq!((code, &*err), (Some(0), ""), "{table}");
    let runs: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!((&runs[0]["subscribed"], &runs[0]["received"]), (&2000.into(), &2000.into()));
}
