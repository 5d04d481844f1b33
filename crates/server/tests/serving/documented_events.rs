//! The examples of `docs/events.md`, `docs/events/` and `docs/migration-edfs.md`: every event subgraph there loads,
//! every configuration of a provider fits it.

use std::path::Path;

use compose::Composition;
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

/// Composes an event subgraph with an ordinary one, which provides the current states if the page asks for some.
fn compose_with_server(subgraph: &str) -> String {
    let states = match subgraph.contains("initial:") {
        true => "order(id: ID!): Order } type Order @key(fields: \"id\") { id: ID!",
        false => "",
    };
    let server = format!(
        r#"extend schema @link(url: "https://specs.apollo.dev/federation/v2.7", import: ["@key"])
        type Query {{ ping: Int {states} }}"#
    );
    let inputs = [("events", "", subgraph), ("other", "http://127.0.0.1:1", &server)];
    let inputs = inputs.map(|(name, url, sdl)| compose::SubgraphInput {
        name: name.into(),
        url: url.into(),
        file: name.into(),
        sdl: sdl.into(),
        subscription: None,
    });
    match compose::compose(&inputs) {
        Composition::Success { supergraph_sdl, .. } => supergraph_sdl,
        Composition::Failure { errors, .. } => panic!("{}\n{subgraph}", errors[0]),
    }
}

fn findings(subgraph: &str, configuration: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let graph = write("supergraph.graphql", &compose_with_server(subgraph));
    let configuration = write("starling.yaml", configuration);
    let overrides = Overrides { supergraph: Some(graph), ..Overrides::default() };
    let found = server::check(Some(Path::new(&configuration)), &overrides);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(found).findings.iter().map(ToString::to_string).collect()
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
