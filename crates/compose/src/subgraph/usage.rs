//! The uses of fields within one subgraph: by keys, requirements, provisions, contexts and interfaces. Unused external
//! fields are errors, and an overridden field with a use stays in the supergraph.

use std::collections::HashSet;

use apollo_compiler::Name;

use super::{
    field_sets,
    model::{SubgraphModel, TypeDefinition, TypeKind, has},
};
use crate::federation_spec::FederationDirective as D;

/// The fields that have a use, by type and name.
pub(crate) type UsedFields = HashSet<(Name, Name)>;

/// Returns the fields of `subgraph` that some field set names.
pub(crate) fn named_in_field_sets(subgraph: &SubgraphModel) -> UsedFields {
    let mut used = HashSet::new();
    for ty in subgraph.types.values() {
        for key in &ty.keys {
            visit(subgraph, ty, &key.fields, &mut used);
        }
        for field in ty.fields.values() {
            if let Some(requires) = &field.requires {
                visit(subgraph, ty, requires, &mut used);
            }
            let returned = subgraph.types.get(field.ty.inner_named_type());
            if let (Some(provides), Some(returned)) = (&field.provides, returned) {
                visit(subgraph, returned, provides, &mut used);
            }
            for argument in field.arguments.values() {
                if let Some(text) = &argument.from_context {
                    visit_context(subgraph, text, &mut used);
                }
            }
        }
    }
    used
}

/// Returns the fields that implement a field of an interface.
pub(crate) fn implementing_fields(subgraph: &SubgraphModel) -> UsedFields {
    let mut used = HashSet::new();
    for ty in subgraph.types.values() {
        for interface in ty.implements.iter().filter_map(|name| subgraph.types.get(name)) {
            for name in interface.fields.keys().filter(|name| ty.fields.contains_key(*name)) {
                used.insert((ty.name.clone(), name.clone()));
            }
        }
    }
    used
}

fn visit(subgraph: &SubgraphModel, on: &TypeDefinition, text: &str, used: &mut UsedFields) {
    let Ok(selections) = field_sets::parse(text) else { return };
    field_sets::visit_fields(subgraph, on, &selections, &mut |on, field| {
        used.insert((on.name.clone(), field.name.clone()));
    });
}

fn visit_context(subgraph: &SubgraphModel, text: &str, used: &mut UsedFields) {
    let Some((context, selection)) = split_context(text) else { return };
    for ty in subgraph.types.values().filter(|ty| has(&ty.directives, D::Context)) {
        let sets_it = ty
            .directives
            .iter()
            .any(|it| it.known == Some(D::Context) && it.text("name") == Some(context));
        if sets_it {
            let members = match ty.kind {
                TypeKind::Object => vec![ty],
                _ => subgraph.possible_types(ty).into_iter().chain([ty]).collect(),
            };
            for member in members {
                visit(subgraph, member, selection, used);
            }
        }
    }
}

/// Splits `$context { selection }` into the name of the context and the text after it.
pub(crate) fn split_context(text: &str) -> Option<(&str, &str)> {
    let rest = text.trim().strip_prefix('$')?.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    let (name, selection) = rest.split_at(end);
    (!name.is_empty()).then_some((name, selection))
}
