//! The subgraphs of all graphs, each with the name under which the console shows it and keeps its history.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serving::generation::ServingGraph;
use upstream::{Upstream, UpstreamStats};

/// A subgraph with a server.
pub(super) struct ShownSubgraph<'a> {
    /// The name on the console. No other subgraph of the process has it.
    pub(super) name: Arc<str>,
    /// The client of the subgraph.
    pub(super) upstream: &'a Upstream,
}

/// The names of the subgraphs of all graphs. Counters keep their name while a graph has them, because a history under
/// another name would begin with all that they have ever counted.
#[derive(Debug, Default)]
pub(super) struct SubgraphNames {
    /// The names by the addresses of the counters. The counters are held, so that no others get their address.
    by_counters: HashMap<usize, (Arc<UpstreamStats>, Arc<str>)>,
    taken: HashSet<Arc<str>>,
}

impl SubgraphNames {
    /// Returns the subgraphs of the graph with the name `wanted`; without it those of all graphs, each once. `graphs`
    /// are all graphs with their names, that of `supergraph` first.
    pub(super) fn shown<'a>(
        &mut self,
        graphs: &'a [(&'a str, Arc<ServingGraph>)],
        wanted: Option<&str>,
    ) -> Vec<ShownSubgraph<'a>> {
        let mut used = HashSet::new();
        for (_, loaded) in graphs {
            used.extend(loaded.upstreams.iter().map(|it| address(it.shared_stats())));
        }
        self.retain(&used);
        let mut seen = HashSet::new();
        let mut shown = Vec::new();
        for (graph, loaded) in graphs {
            for upstream in &loaded.upstreams {
                // Graphs with the same server of a subgraph share its counters.
                let counters = upstream.shared_stats();
                let name = self.name(counters, upstream.name(), graph);
                let is_new = seen.insert(address(counters));
                if wanted.map_or(is_new, |wanted| wanted == *graph) {
                    shown.push(ShownSubgraph { name, upstream });
                }
            }
        }
        shown
    }

    /// Forgets the counters with addresses that are not in `used`. Their names are free again.
    fn retain(&mut self, used: &HashSet<usize>) {
        let Self { by_counters, taken } = self;
        by_counters.retain(|address, (_, name)| {
            let is_used = used.contains(address);
            if !is_used {
                taken.remove(&**name);
            }
            is_used
        });
    }

    /// Returns the name of a subgraph. Another server of a known name is shown with the name of its graph.
    fn name(&mut self, counters: &Arc<UpstreamStats>, subgraph: &str, graph: &str) -> Arc<str> {
        let address = address(counters);
        if let Some((_, known)) = self.by_counters.get(&address) {
            return Arc::clone(known);
        }
        let name = self.free_name(subgraph, graph);
        self.taken.insert(Arc::clone(&name));
        self.by_counters.insert(address, (Arc::clone(counters), Arc::clone(&name)));
        name
    }

    fn free_name(&self, subgraph: &str, graph: &str) -> Arc<str> {
        let (mut name, mut number) = (subgraph.to_owned(), 1_usize);
        while self.taken.contains(&*name) {
            name = match number {
                1 => format!("{subgraph} ({graph})"),
                // The graph had another server before. A further graph still has the counters of that one.
                _ => format!("{subgraph} ({graph}, {number})"),
            };
            number += 1;
        }
        name.into()
    }
}

/// The address of counters, which identifies them.
fn address(counters: &Arc<UpstreamStats>) -> usize {
    Arc::as_ptr(counters).addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the counters of several servers.
    fn servers<const COUNT: usize>() -> [Arc<UpstreamStats>; COUNT] {
        std::array::from_fn(|_| Arc::new(UpstreamStats::default()))
    }

    #[test]
    fn another_server_of_a_known_name_is_shown_with_its_graph() {
        let mut names = SubgraphNames::default();
        let [flights, airports, partners, beta] = servers();
        for (counters, subgraph, graph, expected) in [
            (&flights, "flights", "default", "flights"),
            (&airports, "airports", "default", "airports"),
            (&flights, "flights", "partners", "flights"),
            (&partners, "airports", "partners", "airports (partners)"),
            (&partners, "airports", "beta", "airports (partners)"),
            (&beta, "airports", "beta", "airports (beta)"),
        ] {
            assert_eq!(&*names.name(counters, subgraph, graph), expected, "{subgraph} of {graph}");
        }
    }

    #[test]
    fn counters_keep_their_name_while_a_graph_has_them() {
        let mut names = SubgraphNames::default();
        let [first, second, third] = servers();
        assert_eq!(&*names.name(&first, "airports", "default"), "airports");
        assert_eq!(&*names.name(&first, "airports", "partners"), "airports");
        // The graph `default` gets another server.
        names.retain(&HashSet::from([&first, &second].map(address)));
        assert_eq!(&*names.name(&second, "airports", "default"), "airports (default)");
        assert_eq!(&*names.name(&first, "airports", "partners"), "airports");
        // Another graph shares that one, and `default` gets a third one.
        names.retain(&HashSet::from([&first, &second, &third].map(address)));
        assert_eq!(&*names.name(&third, "airports", "default"), "airports (default, 2)");
        // The name of counters that no graph has is free.
        names.retain(&HashSet::from([&third].map(address)));
        assert_eq!(&*names.name(&third, "airports", "default"), "airports (default, 2)");
        assert_eq!(&*names.name(&second, "airports", "partners"), "airports");
    }
}
