//! State that several routers share through Redis: rate limits and automatic persisted queries, with a Redis that is
//! killed, hangs, is full, is empty after a restart, or has foreign values. Manifests that are read by URL.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use e2e::{HttpResponse, eventually, request};
use serde_json::{Value, json};
use test_kit::redis::RedisServer;
use test_kit::redis_groups::RedisCluster;

use crate::shop::Shop;

const CITY: &str = "{ warehouse { city } }";

/// The SHA-256 of [`CITY`].
const CITY_HASH: &str = "3fed2defada7c784d7a39ce3cda2025da1892fc36e9b2b65d3db03260944372c";

/// The time that a request may take although Redis hangs, on a busy machine. The time limit of Redis is far below.
const PROMPT: Duration = Duration::from_secs(15);

fn send(shop: &Shop, body: &Value, client: &str) -> HttpResponse {
    let headers = [("content-type", "application/json"), ("graphql-client-name", client)];
    request(shop.address(), "POST", "/graphql", &headers, body.to_string().as_bytes()).unwrap()
}

/// Sends a query and returns the status and the code of the error, or `ok`.
fn ask(shop: &Shop, client: &str) -> String {
    outcome(&send(shop, &json!({ "query": CITY }), client))
}

fn outcome(response: &HttpResponse) -> String {
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    match body["errors"][0]["extensions"]["code"].as_str() {
        Some(code) => format!("{} {code}", response.status),
        None => "ok".to_owned(),
    }
}

const REFUSED: &str = "429 RATE_LIMITED";

/// A configuration with this Redis, with a time limit that a busy machine keeps.
fn with_redis(url: &str, rest: &str) -> String {
    format!(
        "storage_providers: {{redis: [{{id: shared, urls: ['{url}'], timeout: 5s, retry: {{initial: 10ms, max: 100ms}}}}]}}\n{rest}"
    )
}

/// Starts a router that is connected to its store.
fn start(configuration: &str) -> Shop {
    let shop = Shop::with(configuration);
    wait_for_store(&shop, true);
    shop
}

fn wait_for_store(shop: &Shop, is_connected: bool) {
    eventually("the store to be connected or lost", || {
        let servers = shop.router.metric("starling_store_servers{store=\"shared\"}")?;
        let open = shop.router.metric("starling_store_breaker_open{store=\"shared\"}")?;
        (servers > 0 && (open == 0) == is_connected).then_some(())
    });
}

#[test]
fn three_routers_share_a_limit_and_a_refused_operation_counts_against_none() {
    let Some(redis) = RedisServer::start(&[]) else { return };
    let configuration = with_redis(
        &redis.url(),
        r#"
rate_limits:
  - {name: here, rate: 1, per: 1h, burst: 100}
  - {name: apps, when: "client.name == 'web'", rate: 1, per: 1h, burst: 4, store: shared}
  - {name: all, rate: 1, per: 1h, burst: 10, store: shared}
"#,
    );
    // Each router was asked once when it started.
    let shops = [(); 3].map(|()| start(&configuration));
    let outcomes = |client: &str, count: usize| {
        let asked = shops.iter().cycle().take(count).map(|shop| ask(shop, client));
        asked.filter(|it| it == "ok").count()
    };
    assert_eq!(outcomes("web", 9), 4);
    let response = send(&shops[1], &json!({ "query": CITY }), "web");
    assert_eq!(outcome(&response), REFUSED);
    assert_eq!(response.header("ratelimit-policy"), Some("\"apps\";q=4;w=14400"));
    assert!(response.text().contains("`apps` is reached"), "{}", response.text());
    // Operations that `apps` refused did not count against `all`.
    assert_eq!(outcomes("other", 9), 3);
    let metric = |shop: &Shop, name: &str, limit: &str| {
        shop.router.metric(&format!("starling_rate_limit_{name}_total{{limit=\"{limit}\"}}"))
    };
    let sum = |name: &str, limit: &str| -> u64 {
        shops.iter().filter_map(|shop| metric(shop, name, limit)).sum()
    };
    assert_eq!((sum("admitted", "apps"), sum("refused", "apps")), (4, 6));
    assert_eq!((sum("admitted", "all"), sum("refused", "all")), (10, 6));
    assert_eq!((sum("admitted", "here"), sum("refused", "here")), (10, 0));
    assert_eq!(sum("store_failures", "all"), 0);
    // A client's name is not in Redis, and keys expire.
    let keys = redis.ask(&["KEYS", "*"]);
    assert!(keys.lines().all(|it| it.starts_with("starling:rate:")), "{keys}");
    let ttl: i64 = redis.ask(&["PTTL", keys.lines().next().unwrap()]).parse().unwrap();
    assert!(ttl > 0, "{ttl}");
}

#[test]
fn without_redis_each_limit_does_what_its_setting_says_and_none_waits() {
    let Some(redis) = RedisServer::start(&[]) else { return };
    let limit = |name: &str| {
        format!(
            "  - {{name: {name}, when: \"client.name == '{name}'\", rate: 1, per: 1h, burst: 3, store: shared, on_failure: {name}}}\n"
        )
    };
    let limits = ["local", "allow", "deny"].map(limit).concat();
    let configuration = with_redis(&redis.url(), &format!("rate_limits:\n{limits}"));
    let shop = start(&configuration.replace("timeout: 5s", "timeout: 500ms"));
    let check = |count: usize| {
        let asked = |client| (0..count).map(|_| ask(&shop, client)).collect::<Vec<_>>();
        (asked("local"), asked("allow"), asked("deny"))
    };
    let ok = |count: usize| vec!["ok".to_owned(); count];
    assert_eq!(check(1), (ok(1), ok(1), ok(1)));

    // A hanging server: nothing waits longer than the time limit.
    redis.signal("STOP");
    let began = Instant::now();
    let (local, allow, deny) = check(2);
    assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
    assert_eq!((local, allow, deny), (ok(2), ok(2), vec![REFUSED.to_owned(); 2]));
    wait_for_store(&shop, false);
    redis.signal("CONT");
    wait_for_store(&shop, true);

    // A key at its limit follows `on_failure` at once, too, when the server is killed.
    let refused = (0..203).filter(|_| ask(&shop, "allow") == REFUSED).count();
    assert!(refused >= 200, "{refused}");
    let port = redis.kill();
    wait_for_store(&shop, false);
    let began = Instant::now();
    let (local, allow, deny) = check(4);
    assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
    // Two of the burst of this router were used while the server was hanging.
    assert_eq!(local, [ok(1), vec![REFUSED.to_owned(); 3]].concat());
    assert_eq!((allow, deny), (ok(4), vec![REFUSED.to_owned(); 4]));
    let refused = send(&shop, &json!({ "query": CITY }), "deny");
    assert!(refused.text().contains("`deny` cannot be checked at present"), "{}", refused.text());
    let failures = shop.router.metric("starling_rate_limit_store_failures_total{limit=\"deny\"}");
    assert!(failures >= Some(5), "{failures:?}");

    // A server that is empty after a restart: every key has its burst.
    let _redis = RedisServer::restart_on(port, &[]).expect("it is installed");
    wait_for_store(&shop, true);
    assert_eq!(check(4).2, [ok(3), vec![REFUSED.to_owned()]].concat());
    shop.assert_unaffected();
}

#[test]
fn foreign_values_and_a_full_redis_break_no_limit() {
    let Some(redis) = RedisServer::start(&[]) else { return };
    let limits =
        "rate_limits: [{name: all, rate: 1, per: 1h, burst: 2, store: shared, on_failure: deny}]";
    let shop = start(&with_redis(&redis.url(), limits));
    let three = || (0..3).map(|_| ask(&shop, "")).collect::<Vec<_>>();
    let expected = ["ok", "ok", REFUSED];
    // The router was asked once when it started.
    redis.ask(&["FLUSHALL"]);
    assert_eq!(three(), expected);
    let key = redis.ask(&["KEYS", "*"]);
    for value in [
        &["LPUSH", &key, "x"][..],
        &["SET", &key, "x"],
        &["SET", &key, "nan"],
        &["SET", &key, "-1e300"],
    ] {
        redis.ask(&["DEL", &key]);
        redis.ask(value);
        assert_eq!(three(), expected, "{value:?}");
    }
    // A time that is out of reach counts as that of an empty burst.
    redis.ask(&["SET", &key, "1e300"]);
    assert_eq!(ask(&shop, ""), REFUSED);
    redis.ask(&["DEL", &key]);
    assert_eq!(three(), expected);

    redis.ask(&["DEL", &key]);
    redis.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(ask(&shop, ""), REFUSED);
    redis.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(three(), expected);
}

#[test]
fn in_a_cluster_a_refused_operation_gets_its_units_back() {
    let Some(cluster) = RedisCluster::start() else { return };
    let url = cluster.nodes[0].url();
    let shop = start(&format!(
        r#"
storage_providers: {{redis: [{{id: shared, urls: ['{url}'], cluster_enabled: true, timeout: 5s}}]}}
rate_limits:
  - {{name: web, when: "client.name == 'web'", rate: 1, per: 1h, burst: 2, store: shared}}
  - {{name: all, rate: 1, per: 1h, burst: 6, store: shared}}
  - {{name: more, rate: 1, per: 1h, burst: 7, store: shared}}
"#
    ));
    // The router was asked once when it started.
    let admitted = |client: &str| (0..6).filter(|_| ask(&shop, client) == "ok").count();
    assert_eq!((admitted("web"), admitted("other")), (2, 3));
}

fn persisted(hash: &str) -> Value {
    json!({ "extensions": { "persistedQuery": { "version": 1, "sha256Hash": hash } } })
}

#[test]
fn a_text_that_one_router_got_is_known_to_the_others() {
    let Some(redis) = RedisServer::start(&[]) else { return };
    let configuration = with_redis(&redis.url(), "apq: {store: shared, ttl: 1h}");
    let [first, second, third] = [(); 3].map(|()| start(&configuration));
    let not_found = "200 PERSISTED_QUERY_NOT_FOUND";
    assert_eq!(outcome(&send(&second, &persisted(CITY_HASH), "")), not_found);
    let mut both = persisted(CITY_HASH);
    both["query"] = CITY.into();
    assert_eq!(outcome(&send(&first, &both, "")), "ok");
    first.wait_for_metric("starling_apq_store_written_total", 1);
    assert_eq!(outcome(&send(&second, &persisted(CITY_HASH), "")), "ok");
    second.wait_for_metric("starling_apq_store_written_total", 1);
    let key = format!("starling:apq:{CITY_HASH}");
    assert_eq!(redis.ask(&["GET", &key]), CITY);
    let ttl: i64 = redis.ask(&["PTTL", &key]).parse().unwrap();
    assert!((3_000_000..=3_600_000).contains(&ttl), "{ttl}");

    // Foreign bytes and other types are misses, also for a router that is new.
    for value in [
        &["SET", &key, "{ warehouse { city } } "][..],
        &["SET", &key, "\\xff"],
        &["LPUSH", &key, CITY],
    ] {
        redis.ask(&["DEL", &key]);
        redis.ask(value);
        assert_eq!(outcome(&send(&third, &persisted(CITY_HASH), "")), not_found, "{value:?}");
    }
    assert_eq!(third.router.metric("starling_apq_store_invalid_total"), Some(3));
    // Memory comes first, and Redis may be away.
    let _port = redis.kill();
    assert_eq!(outcome(&send(&second, &persisted(CITY_HASH), "")), "ok");
    assert_eq!(outcome(&send(&third, &persisted(CITY_HASH), "")), not_found);
    assert_eq!(outcome(&send(&third, &both, "")), "ok");
    assert_eq!(outcome(&send(&third, &persisted(CITY_HASH), "")), "ok");
    third.assert_unaffected();
}

#[test]
fn a_text_of_the_store_runs_only_where_clients_may_send_it() {
    let Some(redis) = RedisServer::start(&[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.graphql"), "{ latestReview { id } }").unwrap();
    let folder = folder.path().display();
    let mode = format!(
        "apq: {{store: shared}}\npersisted_documents: {{mode: require_known, manifests: [{{folder: '{folder}'}}]}}"
    );
    let strict = Shop::with_provider("memory/default", &with_redis(&redis.url(), &mode));
    wait_for_store(&strict, true);
    redis.ask(&["SET", &format!("starling:apq:{CITY_HASH}"), CITY]);
    let response = send(&strict, &persisted(CITY_HASH), "");
    assert_eq!(outcome(&response), "403 PERSISTED_DOCUMENT_REQUIRED");
}

/// A server of one manifest.
struct ManifestServer {
    url: String,
    /// The status, the version and the text of responses.
    response: Arc<Mutex<(u16, &'static str, String)>>,
    not_modified: Arc<AtomicUsize>,
}

impl ManifestServer {
    fn start(text: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/manifest.json", listener.local_addr().unwrap());
        let response = Arc::new(Mutex::new((200, "\"1\"", text.to_owned())));
        let not_modified = Arc::<AtomicUsize>::default();
        let (current, unchanged) = (Arc::clone(&response), Arc::clone(&not_modified));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) > 0 {
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head).to_lowercase();
                let (mut status, etag, mut text) = current.lock().unwrap().clone();
                if !head.contains("authorization: bearer hunter2") {
                    (status, text) = (401, String::new());
                } else if status == 200 && head.contains(&format!("if-none-match: {etag}")) {
                    unchanged.fetch_add(1, Ordering::Relaxed);
                    (status, text) = (304, String::new());
                }
                let length = text.len();
                // The router may have gone.
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status} x\r\netag: {etag}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
                );
            }
        });
        Self { url, response, not_modified }
    }

    fn set(&self, status: u16, etag: &'static str, text: &str) {
        *self.response.lock().unwrap() = (status, etag, text.to_owned());
    }
}

#[test]
fn a_manifest_by_url_is_followed_and_the_last_good_one_stays() {
    let server = ManifestServer::start(&json!({ "city": CITY }).to_string());
    let configuration = format!(
        "persisted_documents: {{mode: require_id, manifests: [{{url: '{}', refresh: 1s, headers: [{{name: authorization, value: 'Bearer hunter2'}}]}}]}}",
        server.url
    );
    let shop = Shop::with_provider("memory/default", &configuration);
    let run = |id: &str| outcome(&send(&shop, &json!({ "documentId": id }), ""));
    assert_eq!(run("city"), "ok");
    let downloads = |result: &str| {
        let name = format!("starling_persisted_document_downloads_total{{result=\"{result}\"}}");
        shop.router.metric(&name).unwrap()
    };
    eventually("an unchanged manifest", || (downloads("unchanged") > 0).then_some(()));
    assert!(server.not_modified.load(Ordering::Relaxed) > 0);
    let failures: [(u16, &'static str, String); 3] = [
        (500, "\"2\"", String::new()),
        (200, "\"3\"", "{\n\"a\" 1}".to_owned()),
        (200, "\"4\"", " ".repeat(10_000_001)),
    ];
    for (status, etag, text) in failures {
        let before = downloads("failed");
        server.set(status, etag, &text);
        eventually("a failure", || (downloads("failed") > before).then_some(()));
        assert_eq!(run("city"), "ok", "{status} {etag}");
    }
    server.set(200, "\"5\"", &json!({ "review": "{ latestReview { id } }" }).to_string());
    eventually("the new manifest", || (run("review") == "ok").then_some(()));
    assert_eq!(run("city"), "404 PERSISTED_DOCUMENT_NOT_FOUND");
    let output = shop.router.output();
    assert!(output.contains("line 2, column 5: expected `:`"), "{output}");
    assert!(!output.contains("hunter2"), "{output}");
}

#[test]
fn a_router_that_runs_only_documents_does_not_start_without_its_manifest() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("starling.yaml");
    std::fs::write(
        folder.path().join("supergraph.graphql"),
        crate::shop::SUPERGRAPH
            .replace("$SERVER", "http://127.0.0.1:1")
            .replace("$PROVIDER", "memory/default"),
    )
    .unwrap();
    std::fs::write(
        &file,
        "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\npersisted_documents: {mode: require_known, manifests: [{url: 'http://127.0.0.1:1/m?key=hunter2'}]}",
    )
    .unwrap();
    let (code, _, errors) = e2e::router::run(["serve", "--config", file.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("http://127.0.0.1:1/m: "), "{errors}");
    assert!(!errors.contains("hunter2"), "{errors}");
}
