//! The examples of the documentation are composed and loaded.

use std::{fs, path::Path};

use compose::{Composition, SubgraphInput};

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(path).expect("a text file")
}

fn input(name: &str, url: &str, sdl: String) -> SubgraphInput {
    SubgraphInput {
        name: name.to_owned(),
        url: url.to_owned(),
        file: format!("{name}.graphql"),
        sdl,
        subscription: None,
    }
}

fn compose(subgraphs: &[SubgraphInput]) -> graph::Supergraph {
    match compose::compose(subgraphs) {
        Composition::Success { supergraph_sdl, .. } => {
            graph::Supergraph::from_sdl(&supergraph_sdl, "supergraph.graphql")
                .expect("the router loads what was composed")
        }
        Composition::Failure { errors, .. } => panic!("{}", errors[0]),
    }
}

/// Returns the GraphQL blocks of a page.
fn blocks(page: &str) -> Vec<String> {
    let text = read(page);
    let blocks = text.split("```graphql\n").skip(1);
    blocks.filter_map(|it| it.split("\n```").next()).map(str::to_owned).collect()
}

/// Returns one line for each field of a graph: its coordinate, type, keys of the type, and subgraphs.
fn describe(graph: &graph::Supergraph) -> Vec<String> {
    let fields = graph.fields.iter().map(|field| {
        let parent = graph.ty(field.parent);
        let keys: Vec<_> = parent.subgraphs.iter().map(|it| (it.subgraph, it.keys.len())).collect();
        let directives: Vec<_> = field.directives.iter().map(|it| &it.name).collect();
        let arguments = &field.arguments;
        let resolved_by = field.resolved_by;
        let name = format!("{}.{}", parent.name, field.name);
        let is_nullable = field.ty.nullable;
        format!("{name}({arguments:?}) {is_nullable} {keys:?} {resolved_by:?} {directives:?}")
    });
    let mut lines: Vec<_> = fields.collect();
    lines.sort();
    lines
}

#[test]
fn the_quick_start_is_composed() {
    let folder = "examples/quick-start";
    let part = |name: &str, url: &str| input(name, url, read(&format!("{folder}/{name}.graphql")));
    let graph = compose(&[
        part("products", "http://127.0.0.1:4001/"),
        part("stock", "http://127.0.0.1:4002/"),
        part("events", ""),
    ]);
    let stored = read(&format!("{folder}/supergraph.graphql"));
    let stored = graph::Supergraph::from_sdl(&stored, "supergraph.graphql").expect("a supergraph");
    assert_eq!(describe(&graph), describe(&stored));
}

#[test]
fn the_demo_is_composed() {
    let folder = "crates/starling/src/demo/data";
    let part = |name: &str, url: &str| input(name, url, read(&format!("{folder}/{name}.graphql")));
    let graph = compose(&[
        part("airlines", "$AIRLINES_URL"),
        part("airports", "$AIRPORTS_URL"),
        part("events", ""),
        part("flights", "$FLIGHTS_URL"),
        part("weather", "$WEATHER_URL"),
    ]);
    // Written independently of this crate.
    let stored = read("crates/compose/tests/demo.graphql");
    let stored = graph::Supergraph::from_sdl(&stored, "demo.graphql").expect("a supergraph");
    assert_eq!(describe(&graph), describe(&stored));
}

#[test]
fn event_subgraphs_of_the_documentation_are_composed() {
    let mut pages = Vec::new();
    for folder in ["docs", "docs/events"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
        for entry in fs::read_dir(path).expect("the documentation") {
            let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
            if name.ends_with(".md") {
                pages.push(format!("{folder}/{name}"));
            }
        }
    }
    pages.sort();
    let mut count = 0;
    for page in &pages {
        for block in blocks(page) {
            // Blocks without a key are parts of a schema.
            let is_event_subgraph = block.contains("@events__") || block.contains("@edfs__");
            if !is_event_subgraph || block.contains("join__") || !block.contains("@key(") {
                continue;
            }
            let other = input("other", "http://other/", "type Query { other: Int }".to_owned());
            let definitions = match block.contains("@edfs__") {
                true => "edfs-directives.graphql",
                false => "event-directives.graphql",
            };
            let prefix = read(&format!("examples/composition/{definitions}"));
            // As written, and with the definitions that other composition tools need.
            for sdl in [block.clone(), format!("{prefix}\n{block}")] {
                // The definitions do not import `@external`, which those tools refuse at key fields.
                let has_definitions = sdl.len() > block.len();
                if has_definitions
                    && (block.contains("extend schema") || block.contains("@external"))
                {
                    continue;
                }
                let result = compose::compose(&[input("events", "", sdl), other.clone()]);
                if let Composition::Failure { errors, .. } = result {
                    let all: Vec<_> = errors.iter().map(ToString::to_string).collect();
                    panic!("{page}:\n{block}\n{}", all.join("\n"));
                }
                count += 1;
            }
        }
    }
    assert!(count >= 10, "only {count} event subgraphs");
}
