//! The query root: GraphQL does not allow a schema without queries.

use crate::{
    code::Code, finding::Findings, subgraph::model::SubgraphModel, supergraph::SupergraphModel,
};

/// Checks that some subgraph has a query.
pub(super) fn check(
    subgraphs: &[SubgraphModel],
    merged: &SupergraphModel,
    findings: &mut Findings<'_>,
) {
    if merged.types.get("Query").is_none_or(|query| query.fields.is_empty()) {
        findings.error(
            Code::NO_QUERIES,
            subgraphs.iter().map(|subgraph| (subgraph.id, None)),
            "no subgraph has a field on the query root",
            "add a field to `type Query` in one of the subgraphs: GraphQL does not allow a schema without queries",
        );
    }
}
