//! What the program says when it cannot do what it was told.

use std::net::TcpListener;

use e2e::router::run;
use expect_test::expect;

use crate::answers::case;
use crate::shop::SUPERGRAPH;

fn supergraph() -> String {
    SUPERGRAPH.replace("$SERVER", "http://127.0.0.1:1").replace("$PROVIDER", "memory/default")
}

/// Exit code and standard error of a command in a folder with a good supergraph and this configuration.
fn outcome(words: &[&str], configuration: &str, graph: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("supergraph.graphql"), graph).unwrap();
    std::fs::write(folder.path().join("starling.yaml"), configuration).unwrap();
    let place = folder.path().display().to_string();
    let words: Vec<String> = words.iter().map(|word| word.replace("$HERE", &place)).collect();
    let (code, out, err) = run(&words);
    let code = code.map_or("a signal".to_owned(), |code| code.to_string());
    // The log, which has the time in it, is not what this is about.
    let is_log = |line: &&str| line.starts_with("{\"timestamp\"");
    let said: String = out
        .lines()
        .chain(err.lines().filter(|line| !is_log(line)))
        .flat_map(|line| [line, "\n"])
        .collect();
    format!("exit {code}\n{said}").replace(&place, "$HERE")
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
fn a_configuration_that_is_wrong_is_refused_with_line_column_and_what_to_do() {
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
        "supergraph: {file: nowhere.graphql}",
        "path: graphql",
        "path: /graphql\npath: /graphql",
        "7",
    ] {
        let check = outcome(&CHECK, configuration, &supergraph());
        if check.starts_with("exit 1") {
            let serve = outcome(&SERVE, configuration, &supergraph());
            assert_eq!(check, serve, "check and serve disagree");
        }
        outcomes += &case(configuration, &check);
    }
    expect![[""]].assert_eq(&outcomes);
}

#[test]
fn a_supergraph_that_is_wrong_is_refused_with_line_column_and_what_to_do() {
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
        let check = outcome(&CHECK, "", &graph);
        assert_eq!(check, outcome(&SERVE, "", &graph), "check and serve disagree");
        outcomes += &case(name, &check);
    }
    expect![[""]].assert_eq(&outcomes);
}

#[test]
fn words_on_the_command_line_that_mean_nothing_are_refused() {
    let mut outcomes = String::new();
    for words in [
        &["serve"][..],
        &["serve", "--config", "$HERE/nowhere.yaml"],
        &["serve", "--config", "$HERE"],
        &["serve", "--supergraph", "$HERE/nowhere.graphql"],
        &["serve", "--supergraph", "$HERE/supergraph.graphql", "--listen", "here"],
        &["check"],
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
          --config <FILE>

        Usage: starling serve --config <FILE>

        For more information, try '--help'.

        --- serve --config $HERE/nowhere.yaml
        exit 1
        error[unreadable-file]: cannot read the configuration $HERE/nowhere.yaml: No such file or directory (os error 2)
         |
         = help: check the path, or run without `--config` to use the defaults

        --- serve --config $HERE
        exit 1
        error[unreadable-file]: cannot read the configuration $HERE: Is a directory (os error 21)
         |
         = help: check the path given by `--config`

        --- serve --supergraph $HERE/nowhere.graphql
        exit 1
        {"timestamp":"2026-11-21T22:41:16.493864Z","level":"INFO","message":"open files allowed: one per connection","descriptors":20000,"target":"server::start"}
        error[supergraph]: cannot read the supergraph $HERE/nowhere.graphql: No such file or directory (os error 2)
         |
         = help: name it by `supergraph.file` in the configuration or by --supergraph

        --- serve --supergraph $HERE/supergraph.graphql --listen here
        exit 2
        error: invalid value 'here' for '--listen <HOST:PORT>': the port is missing

        For more information, try '--help'.

        --- check
        exit 2
        error: the following required arguments were not provided:
          --config <FILE>

        Usage: starling check --config <FILE>

        For more information, try '--help'.

        --- plan --supergraph $HERE/supergraph.graphql --operation $HERE/nowhere.graphql
        exit 1
        error[operation]: cannot read $HERE/nowhere.graphql: No such file or directory (os error 2)

        --- fly
        exit 2
        error: unrecognized subcommand 'fly'

        Usage: starling <COMMAND>

        For more information, try '--help'.

    "#]].assert_eq(&outcomes);
}

#[test]
fn what_is_in_order_is_said_to_be() {
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
        error: cannot listen on ADDRESS: Address already in use (os error 98); another process listens there: stop it, or choose another address (`listen`, --listen)

        --- admin
        exit 1
        error: cannot listen on ADDRESS: Address already in use (os error 98); another process listens there: stop it, or choose another address (`listen`, --listen)

        --- demo
        exit 1
        error: cannot listen on ADDRESS: Address already in use (os error 98); another process listens there: stop it, or choose another address (`listen`, --listen)

    "#]].assert_eq(&outcomes);
}
