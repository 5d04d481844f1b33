//! Fields that several subgraphs resolve: all of them must say so with `@shareable`, because the router may ask any of
//! them.

use super::{context::MergeContext, sources::FieldSource};
use crate::{code::Code, finding::Findings};

/// Checks that the subgraphs which resolve a field agree to share it. Returns the subgraphs that share it.
pub(super) fn check(
    context: &MergeContext<'_>,
    coordinate: &str,
    sources: &[FieldSource<'_>],
    findings: &mut Findings<'_>,
) -> Vec<usize> {
    let overrides = &context.overrides;
    let resolves = |source: &&FieldSource<'_>| {
        let (id, ty, field) = (source.subgraph.id, &source.parent.name, &source.field.name);
        (!source.field.is_external || source.field.is_provided)
            && !overrides.is_overridden(id, ty, field)
            && !overrides.is_leaving(id, ty, field)
    };
    let resolving: Vec<_> = sources.iter().filter(resolves).collect();
    if resolving.len() < 2 {
        return Vec::new();
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
        return Vec::new();
    }
    resolving.iter().map(|it| it.subgraph.id).collect()
}
