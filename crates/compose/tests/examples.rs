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
    let names = |it: &graph::Supergraph| {
        let fields = it.fields.iter().map(|field| {
            let parent = &it.ty(field.parent).name;
            format!("{parent}.{}: {:?}", field.name, field.resolved_by)
        });
        let mut names: Vec<_> = fields.collect();
        names.sort();
        names
    };
    assert_eq!(names(&graph), names(&stored));
}

#[test]
fn event_subgraphs_of_the_documentation_are_composed() {
    let pages = [
        "docs/events.md",
        "docs/events/directives.md",
        "docs/events/initial-state.md",
        "docs/events/cursors.md",
    ];
    let mut count = 0;
    for page in pages {
        for block in blocks(page) {
            // Blocks without a key are parts of a schema.
            let is_event_subgraph = block.contains("@events__") || block.contains("@edfs__");
            if !is_event_subgraph || block.contains("join__") || !block.contains("@key(") {
                continue;
            }
            let other = input("other", "http://other/", "type Query { other: Int }".to_owned());
            let prefix = read("examples/composition/event-directives.graphql");
            // As written, and with the definitions that other composition tools need.
            for sdl in [block.clone(), format!("{prefix}\n{block}")] {
                if sdl.matches("extend schema").count() > 1 {
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
