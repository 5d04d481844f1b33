//! Values of enums. Their merging depends on the use of the enum: clients may send only values that all subgraphs know,
//! and may receive values of any subgraph.

use std::collections::HashSet;

use apollo_compiler::Name;
use indexmap::IndexMap;

use super::{
    context::MergeContext,
    descriptions,
    directives::{self, DirectiveSource},
    sources::TypeSource,
};
use crate::{
    code::Code,
    federation_spec::FederationDirective as D,
    finding::{Findings, Severity},
    subgraph::model::{EnumValue, SubgraphModel, TypeKind, has},
    supergraph::{MergedEnumValue, SupergraphModel},
};

/// The use of an enum in the merged graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EnumUse {
    None,
    Input,
    Output,
    Both,
}

/// Merges the values of all enums. Fields and input types must have been merged.
pub(super) fn merge(
    context: &MergeContext<'_>,
    merged: &mut SupergraphModel,
    findings: &mut Findings<'_>,
) {
    let (inputs, outputs) = find_uses(context, merged);
    let enums = merged.types.values_mut().filter(|ty| ty.kind == TypeKind::Enum);
    for ty in enums {
        let Some(sources) = context.sources.get(&ty.name) else { continue };
        let usage = match (inputs.contains(&ty.name), outputs.contains(&ty.name)) {
            (true, true) => EnumUse::Both,
            (true, false) => EnumUse::Input,
            (false, true) => EnumUse::Output,
            (false, false) => EnumUse::None,
        };
        ty.values = merge_values(context, &ty.name, usage, sources, findings);
    }
}

/// Returns the names of all types that arguments and input fields have, and of all that fields have.
fn find_uses(
    context: &MergeContext<'_>,
    merged: &SupergraphModel,
) -> (HashSet<Name>, HashSet<Name>) {
    let (mut inputs, mut outputs) = (HashSet::new(), HashSet::new());
    for ty in merged.types.values() {
        for field in ty.fields.values() {
            outputs.insert(field.ty.inner_named_type().clone());
            inputs.extend(field.arguments.values().map(|it| it.ty.inner_named_type().clone()));
        }
    }
    // Fields of input types count even if they are left out of the supergraph.
    for source in context.sources.values().flatten() {
        inputs.extend(source.ty.inputs.values().map(|it| it.ty.inner_named_type().clone()));
    }
    for definition in merged.directive_definitions.values() {
        inputs.extend(definition.arguments.iter().map(|it| it.ty.inner_named_type().clone()));
    }
    (inputs, outputs)
}

fn merge_values(
    context: &MergeContext<'_>,
    ty: &Name,
    usage: EnumUse,
    sources: &[TypeSource<'_>],
    findings: &mut Findings<'_>,
) -> IndexMap<Name, MergedEnumValue> {
    let spots = || sources.iter().map(|it| it.subgraph.spot(&it.ty.name));
    if usage == EnumUse::None {
        findings.hint(
            Code::UNUSED_ENUM_TYPE,
            Severity::Info,
            spots(),
            format!("the enum `{ty}` is used by no field or argument"),
            "remove it if nothing needs it",
        );
    }
    let mut values: IndexMap<&Name, Vec<(&SubgraphModel, &EnumValue)>> = IndexMap::new();
    for source in sources {
        for value in source.ty.values.values() {
            values.entry(&value.name).or_default().push((source.subgraph, value));
        }
    }
    let mut merged = IndexMap::new();
    for (name, given) in values {
        let is_inaccessible = given.iter().any(|(_, it)| has(&it.directives, D::Inaccessible));
        if given.len() < sources.len() {
            let is_left_out =
                report_missing(ty, name, usage, sources, &given, is_inaccessible, findings);
            if is_left_out {
                continue;
            }
        }
        let element = || format!("enum value `{ty}.{name}`");
        let described =
            given.iter().map(|(subgraph, it)| (it.description.as_ref(), subgraph.spot(&it.name)));
        let description = descriptions::merge(described, element, findings);
        let applied: Vec<_> = given
            .iter()
            .map(|(subgraph, it)| DirectiveSource {
                subgraph,
                directives: &it.directives,
                spot: subgraph.spot(&it.name),
                is_external: false,
            })
            .collect();
        let directives = directives::merge(context, &applied, &element, findings);
        let sources = given.iter().map(|(subgraph, _)| subgraph.id).collect();
        let value = MergedEnumValue { name: name.clone(), description, directives, sources };
        merged.insert(name.clone(), value);
    }
    if merged.is_empty() {
        findings.error(
            Code::EMPTY_MERGED_ENUM_TYPE,
            spots(),
            format!("no value of the enum `{ty}` exists in all subgraphs that define it"),
            "clients may send only values that all subgraphs know: add common values, or rename one of the enums",
        );
    }
    merged
}

/// Reports a value that some subgraphs lack. Returns true if the supergraph does not have it.
fn report_missing(
    ty: &Name,
    name: &Name,
    usage: EnumUse,
    sources: &[TypeSource<'_>],
    given: &[(&SubgraphModel, &EnumValue)],
    is_inaccessible: bool,
    findings: &mut Findings<'_>,
) -> bool {
    let lacking = sources.iter().filter(|it| !it.ty.values.contains_key(name));
    let names: Vec<_> = lacking.clone().map(|it| format!("`{}`", it.subgraph.name)).collect();
    let names = names.join(", ");
    let having = given.iter().map(|(subgraph, it)| subgraph.spot(&it.name));
    let spots: Vec<_> = having.chain(lacking.map(|it| it.subgraph.spot(&it.ty.name))).collect();
    match usage {
        EnumUse::Both if is_inaccessible => false,
        EnumUse::Both => {
            findings.error(
                Code::ENUM_VALUE_MISMATCH,
                spots,
                format!(
                    "the enum `{ty}` is used for both input and output, so all subgraphs must have the same values, but `{name}` \
                     does not exist in {names}"
                ),
                format!("add `{name}` there, or hide it from clients with `@inaccessible` until all subgraphs have it"),
            );
            false
        }
        EnumUse::Input => {
            findings.hint(
                Code::INCONSISTENT_ENUM_VALUE_FOR_INPUT_ENUM,
                Severity::Warning,
                spots,
                format!("clients cannot send `{ty}.{name}`, because it does not exist in {names}"),
                "add the value everywhere",
            );
            true
        }
        EnumUse::Output | EnumUse::None => {
            findings.hint(
                Code::INCONSISTENT_ENUM_VALUE_FOR_OUTPUT_ENUM,
                Severity::Info,
                spots,
                format!("`{ty}.{name}` does not exist in {names}"),
                "add the value there, unless those subgraphs never return it",
            );
            false
        }
    }
}
