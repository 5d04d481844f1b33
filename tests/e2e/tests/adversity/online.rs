//! `starling check --online` with brokers that are available, unavailable, or configured differently.

use std::path::Path;

use e2e::nats::NatsServer;
use e2e::redis::RedisServer;
use e2e::router::run;
use serde_json::Value;

use crate::broker_clients::{NatsClient, RedisClient};
use crate::shop::{SUPERGRAPH, Shop};

/// Returns the findings with this broker and these replacements in the supergraph: `verdict what where: reason`, one
/// line for each check except those of the subgraphs, which are not running. The exit code is checked too.
fn found(provider: &str, configuration: &str, replacements: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut supergraph =
        SUPERGRAPH.replace("$SERVER", "http://127.0.0.1:1").replace("$PROVIDER", provider);
    for (from, to) in replacements {
        assert!(supergraph.contains(from), "{from}");
        supergraph = supergraph.replace(from, to);
    }
    std::fs::write(folder.path().join("supergraph.graphql"), supergraph).unwrap();
    let file = folder.path().join("starling.yaml");
    let configuration = format!("events: {{providers: {{{configuration}}}}}\n");
    std::fs::write(&file, &configuration).unwrap();
    let (code, report, output) = check(&file, &["--format", "json"]);
    assert!(!output.contains("secret") && !report.contains("secret"), "{report}{output}");
    let report: Value =
        serde_json::from_str(&report).unwrap_or_else(|_| panic!("{report}{output}"));
    assert_eq!(report["ok"], Value::Bool(code == Some(0)));
    let mut lines = String::new();
    for check in report["checks"].as_array().unwrap() {
        let text = |name: &str| check[name].as_str().unwrap_or_default();
        let place = text("where");
        if place.starts_with("subgraph ") {
            assert_eq!(text("verdict"), "failed");
            assert!(text("reason").starts_with("connection failed"), "{check}");
            continue;
        }
        // Each failed check has advice.
        assert!(text("verdict") != "failed" || !text("advice").is_empty(), "{check}");
        lines += &format!("{} {} {place}: {}\n", text("verdict"), text("what"), text("reason"));
    }
    lines
}

fn check(file: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let mut all = vec!["check", "--config", file.to_str().unwrap(), "--online"];
    all.extend(words);
    run(all)
}

#[test]
fn with_everything_available_the_table_reports_it_and_the_exit_code_is_zero() {
    let shop = Shop::open();
    let (code, table, output) = check(&shop.supergraph_file().with_file_name("starling.yaml"), &[]);
    let table = table.replace(&shop_server(&shop), "SERVER");
    assert_eq!((code, output.as_str()), (Some(0), ""), "{table}");
    assert_eq!(
        table,
        "ok       connect    subgraph products, SERVER/products\n\
         ok       connect    subgraph reviews, SERVER/reviews\n\
         ok       connect    subgraph stock, SERVER/stock\n\
         ok       connect    memory/default\n\
         unknown  publish    memory/default announced.{{…}}, Mutation.announce\n\
         \x20        why:       its topic depends on arguments\n\
         ok       subscribe  memory/default products, Subscription.productChanged\n\
         unknown  subscribe  memory/default products.{{…}}, Subscription.productChangedAt\n\
         \x20        why:       its topic depends on arguments\n\
         ok       subscribe  memory/default products, Subscription.productOf\n\
         ok       subscribe  memory/default products, Subscription.productWatched\n\
         ok       subscribe  memory/default products, Subscription.productAsked\n\
         \n\
         Nothing failed; what is unknown cannot be tried.\n"
    );
    shop.assert_unaffected();
}

/// Returns the address of the subgraphs in the supergraph.
fn shop_server(shop: &Shop) -> String {
    let supergraph = shop.supergraph();
    let (_, after) = supergraph.split_once("name: \"stock\", url: \"").unwrap();
    after.split_once("/stock").unwrap().0.to_owned()
}

#[test]
fn an_unreachable_or_refusing_nats_server_is_reported_with_reason_and_help() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nats.conf");
    let users = r#"authorization: {users: [
        {user: all, password: secret},
        {user: few, password: secret, permissions: {subscribe: ["_INBOX.>"], publish: ["_INBOX.>", "$JS.API.>"]}},
    ]}"#;
    std::fs::write(&file, users).unwrap();
    let Some(server) = NatsServer::start_with(-1, &["-c", file.to_str().unwrap()]) else { return };
    let nats = |user: &str, password: &str| {
        let user =
            format!("authentication: {{user_info: {{username: {user}, password: {password}}}}}");
        format!("nats: [{{id: default, url: \"{}\", {user}}}]", server.url())
    };
    let at = "nats/default products, Subscription.productChanged";
    let well = found("nats/default", &nats("all", "secret"), &[]);
    assert!(well.contains("ok connect nats/default: \n"), "{well}");
    assert!(well.contains(&format!("ok subscribe {at}: \n")), "{well}");

    let wrong = found("nats/default", &nats("all", "secret2"), &[]);
    assert!(wrong.contains("failed connect nats/default: "), "{wrong}");
    assert!(wrong.to_lowercase().contains("authorization"), "{wrong}");
    assert!(
        wrong.contains(&format!("unknown subscribe {at}: the provider is not connected\n")),
        "{wrong}"
    );

    let few = found("nats/default", &nats("few", "secret"), &[]);
    assert!(few.contains("ok connect nats/default: \n"), "{few}");
    assert!(few.contains(&format!("failed subscribe {at}: the broker refused: ")), "{few}");

    let configuration = nats("all", "secret");
    drop(server);
    let away = found("nats/default", &configuration, &[]);
    assert!(away.contains("failed connect nats/default: "), "{away}");
    assert!(away.contains("refused"), "{away}");
}

#[test]
fn a_missing_jetstream_stream_is_reported() {
    let store = tempfile::tempdir().unwrap();
    let arguments = ["-js", "-sd", store.path().to_str().unwrap()];
    let Some(server) = NatsServer::start_with(-1, &arguments) else { return };
    let nats = format!("nats: [{{id: default, url: \"{}\"}}]", server.url());
    let binding = r#"topics: ["products"], providerId: "nats/default""#;
    let stored = r#"topics: ["products"], providerId: "nats/default", stream: {name: "SHOP", consumer: "router"}"#;
    let missing = found("nats/default", &nats, &[(binding, stored)]);
    let at = "subscribe nats/default products, Subscription.productChanged";
    let reason = r#"provider nats/default: JetStream has no stream "SHOP""#;
    assert!(missing.contains(&format!("failed {at}: {reason}\n")), "{missing}");
    let mut client = NatsClient::connect(server.port()).unwrap();
    let stream = r#"{"name":"SHOP","subjects":["products"]}"#;
    client.request("$JS.API.STREAM.CREATE.SHOP", None, stream).unwrap();
    let there = found("nats/default", &nats, &[(binding, stored)]);
    assert!(there.contains(&format!("ok {at}: \n")), "{there}");
    e2e::eventually("all resources to be released", || {
        let names = client.request("$JS.API.CONSUMER.NAMES.SHOP", None, "").unwrap();
        names.contains("\"total\":0").then_some(())
    });
}

#[test]
fn an_unreachable_or_refusing_redis_server_is_reported_with_reason_and_help() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let mut client = RedisClient::connect(server.port()).unwrap();
    for user in [
        ["ACL", "SETUSER", "all", "on", ">secret", "+@all", "~*", "&*"],
        ["ACL", "SETUSER", "few", "on", ">secret", "+@all", "~*", "&other"],
    ] {
        assert_eq!(client.command(&user).unwrap(), "+OK");
    }
    let redis = |user: &str, password: &str| {
        let user = format!("authentication: {{username: {user}, password: {password}}}");
        format!("redis: [{{id: default, urls: [\"{}\"], {user}}}]", server.url())
    };
    let fixed = [("announced.{{ args.place }}", "announced")];
    let subscribe = "subscribe redis/default products, Subscription.productChanged";
    let publish = "publish redis/default announced, Mutation.announce";
    let well = found("redis/default", &redis("all", "secret"), &fixed);
    for expected in [&format!("ok {subscribe}: \n"), &format!("ok {publish}: \n")] {
        assert!(well.contains(expected), "{well}");
    }
    let few = found("redis/default", &redis("few", "secret"), &fixed);
    for expected in [&format!("failed {subscribe}: "), &format!("failed {publish}: ")] {
        assert!(few.contains(expected), "{few}");
    }
    let wrong = found("redis/default", &redis("few", "secret2"), &fixed);
    assert!(
        wrong.contains("failed connect redis/default: ") && wrong.contains("WRONGPASS"),
        "{wrong}"
    );

    // The stream mode uses keys for reading and writing.
    assert_eq!(client.command(&["ACL", "SETUSER", "few", "resetkeys", "~other"]).unwrap(), "+OK");
    let provider = r#"providerId: "redis/default""#;
    let stored = [
        ("announced.{{ args.place }}", "announced"),
        (provider, r#"providerId: "redis/default", stream: {}"#),
    ];
    let few = found("redis/default", &redis("few", "secret"), &stored);
    for expected in [&format!("failed {subscribe}: "), &format!("failed {publish}: ")] {
        assert!(few.contains(expected), "{few}");
    }
    let well = found("redis/default", &redis("all", "secret"), &stored);
    for expected in [&format!("ok {subscribe}: \n"), &format!("ok {publish}: \n")] {
        assert!(well.contains(expected), "{well}");
    }
    assert_eq!(client.command(&["EXISTS", "announced"]).unwrap(), ":0", "nothing was published");

    let configuration = redis("all", "secret");
    drop(server);
    let away = found("redis/default", &configuration, &fixed);
    assert!(away.contains("failed connect redis/default: "), "{away}");
}
