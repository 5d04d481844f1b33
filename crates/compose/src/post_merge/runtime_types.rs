//! Object types of shared fields: the router takes a shared field from any of its subgraphs, so all should return the
//! same types.

use crate::{
    code::Code,
    finding::{Findings, Severity},
    subgraph::model::{FieldDefinition, SubgraphModel, TypeKind},
    supergraph::SupergraphModel,
};

/// A subgraph that shares a field, with the names of the object types that it can return there.
struct SharingSubgraph<'a> {
    subgraph: &'a SubgraphModel,
    field: &'a FieldDefinition,
    names: Vec<&'a str>,
}

/// Checks all shared fields with a type that has several object types.
pub(crate) fn check(
    subgraphs: &[SubgraphModel],
    merged: &SupergraphModel,
    findings: &mut Findings<'_>,
) {
    for ty in merged.types.values() {
        for field in ty.fields.values().filter(|it| it.shared_by.len() > 1) {
            let mut is_abstract = false;
            let mut sharing = Vec::new();
            for subgraph in field.shared_by.iter().filter_map(|&id| subgraphs.get(id)) {
                let Some(own) = subgraph.field(&ty.name, &field.name) else { continue };
                let Some(returned) = subgraph.types.get(own.ty.inner_named_type()) else {
                    continue;
                };
                if !returned.kind.is_composite() || returned.is_interface_object {
                    continue;
                }
                is_abstract |= matches!(returned.kind, TypeKind::Interface | TypeKind::Union);
                let possible = subgraph.possible_types(returned);
                let mut names: Vec<_> = possible.iter().map(|it| it.name.as_str()).collect();
                names.sort_unstable();
                sharing.push(SharingSubgraph { subgraph, field: own, names });
            }
            if is_abstract {
                compare(&format!("{}.{}", ty.name, field.name), &sharing, findings);
            }
        }
    }
}

fn compare(coordinate: &str, sharing: &[SharingSubgraph<'_>], findings: &mut Findings<'_>) {
    let [first, rest @ ..] = sharing else { return };
    if rest.iter().all(|other| other.names == first.names) {
        return;
    }
    let is_common =
        first.names.iter().any(|name| rest.iter().all(|other| other.names.contains(name)));
    let spots = sharing.iter().map(|it| it.subgraph.spot(&it.field.name));
    let described: Vec<_> = sharing
        .iter()
        .map(|it| format!("{} in `{}`", it.names.join(", "), it.subgraph.name))
        .collect();
    let described = described.join("; ");
    if is_common {
        findings.hint(
            Code::INCONSISTENT_RUNTIME_TYPES_FOR_SHAREABLE_RETURN,
            Severity::Warning,
            spots,
            format!("the shared field `{coordinate}` can return different object types: {described}"),
            "clients receive other types depending on the subgraph that the router asks; return the same types everywhere",
        );
    } else {
        findings.error(
            Code::SHAREABLE_HAS_MISMATCHED_RUNTIME_TYPES,
            spots,
            format!(
                "the shared field `{coordinate}` returns no object type that all subgraphs have in common: {described}"
            ),
            "a shared field gives the same value everywhere: return common types, or keep the field in one subgraph",
        );
    }
}
