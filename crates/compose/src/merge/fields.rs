//! Fields of object types and interfaces, with the fields that interface objects add to implementations.

use apollo_compiler::{Name, ast};
use indexmap::IndexMap;

use super::{
    context::MergeContext,
    descriptions,
    directives::{self, DirectiveSource},
    external_fields, inputs, sharing,
    sources::{FieldSource, TypeSource},
    type_compatibility::{self, MergedTypes, Variance},
};
use crate::{
    code::Code,
    finding::{Findings, Severity},
    subgraph::{
        model::{TypeKind, is_root},
        usage::split_context,
    },
    supergraph::{JoinField, MergedContextArgument, MergedField},
};

/// Merges the fields of a type.
pub(super) fn merge(
    context: &MergeContext<'_>,
    ty: &Name,
    kind: TypeKind,
    sources: &[TypeSource<'_>],
    findings: &mut Findings<'_>,
) -> IndexMap<Name, MergedField> {
    let mut fields: IndexMap<&Name, Vec<FieldSource<'_>>> = IndexMap::new();
    let objects = match kind {
        TypeKind::Object => context.interface_objects_of(ty),
        _ => Vec::new(),
    };
    let own = sources.iter().map(|it| (it, false));
    for (source, is_abstract) in own.chain(objects.iter().map(|it| (it, true))) {
        for field in source.ty.fields.values() {
            let entries = fields.entry(&field.name).or_default();
            let is_new = entries.iter().all(|it| it.subgraph.id != source.subgraph.id);
            if is_new {
                let (subgraph, parent) = (source.subgraph, source.ty);
                entries.push(FieldSource { subgraph, parent, field, is_abstract });
            }
        }
    }
    let is_entity = sources.iter().any(|source| !source.ty.keys.is_empty());
    let is_value_type = !is_entity && !is_root(ty);
    let mut merged = IndexMap::new();
    for (name, entries) in fields {
        if is_value_type {
            hint_missing(ty, kind, name, sources, &entries, findings);
        }
        if let Some(field) = merge_field(context, ty, kind, name, sources, &entries, findings) {
            merged.insert(name.clone(), field);
        }
    }
    merged
}

fn hint_missing(
    ty: &Name,
    kind: TypeKind,
    name: &Name,
    sources: &[TypeSource<'_>],
    entries: &[FieldSource<'_>],
    findings: &mut Findings<'_>,
) {
    // A type with external fields only refers to that of another subgraph.
    let lacks = |source: &&TypeSource<'_>| {
        !source.ty.fields.contains_key(name)
            && !source.ty.fields.values().all(|field| field.is_external)
    };
    let missing: Vec<_> = sources.iter().filter(lacks).collect();
    if missing.is_empty() || entries.iter().all(|it| it.is_abstract) {
        return;
    }
    let code = match kind {
        TypeKind::Interface => Code::INCONSISTENT_INTERFACE_VALUE_TYPE_FIELD,
        _ => Code::INCONSISTENT_OBJECT_VALUE_TYPE_FIELD,
    };
    let names: Vec<_> = missing.iter().map(|it| format!("`{}`", it.subgraph.name)).collect();
    findings.hint(
        code,
        Severity::Info,
        missing.iter().map(|it| it.subgraph.spot(&it.ty.name)),
        format!("`{ty}.{name}` does not exist in {}, which also have `{ty}`", names.join(", ")),
        "without a key the router cannot fetch the field for objects of those subgraphs",
    );
}

fn merge_field(
    context: &MergeContext<'_>,
    ty: &Name,
    kind: TypeKind,
    name: &Name,
    parents: &[TypeSource<'_>],
    entries: &[FieldSource<'_>],
    findings: &mut Findings<'_>,
) -> Option<MergedField> {
    let coordinate = format!("{ty}.{name}");
    let spot = |source: &FieldSource<'_>| source.subgraph.spot(&source.field.name);
    let resolving: Vec<_> = entries.iter().filter(|it| !it.field.is_external).copied().collect();
    let applied: Vec<_> = entries
        .iter()
        .map(|it| DirectiveSource {
            subgraph: it.subgraph,
            directives: &it.field.directives,
            spot: spot(it),
            is_external: it.field.is_external,
        })
        .collect();
    let element = || format!("field `{coordinate}`");
    if resolving.is_empty() {
        findings.error(
            Code::EXTERNAL_MISSING_ON_BASE,
            entries.iter().map(spot),
            format!("`{coordinate}` is `@external` in every subgraph that has it, so no subgraph resolves it"),
            "remove `@external` in the subgraph that resolves the field, or declare the field in that subgraph",
        );
        // The field stays, so that its absence is not reported as well.
        return entries.first().map(|first| MergedField {
            name: name.clone(),
            description: None,
            ty: first.field.ty.clone(),
            arguments: IndexMap::new(),
            join_fields: Vec::new(),
            directives: Vec::new(),
            sources: Vec::new(),
            shared_by: Vec::new(),
        });
    }
    let merged_type = merge_output_type(context, &coordinate, entries, &resolving, findings)?;
    let described = resolving.iter().map(|it| (it.field.description.as_ref(), spot(it)));
    let description = descriptions::merge(described, element, findings);
    let mut merged = MergedField {
        name: name.clone(),
        description,
        ty: merged_type,
        arguments: inputs::merge_arguments(context, &coordinate, &resolving, findings),
        join_fields: Vec::new(),
        directives: directives::merge(context, &applied, &element, findings),
        sources: entries.iter().map(|it| it.subgraph.id).collect(),
        shared_by: Vec::new(),
    };
    external_fields::check(context, &coordinate, entries, &merged, findings);
    if kind == TypeKind::Object {
        merged.shared_by = sharing::check(context, &coordinate, entries, findings);
    }
    merged.join_fields = join_fields(context, ty, parents, entries, findings);
    Some(merged)
}

fn merge_output_type(
    context: &MergeContext<'_>,
    coordinate: &str,
    entries: &[FieldSource<'_>],
    resolving: &[FieldSource<'_>],
    findings: &mut Findings<'_>,
) -> Option<ast::Type> {
    let types = resolving.iter().map(|it| &it.field.ty);
    let spots = || entries.iter().map(|it| it.subgraph.spot(&it.field.name));
    let described = || {
        let parts =
            resolving.iter().map(|it| format!("`{}` in `{}`", it.field.ty, it.subgraph.name));
        parts.collect::<Vec<_>>().join(", ")
    };
    match type_compatibility::merge(context, types, Variance::Output)? {
        MergedTypes::Equal(ty) => Some(ty),
        MergedTypes::Compatible(ty) => {
            findings.hint(
                Code::INCONSISTENT_BUT_COMPATIBLE_FIELD_TYPE,
                Severity::Info,
                spots(),
                format!("`{coordinate}` has different types: {}; clients see `{ty}`", described()),
                "use the same type everywhere, unless the difference is intended",
            );
            Some(ty)
        }
        MergedTypes::Incompatible => {
            findings.error(
                Code::FIELD_TYPE_MISMATCH,
                spots(),
                format!("`{coordinate}` has incompatible types: {}", described()),
                "clients see one type: use the same type in all subgraphs, or types of which one contains all others",
            );
            // Merging continues with the first type, so that further errors of the field are found.
            resolving.first().map(|it| it.field.ty.clone())
        }
    }
}

/// Returns the `@join__field`s of a field: none if all subgraphs of the type resolve it in the same way.
fn join_fields(
    context: &MergeContext<'_>,
    ty: &Name,
    parents: &[TypeSource<'_>],
    entries: &[FieldSource<'_>],
    findings: &mut Findings<'_>,
) -> Vec<JoinField> {
    let overrides = &context.overrides;
    let is_special = |source: &FieldSource<'_>| {
        let (id, field) = (source.subgraph.id, source.field);
        field.is_external
            || field.requires.is_some()
            || field.provides.is_some()
            || overrides.is_overriding(id, ty, &field.name)
            || field.arguments.values().any(|it| it.from_context.is_some())
            || overrides.is_overridden(id, ty, &field.name)
            || overrides.label(id, ty, &field.name).is_some()
    };
    let own: Vec<_> = entries.iter().filter(|it| !it.is_abstract).collect();
    if own.is_empty() {
        return vec![JoinField::default()];
    }
    let first = &own[0].field.ty;
    let is_equal = own.iter().all(|it| it.field.ty == *first);
    if own.len() == parents.len() && is_equal && !own.iter().any(|it| is_special(it)) {
        return Vec::new();
    }
    let mut joins = Vec::new();
    for source in own {
        let (id, field) = (source.subgraph.id, source.field);
        let is_overridden = overrides.is_overridden(id, ty, &field.name);
        let is_used = is_overridden && context.is_used(id, ty, &field.name);
        if is_overridden {
            hint_overridden(ty, source, is_used, findings);
        }
        if is_overridden && !is_used {
            continue;
        }
        joins.push(JoinField {
            graph: Some(id),
            requires: field.requires.clone(),
            provides: field.provides.clone(),
            ty: (!is_equal).then(|| field.ty.to_string()),
            is_external: field.is_external,
            override_from: field.override_from.as_ref().map(|it| it.from.clone()),
            is_used_overridden: is_used,
            override_label: overrides.label(id, ty, &field.name).map(str::to_owned),
            context_arguments: context_arguments(source),
        });
    }
    joins
}

fn hint_overridden(
    ty: &Name,
    source: &FieldSource<'_>,
    is_used: bool,
    findings: &mut Findings<'_>,
) {
    let field = &source.field.name;
    let (message, advice) = match is_used {
        true => (
            format!(
                "`{ty}.{field}` is overridden, but other fields of subgraph `{}` still use it",
                source.subgraph.name
            ),
            "mark it `@external` there to say that it is only referenced",
        ),
        false => (
            format!(
                "`{ty}.{field}` is overridden and has no further use in subgraph `{}`",
                source.subgraph.name
            ),
            "remove it there",
        ),
    };
    findings.hint(
        Code::OVERRIDDEN_FIELD_CAN_BE_REMOVED,
        Severity::Info,
        [source.subgraph.spot(field)],
        message,
        advice,
    );
}

fn context_arguments(source: &FieldSource<'_>) -> Vec<MergedContextArgument> {
    let read = |argument: &crate::subgraph::model::InputDefinition| {
        let (context, selection) = split_context(argument.from_context.as_deref()?)?;
        Some(MergedContextArgument {
            name: argument.name.to_string(),
            ty: argument.ty.to_string(),
            context: format!("{}__{context}", source.subgraph.name),
            selection: selection.to_owned(),
        })
    };
    source.field.arguments.values().filter_map(read).collect()
}
