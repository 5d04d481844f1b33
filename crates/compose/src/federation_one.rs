//! Upgrade of Federation 1 subgraphs to the rules of Federation 2: what was implicit becomes explicit, and what had no
//! effect is removed.

use std::collections::HashSet;

use apollo_compiler::Name;

use crate::{
    code::Code,
    federation_spec::FederationDirective as D,
    finding::Findings,
    subgraph::{
        field_sets,
        model::{SubgraphModel, TypeDefinition, TypeKind, is_root},
        usage,
    },
};

/// Upgrades all Federation 1 subgraphs among `subgraphs`.
pub(crate) fn upgrade(subgraphs: &mut [SubgraphModel], findings: &mut Findings<'_>) {
    if !subgraphs.iter().any(SubgraphModel::is_federation_one) {
        return;
    }
    resolve_keys_of_extensions(subgraphs);
    for subgraph in subgraphs.iter_mut().filter(|it| it.is_federation_one()) {
        remove_from_interfaces(subgraph);
        remove_useless_provides(subgraph);
        remove_unused_externals(subgraph, findings);
    }
    add_shareable(subgraphs);
}

/// Reports keys of interfaces that are an `@interfaceObject` elsewhere: a Federation 1 subgraph cannot resolve objects
/// of an interface by key, which interface objects need.
pub(crate) fn check_interface_keys(subgraphs: &[SubgraphModel], findings: &mut Findings<'_>) {
    for subgraph in subgraphs.iter().filter(|it| it.is_federation_one()) {
        let interfaces = subgraph.types.values().filter(|ty| ty.kind == TypeKind::Interface);
        for interface in interfaces.filter(|ty| ty.had_keys) {
            let object = subgraphs.iter().find_map(|other| {
                let ty = other.types.get(&interface.name)?;
                ty.is_interface_object.then_some((other, ty))
            });
            let Some((other, object)) = object else { continue };
            findings.error(
                Code::INTERFACE_OBJECT_USAGE_ERROR,
                [subgraph.spot(&interface.name), other.spot(&object.name)],
                format!(
                    "`{}` is an `@interfaceObject` in subgraph `{}`, but subgraph `{}` is one of Federation 1 and cannot resolve \
                     the interface by its key",
                    interface.name, other.name, subgraph.name
                ),
                format!("link Federation 2 in subgraph `{}`, or remove the key there", subgraph.name),
            );
        }
    }
}

/// Makes the members of keys on extensions resolvable. An extension without a key of its own uses those of the base.
/// Afterwards the keys are ordinary ones.
fn resolve_keys_of_extensions(subgraphs: &mut [SubgraphModel]) {
    let mut members = Vec::new();
    for (index, subgraph) in subgraphs.iter().enumerate().filter(|(_, it)| it.is_federation_one()) {
        let without_key = |ty: &&TypeDefinition| ty.is_extension && ty.keys.is_empty();
        for ty in subgraph.types.values().filter(without_key) {
            let bases = subgraphs.iter().filter_map(|other| other.types.get(&ty.name));
            for key in bases.filter(|base| !base.is_extension).flat_map(|base| &base.keys) {
                let Ok(selections) = field_sets::parse(&key.fields) else { continue };
                field_sets::visit_fields(subgraph, ty, &selections, &mut |on, field| {
                    members.push((index, on.name.clone(), field.name.clone()));
                });
            }
        }
    }
    for (index, ty, field) in members {
        let ty = subgraphs[index].types.get_mut(&ty);
        if let Some(field) = ty.and_then(|ty| ty.fields.get_mut(&field)) {
            field.is_external = false;
            field.is_shareable = true;
        }
    }
    for subgraph in subgraphs.iter_mut().filter(|it| it.is_federation_one()) {
        let keys = subgraph.types.values_mut().flat_map(|ty| ty.keys.iter_mut());
        keys.for_each(|key| key.is_on_extension = false);
    }
}

/// Removes federation directives from interfaces, where Federation 1 ignored them.
fn remove_from_interfaces(subgraph: &mut SubgraphModel) {
    for ty in subgraph.types.values_mut().filter(|ty| ty.kind == TypeKind::Interface) {
        ty.had_keys = !ty.keys.is_empty();
        ty.keys.clear();
        ty.directives.retain(|it| it.known != Some(D::Key));
        for field in ty.fields.values_mut() {
            field.is_external = false;
            field.requires = None;
            field.provides = None;
            field
                .directives
                .retain(|it| !matches!(it.known, Some(D::External | D::Requires | D::Provides)));
        }
    }
}

/// Removes `@provides` from fields without a selection, where Federation 1 ignored it.
fn remove_useless_provides(subgraph: &mut SubgraphModel) {
    let composite: HashSet<Name> = subgraph
        .types
        .values()
        .filter(|ty| ty.kind.is_composite())
        .map(|ty| ty.name.clone())
        .collect();
    for field in subgraph.types.values_mut().flat_map(|ty| ty.fields.values_mut()) {
        if field.provides.is_some() && !composite.contains(field.ty.inner_named_type()) {
            field.provides = None;
        }
    }
}

/// Removes external fields without a use, which Federation 1 allowed.
fn remove_unused_externals(subgraph: &mut SubgraphModel, findings: &mut Findings<'_>) {
    let mut used = usage::named_in_field_sets(subgraph);
    used.extend(usage::implementing_fields(subgraph));
    let id = subgraph.id;
    let types = subgraph.types.values();
    let fields = types.clone().flat_map(|ty| ty.fields.values());
    let referenced: HashSet<Name> = fields
        .map(|field| field.ty.inner_named_type().clone())
        .chain(types.flat_map(|ty| ty.members.iter().cloned()))
        .collect();
    let objects = subgraph.types.values_mut().filter(|ty| ty.kind == TypeKind::Object);
    for ty in objects {
        let count = ty.fields.len();
        let name = ty.name.clone();
        ty.fields.retain(|field, definition| {
            !definition.is_external || used.contains(&(name.clone(), field.clone()))
        });
        if ty.fields.is_empty() && count > 0 && referenced.contains(&name) && !is_root(&name) {
            findings.error(
                Code::TYPE_WITH_ONLY_UNUSED_EXTERNAL,
                [(id, ty.name.location())],
                format!("all fields of `{}` are external and none has a use", ty.name),
                "remove the type from this subgraph, or resolve one of its fields there",
            );
        }
        for field in ty.fields.values_mut().filter(|field| field.is_external) {
            field.directives.retain(|it| it.known != Some(D::Tag));
        }
    }
    subgraph
        .types
        .retain(|_, ty| ty.kind != TypeKind::Object || is_root(&ty.name) || !ty.fields.is_empty());
}

/// Marks what several subgraphs may resolve: Federation 1 had no `@shareable`.
fn add_shareable(subgraphs: &mut [SubgraphModel]) {
    let mut shared = Vec::new();
    for (index, subgraph) in subgraphs.iter().enumerate().filter(|(_, it)| it.is_federation_one()) {
        let others = || subgraphs.iter().enumerate().filter(move |(other, _)| *other != index);
        let objects = subgraph.types.values().filter(|ty| ty.kind == TypeKind::Object);
        for ty in objects.filter(|ty| ty.name != "Subscription") {
            let is_entity = !ty.keys.is_empty();
            if !is_entity && !others().any(|(_, other)| other.types.contains_key(&ty.name)) {
                continue;
            }
            for field in ty.fields.values() {
                let is_resolved_elsewhere = || {
                    others().any(|(_, other)| {
                        other
                            .field(&ty.name, &field.name)
                            .is_some_and(|it| !it.is_external || it.is_provided)
                    })
                };
                if !is_entity || is_resolved_elsewhere() {
                    shared.push((index, ty.name.clone(), field.name.clone()));
                }
            }
        }
    }
    for (index, ty, field) in shared {
        let ty = subgraphs[index].types.get_mut(&ty);
        if let Some(field) = ty.and_then(|ty| ty.fields.get_mut(&field)) {
            field.is_shareable = true;
        }
    }
}
