//! `@external` fields: each needs a use in its subgraph.

use crate::{
    code::Code,
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
            if field.provides.is_some() && has(&field.directives, D::External) {
                findings.error(
                    Code::EXTERNAL_COLLISION_WITH_ANOTHER_DIRECTIVE,
                    spot,
                    format!(
                        "`{coordinate}` is `@external` in subgraph `{}`, so `@provides` has no effect: the subgraph does not resolve it",
                        subgraph.name
                    ),
                    "remove `@external` or `@provides`",
                );
                continue;
            }
            let key = (ty.name.clone(), field.name.clone());
            if !named.contains(&key) && !implementing.contains(&key) {
                findings.error(
                    Code::EXTERNAL_UNUSED,
                    spot,
                    format!("`{coordinate}` is `@external` in subgraph `{}`, but nothing there uses it", subgraph.name),
                    "remove the field from this subgraph, or use it in `@key`, `@requires` or `@provides`, or resolve it \
                     here: then remove `@external`",
                );
            }
        }
    }
}
