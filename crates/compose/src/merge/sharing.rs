//! Fields that several subgraphs resolve: all of them must say so with `@shareable`, because the router may ask any of
//! them.

use super::{context::MergeContext, sources::FieldSource};
use crate::{
    code::Code,
    finding::{Findings, Severity},
    subgraph::model::{TypeDefinition, TypeKind},
};

/// Checks that the subgraphs which resolve a field agree to share it.
pub(super) fn check(
    context: &MergeContext<'_>,
    coordinate: &str,
    sources: &[FieldSource<'_>],
    findings: &mut Findings<'_>,
) {
    let overrides = &context.overrides;
    let resolves = |source: &&FieldSource<'_>| {
        let (id, ty, field) = (source.subgraph.id, &source.parent.name, &source.field.name);
        (!source.field.is_external || source.field.is_provided)
            && !overrides.is_overridden(id, ty, field)
            && !overrides.is_leaving(id, ty, field)
    };
    let resolving: Vec<_> = sources.iter().filter(resolves).collect();
    if resolving.len() < 2 {
        return;
    }
    let (shared, unshared): (Vec<_>, Vec<_>) =
        resolving.iter().partition(|source| source.field.is_shareable || source.field.is_external);
    if !unshared.is_empty() {
        let names = |sources: &[&&FieldSource<'_>]| {
            let names: Vec<_> =
                sources.iter().map(|it| format!("`{}`", it.subgraph.name)).collect();
            names.join(", ")
        };
        let others = match (shared.is_empty(), unshared.len()) {
            (true, _) => "none of them marks it `@shareable`".to_owned(),
            (false, 1) => format!("{} does not mark it `@shareable`", names(&unshared)),
            (false, _) => format!("{} do not mark it `@shareable`", names(&unshared)),
        };
        let all: Vec<_> = resolving.iter().collect();
        findings.error(
            Code::INVALID_FIELD_SHARING,
            resolving.iter().map(|it| it.subgraph.spot(&it.field.name)),
            format!(
                "`{coordinate}` is resolved by the subgraphs {}, but {others}",
                names(&all)
            ),
            "the router may take the value from any of them: mark the field `@shareable` in each if all give the same value; \
             otherwise keep it in one subgraph, or mark it `@external` where it is only referenced",
        );
        return;
    }
    check_runtime_types(coordinate, &resolving, findings);
}

/// Checks that a shared field of an interface or union can have the same object types in all subgraphs.
fn check_runtime_types(
    coordinate: &str,
    resolving: &[&FieldSource<'_>],
    findings: &mut Findings<'_>,
) {
    let types: Vec<Vec<&str>> = resolving
        .iter()
        .filter_map(|source| {
            let ty: &TypeDefinition =
                source.subgraph.types.get(source.field.ty.inner_named_type())?;
            if !ty.kind.is_composite() || ty.is_interface_object {
                return None;
            }
            let mut names: Vec<_> =
                source.subgraph.possible_types(ty).iter().map(|it| it.name.as_str()).collect();
            names.sort_unstable();
            Some(names)
        })
        .collect();
    let is_abstract = resolving.iter().any(|source| {
        let ty = source.subgraph.types.get(source.field.ty.inner_named_type());
        ty.is_some_and(|ty| matches!(ty.kind, TypeKind::Interface | TypeKind::Union))
    });
    let [first, rest @ ..] = &types[..] else { return };
    if !is_abstract || rest.iter().all(|other| other == first) {
        return;
    }
    let is_common = first.iter().any(|name| rest.iter().all(|other| other.contains(name)));
    let spots = resolving.iter().map(|it| it.subgraph.spot(&it.field.name));
    let described: Vec<_> = resolving
        .iter()
        .zip(&types)
        .map(|(source, names)| format!("{} in `{}`", names.join(", "), source.subgraph.name))
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
            format!("the shared field `{coordinate}` returns no object type that all subgraphs have in common: {described}"),
            "a shared field gives the same value everywhere: return common types, or keep the field in one subgraph",
        );
    }
}
