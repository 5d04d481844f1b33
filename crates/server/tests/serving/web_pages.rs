//! Tests of the access of web pages from other origins, and of headers and metrics for browsers, proxies and
//! Prometheus.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use crate::http::{TestResponse, request};
use crate::router::{Router, SUPERGRAPH};

const QUERY: &str = "/graphql?query=%7B__typename%7D";
const STREAM: &str = "/graphql?query=subscription%7Btick%7Bid%7D%7D";

fn get(router: &Router, target: &str, headers: &[(&str, &str)]) -> TestResponse {
    request(router.address, "GET", target, headers, "")
}

#[test]
fn foreign_pages_can_neither_embed_queries_nor_open_streams() {
    let router = Router::start("cors: {origins: [\"https://app.example\"]}");
    let embedded = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")];
    assert_eq!(get(&router, QUERY, &embedded).status, 403);
    let evil = ("origin", "https://evil.example");
    let stream = ("accept", "text/event-stream");
    assert_eq!(get(&router, STREAM, &[evil, stream]).status, 403);
    assert_eq!(get(&router, QUERY, &[]).status, 200);
    let ours = get(&router, QUERY, &[("origin", "https://app.example")]);
    assert_eq!(ours.status, 200);
    assert_eq!(ours.header("access-control-allow-origin"), "https://app.example");
    router.wait_for("starling_hub_triggers", 0);
}

#[test]
fn forms_and_plain_text_are_refused() {
    let router = Router::start("");
    let body = r#"{"query":"{ __typename }"}"#;
    for content_type in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
    {
        let headers = [("content-type", content_type)];
        assert_eq!(request(router.address, "POST", "/graphql", &headers, body).status, 415);
    }
    let compressed = [("content-type", "application/json"), ("content-encoding", "compress")];
    assert_eq!(request(router.address, "POST", "/graphql", &compressed, body).status, 415);
}

#[test]
fn responses_are_neither_cached_nor_sniffed() {
    let router = Router::start("");
    let response = get(&router, QUERY, &[]);
    assert_eq!(response.header("cache-control"), "no-store");
    assert_eq!(response.header("vary"), "accept");
    assert_eq!(response.header("x-content-type-options"), "nosniff");
    assert_ne!(response.header("date"), "");
    assert_eq!(get(&router, "/elsewhere", &[]).header("x-content-type-options"), "nosniff");
}

#[test]
fn the_methods_of_the_endpoint_can_be_requested() {
    let router = Router::start("");
    let response = request(router.address, "OPTIONS", "/graphql", &[], "");
    assert_eq!(
        (response.status, &*response.header("allow")),
        (204, "GET, POST, PUT, DELETE, OPTIONS")
    );
    let response = request(router.address, "DELETE", "/graphql", &[], "");
    assert_eq!(
        (response.status, &*response.header("allow")),
        (405, "GET, POST, PUT, DELETE, OPTIONS")
    );
}

#[test]
fn pages_cannot_publish_through_the_browser_of_an_operator() {
    let router = Router::start("");
    let publish = |headers: &[(&str, &str)]| {
        request(router.admin, "POST", "/admin/publish?topic=ticks", headers, "{}").status
    };
    assert_eq!(publish(&[]), 200);
    assert_eq!(publish(&[("origin", "https://evil.example")]), 403);
    assert_eq!(publish(&[("sec-fetch-site", "cross-site")]), 403);
}

#[test]
fn metrics_declare_their_format() {
    let router = Router::start("");
    let content_type = |accept| {
        request(router.admin, "GET", "/metrics", &[("accept", accept)], "").header("content-type")
    };
    let prometheus =
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
    assert_eq!(
        content_type(prometheus),
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    assert_eq!(content_type("*/*"), "text/plain; version=0.0.4; charset=utf-8");
}

#[test]
fn refused_operations_are_counted_by_code() {
    let router = Router::start("");
    for query in ["%7B", "%7Bnothing%7D", "%7Bnothing%7D"] {
        get(&router, &format!("/graphql?query={query}"), &[]);
    }
    let refused = |code| format!(r#"starling_operations_refused_total{{code="{code}"}}"#);
    router.wait_for(&refused("GRAPHQL_PARSE_FAILED"), 1);
    router.wait_for(&refused("GRAPHQL_VALIDATION_FAILED"), 2);
}

/// The kinds of metrics, by the prefix of the names of their samples.
type Announced<'a> = std::collections::BTreeMap<&'a str, &'a str>;

/// Checks text in the format of Prometheus, version 0.0.4, more strictly than Prometheus does. Returns the announced
/// metrics.
fn check_prometheus_text(text: &str) -> Announced<'_> {
    let mut announced = Announced::new();
    let mut help = None;
    let mut current = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, text) = rest.split_once(' ').expect("a help text");
            assert!(!text.is_empty() && help.replace(name).is_none(), "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert_eq!(help.take(), Some(name), "{line}");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(announced.insert(name, kind).is_none(), "announced twice: {line}");
            current = Some((name, kind));
        } else {
            assert!(!line.starts_with('#') && !line.is_empty(), "{line:?}");
            let (sample, value) = line.rsplit_once(' ').expect("a value");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let name = sample.split_once('{').map_or(sample, |(name, _)| name);
            let (family, kind) = current.expect("a type before the first sample");
            let fits = match (kind, name.strip_prefix(family)) {
                ("histogram", Some(part)) => ["_bucket", "_sum", "_count"].contains(&part),
                (_, Some(rest)) => rest.is_empty(),
                (_, None) => false,
            };
            assert!(fits, "{line} is not of {family}");
        }
    }
    announced
}

#[test]
fn metrics_are_well_formed_in_the_text_format_of_prometheus() {
    let router = Router::start("");
    assert!(get(&router, "/graphql?query=%7Bnope%7D", &[]).body.contains("errors"));
    let text = request(router.admin, "GET", "/metrics", &[], "").body;
    let announced = check_prometheus_text(&text);
    assert!(announced.len() > 50, "{announced:?}");
    for (name, kind) in [
        ("process_cpu_seconds_total", "counter"),
        ("process_resident_memory_bytes", "gauge"),
        ("process_virtual_memory_bytes", "gauge"),
        ("process_open_fds", "gauge"),
        ("process_max_fds", "gauge"),
        ("process_start_time_seconds", "gauge"),
        ("starling_operations_total", "counter"),
        ("starling_operation_duration_seconds", "histogram"),
        ("starling_log_lines_dropped_total", "counter"),
    ] {
        assert_eq!(announced.get(name), Some(&kind), "{name}");
    }
}

#[test]
fn metrics_are_open_metrics_for_clients_that_ask_for_it() {
    let router = Router::start("");
    let accept = [("accept", "application/openmetrics-text; version=1.0.0")];
    let text = request(router.admin, "GET", "/metrics", &accept, "").body;
    assert!(text.ends_with("# EOF\n"));
    assert!(text.contains("# TYPE process_cpu_seconds counter\nprocess_cpu_seconds_total "));
}

/// The metrics of a router with Rego rules, which take the place of a decision point.
fn rego_metrics() -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let rules = folder.path().join("rules.rego");
    std::fs::write(&rules, "package a\nb := []\n").expect("a file");
    let rules = rules.display();
    let router = Router::start(&format!(
        "authorization: {{policies: {{rego: {{files: ['{rules}'], query: data.a.b}}}}}}"
    ));
    request(router.admin, "GET", "/metrics", &[], "").body
}

/// The metrics of a router that reads its supergraph from a server.
fn download_metrics() -> String {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("an address");
    let serving = std::thread::spawn(move || {
        let (mut client, _) = server.accept().expect("the router asks at its start");
        let mut reader = BufReader::new(client.try_clone().expect("a descriptor"));
        let mut line = String::new();
        while reader.read_line(&mut line).expect("a request") > 2 {
            line.clear();
        }
        let length = SUPERGRAPH.len();
        let response =
            format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
        client.write_all(format!("{response}{SUPERGRAPH}").as_bytes()).expect("a connection");
    });
    let settings = format!("supergraph: {{url: 'http://{address}/supergraph.graphql'}}");
    let router = Router::with_supergraph_of(&settings);
    let text = request(router.admin, "GET", "/metrics", &[], "").body;
    serving.join().expect("the server has responded");
    text
}

#[test]
fn every_metric_that_the_documentation_names_exists() {
    // Some metrics exist only where their feature is configured.
    let router = Router::start(
        "admin: {console: {recorder: {enabled: true}}}\ntracing: {enabled: true, otlp: {endpoint: 'http://127.0.0.1:9/'}}\nmetrics: {otlp: {enabled: true, endpoint: 'http://127.0.0.1:9/'}}\ncache: {enabled: true, store: a}\nstorage_providers: {redis: [{id: a, urls: ['redis://127.0.0.1:9']}]}\nlive_queries: {enabled: true}\ncost: {mode: measure}\nauthentication: {introspection: {url: 'http://127.0.0.1:9/', client_id: a, client_secret: b}}\nauthorization: {policies: {decision_point: {url: 'http://127.0.0.1:9/'}}}",
    );
    // Labels of refused operations exist only after the first refusal.
    assert!(get(&router, "/graphql?query=%7Bnope%7D", &[]).body.contains("errors"));
    let mut text = request(router.admin, "GET", "/metrics", &[], "").body;
    text.push_str(&rego_metrics());
    text.push_str(&download_metrics());
    let page = include_str!("../../../../docs/metrics.md");
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let is_metric = |word: &&str| word.starts_with("starling_") || word.starts_with("process_");
    let names: Vec<_> = page.split(|letter| !is_part(letter)).filter(is_metric).collect();
    assert!(names.len() > 20, "{names:?}");
    // Families without a sample have a name.
    let known = |name: &str| {
        let family = name.strip_suffix("_total").or_else(|| name.strip_suffix("_bucket"));
        let family = family.unwrap_or(name);
        text.lines()
            .any(|line| line.strip_prefix("# HELP ").is_some_and(|it| it.starts_with(family)))
    };
    let unknown: Vec<_> = names.into_iter().filter(|name| !known(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?} are not in:\n{text}");
}
