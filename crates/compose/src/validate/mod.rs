//! Validation of each subgraph by itself. One module for each group of rules.

mod cache_hints;
mod contexts;
mod costs;
mod default_values;
mod definitions;
mod external_fields;
mod field_sets;
mod graphql;
mod placements;

use apollo_compiler::ast;

use crate::{code::Code, finding::Findings, links::Links, subgraph::model::SubgraphModel};

/// Checks a syntax tree: GraphQL's own rules, and definitions of federation directives.
pub(crate) fn check_document(
    subgraph: usize,
    document: &ast::Document,
    links: &Links,
    is_event_subgraph: bool,
    findings: &mut Findings<'_>,
) {
    definitions::check(subgraph, document, links, findings);
    graphql::check(subgraph, document, links, is_event_subgraph, findings);
}

/// Checks the federation rules that concern one subgraph.
pub(crate) fn check_model(subgraph: &SubgraphModel, findings: &mut Findings<'_>) {
    placements::check(subgraph, findings);
    let before = findings.error_count();
    field_sets::check(subgraph, findings);
    // Only keys of existing fields can be compared.
    if !findings.errors_since(before).any(|it| it.code == Code::KEY_INVALID_FIELDS) {
        placements::check_interface_keys(subgraph, findings);
    }
    external_fields::check(subgraph, findings);
    default_values::check(subgraph, findings);
    contexts::check(subgraph, findings);
    costs::check(subgraph, findings);
    cache_hints::check(subgraph, findings);
    crate::events::check(subgraph, findings);
}
