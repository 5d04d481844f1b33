//! The output of the program if it cannot do what the command line requests.

use std::net::TcpListener;

use e2e::router::run;
use expect_test::expect;

use crate::responses::case;
use crate::shop::SUPERGRAPH;

fn supergraph() -> String {
    SUPERGRAPH.replace("$SERVER", "http://127.0.0.1:1").replace("$PROVIDER", "memory/default")
}

/// Returns exit code and output of a command in a folder with this supergraph and configuration.
fn outcome(words: &[&str], configuration: &str, graph: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("supergraph.graphql"), graph).unwrap();
    std::fs::write(folder.path().join("starling.yaml"), configuration).unwrap();
    let place = folder.path().display().to_string();
    let words: Vec<String> = words.iter().map(|word| word.replace("$HERE", &place)).collect();
    let (code, out, err) = run(&words);
    let code = code.map_or("a signal".to_owned(), |code| code.to_string());
    let output: String = out
        .lines()
        .chain(err.lines())
        .filter_map(without_log)
        .flat_map(|line| [line, "\n".to_owned()])
        .collect();
    format!("exit {code}\n{output}").replace(&place, "$HERE")
}

/// Returns exit code and findings of `serve`, which writes them as JSON, as `check` prints them.
fn findings_of_serve(configuration: &str, graph: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("supergraph.graphql"), graph).unwrap();
    std::fs::write(folder.path().join("starling.yaml"), configuration).unwrap();
    let place = folder.path().display().to_string();
    let (code, out, err) = run(SERVE.map(|word| word.replace("$HERE", &place)));
    assert_eq!(out, "");
    let findings = err.lines().filter_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line)
            .unwrap_or_else(|error| panic!("a line of the log is no JSON: {error}: {line}"));
        line["code"].is_string().then(|| line["excerpt"].as_str().unwrap_or_default().to_owned())
    });
    let findings = findings.collect::<Vec<_>>().join("\n\n").replace(&place, "$HERE");
    format!("exit {}\n{findings}\n", code.unwrap_or_default())
}

/// Removes log lines, which contain the time, except for errors.
fn without_log(line: &str) -> Option<String> {
    if !line.starts_with("{\"timestamp\"") {
        return Some(line.to_owned());
    }
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let text = |name: &str| line[name].as_str().unwrap_or_default();
    (line["level"] == "ERROR").then(|| {
        format!("log: {} {}: {}; {}", text("place"), text("code"), text("message"), text("help"))
    })
}

const CHECK: [&str; 3] = ["check", "--config", "$HERE/starling.yaml"];
const SERVE: [&str; 7] = [
    "serve",
    "--config",
    "$HERE/starling.yaml",
    "--listen",
    "127.0.0.1:0",
    "--admin-listen",
    "127.0.0.1:0",
];

#[test]
fn an_invalid_configuration_is_refused_with_line_column_and_help() {
    let mut outcomes = String::new();
    for configuration in [
        "listen: [",
        "limits: {deepth: 7}",
        "limits: {depth: 0}",
        "limits: {depth: many}",
        "listen: 127.0.0.1",
        "limits: {time: 7}",
        "subgraphs: {revues: {url: \"http://x/\"}}",
        "subgraphs: {reviews: {url: \"ftp://x/\"}}",
        "events: {providers: {nats: [{id: a, url: \"nats://x\"}, {id: a, url: \"nats://y\"}]}}",
        "events: {providers: {nats: [{id: a, url: \"http://x\"}]}}",
        "supergraph: {file: ${NO_SUCH_VARIABLE}}",
        "supergraph: {file: nowhere.graphql}\nlog: {format: text, level: error}",
        "path: graphql",
        "path: /graphql\npath: /graphql",
        "block: {mutations: \"client.nome == ''\"}",
        "block:\n  rules:\n    - when: |\n        claims.sub == 'ann' &&\n        claims.sub ==\n",
        "rate_limits: [{name: a, key: \"[claims.sub]\", rate: 1, per: 1s}]",
        "7",
    ] {
        let check = outcome(&CHECK, configuration, &supergraph());
        if check.starts_with("exit 1") {
            let serve = match configuration.contains("format: text") {
                true => outcome(&SERVE, configuration, &supergraph()),
                false => findings_of_serve(configuration, &supergraph()),
            };
            assert_eq!(check, serve, "check and serve disagree");
        }
        outcomes += &case(configuration, &check);
    }
    expect![[r#"
        --- listen: [
        exit 1
        error[yaml-syntax]: the file is not valid YAML
         --> $HERE/starling.yaml:1:9
          |
        1 | listen: [
          |         ^ unclosed bracket '['
          |
          = help: check the indentation, quotes and brackets of this line and the one before it

        --- limits: {deepth: 7}
        exit 1
        error[unknown-key]: unknown key `deepth` in `limits`
         --> $HERE/starling.yaml:1:10
          |
        1 | limits: {deepth: 7}
          |          ^^^^^^ not known here
          |
          = help: did you mean `depth`? Known here: `body`, `body_expansion_ratio`, `depth`, `aliases`, `root_fields`, `tokens`, `selections`, `preparing`, `preparing_waiting`, `preparing_waiting_per_client`, `prepared_operations`, `time`, `deadline_headers` and `memory`

        --- limits: {depth: 0}
        exit 1
        error[out-of-range]: `limits.depth` must be from 1 to 500
         --> $HERE/starling.yaml:1:17
          |
        1 | limits: {depth: 0}
          |                 ^ `0` is too small
          |
          = help: write a number from 1 to 500

        --- limits: {depth: many}
        exit 1
        error[wrong-type]: `limits.depth` must be a whole number
         --> $HERE/starling.yaml:1:17
          |
        1 | limits: {depth: many}
          |                 ^^^^ `many` does not fit
          |
          = help: write a number from 1 to 500, digits only, without quotes or a unit

        --- listen: 127.0.0.1
        exit 1
        error[invalid-value]: `listen` must be an address to listen on
         --> $HERE/starling.yaml:1:9
          |
        1 | listen: 127.0.0.1
          |         ^^^^^^^^^ the port is missing
          |
          = help: write `127.0.0.1:4000`

        --- limits: {time: 7}
        exit 1
        error[invalid-value]: `limits.time` must be a duration
         --> $HERE/starling.yaml:1:16
          |
        1 | limits: {time: 7}
          |                ^ the unit is missing
          |
          = help: write a whole number and a unit (`ms`, `s`, `m`, `h`): `500ms`, `30s`, `1m30s`

        --- subgraphs: {revues: {url: "http://x/"}}
        exit 0
        No errors.
        warning[unknown-subgraph]: `subgraphs.revues` has no effect: the supergraph has no such subgraph
         --> $HERE/starling.yaml:1:13
          |
        1 | subgraphs: {revues: {url: "http://x/"}}
          |             ^^^^^^ not in the supergraph
          |
          = help: did you mean `reviews`?

        --- subgraphs: {reviews: {url: "ftp://x/"}}
        exit 1
        error[invalid-value]: `subgraphs.reviews.url` must be a URL
         --> $HERE/starling.yaml:1:28
          |
        1 | subgraphs: {reviews: {url: "ftp://x/"}}
          |                            ^^^^^^^^^^ the scheme `ftp` is not `http://` or `https://`
          |
          = help: write scheme, host and path: `http://reviews.internal:4001/graphql`; or a unix socket: `unix:///run/reviews.sock?path=/graphql`

        --- events: {providers: {nats: [{id: a, url: "nats://x"}, {id: a, url: "nats://y"}]}}
        exit 1
        error[conflict]: two providers of kind `nats` have the id `a`
         --> $HERE/starling.yaml:1:60
          |
        1 | events: {providers: {nats: [{id: a, url: "nats://x"}, {id: a, url: "nats://y"}]}}
          |                                  - first used here         ^ used again here
          |
          = help: give each its own id: directives name a provider by it

        --- events: {providers: {nats: [{id: a, url: "http://x"}]}}
        exit 1
        error[invalid-value]: `events.providers.nats[0].url` must be the URL of a NATS server
         --> $HERE/starling.yaml:1:42
          |
        1 | events: {providers: {nats: [{id: a, url: "http://x"}]}}
          |                                          ^^^^^^^^^^ the scheme `http` is not `nats://` or `tls://`
          |
          = help: write `nats://HOST:PORT`, or `tls://HOST:PORT` for an encrypted connection

        --- supergraph: {file: ${NO_SUCH_VARIABLE}}
        exit 1
        error[yaml-syntax]: the file is not valid YAML
         --> $HERE/starling.yaml:1:21
          |
        1 | supergraph: {file: ${NO_SUCH_VARIABLE}}
          |                     ^ while parsing a flow mapping, did not find expected ',' or '}'
          |
          = help: inside braces and brackets, `${…}` needs quotes: `{depth: "${DEPTH}"}`

        --- supergraph: {file: nowhere.graphql}
        log: {format: text, level: error}
        exit 1
        error[supergraph]: cannot read the supergraph $HERE/nowhere.graphql: No such file or directory (os error 2)
         |
         = help: set its path by `supergraph.file` in the configuration or by --supergraph

        --- path: graphql
        exit 1
        error[invalid-value]: `path` must be the path of a URL
         --> $HERE/starling.yaml:1:7
          |
        1 | path: graphql
          |       ^^^^^^^ it does not begin with `/`
          |
          = help: write a path that begins with `/`: `/graphql`

        --- path: /graphql
        path: /graphql
        exit 1
        error[duplicate-key]: `path` is given twice
         --> $HERE/starling.yaml:2:1
          |
        1 | path: /graphql
          | ---- first given here
        2 | path: /graphql
          | ^^^^ given again here
          |
          = help: remove one of the two, or combine their contents in one

        --- block: {mutations: "client.nome == ''"}
        exit 1
        error[invalid-value]: `block.mutations` must be a condition
         --> $HERE/starling.yaml:1:28
          |
        1 | block: {mutations: "client.nome == ''"}
          |                            ^^^^ `client` has no member `nome` (column 8 of the expression)
          |
          = help: `client` has `name` and `version`

        --- block:
          rules:
            - when: |
                claims.sub == 'ann' &&
                claims.sub ==

        exit 1
        error[invalid-value]: `block.rules[0].when` must be a condition
         --> $HERE/starling.yaml:4:9
          |
        4 |         claims.sub == 'ann' &&
          |         ^^^^^^^^^^^^^^^^^^^^^^ syntax error: mismatched input the end of the expression (line 2, column 14 of the expression)
          |
          = help: write `true`, `false`, or a condition in CEL (`docs/expressions.md`): `client.name == ""`

        --- rate_limits: [{name: a, key: "[claims.sub]", rate: 1, per: 1s}]
        exit 1
        error[invalid-value]: `rate_limits[0].key` must be an expression
         --> $HERE/starling.yaml:1:31
          |
        1 | rate_limits: [{name: a, key: "[claims.sub]", rate: 1, per: 1s}]
          |                               ^^^^^^^^^^^^ the result is a list, and must be a text (column 1 of the expression)
          |
          = help: `.join(",")` makes a text of a list of texts

        --- 7
        exit 1
        error[wrong-type]: the file must be a mapping of keys to values
         --> $HERE/starling.yaml:1:1
          |
        1 | 7
          | ^ this is a single value
          |
          = help: write keys and values such as `listen: 127.0.0.1:4000`, one a line

    "#]].assert_eq(&outcomes);
}

#[test]
fn an_invalid_supergraph_is_refused_with_line_column_and_help() {
    let good = supergraph();
    let mut outcomes = String::new();
    for (name, graph) in [
        ("empty", String::new()),
        ("cut off", good[..good.len() / 2].to_owned()),
        ("no supergraph", "type Query { a: Int }".to_owned()),
        ("an unknown type", good.replace("latestReview: Review", "latestReview: Revue")),
        (
            "an unknown subgraph",
            good.replace("@join__field(graph: STOCK)\n}", "@join__field(graph: SHOP)\n}"),
        ),
        ("a newer join specification", good.replace("join/v0.4", "join/v9.0")),
        ("an unknown provider", good.replacen("memory/default", "kafka/orders", 1)),
        ("an unknown argument in a topic", good.replace("{{ args.place }}", "{{ args.town }}")),
        ("a template that does not end", good.replace("{{ args.place }}", "{{ args.place")),
    ] {
        let text = "log: {format: text, level: error}";
        let check = outcome(&CHECK, text, &graph);
        assert_eq!(check, outcome(&SERVE, text, &graph), "check and serve disagree");
        outcomes += &case(name, &check);
    }
    expect![[r#"
        --- empty
        exit 1
        error[supergraph]: syntax error: Unexpected <EOF>.
         --> $HERE/supergraph.graphql:1:1
          |
        1 |
          | ^

        --- cut off
        exit 1
        error[supergraph]: syntax error: expected R_CURLY, got EOF
          --> $HERE/supergraph.graphql:50:27
           |
        50 |   productOf(id: ID!): Prod
           |                           ^

        --- no supergraph
        exit 1
        error[supergraph]: this is not a supergraph: it has no `enum join__Graph` that lists subgraphs
        --> $HERE/supergraph.graphql
         = help: a supergraph is what composition makes of the schemas of all subgraphs; compose them and load the result

        --- an unknown type
        exit 1
        error[supergraph]: cannot find type `Revue` in this document
          --> $HERE/supergraph.graphql:22:17
           |
        22 |   latestReview: Revue @join__field(graph: REVIEWS)
           |                 ^^^^^

        --- an unknown subgraph
        exit 1
        error[supergraph]: value `SHOP` does not exist on `join__Graph`
          --> $HERE/supergraph.graphql:23:45
           |
        23 |   warehouse: Warehouse! @join__field(graph: SHOP)
           |                                             ^^^^

        --- a newer join specification
        exit 1
        error[supergraph]: version 9.0 of the join specification is not supported
         --> $HERE/supergraph.graphql:3:14
          |
        3 |   @link(url: "https://specs.apollo.dev/join/v9.0", for: EXECUTION) {
          |              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          |
          = help: versions 0.1 to 0.5 are read

        --- an unknown provider
        exit 1
        error[events]: Mutation.announce @events__publish: no provider "kafka/orders" is configured; configured: memory/default
        --> $HERE/supergraph.graphql

        --- an unknown argument in a topic
        exit 1
        error[events]: Mutation.announce @events__publish: topic "announced.{{ args.town }}": there is no argument "town"; the field has id, place
        --> $HERE/supergraph.graphql

        error[events]: Subscription.productChangedAt @events__subscribe: topic "products.{{ args.town }}": there is no argument "town"; the field has place
        --> $HERE/supergraph.graphql

        --- a template that does not end
        exit 1
        error[events]: Mutation.announce @events__publish: topic "announced.{{ args.place": a {{ is not closed by }}
        --> $HERE/supergraph.graphql

        error[events]: Subscription.productChangedAt @events__subscribe: topic "products.{{ args.place": a {{ is not closed by }}
        --> $HERE/supergraph.graphql

    "#]].assert_eq(&outcomes);
}

#[test]
fn start_up_errors_are_json_where_the_log_is() {
    let cut = &supergraph()[..40];
    for (configuration, graph, code) in [
        ("log: {format: json}\nlimits: {deepth: 7}", &*supergraph(), "unknown-key"),
        ("log: {format: json}", cut, "supergraph"),
        ("log: {format: json, level: off}\nlimits: {deepth: 7}", &*supergraph(), "unknown-key"),
        ("log: {format: json, level: off}", cut, "supergraph"),
        // Standard error is not a terminal here.
        ("", cut, "supergraph"),
        ("limits: {deepth: 7}", &*supergraph(), "unknown-key"),
        ("listen: [", &*supergraph(), "yaml-syntax"),
        ("log: {format: \"${NO_SUCH_VARIABLE:-json}\"}\npath: x", &*supergraph(), "invalid-value"),
        (
            "authentication: {jwt: {issuers: [{secret: too-short}]}}",
            &*supergraph(),
            "authentication",
        ),
    ] {
        let output = outcome(&SERVE, configuration, graph);
        let mut lines = output.lines();
        assert_eq!(lines.next(), Some("exit 1"), "{output}");
        assert!(lines.clone().all(|line| line.starts_with("log: ")), "{output}");
        assert!(lines.any(|line| line.contains(&format!(" {code}: "))), "{output}");
    }
    let exchanged = outcome(&["serve", "--config", "$HERE/supergraph.graphql"], "", cut);
    assert!(exchanged.starts_with("exit 1\nlog:  exchanged-files: "), "{exchanged}");
    let text = outcome(&SERVE, "log: {format: text}\nlimits: {deepth: 7}", &supergraph());
    assert!(text.starts_with("exit 1\nerror[unknown-key]: "), "{text}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut words = SERVE;
    words[4] = &address;
    let output = outcome(&words, "", &supergraph());
    assert!(output.contains("log:  start: cannot listen on"), "{output}");
}

#[test]
fn a_check_prints_json_for_programs_without_asking_anybody() {
    let mut words = CHECK.to_vec();
    words.extend(["--format", "json"]);
    let report = |configuration| {
        let output = outcome(&words, configuration, &supergraph());
        let (exit, json) = output.split_once('\n').unwrap();
        (exit.to_owned(), serde_json::from_str::<serde_json::Value>(json).unwrap())
    };
    let (exit, json) = report("");
    assert_eq!((&*exit, &json["ok"]), ("exit 0", &true.into()));
    let (exit, json) = report("limits: {deepth: 7}");
    assert_eq!((&*exit, &json["ok"]), ("exit 1", &false.into()));
    assert_eq!(json["findings"][0]["code"], "unknown-key");
}

#[test]
fn unknown_command_line_arguments_are_refused() {
    let mut outcomes = String::new();
    for words in [
        &["serve"][..],
        &["serve", "--config", "$HERE/nowhere.yaml"],
        &["serve", "--config", "$HERE"],
        &["serve", "--supergraph", "$HERE/nowhere.graphql"],
        &["serve", "--supergraph", "$HERE/supergraph.graphql", "--listen", "here"],
        &["check"],
        &["check", "$HERE/starling.yaml"],
        &["serve", "--config", "$HERE/supergraph.graphql"],
        &["check", "--supergraph", "$HERE/starling.yaml"],
        &["mock", "--supergraph", "$HERE/supergraph.graphql", "--listen", "4200"],
        &[
            "plan",
            "--supergraph",
            "$HERE/supergraph.graphql",
            "--operation",
            "$HERE/nowhere.graphql",
        ],
        &["fly"],
    ] {
        outcomes += &case(&words.join(" "), &outcome(words, "", &supergraph()));
    }
    expect![[r#"
        --- serve
        exit 2
        error: the following required arguments were not provided:
          <--config <FILE>|--supergraph <FILE>>

          tip: 'starling config-schema' and docs/configuration.md describe the configuration file; 'starling demo' needs no files

        Usage: starling serve <--config <FILE>|--supergraph <FILE>>

        For more information, try '--help'.

        --- serve --config $HERE/nowhere.yaml
        exit 1
        log:  unreadable-file: cannot read the configuration $HERE/nowhere.yaml: No such file or directory (os error 2); check the path; to serve a graph with the default settings, give `--supergraph FILE` and no `--config`

        --- serve --config $HERE
        exit 1
        log:  unreadable-file: cannot read the configuration $HERE: Is a directory (os error 21); check the path given by `--config`

        --- serve --supergraph $HERE/nowhere.graphql
        exit 1
        log:  supergraph: cannot read the supergraph $HERE/nowhere.graphql: No such file or directory (os error 2); set its path by `supergraph.file` in the configuration or by --supergraph

        --- serve --supergraph $HERE/supergraph.graphql --listen here
        exit 2
        error: invalid value 'here' for '--listen <IP:PORT>': the port is missing; write 127.0.0.1:4000 for this machine only, 0.0.0.0:4000 for all interfaces

        For more information, try '--help'.

        --- check
        exit 2
        error: the following required arguments were not provided:
          <--config <FILE>|--supergraph <FILE>>

          tip: 'starling config-schema' and docs/configuration.md describe the configuration file; 'starling demo' needs no files

        Usage: starling check <--config <FILE>|--supergraph <FILE>>

        For more information, try '--help'.

        --- check $HERE/starling.yaml
        exit 2
        error: unexpected argument '$HERE/starling.yaml' found

          tip: files are given by an option, such as '--config $HERE/starling.yaml'

        Usage: starling check [OPTIONS] <--config <FILE>|--supergraph <FILE>>

        For more information, try '--help'.

        --- serve --config $HERE/supergraph.graphql
        exit 1
        log:  exchanged-files: $HERE/supergraph.graphql is a GraphQL file by its name, and --config takes YAML; write --supergraph $HERE/supergraph.graphql

        --- check --supergraph $HERE/starling.yaml
        exit 1
        error[exchanged-files]: $HERE/starling.yaml is a YAML file by its name, and --supergraph takes GraphQL
         |
         = help: write --config $HERE/starling.yaml

        --- mock --supergraph $HERE/supergraph.graphql --listen 4200
        exit 2
        error: invalid value '4200' for '--listen <IP:PORT>': the IP address before the port is missing; write 127.0.0.1:4000 for this machine only, 0.0.0.0:4000 for all interfaces

        For more information, try '--help'.

        --- plan --supergraph $HERE/supergraph.graphql --operation $HERE/nowhere.graphql
        exit 1
        error[operation]: cannot read the operation $HERE/nowhere.graphql: No such file or directory (os error 2)
         |
         = help: check the path given by --operation

        --- fly
        exit 2
        error: unrecognized subcommand 'fly'

        Usage: starling <COMMAND>

        For more information, try '--help'.

    "#]].assert_eq(&outcomes);
}

#[test]
fn valid_files_are_reported_as_valid() {
    assert_eq!(outcome(&CHECK, "", &supergraph()), "exit 0\nEverything is in order.\n");
}

#[test]
fn a_port_that_is_taken_is_named_and_ends_the_program() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut outcomes = String::new();
    for (name, listen, admin) in
        [("listen", &*address, "127.0.0.1:0"), ("admin", "127.0.0.1:0", &*address)]
    {
        let words = [
            "serve",
            "--config",
            "$HERE/starling.yaml",
            "--listen",
            listen,
            "--admin-listen",
            admin,
        ];
        let outcome = outcome(&words, "log: {level: warn}", &supergraph());
        outcomes += &case(name, &outcome.replace(&address, "ADDRESS"));
    }
    let words = ["demo", "--listen", &address, "--admin-listen", "127.0.0.1:0"];
    outcomes += &case("demo", &outcome(&words, "", "").replace(&address, "ADDRESS"));
    expect![[r#"
        --- listen
        exit 1
        log:  start: cannot listen on ADDRESS (`listen`, --listen): Address already in use (os error 98); another process listens there: stop it, or choose another address; 

        --- admin
        exit 1
        log:  start: cannot listen on ADDRESS (`admin.listen`, --admin-listen): Address already in use (os error 98); another process listens there: stop it, or choose another address; 

        --- demo
        exit 1
        error: cannot listen on ADDRESS (`listen`, --listen): Address already in use (os error 98); another process listens there: stop it, or choose another address

    "#]].assert_eq(&outcomes);
}
