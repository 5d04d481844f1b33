//! `@external` fields: each needs a use in its subgraph, and none has a resolver there.

use crate::{
    Code,
    federation_spec::FederationDirective as D,
    finding::Findings,
    subgraph::{
        model::{SubgraphModel, TypeKind, has},
        usage,
    },
};

/// Checks all external fields of a subgraph.
pub(super) fn check(subgraph: &SubgraphModel, findings: &mut Findings<'_>) {
    let named = usage::named_in_field_sets(subgraph);
    let implementing = usage::implementing_fields(subgraph);
    for ty in subgraph.types.values() {
        for field in ty.fields.values() {
            let coordinate = format!("{}.{}", ty.name, field.name);
            let spot = [subgraph.spot(&field.name)];
            if ty.kind == TypeKind::Interface {
                if has(&field.directives, D::External) {
                    findings.error(
                        Code::EXTERNAL_ON_INTERFACE,
                        spot,
                        format!(
                            "`{coordinate}` is a field of an interface and cannot be `@external`"
                        ),
                        "mark the field of the object types that implement the interface instead",
                    );
                }
                continue;
            }
            if !field.is_external {
                continue;
            }
            let key = (ty.name.clone(), field.name.clone());
            let is_marked_itself = has(&field.directives, D::External);
            if is_marked_itself && !named.contains(&key) && !implementing.contains(&key) {
                findings.error(
                    Code::EXTERNAL_UNUSED,
                    spot,
                    format!("`{coordinate}` is `@external` in subgraph `{}`, but nothing there uses it", subgraph.name),
                    "remove the field from this subgraph, or use it in `@key`, `@requires` or `@provides`, or resolve it \
                     here: then remove `@external`",
                );
            }
            let collisions = [
                (field.override_from.is_some(), "override"),
                (field.requires.is_some(), "requires"),
                (field.provides.is_some(), "provides"),
            ];
            // Overriding an external field has a code of its own: see `merge::overrides`.
            for (_, directive) in collisions.iter().skip(1).filter(|(is_there, _)| *is_there) {
                findings.error(
                    Code::EXTERNAL_COLLISION_WITH_ANOTHER_DIRECTIVE,
                    spot,
                    format!("`{coordinate}` is `@external`, so `@{directive}` has no effect: this subgraph does not resolve it"),
                    format!("remove `@external` or `@{directive}`"),
                );
            }
        }
    }
}
