//! Satisfiability: every query that clients may send can be planned. The supergraph is loaded as the router loads it,
//! and the walk uses the router's own model of keys ([`graph::Jumps`]), so that both agree.
//!
//! A state is an object type with the subgraphs that gave the object. The walk visits states breadth-first from the
//! roots, so the query in a message is the shortest one. A state is skipped if one with fewer subgraphs was visited:
//! more subgraphs only resolve more fields.

mod explanation;
mod resolution;
mod walk;

use graph::{OverrideLabels, Supergraph};

use crate::{code::Code, finding::Findings, subgraph::model::SubgraphModel};

/// Checks that every query against the supergraph can be planned. `subgraphs` are in the order of `enum join__Graph`.
pub(crate) fn check(sdl: &str, subgraphs: &[SubgraphModel], findings: &mut Findings<'_>) {
    let supergraph = match Supergraph::from_sdl(sdl, "supergraph.graphql") {
        Ok(supergraph) => supergraph,
        Err(errors) => {
            for error in errors.0 {
                findings.error(
                    Code::INVALID_GRAPHQL,
                    [],
                    format!("the supergraph is not valid: {}", error.message),
                    error.help.unwrap_or_default(),
                );
            }
            return;
        }
    };
    for labels in label_sets(&supergraph) {
        match labels.is_empty() {
            true => walk::check(&supergraph, subgraphs, findings),
            false => walk::check(&supergraph.with_override_labels(labels), subgraphs, findings),
        }
        if findings.has_errors() {
            return;
        }
    }
}

/// Returns the sets of labels to check: none, each alone, and all. All combinations would be too many; a combination
/// that fails although these pass needs two fields that move between the same subgraphs by different labels.
fn label_sets(supergraph: &Supergraph) -> Vec<OverrideLabels> {
    let mut sets = vec![OverrideLabels::NONE];
    let mut all = OverrideLabels::NONE;
    for label in 0..supergraph.override_labels.len() {
        let mut single = OverrideLabels::NONE;
        single.insert(label);
        all.insert(label);
        sets.push(single);
    }
    if supergraph.override_labels.len() > 1 {
        sets.push(all);
    }
    sets
}
