//! Checks of the merged graph as a whole.

mod authorization;
mod inaccessible;
mod interfaces;
mod roots;
mod runtime_types;

pub(crate) use inaccessible::check as check_visibility;
pub(crate) use runtime_types::check as check_runtime_types;

use crate::{finding::Findings, subgraph::model::SubgraphModel, supergraph::SupergraphModel};

/// Checks the merged graph.
pub(crate) fn check(
    subgraphs: &[SubgraphModel],
    merged: &SupergraphModel,
    findings: &mut Findings<'_>,
) {
    roots::check(subgraphs, merged, findings);
    interfaces::check(subgraphs, merged, findings);
    if !findings.has_errors() {
        authorization::check(subgraphs, merged, findings);
        inaccessible::check(subgraphs, merged, findings);
    }
}
