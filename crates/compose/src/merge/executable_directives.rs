//! Executable directives: clients may use those that every subgraph defines, at the locations that all allow.

use std::collections::BTreeMap;

use apollo_compiler::{Name, Node, ast};
use indexmap::IndexMap;

use super::{
    composed_directives::is_executable,
    context::MergeContext,
    type_compatibility::{self, MergedTypes, Variance},
};
use crate::{
    code::Code,
    finding::{Findings, Severity},
    subgraph::model::SubgraphModel,
};

type DefinitionSource<'a> = (&'a SubgraphModel, &'a Node<ast::DirectiveDefinition>);

/// Merges the executable directives of all subgraphs.
pub(super) fn merge(
    context: &MergeContext<'_>,
    findings: &mut Findings<'_>,
) -> BTreeMap<Name, Node<ast::DirectiveDefinition>> {
    let mut sources: IndexMap<&Name, Vec<DefinitionSource<'_>>> = IndexMap::new();
    for subgraph in context.subgraphs {
        for (name, definition) in &subgraph.directive_definitions {
            let is_standard = matches!(
                name.as_str(),
                "skip" | "include" | "deprecated" | "specifiedBy" | "oneOf" | "defer" | "stream"
            );
            let is_own = subgraph.links.directive_named(name).is_none() && !is_standard;
            if is_own && definition.locations.iter().any(|it| is_executable(*it)) {
                sources.entry(name).or_default().push((subgraph, definition));
            }
        }
    }
    let mut merged = BTreeMap::new();
    for (name, sources) in sources {
        if let Some(definition) = merge_one(context, name, &sources, findings) {
            merged.insert(name.clone(), definition);
        }
    }
    merged
}

fn merge_one(
    context: &MergeContext<'_>,
    name: &Name,
    sources: &[DefinitionSource<'_>],
    findings: &mut Findings<'_>,
) -> Option<Node<ast::DirectiveDefinition>> {
    let spots = || sources.iter().map(|(subgraph, it)| subgraph.spot(&it.name));
    if sources.len() < context.subgraphs.len() {
        findings.hint(
            Code::INCONSISTENT_EXECUTABLE_DIRECTIVE_PRESENCE,
            Severity::Warning,
            spots(),
            format!("the executable directive `@{name}` is left out, because some subgraphs do not define it"),
            "define it in every subgraph if clients use it",
        );
        return None;
    }
    let (_, first) = sources.first()?;
    let is_common = |location: &&ast::DirectiveLocation| {
        is_executable(**location) && sources.iter().all(|(_, it)| it.locations.contains(*location))
    };
    let locations: Vec<_> = first.locations.iter().filter(is_common).copied().collect();
    if locations.is_empty() {
        findings.hint(
            Code::NO_EXECUTABLE_DIRECTIVE_INTERSECTION,
            Severity::Warning,
            spots(),
            format!("the executable directive `@{name}` is left out, because the subgraphs have no location of it in common"),
            "define it with the same locations everywhere",
        );
        return None;
    }
    if sources.iter().any(|(_, it)| {
        it.locations.iter().filter(|it| is_executable(**it)).count() != locations.len()
    }) {
        findings.hint(
            Code::INCONSISTENT_EXECUTABLE_DIRECTIVE_LOCATIONS,
            Severity::Warning,
            spots(),
            format!("subgraphs give the executable directive `@{name}` different locations; common ones remain"),
            "use the same locations everywhere",
        );
    }
    let repeatable = sources.iter().all(|(_, it)| it.repeatable);
    if !repeatable && sources.iter().any(|(_, it)| it.repeatable) {
        findings.hint(
            Code::INCONSISTENT_EXECUTABLE_DIRECTIVE_REPEATABLE,
            Severity::Warning,
            spots(),
            format!("the executable directive `@{name}` is repeatable in some subgraphs only, so it is not in the supergraph"),
            "make it repeatable in all subgraphs or in none",
        );
    }
    Some(Node::new(ast::DirectiveDefinition {
        description: first.description.clone(),
        name: name.clone(),
        arguments: merge_arguments(context, name, sources, findings),
        repeatable,
        locations,
    }))
}

fn merge_arguments(
    context: &MergeContext<'_>,
    name: &Name,
    sources: &[DefinitionSource<'_>],
    findings: &mut Findings<'_>,
) -> Vec<Node<ast::InputValueDefinition>> {
    let mut arguments = Vec::new();
    let Some((_, first)) = sources.first() else { return arguments };
    for argument in &first.arguments {
        let given: Vec<_> =
            sources.iter().filter_map(|(_, it)| it.argument_by_name(&argument.name)).collect();
        if given.len() < sources.len() {
            continue;
        }
        let spots = || sources.iter().map(|(subgraph, it)| subgraph.spot(&it.name));
        let coordinate = format!("@{name}({}:)", argument.name);
        let types = given.iter().map(|it| &*it.ty);
        let ty = match type_compatibility::merge(context, types, Variance::Input) {
            Some(MergedTypes::Equal(ty)) => ty,
            Some(MergedTypes::Compatible(ty)) => {
                findings.hint(
                    Code::INCONSISTENT_BUT_COMPATIBLE_ARGUMENT_TYPE,
                    Severity::Info,
                    spots(),
                    format!("`{coordinate}` has different types; clients see `{ty}`"),
                    "use the same type everywhere, unless the difference is intended",
                );
                ty
            }
            _ => {
                findings.error(
                    Code::FIELD_ARGUMENT_TYPE_MISMATCH,
                    spots(),
                    format!("`{coordinate}` has incompatible types in the subgraphs"),
                    "use the same type everywhere",
                );
                continue;
            }
        };
        let defaults: Vec<_> = given.iter().filter_map(|it| it.default_value.as_ref()).collect();
        let is_equal = defaults.iter().all(|it| *it == defaults[0]);
        if !is_equal {
            findings.error(
                Code::FIELD_ARGUMENT_DEFAULT_MISMATCH,
                spots(),
                format!("`{coordinate}` has different defaults in the subgraphs"),
                "use the same default everywhere",
            );
        } else if !defaults.is_empty() && defaults.len() < given.len() {
            findings.hint(
                Code::INCONSISTENT_DEFAULT_VALUE_PRESENCE,
                Severity::Warning,
                spots(),
                format!("`{coordinate}` has a default in some subgraphs only, so clients see none"),
                "give the default everywhere",
            );
        }
        let default = defaults.first().filter(|_| is_equal && defaults.len() == given.len());
        let mut merged = (**argument).clone();
        merged.ty = Node::new(ty);
        merged.default_value = default.map(|it| (*it).clone());
        merged.directives = ast::DirectiveList::new();
        arguments.push(Node::new(merged));
    }
    arguments
}
