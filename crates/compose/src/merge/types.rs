//! Types: their kinds, `@join__type`, interfaces, members, and the dispatch to the merging of their parts.

use std::collections::HashMap;

use apollo_compiler::Name;
use indexmap::IndexMap;

use super::{
    context::MergeContext,
    descriptions,
    directives::{self, DirectiveSource},
    fields, inputs,
    sources::TypeSource,
};
use crate::{
    code::Code,
    finding::{Findings, Severity},
    subgraph::model::{TypeKind, is_root},
    supergraph::{JoinType, MergedType, SupergraphModel},
};

/// Merges all types except the values of enums, which depend on how fields use them.
pub(super) fn merge(context: &MergeContext<'_>, findings: &mut Findings<'_>) -> SupergraphModel {
    let mut merged = SupergraphModel::default();
    for (name, sources) in &context.sources {
        if let Some(kind) = find_kind(name, sources, findings) {
            let ty = merge_type(context, name, kind, sources, findings);
            merged.types.insert((*name).clone(), ty);
        }
    }
    merged
}

/// Returns the kind of a type, or `None` if the subgraphs disagree.
fn find_kind(
    name: &Name,
    sources: &[TypeSource<'_>],
    findings: &mut Findings<'_>,
) -> Option<TypeKind> {
    let mut kinds: Vec<(TypeKind, Vec<&str>)> = Vec::new();
    for source in sources {
        let kind = source.ty.supergraph_kind();
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, names)) => names.push(&source.subgraph.name),
            None => kinds.push((kind, vec![&source.subgraph.name])),
        }
    }
    let spots = || sources.iter().map(|it| it.subgraph.spot(&it.ty.name));
    if let [(kind, _)] = &kinds[..] {
        if sources.iter().all(|it| it.ty.is_interface_object) {
            findings.error(
                Code::INTERFACE_OBJECT_USAGE_ERROR,
                spots(),
                format!(
                    "`{name}` is an `@interfaceObject` in every subgraph, so nothing implements it"
                ),
                "define it as an interface in the subgraph that knows its implementations",
            );
            return None;
        }
        return Some(*kind);
    }
    let described: Vec<_> = kinds
        .iter()
        .map(|(kind, names)| format!("{} in `{}`", kind.describe(), names.join("`, `")))
        .collect();
    let objects = sources.iter().any(|it| it.ty.is_interface_object);
    let advice = match objects {
        true => "an `@interfaceObject` stands for an interface of another subgraph",
        false => "rename one of the types, or define it with the same kind everywhere",
    };
    findings.error(
        Code::TYPE_KIND_MISMATCH,
        spots(),
        format!("`{name}` has different kinds: {}", described.join("; ")),
        advice,
    );
    None
}

fn merge_type(
    context: &MergeContext<'_>,
    name: &Name,
    kind: TypeKind,
    sources: &[TypeSource<'_>],
    findings: &mut Findings<'_>,
) -> MergedType {
    let spot = |source: &TypeSource<'_>| source.subgraph.spot(&source.ty.name);
    let element = || format!("type `{name}`");
    let described = sources.iter().map(|it| (it.ty.description.as_ref(), spot(it)));
    let description = descriptions::merge(described, element, findings);
    let applied: Vec<_> = sources
        .iter()
        .map(|it| DirectiveSource {
            subgraph: it.subgraph,
            directives: &it.ty.directives,
            spot: spot(it),
            is_external: false,
        })
        .collect();
    let mut merged = MergedType {
        name: name.clone(),
        kind,
        description,
        join_types: sources.iter().flat_map(join_types).collect(),
        implements: IndexMap::new(),
        members: IndexMap::new(),
        directives: directives::merge(context, &applied, &element, findings),
        fields: IndexMap::new(),
        inputs: IndexMap::new(),
        values: IndexMap::new(),
    };
    for source in sources {
        for interface in &source.ty.implements {
            merged.implements.entry(interface.clone()).or_default().push(source.subgraph.id);
        }
        for member in &source.ty.members {
            merged.members.entry(member.clone()).or_default().push(source.subgraph.id);
        }
    }
    match kind {
        TypeKind::Object | TypeKind::Interface => {
            if kind == TypeKind::Object && !is_root(name) {
                hint_inconsistent_entity(name, sources, findings);
            }
            merged.fields = fields::merge(context, name, kind, sources, findings);
        }
        TypeKind::InputObject => {
            merged.inputs = inputs::merge_input_type(context, name, sources, findings);
        }
        TypeKind::Union => hint_inconsistent_members(name, sources, &merged.members, findings),
        TypeKind::Scalar | TypeKind::Enum => {}
    }
    merged
}

fn join_types(source: &TypeSource<'_>) -> Vec<JoinType> {
    let graph = source.subgraph.id;
    let is_interface_object = source.ty.is_interface_object;
    if source.ty.keys.is_empty() {
        return vec![JoinType {
            graph,
            key: None,
            is_extension: false,
            is_resolvable: true,
            is_interface_object,
        }];
    }
    let join_type = |key: &crate::subgraph::model::KeyDefinition| JoinType {
        graph,
        key: Some(key.fields.clone()),
        is_extension: key.is_on_extension,
        is_resolvable: key.is_resolvable,
        is_interface_object,
    };
    source.ty.keys.iter().map(join_type).collect()
}

fn hint_inconsistent_entity(name: &Name, sources: &[TypeSource<'_>], findings: &mut Findings<'_>) {
    let (with, without): (Vec<&TypeSource<'_>>, Vec<&TypeSource<'_>>) =
        sources.iter().partition(|source| !source.ty.keys.is_empty());
    if !with.is_empty() && !without.is_empty() {
        findings.hint(
            Code::INCONSISTENT_ENTITY,
            Severity::Info,
            without.iter().map(|it| it.subgraph.spot(&it.ty.name)),
            format!("`{name}` has a key in some subgraphs only"),
            "without a key the router cannot join the objects of that subgraph with those of others",
        );
    }
}

fn hint_inconsistent_members(
    name: &Name,
    sources: &[TypeSource<'_>],
    members: &IndexMap<Name, Vec<usize>>,
    findings: &mut Findings<'_>,
) {
    let missing: Vec<_> = members
        .iter()
        .filter(|(_, graphs)| graphs.len() < sources.len())
        .map(|(member, _)| format!("`{member}`"))
        .collect();
    if !missing.is_empty() {
        findings.hint(
            Code::INCONSISTENT_UNION_MEMBER,
            Severity::Info,
            sources.iter().map(|it| it.subgraph.spot(&it.ty.name)),
            format!("some subgraphs lack members of the union `{name}`: {}", missing.join(", ")),
            "add them there, unless those subgraphs never return them",
        );
    }
}

/// Returns, for each interface, the object types that implement it in the merged graph.
pub(crate) fn implementations(merged: &SupergraphModel) -> HashMap<Name, Vec<Name>> {
    let mut found: HashMap<Name, Vec<Name>> = HashMap::new();
    for ty in merged.types.values().filter(|ty| ty.kind == TypeKind::Object) {
        for interface in ty.implements.keys() {
            found.entry(interface.clone()).or_default().push(ty.name.clone());
        }
    }
    found
}
