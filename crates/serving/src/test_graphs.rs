//! The supergraphs of tests in this crate.

use graph::Supergraph;

/// Returns a supergraph of subgraphs with these names, in this order. At least one is needed: the first one has the
/// field `a` of `Query`.
pub(crate) fn with_subgraphs(names: &[&str]) -> Supergraph {
    let graphs = names.iter().map(|name| {
        let id = name.to_uppercase();
        format!("{id} @join__graph(name: \"{name}\", url: \"http://{name}\")\n")
    });
    let first = names[0].to_uppercase();
    let sdl = format!(
        "schema @link(url: \"https://specs.apollo.dev/link/v1.0\")
           @link(url: \"https://specs.apollo.dev/join/v0.5\", for: EXECUTION) {{ query: Query }}
         enum join__Graph {{ {} }}
         type Query @join__type(graph: {first}) {{ a: Int }}",
        graphs.collect::<String>()
    );
    Supergraph::from_sdl(&sdl, "supergraph.graphql").unwrap_or_else(|errors| panic!("{errors}"))
}
