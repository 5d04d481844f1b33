//! The supergraph of the demo, composed from the schemas of its subgraphs.

use compose::{Composition, SubgraphInput};

/// The name and the schema of each subgraph.
pub const SCHEMAS: [(&str, &str); 5] = [
    ("airlines", include_str!("data/airlines.graphql")),
    ("airports", include_str!("data/airports.graphql")),
    ("events", include_str!("data/events.graphql")),
    ("flights", include_str!("data/flights.graphql")),
    ("weather", include_str!("data/weather.graphql")),
];

/// Composes the supergraph. `urls` contains the URL of each subgraph that has a server, by name.
pub fn compose_supergraph(urls: &[(&str, String)]) -> String {
    let inputs = SCHEMAS.map(|(name, sdl)| {
        let url = urls.iter().find(|(known, _)| *known == name);
        SubgraphInput {
            name: name.to_owned(),
            url: url.map_or_else(String::new, |(_, url)| url.clone()),
            file: format!("{name}.graphql"),
            sdl: sdl.to_owned(),
            subscription: None,
        }
    });
    match compose::compose(&inputs) {
        Composition::Success { supergraph_sdl, .. } => supergraph_sdl,
        Composition::Failure { errors, .. } => {
            unreachable!("the embedded schemas are composed in tests: {errors:?}")
        }
    }
}
