//! The times to live of the configuration.

use cache::{SubgraphTtl, TtlRules, TypeTtl};
use config::Caching;
use graph::Supergraph;

/// Returns the times to live that the configuration gives to the subgraphs of a graph. `None` if nothing is stored.
pub(crate) fn ttl_rules(config: &Caching, graph: &Supergraph) -> Option<TtlRules> {
    if !config.enabled {
        return None;
    }
    let all = subgraph_ttl(&config.subgraphs.all);
    let subgraphs = graph.subgraphs.iter().map(|subgraph| {
        let own = config.subgraphs.subgraphs.get(&*subgraph.name);
        let mut rules = own.map(subgraph_ttl).unwrap_or_default();
        rules.default = rules.default.or(all.default);
        for (name, of_type) in &all.types {
            rules.types.entry(name.clone()).or_insert_with(|| of_type.clone());
        }
        (subgraph.name.clone(), rules)
    });
    Some(TtlRules { default: None, subgraphs: subgraphs.collect() })
}

fn subgraph_ttl(config: &config::SubgraphCache) -> SubgraphTtl {
    let types = config.types.iter().map(|(name, of_type)| {
        let fields = of_type.fields.iter();
        let fields = fields.map(|(name, ttl)| (name.as_str().into(), ttl.0)).collect();
        (name.as_str().into(), TypeTtl { default: of_type.ttl, fields })
    });
    SubgraphTtl { default: config.ttl, types: types.collect() }
}
