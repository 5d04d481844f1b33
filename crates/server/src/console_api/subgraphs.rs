//! The subgraphs of all graphs, each with the name under which the console shows it and keeps its history.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serving::generation::ServingGraph;
use upstream::Upstream;

/// A subgraph with a server.
pub(super) struct ShownSubgraph<'a> {
    /// The name on the console. No other subgraph of the process has it.
    pub(super) name: Cow<'a, str>,
    /// The client of the subgraph.
    pub(super) upstream: &'a Upstream,
}

/// Returns the subgraphs of the graph with the name `wanted`; without it those of all graphs, each once. `graphs` are
/// all graphs with their names, that of `supergraph` first.
pub(super) fn shown_subgraphs<'a>(
    graphs: &'a [(&'a str, Arc<ServingGraph>)],
    wanted: Option<&str>,
) -> Vec<ShownSubgraph<'a>> {
    let mut names = SubgraphNames::default();
    let mut shown = Vec::new();
    for (graph, loaded) in graphs {
        for upstream in &loaded.upstreams {
            // Graphs with the same server of a subgraph share its counters.
            let counters = std::ptr::from_ref(upstream.stats()).addr();
            let (name, is_new) = names.name(counters, upstream.name(), graph);
            if wanted.map_or(is_new, |wanted| wanted == *graph) {
                shown.push(ShownSubgraph { name, upstream });
            }
        }
    }
    shown
}

/// The names of the subgraphs of all graphs.
#[derive(Default)]
struct SubgraphNames<'a> {
    /// The names by the counters of the subgraphs.
    by_counters: HashMap<usize, Cow<'a, str>>,
    taken: HashSet<&'a str>,
}

impl<'a> SubgraphNames<'a> {
    /// Returns the name of a subgraph, and true if its counters are new. Another server of a known name is shown with
    /// the name of its graph. `counters` is the address of the counters.
    fn name(&mut self, counters: usize, subgraph: &'a str, graph: &str) -> (Cow<'a, str>, bool) {
        if let Some(known) = self.by_counters.get(&counters) {
            return (known.clone(), false);
        }
        let name = match self.taken.insert(subgraph) {
            true => Cow::Borrowed(subgraph),
            false => Cow::Owned(format!("{subgraph} ({graph})")),
        };
        self.by_counters.insert(counters, name.clone());
        (name, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_server_of_a_known_name_is_shown_with_its_graph() {
        let mut names = SubgraphNames::default();
        let mut name = |counters, subgraph, graph| {
            let (name, is_new) = names.name(counters, subgraph, graph);
            (name.into_owned(), is_new)
        };
        assert_eq!(name(1, "flights", "default"), ("flights".to_owned(), true));
        assert_eq!(name(2, "airports", "default"), ("airports".to_owned(), true));
        assert_eq!(name(1, "flights", "partners"), ("flights".to_owned(), false));
        assert_eq!(name(3, "airports", "partners"), ("airports (partners)".to_owned(), true));
        assert_eq!(name(3, "airports", "beta"), ("airports (partners)".to_owned(), false));
        assert_eq!(name(4, "airports", "beta"), ("airports (beta)".to_owned(), true));
    }
}
