//! Interfaces of the merged graph: implementations have all fields, and keys reach all implementations.

use apollo_compiler::Name;

use crate::{
    code::Code,
    finding::Findings,
    merge::implementations,
    subgraph::model::{SubgraphModel, TypeKind},
    supergraph::{MergedType, SupergraphModel},
};

/// Checks all interfaces.
pub(super) fn check(
    subgraphs: &[SubgraphModel],
    merged: &SupergraphModel,
    findings: &mut Findings<'_>,
) {
    let implementations = implementations(merged);
    for subgraph in subgraphs {
        let objects = subgraph.types.values().filter(|ty| ty.is_interface_object);
        for object in objects {
            let all = implementations.get(&object.name).map_or(&[][..], Vec::as_slice);
            for own in all.iter().filter_map(|name| subgraph.types.get(name)) {
                findings.error(
                    Code::INTERFACE_OBJECT_USAGE_ERROR,
                    [subgraph.spot(&object.name), subgraph.spot(&own.name)],
                    format!(
                        "`{}` is an `@interfaceObject` in subgraph `{}`, which also defines its implementation `{}`",
                        object.name, subgraph.name, own.name
                    ),
                    "a subgraph either knows the implementations of an interface or treats it as one object type",
                );
            }
        }
        let keyed = subgraph.types.values().filter(|ty| {
            ty.kind == TypeKind::Interface && ty.keys.iter().any(|key| key.is_resolvable)
        });
        for interface in keyed {
            let all = implementations.get(&interface.name).map_or(&[][..], Vec::as_slice);
            let implements = |name: &Name| {
                let own = subgraph.types.get(name);
                own.is_some_and(|own| own.implements.contains(&interface.name))
            };
            let missing: Vec<_> = all.iter().filter(|name| !implements(name)).collect();
            if missing.is_empty() {
                continue;
            }
            let names: Vec<_> = missing.iter().map(|name| format!("`{name}`")).collect();
            findings.error(
                Code::INTERFACE_KEY_MISSING_IMPLEMENTATION_TYPE,
                [subgraph.spot(&interface.name)],
                format!(
                    "interface `{}` has a resolvable key in subgraph `{}`, which lacks its implementation {}",
                    interface.name,
                    subgraph.name,
                    names.join(", ")
                ),
                "a subgraph that resolves an interface by key must know all its implementations: define them there, or remove the key",
            );
        }
    }
    // A field that could not be merged is not missing.
    if findings.has_errors() {
        return;
    }
    for ty in merged.types.values() {
        for interface in ty.implements.keys().filter_map(|name| merged.types.get(name)) {
            check_fields(subgraphs, ty, interface, findings);
        }
    }
}

fn check_fields(
    subgraphs: &[SubgraphModel],
    ty: &MergedType,
    interface: &MergedType,
    findings: &mut Findings<'_>,
) {
    for field in interface.fields.values().filter(|it| !ty.fields.contains_key(&it.name)) {
        let declaring = field.sources.iter().filter_map(|&id| {
            let own = subgraphs.get(id)?.field(&interface.name, &field.name)?;
            Some(subgraphs[id].spot(&own.name))
        });
        let implementing = subgraphs.iter().filter_map(|subgraph| {
            let own = subgraph.types.get(&ty.name)?;
            Some(subgraph.spot(&own.name))
        });
        findings.error(
            Code::INTERFACE_FIELD_NO_IMPLEM,
            declaring.chain(implementing),
            format!(
                "`{}` implements `{}`, but no subgraph gives it the field `{}`, which the interface has in the supergraph",
                ty.name, interface.name, field.name
            ),
            format!("add `{}: {}` to `{}` in a subgraph, or remove the field from the interface", field.name, field.ty, ty.name),
        );
    }
}
