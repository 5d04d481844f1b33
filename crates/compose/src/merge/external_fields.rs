//! `@external` fields against the merged field: an external declaration repeats the field of another subgraph, so its
//! type and arguments must agree with it.

use super::{context::MergeContext, sources::FieldSource, type_compatibility::is_subtype};
use crate::{code::Code, finding::Findings, supergraph::MergedField};

/// Checks the external declarations of a merged field.
pub(super) fn check(
    context: &MergeContext<'_>,
    coordinate: &str,
    sources: &[FieldSource<'_>],
    merged: &MergedField,
    findings: &mut Findings<'_>,
) {
    for source in sources.iter().filter(|it| it.field.is_external) {
        let spot = [source.subgraph.spot(&source.field.name)];
        let name = &source.subgraph.name;
        if source.field.ty != merged.ty {
            findings.error(
                Code::EXTERNAL_TYPE_MISMATCH,
                spot,
                format!(
                    "`{coordinate}` is `@external` with the type `{}` in subgraph `{name}`, but where it is resolved its type is `{}`",
                    source.field.ty, merged.ty
                ),
                format!("declare it as `{}`", merged.ty),
            );
        }
        for argument in merged.arguments.values() {
            let Some(own) = source.field.arguments.get(&argument.name) else {
                findings.error(
                    Code::EXTERNAL_ARGUMENT_MISSING,
                    spot,
                    format!("`{coordinate}` is `@external` in subgraph `{name}` without its argument `{}`", argument.name),
                    format!("declare the argument as `{}: {}`", argument.name, argument.ty),
                );
                continue;
            };
            let spot = [source.subgraph.spot(&own.name)];
            if !is_subtype(context, &argument.ty, &own.ty) {
                findings.error(
                    Code::EXTERNAL_ARGUMENT_TYPE_MISMATCH,
                    spot,
                    format!(
                        "the argument `{}` of the `@external` field `{coordinate}` has the type `{}` in subgraph `{name}`, but where \
                         the field is resolved it is `{}`",
                        argument.name, own.ty, argument.ty
                    ),
                    format!("declare it as `{}`", argument.ty),
                );
            }
            if own.default != argument.default {
                findings.error(
                    Code::EXTERNAL_ARGUMENT_DEFAULT_MISMATCH,
                    spot,
                    format!(
                        "the argument `{}` of the `@external` field `{coordinate}` has another default in subgraph `{name}` than where \
                         the field is resolved",
                        argument.name
                    ),
                    "give it the same default",
                );
            }
        }
    }
}
