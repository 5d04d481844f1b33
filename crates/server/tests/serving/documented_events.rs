//! The examples of `docs/events.md`, `docs/events/` and `docs/migration-edfs.md`: every event subgraph there loads,
//! every configuration of a provider fits it.

use std::path::Path;

use config::Overrides;

const EVENTS: &str = include_str!("../../../../docs/events.md");
const DIRECTIVES: &str = include_str!("../../../../docs/events/directives.md");
const INITIAL_STATE: &str = include_str!("../../../../docs/events/initial-state.md");
const MIGRATION: &str = include_str!("../../../../docs/migration-edfs.md");

/// The providers of examples without a configuration of their own.
const PROVIDERS: &str = r#"
events:
  providers:
    memory: [{id: default}, {id: orders}]
    nats: [{id: shared, url: "nats://127.0.0.1:4222"}]
"#;

/// Returns the code blocks of this language, without the indentation of the list that contains them.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(rest) = line.trim_start().strip_prefix("```") else { continue };
        let indentation = line.len() - line.trim_start().len();
        let body: Vec<_> = lines.by_ref().take_while(|it| it.trim() != "```").collect();
        if rest == language {
            let text = body.iter().map(|it| it.get(indentation..).unwrap_or_default());
            blocks.push(text.collect::<Vec<_>>().join("\n"));
        }
    }
    blocks
}

/// Returns a subgraph as composition writes it into a supergraph, for the features that event subgraphs use.
fn supergraph(subgraph: &str) -> String {
    let mut text = String::new();
    let mut rest = subgraph;
    while let Some(at) = rest.find('@') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let length = rest.find(|it: char| !it.is_alphanumeric() && it != '_').unwrap();
        let (name, after) = rest.split_at(length);
        let (arguments, after) = match after.strip_prefix('(') {
            Some(after) => after.split_at(closing(after)),
            None => ("", after),
        };
        rest = if arguments.is_empty() { after } else { &after[1..] };
        match name {
            "key" => text.push_str(&format!(
                "@join__type(graph: EVENTS, {})",
                arguments.replace("fields", "key")
            )),
            "external" | "shareable" => {}
            _ => text.push_str(&format!(
                "@join__directive(graphs: [EVENTS], name: \"{name}\", args: {{{arguments}}})"
            )),
        }
    }
    text.push_str(rest);
    let typed = text.lines().map(|line| {
        let is_type = line.starts_with("type ") || line.starts_with("input ");
        match is_type && !line.contains("@join__type") {
            true => line.replacen(" {", " @join__type(graph: EVENTS) {", 1),
            false => line.to_owned(),
        }
    });
    let typed = typed.collect::<Vec<_>>().join("\n");
    let has = |root: &str| typed.contains(&format!("type {root} "));
    let roots = [("query", "Query"), ("mutation", "Mutation"), ("subscription", "Subscription")];
    let operations = roots.iter().filter(|(kind, root)| *kind == "query" || has(root));
    let operations: Vec<_> = operations.map(|(kind, root)| format!("{kind}: {root}")).collect();
    // A server provides the current states.
    let (asked, server) = match typed.contains("initial:") {
        true => ("order(id: ID!): Order", "@join__type(graph: OTHER, key: \"id\")"),
        false => ("", ""),
    };
    let query = format!("type Query @join__type(graph: OTHER) {{ ping: Int {asked} }}\n");
    let order = format!(
        "type Order @join__type(graph: EVENTS, key: \"id\", resolvable: false) {server} {{ id: ID! }}\n"
    );
    format!(
        r#"schema
          @link(url: "https://specs.apollo.dev/link/v1.0")
          @link(url: "https://specs.apollo.dev/join/v0.5", for: EXECUTION)
        {{ {} }}
        enum join__Graph {{
          EVENTS @join__graph(name: "events", url: "")
          OTHER @join__graph(name: "other", url: "http://127.0.0.1:1")
        }}
        {}{}{typed}"#,
        operations.join(" "),
        if has("Query") { "" } else { &query },
        if typed.contains(": Order") && !has("Order") { &order } else { "" },
    )
}

/// Returns the position of the parenthesis that closes one opened before. Strings contain only matching ones here.
fn closing(text: &str) -> usize {
    let mut depth = 1;
    let at = text.find(|char| {
        depth += i32::from(char == '(') - i32::from(char == ')');
        depth == 0
    });
    at.unwrap()
}

fn findings(subgraph: &str, configuration: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let graph = write("supergraph.graphql", &supergraph(subgraph));
    let configuration = write("starling.yaml", configuration);
    let overrides = Overrides { supergraph: Some(graph), ..Overrides::default() };
    let found = server::check(Some(Path::new(&configuration)), &overrides);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(found).iter().map(ToString::to_string).collect()
}

fn event_subgraphs(page: &str) -> Vec<String> {
    let is_subgraph = |text: &String| {
        let binds = ["@events__", "@edfs__"].iter().any(|it| text.contains(it));
        binds && !text.contains("join__")
    };
    blocks(page, "graphql").into_iter().filter(is_subgraph).collect()
}

#[test]
fn every_documented_event_subgraph_loads() {
    let pages = [EVENTS, DIRECTIVES, INITIAL_STATE];
    let subgraphs: Vec<_> = pages.into_iter().flat_map(event_subgraphs).collect();
    assert!(subgraphs.len() >= 9, "{}", subgraphs.len());
    for subgraph in subgraphs {
        // One provider of each kind has the id `default`, and some examples mean the one of NATS.
        let providers = match subgraph.contains("nats/default") {
            true => PROVIDERS.replace("shared", "default"),
            false => PROVIDERS.to_owned(),
        };
        assert_eq!(findings(&subgraph, &providers), [""; 0], "{subgraph}");
    }
}

#[test]
fn the_tutorial_moves_from_broker_to_broker_by_configuration_only() {
    let tutorial = EVENTS.split_once("\n## Tutorial").unwrap().1;
    let tutorial = tutorial.split_once("\n## ").unwrap().0;
    let [subgraph] = &event_subgraphs(tutorial)[..] else { panic!("one event subgraph") };
    let configurations = blocks(tutorial, "yaml");
    for kind in ["memory", "nats", "redis"] {
        let configuration = configurations.iter().find(|it| it.contains(&format!("{kind}: [")));
        assert_eq!(findings(subgraph, configuration.unwrap()), [""; 0], "{kind}");
    }
    let none = findings(subgraph, "events: {}");
    assert!(
        none.iter().any(|it| it.contains(
            "Subscription.orderPlaced @events__subscribe: no provider \"orders\" is configured"
        )),
        "{none:?}"
    );
}

#[test]
fn the_schema_and_the_configuration_of_other_routers_load_unchanged() {
    let (subgraphs, configurations) = (event_subgraphs(MIGRATION), blocks(MIGRATION, "yaml"));
    let ([subgraph], [configuration]) = (&subgraphs[..], &configurations[..]) else {
        panic!("one of each: {subgraphs:?} {configurations:?}")
    };
    assert_eq!(findings(subgraph, configuration), [""; 0]);
}

#[test]
fn the_table_of_directives_is_complete() {
    let rows = DIRECTIVES.lines().filter(|line| line.starts_with("| `@"));
    let documented: Vec<_> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    let mut known: Vec<_> = graph::EventRole::directives().map(|it| format!("@{it}")).collect();
    known.push("@openfed__subscriptionFilter".into());
    known.sort();
    let mut documented: Vec<_> = documented.into_iter().map(str::to_owned).collect();
    documented.sort();
    assert_eq!(documented, known);
}
