//! Merging the models of all subgraphs into one. One module for each kind of element; none prints or plans anything.

mod composed_directives;
mod context;
mod descriptions;
mod directive_names;
mod directives;
mod enums;
mod executable_directives;
mod external_fields;
mod fields;
mod inputs;
mod overrides;
mod sharing;
mod sources;
mod type_compatibility;
mod types;

pub(crate) use types::implementations;

use crate::{finding::Findings, subgraph::model::SubgraphModel, supergraph::SupergraphModel};

/// Merges `subgraphs`, which are in the order of their values of `join__Graph`. The result is meaningful only if no
/// errors were found.
pub(crate) fn merge(subgraphs: &[SubgraphModel], findings: &mut Findings<'_>) -> SupergraphModel {
    let before = findings.error_count();
    let composed = composed_directives::find(subgraphs, findings);
    let names = directive_names::find(subgraphs, findings);
    if findings.error_count() > before {
        return SupergraphModel::default();
    }
    let overrides = overrides::find(subgraphs, findings);
    let context = context::MergeContext::new(subgraphs, overrides, composed);
    let mut merged = types::merge(&context, findings);
    enums::merge(&context, &mut merged, findings);
    merged.directive_definitions = executable_directives::merge(&context, findings);
    for (name, definition) in &context.composed.definitions {
        merged.directive_definitions.insert(name.clone(), definition.clone());
    }
    merged.directive_names = names;
    merged.description = merge_schema_description(subgraphs, findings);
    merged.composed_links = context.composed.links();
    merged
}

fn merge_schema_description(
    subgraphs: &[SubgraphModel],
    findings: &mut Findings<'_>,
) -> Option<String> {
    let given = subgraphs.iter().map(|it| (it.description.as_ref(), (it.id, None)));
    descriptions::merge(given, || "the schema".to_owned(), findings)
}
