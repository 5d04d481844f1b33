//! Tests of valid files, invalid files, and the pages generated from the types.
//!
//! Every folder in `tests/fixtures/` contains an invalid file (`config.yaml`) and the exact messages for it
//! (`expected.txt`). To add a case, write the file, run `UPDATE_EXPECT=1 cargo test -p config`, and check that the
//! messages help a tired operator at three in the morning.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use expect_test::expect_file;
use serde_json::Value;

use super::*;
use crate::build_features::BuildFeatures;
use crate::diagnostic::{Diagnostic, Style, render};
use crate::load::parse_for_build;

/// The value of each secret in the fixtures, which no message may contain.
const SECRET: &str = "hunter2";

/// Looks up a variable of the environment that every test uses.
fn env(name: &str) -> Option<OsString> {
    match name {
        "PORT" => Some("4100".into()),
        "SECRET" => Some(SECRET.into()),
        "SECRET_WITH_LINES" => Some(format!("{SECRET}\nlisten: 0.0.0.0:1").into()),
        _ => None,
    }
}

fn parse_with(text: &str, overrides: &Overrides) -> Result<LoadedConfig, Vec<Diagnostic>> {
    parse(text, "config.yaml", Path::new("etc"), overrides, &env)
}

#[track_caller]
fn good(text: &str) -> Config {
    match parse_with(text, &Overrides::default()) {
        Ok(loaded) => {
            assert_eq!(loaded.warnings, [], "{text}");
            loaded.config
        }
        Err(diagnostics) => panic!("{}", render(&diagnostics, Style::Plain)),
    }
}

#[track_caller]
fn bad(text: &str, overrides: &Overrides) -> String {
    match parse_with(text, overrides) {
        Ok(loaded) => panic!("accepted: {:#?}", loaded.config),
        Err(diagnostics) => render(&diagnostics, Style::Plain),
    }
}

#[test]
fn every_invalid_file_gets_its_messages() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut cases = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let case = entry.unwrap().path();
        let text = std::fs::read_to_string(case.join("config.yaml")).unwrap();
        let messages = match parse_with(&text, &Overrides::default()) {
            Ok(loaded) => render(&loaded.warnings, Style::Plain),
            Err(diagnostics) => render(&diagnostics, Style::Plain),
        };
        assert!(!messages.is_empty(), "{} gets no message", case.display());
        assert!(!messages.contains(SECRET), "{} shows a secret:\n{messages}", case.display());
        expect_file![case.join("expected.txt")].assert_eq(&messages);
        cases += 1;
    }
    assert!(cases > 30, "only {cases} cases were found");
}

#[test]
fn an_empty_file_means_the_defaults() {
    let with_folder = Config {
        supergraph: Supergraph { file: "etc/supergraph.graphql".into(), ..Supergraph::default() },
        ..Config::default()
    };
    for text in ["", "# nothing yet\n", "---\n", "~\n", "{}\n", "limits:\nsubgraphs: {}\nevents:\n"]
    {
        assert_eq!(good(text), with_folder, "{text:?}");
    }
}

#[test]
fn the_defaults_pass_their_own_checks() {
    let text = serde_json::to_string(&Config::default()).unwrap();
    let config =
        parse(&text, "defaults", Path::new(""), &Overrides::default(), &env).unwrap().config;
    assert_eq!(config, Config::default());
}

#[test]
fn the_example_of_the_configuration_page_loads() {
    let config = good(reference::EXAMPLE);
    assert_eq!(config.listen, [Listener::plain("0.0.0.0:4000".parse().unwrap())]);
    assert_eq!(config.traffic.of("reviews").timeout, Duration::from_secs(2));
    assert_eq!(config.traffic.of("products").timeout, Duration::from_secs(10));
}

#[test]
fn the_annotated_example_loads_and_has_every_section() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/starling.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    good(&text);
    for section in schema::plain_schema()["properties"].as_object().unwrap().keys() {
        let line = format!("\n{section}:");
        assert!(text.contains(&line), "{section} is not in the example");
    }
}

#[test]
fn every_key_can_be_set() {
    let config = good(include_str!("../tests/every_key.yaml"));
    expect_test::expect_file!["../tests/every_key.txt"].assert_debug_eq(&config);
    // The secrets are present, though the dump does not show them.
    let secrets: Vec<_> = config
        .events
        .providers
        .nats
        .iter()
        .map(|provider| match provider.authentication.as_ref().unwrap() {
            NatsAuthentication::Token(secret) => secret.expose(),
            NatsAuthentication::UserInfo(user) => user.password.expose(),
            NatsAuthentication::Nkey(seed) => seed.expose(),
            NatsAuthentication::CredentialsFile(path) => path.to_str().unwrap(),
        })
        .collect();
    assert_eq!(secrets, [SECRET, SECRET, SECRET, "etc/d.creds"]);
    let kafka = config.events.providers.kafka.iter().filter_map(|provider| {
        match provider.authentication.as_ref().unwrap() {
            KafkaAuthentication::SaslPlain(user) => Some(user.password.expose()),
            KafkaAuthentication::SaslScram(user) => Some(user.password.expose()),
            KafkaAuthentication::OauthToken(token) => Some(token.expose()),
            KafkaAuthentication::OauthTokenFile(_) => None,
        }
    });
    assert_eq!(kafka.collect::<Vec<_>>(), [SECRET; 3]);
    for provider in &config.events.providers.redis {
        assert_eq!(provider.authentication.as_ref().unwrap().password.expose(), SECRET);
    }
    let dumped = format!("{config:?}") + &serde_json::to_string(&config).unwrap();
    assert!(!dumped.contains(SECRET), "{dumped}");
    let inserted = config.headers.request_rules("reviews").last().unwrap();
    let HeaderRule::Insert(insertion) = inserted else { panic!("{inserted:?}") };
    assert_eq!(insertion.value, SECRET);
}

#[test]
fn variables_stand_for_any_kind_of_value() {
    let config = good(
        "listen: 127.0.0.1:${PORT}\nlimits: {depth: \"${DEPTH:-7}\"}\n\
         introspection: ${INTROSPECTION:-false}\nlog: {level: \"${LEVEL:-warn}\"}\n\
         workers: ${WORKERS:-2}\n",
    );
    assert_eq!(config.listen[0].address().map(|it| it.port()), Some(4100));
    assert_eq!(config.limits.depth, 7);
    assert!(!config.introspection.enabled);
    assert_eq!(config.log.level, LogLevel::Warn);
    assert_eq!(config.workers, WorkerCount::Count(2));
}

#[test]
fn a_variable_cannot_add_keys() {
    let messages = bad("listen: ${SECRET_WITH_LINES}\n", &Overrides::default());
    assert!(messages.contains("`listen` must be an address to listen on"), "{messages}");
    assert!(!messages.contains(SECRET), "{messages}");
}

#[test]
fn aliases_and_merge_keys_repeat_values() {
    let config = good(
        "traffic:\n  all: &slow {timeout: 9s, max_response_size: 1KiB}\n  subgraphs:\n    a: *slow\n    \
         b:\n      <<: *slow\n      timeout: 1s\n",
    );
    assert_eq!(config.traffic.of("a"), config.traffic.all);
    assert_eq!(
        config.traffic.of("b"),
        TrafficSettings {
            timeout: Duration::from_secs(1),
            max_response_size: 1024,
            ..TrafficSettings::default()
        }
    );
}

#[test]
fn the_memory_provider_default_always_exists() {
    let ids = |text: &str| {
        let memory = good(text).events.providers.memory;
        memory.iter().map(|provider| provider.id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids(""), ["default"]);
    assert_eq!(ids("events: {providers: {memory: [{id: a}]}}"), ["a", "default"]);
    let twice = "events: {providers: {memory: [{id: default, ring_events: 9}]}}";
    assert_eq!(ids(twice), ["default"]);
    assert_eq!(good(twice).events.providers.memory[0].ring_events, 9);
}

#[test]
fn credentials_in_the_url_of_a_broker_become_its_authentication() {
    let provider = |url: &str| {
        let text = format!("events: {{providers: {{nats: [{{id: a, url: \"{url}\"}}]}}}}");
        let provider = good(&text).events.providers.nats.remove(0);
        (provider.url, provider.authentication)
    };
    assert_eq!(provider("nats://h:1"), ("nats://h:1".into(), None));
    assert_eq!(
        provider("nats://${SECRET}@h"),
        ("nats://h".into(), Some(NatsAuthentication::Token(Secret::new(SECRET))))
    );
    let user_info = UserInfo { username: "me".into(), password: Secret::new("p@ss") };
    assert_eq!(
        provider("tls://me:p%40ss@h:1"),
        ("tls://h:1".into(), Some(NatsAuthentication::UserInfo(user_info)))
    );
    let provider = |url: &str| {
        let text = format!("events: {{providers: {{redis: [{{id: a, urls: [\"{url}\"]}}]}}}}");
        let mut provider = good(&text).events.providers.redis.remove(0);
        (provider.urls.remove(0), provider.authentication)
    };
    let authentication = |username: Option<&str>, password| {
        let username = username.map(str::to_owned);
        Some(RedisAuthentication { username, password: Secret::new(password) })
    };
    assert_eq!(provider("redis://h:1/2"), ("redis://h:1/2".into(), None));
    assert_eq!(
        provider("redis://:${SECRET}@h"),
        ("redis://h".into(), authentication(None, SECRET))
    );
    assert_eq!(
        provider("rediss://me:p%40ss@h:1/2"),
        ("rediss://h:1/2".into(), authentication(Some("me"), "p@ss"))
    );
}

#[test]
fn flags_win_over_the_file() {
    let overrides = Overrides {
        listen: Some("127.0.0.1:9".parse().unwrap()),
        admin_listen: Some("127.0.0.1:10".parse().unwrap()),
        supergraph: Some("here.graphql".into()),
    };
    let text = "listen: [\"127.0.0.1:10\", \"127.0.0.1:11\"]\nsupergraph: {file: there.graphql}\n";
    let config = parse_with(text, &overrides).unwrap().config;
    let addresses: Vec<_> =
        config.listen.iter().filter_map(Listener::address).map(|it| it.to_string()).collect();
    assert_eq!(addresses, ["127.0.0.1:9"]);
    assert_eq!(config.admin.listen.to_string(), "127.0.0.1:10");
    assert_eq!(config.supergraph.file, Path::new("here.graphql"));
}

#[test]
fn a_graph_has_one_source() {
    let source = |text: &str, overrides: &Overrides| {
        let supergraph = parse_with(text, overrides).unwrap().config.supergraph;
        (supergraph.file.display().to_string(), supergraph.compose)
    };
    let none = Overrides::default();
    assert_eq!(source("supergraph: {file: /graphs/a.graphql}", &none).0, "/graphs/a.graphql");
    let compose = "supergraph: {compose: graphs/a.yaml}";
    assert_eq!(source(compose, &none).1.as_deref(), Some(Path::new("etc/graphs/a.yaml")));
    let flag = Overrides { supergraph: Some("b.graphql".into()), ..Overrides::default() };
    assert_eq!(source(compose, &flag), ("b.graphql".to_owned(), None));
    let both = "supergraph: {file: a.graphql, compose: a.yaml}";
    assert_eq!(source(both, &flag), ("b.graphql".to_owned(), None));
    expect_test::expect![[r#"
        error[conflict]: `supergraph.file` and `supergraph.compose` are both set
         --> config.yaml:1:40
          |
        1 | supergraph: {file: a.graphql, compose: a.yaml}
          |                    ---------           ^^^^^^ composed by the router
          |                    |
          |                    composed before
          |
          = help: remove one of them: a graph has one source
    "#]]
    .assert_eq(&bad(both, &none));
}

#[test]
fn a_folder_of_schemas_is_a_source_of_its_own() {
    let none = Overrides::default();
    let directory = |text: &str, overrides: &Overrides| {
        parse_with(text, overrides).unwrap().config.supergraph.directory
    };
    let text = "supergraph: {directory: graphs}";
    assert_eq!(directory(text, &none).as_deref(), Some(Path::new("etc/graphs")));
    let flag = Overrides { supergraph: Some("b.graphql".into()), ..Overrides::default() };
    assert_eq!(directory(text, &flag), None);
    expect_test::expect![[r#"
        error[conflict]: `supergraph.compose` and `supergraph.directory` are both set
         --> config.yaml:1:42
          |
        1 | supergraph: {compose: a.yaml, directory: graphs}
          |                       ------             ^^^^^^ a folder of schemas
          |                       |
          |                       composed by the router
          |
          = help: remove one of them: a graph has one source
    "#]]
    .assert_eq(&bad("supergraph: {compose: a.yaml, directory: graphs}", &none));
    for other in ["file: a.graphql", "url: \"https://graphs.example.com/a.graphql\""] {
        let text = format!("supergraph: {{directory: graphs, {other}}}");
        let messages = bad(&text, &none);
        assert!(messages.contains("and `supergraph.directory` are both set"), "{messages}");
    }
}

#[test]
fn a_flag_that_conflicts_with_the_file_is_explained() {
    let overrides =
        Overrides { listen: Some("127.0.0.1:8088".parse().unwrap()), ..Overrides::default() };
    expect_test::expect![[r#"
        error[conflict]: `admin.listen` and `listen` are the same address, 127.0.0.1:8088
         --> config.yaml:1:17
          |
        1 | admin: {listen: "127.0.0.1:8088"}
          |                 ^^^^^^^^^^^^^^^^ only one listener can have it
          |
          = help: give the admin listener a port of its own: it must not be public
    "#]]
    .assert_eq(&bad("admin: {listen: \"127.0.0.1:8088\"}\n", &overrides));
}

#[test]
fn settings_of_unknown_subgraphs_get_a_warning() {
    let text = "subgraphs:\n  revews: {url: \"http://r/\"}\n  products: {url: \"http://p/\"}\n\
                traffic: {subgraphs: {zzz: {timeout: 1s}}}\n";
    let loaded = parse_with(text, &Overrides::default()).unwrap();
    expect_test::expect![[r#"
        warning[unknown-subgraph]: `subgraphs.revews` has no effect: the supergraph has no such subgraph
         --> config.yaml:2:3
          |
        2 |   revews: {url: "http://r/"}
          |   ^^^^^^ not in the supergraph
          |
          = help: did you mean `reviews`?

        warning[unknown-subgraph]: `traffic.subgraphs.zzz` has no effect: the supergraph has no such subgraph
         --> config.yaml:4:23
          |
        4 | traffic: {subgraphs: {zzz: {timeout: 1s}}}
          |                       ^^^ not in the supergraph
          |
          = help: the supergraph has: products, reviews
    "#]]
    .assert_eq(&render(&loaded.unknown_subgraphs(["products", "reviews"]), Style::Plain));
}

#[test]
fn an_endpoint_for_callbacks_that_no_subgraph_uses_gets_a_warning() {
    let text = "subscriptions:\n  callback: {public_url: \"http://router/callback\"}\n";
    let loaded = parse_with(text, &Overrides::default()).unwrap();
    expect_test::expect![[r#"
        warning[no-effect]: `subscriptions.callback` has no effect: no subgraph sends events by callbacks
         --> config.yaml:2:3
          |
        2 |   callback: {public_url: "http://router/callback"}
          |   ^^^^^^^^ not used
          |
          = help: remove it, or write `subgraphs: {NAME: {subscription: {protocol: callback}}}`
    "#]]
    .assert_eq(&render(&loaded.unused_callback(), Style::Plain));
    assert_eq!(parse_with("", &Overrides::default()).unwrap().unused_callback(), []);
}

#[test]
fn a_field_of_the_access_log_may_be_named_graph_unless_lines_have_the_name_of_the_graph() {
    let field = "access_log: {enabled: true, fields: [{name: graph, value: client.name}]}\n";
    assert_eq!(good(field).access_log.fields[0].name, "graph");
    let graphs = "graphs: [{name: beta, path: /beta, supergraph: {file: beta.graphql}}]\n";
    let found = parse_with(&format!("{field}{graphs}"), &Overrides::default()).unwrap_err();
    expect_test::expect![[r#"
        error[conflict]: lines of the access log have the field `graph` already
         --> config.yaml:1:45
          |
        1 | access_log: {enabled: true, fields: [{name: graph, value: client.name}]}
          |                                             ^^^^^ used already
          |
          = help: choose another name
    "#]]
    .assert_eq(&render(&found, Style::Plain));
}

#[test]
fn settings_that_need_a_feature_of_another_build_are_reported_with_the_command_that_adds_it() {
    let text = "events: {providers: {kafka: [{id: default, brokers: [\"kafka:9092\"]}]}}\n\
                admin: {profiling: true}\n\
                subgraphs: {a: {aws_sigv4: {region: eu-central-1, service: appsync}}}\n";
    let findings_of = |text: &str, features: BuildFeatures| {
        let flags = Overrides::default();
        match parse_for_build(text, "config.yaml", Path::new("etc"), &flags, &env, features) {
            Ok(loaded) => render(&loaded.warnings, Style::Plain),
            Err(diagnostics) => render(&diagnostics, Style::Plain),
        }
    };
    let findings = |kafka, profiling, aws| {
        findings_of(text, BuildFeatures { aws, kafka, profiling, rego: true })
    };
    assert_eq!(findings(true, true, true), "");
    let rego = "authorization: {policies: {rego: {files: [a.rego], query: data.a.b}}}\n";
    let all = BuildFeatures { aws: true, kafka: true, profiling: true, rego: true };
    assert_eq!(findings_of(rego, all), "");
    expect_test::expect![[r#"
        error[not-built]: this build of the router cannot evaluate policies in Rego
         --> config.yaml:1:28
          |
        1 | authorization: {policies: {rego: {files: [a.rego], query: data.a.b}}}
          |                            ^^^^ needs the feature `rego`
          |
          = help: build the router with `cargo build --release --features rego`, or as packages are built, with `cargo build --profile dist --features full`
    "#]].assert_eq(&findings_of(rego, BuildFeatures { rego: false, ..all }));
    expect_test::expect![[r#"
        error[not-built]: this build of the router has no provider `kafka` for events
         --> config.yaml:1:22
          |
        1 | events: {providers: {kafka: [{id: default, brokers: ["kafka:9092"]}]}}
          |                      ^^^^^ needs the feature `kafka`
          |
          = help: build the router with `cargo build --release --features kafka`, or as packages are built, with `cargo build --profile dist --features full`
    "#]].assert_eq(&findings(false, true, true));
    expect_test::expect![[r#"
        error[not-built]: this build of the router has no signatures of AWS
         --> config.yaml:3:17
          |
        3 | subgraphs: {a: {aws_sigv4: {region: eu-central-1, service: appsync}}}
          |                 ^^^^^^^^^ needs the feature `aws`
          |
          = help: build the router with `cargo build --release --features aws`, or as packages are built, with `cargo build --profile dist --features full`
    "#]].assert_eq(&findings(true, true, false));
    if cfg!(target_os = "linux") {
        expect_test::expect![[r#"
            error[not-built]: this build of the router takes no profiles of CPU and memory
             --> config.yaml:2:9
              |
            2 | admin: {profiling: true}
              |         ^^^^^^^^^ needs the feature `profiling`
              |
              = help: build the router with `cargo build --release --features profiling`, or as packages are built, with `cargo build --profile dist --features full`
        "#]].assert_eq(&findings(true, false, true));
    } else {
        assert_eq!(findings(true, false, true), "");
    }
}

#[test]
fn a_missing_file_gets_advice() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let diagnostics = load(Some(&folder.join("no-such.yaml")), &Overrides::default()).unwrap_err();
    let text = render(&diagnostics, Style::Plain).replace(&folder.display().to_string(), "DIR");
    expect_test::expect![[r#"
        error[unreadable-file]: cannot read the configuration DIR/no-such.yaml: No such file or directory (os error 2)
         |
         = help: check the path; to serve a graph with the default settings, give `--supergraph FILE` and no `--config`
    "#]]
    .assert_eq(&text);
    assert!(load(Some(folder), &Overrides::default()).is_err(), "a folder is no configuration");
}

#[test]
fn too_many_errors_are_counted() {
    let text: String = (0..80).map(|index| format!("unknown{index}: 1\n")).collect();
    let diagnostics = parse_with(&text, &Overrides::default()).unwrap_err();
    assert_eq!(diagnostics.len(), 51);
    assert_eq!(diagnostics[50].message, "30 more errors are not shown; fix the first ones");
}

#[test]
fn aliases_that_multiply_are_refused_early() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let previous = format!("*a{},", level - 1).repeat(10);
        text.push_str(&format!("a{level}: &a{level} [{previous}]\n"));
    }
    let messages = bad(&text, &Overrides::default());
    assert!(messages.contains("error[too-large]"), "{messages}");
}

#[test]
fn anchors_inside_of_anchors_are_refused_early() {
    let mut text = String::new();
    for level in 0..200 {
        text.push_str(&format!("&a{level} ["));
    }
    text.push_str(&"x,".repeat(100_000));
    text.push_str(&"]".repeat(200));
    let messages = bad(&text, &Overrides::default());
    assert!(messages.contains("error[too-large]"), "{messages}");
}

#[test]
fn files_of_other_systems_are_read() {
    let config = good("\u{feff}listen: 127.0.0.1:1\r\nlimits:\r\n  depth: 7\r\npath: /a\r\n");
    assert_eq!((config.limits.depth, config.path.as_str()), (7, "/a"));
    expect_test::expect![[r#"
        error[out-of-range]: `limits.depth` must be from 1 to 500
         --> config.yaml:2:10
          |
        2 |   depth: 0
          |          ^ `0` is too small
          |
          = help: write a number from 1 to 500
    "#]]
    .assert_eq(&bad("\u{feff}limits:\r\n  depth: 0\r\n", &Overrides::default()));
}

#[test]
fn a_key_cannot_fake_a_line_of_the_log() {
    let text = "\"a\\nerror: all is lost\": 1\n? \"".to_owned() + &"x".repeat(5000) + "\"\n: 2\n";
    let diagnostics = parse_with(&text, &Overrides::default()).unwrap_err();
    assert_eq!(diagnostics.len(), 2);
    for diagnostic in diagnostics {
        let line = diagnostic.to_string();
        assert!(!line.contains('\n') && line.len() < 2000, "{line}");
    }
}

#[test]
fn no_text_makes_the_loader_panic() {
    let whole = reference::EXAMPLE;
    let alphabet =
        ["", " ", "\t", "\n", ":", "- ", "{", "[", "\"", "${", "&a ", "*a", "<<: ", "ü", "\0"];
    for (at, _) in whole.char_indices() {
        // Four of the pieces at every place; all of them within a line.
        for offset in 0..4 {
            let piece = alphabet[(at * 4 + offset) % alphabet.len()];
            let text = format!("{}{piece}{}", &whole[..at], &whole[at..]);
            let _ = parse_with(&text, &Overrides::default());
        }
        let _ = parse_with(&whole[..at], &Overrides::default());
    }
    let deep = "[".repeat(100_000);
    let _ = parse_with(&deep, &Overrides::default());
    let deep = "a:\n"
        .repeat(1000)
        .lines()
        .enumerate()
        .fold(String::new(), |text, (depth, line)| text + &" ".repeat(depth) + line + "\n");
    let _ = parse_with(&deep, &Overrides::default());
}

/// Calls `visit` with every key and its schema.
fn keys(schema: &Value, path: &str, visit: &mut dyn FnMut(&str, &Value, &Value)) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let inner = format!("{path}.{name}");
        visit(&inner, property, schema);
        keys(property, &inner, visit);
    }
    for nested in ["additionalProperties", "items"] {
        if schema[nested].is_object() {
            keys(&schema[nested], &format!("{path}[]"), visit);
        }
    }
    for branch in schema["anyOf"].as_array().into_iter().flatten() {
        keys(branch, path, visit);
    }
}

#[test]
fn every_key_is_documented_and_every_value_has_an_example_that_loads() {
    let schema = schema::plain_schema();
    let mut wrong = Vec::new();
    keys(schema, "", &mut |path, property, parent| {
        if property["description"].as_str().is_none_or(str::is_empty) {
            wrong.push(format!("{path} has no description"));
        }
        let has_keys = !path.is_empty() && {
            let text = property.to_string();
            text.contains("\"properties\"") || text.contains("\"additionalProperties\":{")
        };
        if !has_keys {
            if property["examples"][0].is_null() {
                wrong.push(format!("{path} has no example"));
            }
            let name = path.rsplit('.').next().unwrap();
            let is_required = parent["required"]
                .as_array()
                .is_some_and(|required| required.iter().any(|required| required == name));
            let is_one_of = parent["maxProperties"] == 1;
            if property.get("default").is_none() && !is_required && !is_one_of {
                wrong.push(format!("{path} has neither a default nor is it required"));
            }
        }
        if schema_facts::type_name(property) == Some("integer")
            && !(property["minimum"].is_i64() && property["maximum"].is_i64())
        {
            wrong.push(format!("{path} has no bounds"));
        }
        // The example is checked as the value of that key.
        for example in property["examples"].as_array().into_iter().flatten() {
            if example.to_string().contains("${") {
                continue;
            }
            let mut findings = findings::Findings::default();
            let node = yaml::read(&example.to_string(), &mut findings).unwrap();
            check::check(&node, property, &mut findings);
            if findings.has_errors() {
                wrong.push(format!("the example of {path} is refused: {findings:?}"));
            }
        }
    });
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn the_configuration_page_covers_every_section_and_is_up_to_date() {
    let schema = schema::plain_schema();
    let page = config_reference();
    for name in schema["properties"].as_object().unwrap().keys() {
        assert!(page.contains(&format!("\n## `{name}`\n")), "{name} is not on the page");
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    expect_file![file].assert_eq(&page);
}

#[test]
fn the_schema_for_editors_is_up_to_date_and_takes_references_everywhere() {
    let schema = config_schema();
    expect_file!["../tests/schema.json"]
        .assert_eq(&(serde_json::to_string_pretty(&schema).unwrap() + "\n"));
    let mut plain = BTreeSet::new();
    keys(schema::plain_schema(), "", &mut |path, _, _| {
        plain.insert(path.to_owned());
    });
    let mut with_references = BTreeSet::new();
    keys(&schema, "", &mut |path, _, _| {
        with_references.insert(path.to_owned());
    });
    assert_eq!(plain, with_references);
}

#[test]
fn the_format_of_logs_is_read_from_a_configuration_that_is_wrong_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("starling.yaml");
    let format = |text: &str| {
        std::fs::write(&path, text).unwrap();
        log_settings(Some(&path)).map(|log| log.format)
    };
    assert_eq!(format("limits: {deepth: 7}\nlog: {format: json}"), Some(LogFormat::Json));
    assert_eq!(format("log: {format: text}\nlisten: nowhere"), Some(LogFormat::Text));
    assert_eq!(format("log: {format: yaml}"), Some(LogFormat::Auto));
    let by_variable = "log: {format: \"${NO_SUCH_VARIABLE:-json}\"}\nlisten: nowhere";
    assert_eq!(format(by_variable), Some(LogFormat::Json));
    assert_eq!(format("limits: {depth: 7}"), None);
    assert_eq!(format("log: ["), None);
    assert_eq!(log_settings(None), None);
}

#[test]
fn the_admin_listener_is_read_from_a_configuration_that_is_wrong_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("starling.yaml");
    let listen = |text: &str| {
        std::fs::write(&path, text).unwrap();
        admin_settings(&path).map(|admin| admin.listen.to_string()).map_err(|problems| {
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        })
    };
    for (text, expected) in [
        ("", "127.0.0.1:8088"),
        ("limits: {deepth: 7}", "127.0.0.1:8088"),
        ("admin: {allowed_hosts: [a]}\nlisten: nowhere", "127.0.0.1:8088"),
        ("cursor: {keys: [\"${UNSET_KEY}\"]}\nadmin: {listen: \"0.0.0.0:9\"}", "0.0.0.0:9"),
        ("admin: {listen: \"${UNSET_ADDRESS:-[::1]:9}\"}", "[::1]:9"),
    ] {
        assert_eq!(listen(text).as_deref(), Ok(expected), "{text}");
    }
    for (text, part) in [
        ("admin: {listen: nowhere}", "starling.yaml:1:17"),
        ("admin: {listen: \"${UNSET_ADDRESS}\"}", "UNSET_ADDRESS"),
        ("admin: [", "starling.yaml:1"),
    ] {
        let problem = listen(text).unwrap_err();
        assert!(problem.contains(part), "{text}: {problem}");
    }
    assert!(admin_settings(Path::new("/no/such/file")).is_err());
}
