//! Arguments and fields of input types: those that all subgraphs have, with the most restricted type.

use apollo_compiler::{Name, Node, ast};
use indexmap::IndexMap;

use super::{
    context::MergeContext,
    descriptions,
    directives::{self, DirectiveSource},
    sources::FieldSource,
    sources::TypeSource,
    type_compatibility::{self, MergedTypes, Variance},
};
use crate::{
    code::Code,
    finding::{Findings, Severity},
    subgraph::model::{InputDefinition, SubgraphModel},
    supergraph::{JoinField, MergedInput},
};

/// An argument or input field in one subgraph.
type InputSource<'a> = (&'a SubgraphModel, &'a InputDefinition);

/// The words and codes in which messages about arguments and input fields differ.
struct InputKind {
    noun: &'static str,
    type_mismatch: Code,
    default_mismatch: Code,
    required_missing: Code,
    optional_missing: Code,
    /// What to do if it is required in some subgraphs and missing in others.
    required_advice: &'static str,
    /// What to do if it is optional everywhere and missing in some subgraphs.
    optional_advice: &'static str,
}

const ARGUMENT: InputKind = InputKind {
    noun: "argument",
    type_mismatch: Code::FIELD_ARGUMENT_TYPE_MISMATCH,
    default_mismatch: Code::FIELD_ARGUMENT_DEFAULT_MISMATCH,
    required_missing: Code::REQUIRED_ARGUMENT_MISSING_IN_SOME_SUBGRAPH,
    optional_missing: Code::INCONSISTENT_ARGUMENT_PRESENCE,
    optional_advice: "add the argument everywhere if clients need it",
    required_advice: "add the argument everywhere, or make it optional: clients see only arguments that all subgraphs have",
};

const INPUT_FIELD: InputKind = InputKind {
    noun: "input field",
    type_mismatch: Code::FIELD_TYPE_MISMATCH,
    default_mismatch: Code::INPUT_FIELD_DEFAULT_MISMATCH,
    required_missing: Code::REQUIRED_INPUT_FIELD_MISSING_IN_SOME_SUBGRAPH,
    optional_missing: Code::INCONSISTENT_INPUT_OBJECT_FIELD,
    optional_advice: "add the field everywhere if clients need it",
    required_advice: "add the field everywhere, or make it optional: clients see only input fields that all subgraphs have",
};

/// Merges the arguments of a field, of which `resolving` are the declarations that are not external.
pub(super) fn merge_arguments(
    context: &MergeContext<'_>,
    field: &str,
    resolving: &[FieldSource<'_>],
    findings: &mut Findings<'_>,
) -> IndexMap<Name, MergedInput> {
    let mut names: IndexMap<&Name, Vec<InputSource<'_>>> = IndexMap::new();
    for source in resolving {
        for argument in source.field.arguments.values() {
            names.entry(&argument.name).or_default().push((source.subgraph, argument));
        }
    }
    let mut merged = IndexMap::new();
    for (name, sources) in names {
        let coordinate = format!("{field}({name}:)");
        let (contextual, visible): (Vec<_>, Vec<_>) =
            sources.iter().copied().partition(|(_, it)| it.from_context.is_some());
        if !contextual.is_empty() {
            check_contextual(&coordinate, &visible, findings);
            continue;
        }
        if sources.len() < resolving.len() {
            let lacking = resolving.iter().filter(|it| !it.field.arguments.contains_key(name));
            let lacking: Vec<_> = lacking.map(|it| (it.subgraph, &it.field.name)).collect();
            report_missing(&ARGUMENT, &coordinate, &lacking, &sources, findings);
            continue;
        }
        if let Some(input) = merge_input(context, &ARGUMENT, name, &coordinate, &sources, findings)
        {
            merged.insert(name.clone(), input);
        }
    }
    merged
}

fn check_contextual(coordinate: &str, visible: &[InputSource<'_>], findings: &mut Findings<'_>) {
    let required: Vec<_> = visible.iter().filter(|(_, it)| is_required(it)).collect();
    let spots: Vec<_> = visible.iter().map(|(subgraph, it)| subgraph.spot(&it.name)).collect();
    if !required.is_empty() {
        findings.error(
            Code::CONTEXTUAL_ARGUMENT_NOT_CONTEXTUAL_IN_ALL_SUBGRAPHS,
            spots,
            format!("`{coordinate}` reads a context in some subgraphs, and clients must give it in others"),
            "use `@fromContext` everywhere, or make the argument optional",
        );
    } else if !visible.is_empty() {
        findings.hint(
            Code::CONTEXTUAL_ARGUMENT_NOT_CONTEXTUAL_IN_ALL_SUBGRAPHS,
            Severity::Warning,
            spots,
            format!("`{coordinate}` reads a context in some subgraphs, so clients cannot give it"),
            "use `@fromContext` everywhere",
        );
    }
}

/// Reports an argument or input field that does not exist in some subgraphs. `lacking` has the field or type there.
fn report_missing(
    kind: &InputKind,
    coordinate: &str,
    lacking: &[(&SubgraphModel, &Name)],
    sources: &[InputSource<'_>],
    findings: &mut Findings<'_>,
) {
    let names: Vec<_> =
        lacking.iter().map(|(subgraph, _)| format!("`{}`", subgraph.name)).collect();
    let names = names.join(", ");
    let having = sources.iter().map(|(subgraph, it)| subgraph.spot(&it.name));
    let spots = having.chain(lacking.iter().map(|(subgraph, name)| subgraph.spot(name)));
    if sources.iter().any(|(_, it)| is_required(it)) {
        findings.error(
            kind.required_missing,
            spots,
            format!("`{coordinate}` is required in some subgraphs but does not exist in {names}"),
            kind.required_advice,
        );
    } else {
        findings.hint(
            kind.optional_missing,
            Severity::Warning,
            spots,
            format!("`{coordinate}` does not exist in {names}, so clients do not see it"),
            kind.optional_advice,
        );
    }
}

fn is_required(input: &InputDefinition) -> bool {
    input.ty.is_non_null() && input.default.is_none()
}

/// Merges the fields of an input type.
pub(super) fn merge_input_type(
    context: &MergeContext<'_>,
    ty: &Name,
    types: &[TypeSource<'_>],
    findings: &mut Findings<'_>,
) -> IndexMap<Name, MergedInput> {
    let mut names: IndexMap<&Name, Vec<InputSource<'_>>> = IndexMap::new();
    for source in types {
        for input in source.ty.inputs.values() {
            names.entry(&input.name).or_default().push((source.subgraph, input));
        }
    }
    let mut merged = IndexMap::new();
    let has_fields = !names.is_empty();
    for (name, sources) in names {
        let coordinate = format!("{ty}.{name}");
        if sources.len() < types.len() {
            let lacking = types.iter().filter(|it| !it.ty.inputs.contains_key(name));
            let lacking: Vec<_> = lacking.map(|it| (it.subgraph, &it.ty.name)).collect();
            report_missing(&INPUT_FIELD, &coordinate, &lacking, &sources, findings);
            // The field is left out, but its declarations must agree nevertheless.
            let _ = merge_input(context, &INPUT_FIELD, name, &coordinate, &sources, findings);
            continue;
        }
        let input = merge_input(context, &INPUT_FIELD, name, &coordinate, &sources, findings);
        if let Some(mut input) = input {
            let is_equal = sources.iter().all(|(_, it)| it.ty == sources[0].1.ty);
            if !is_equal {
                input.join_fields = sources
                    .iter()
                    .map(|(subgraph, it)| JoinField {
                        graph: Some(subgraph.id),
                        ty: Some(it.ty.to_string()),
                        ..JoinField::default()
                    })
                    .collect();
            }
            merged.insert(name.clone(), input);
        }
    }
    if merged.is_empty() && has_fields {
        findings.error(
            Code::EMPTY_MERGED_INPUT_TYPE,
            types.iter().map(|it| it.subgraph.spot(&it.ty.name)),
            format!("no field of the input type `{ty}` exists in all subgraphs that define it"),
            "clients may give only fields that all subgraphs know: add common fields, or rename one of the types",
        );
    }
    merged
}

fn merge_input(
    context: &MergeContext<'_>,
    kind: &InputKind,
    name: &Name,
    coordinate: &str,
    sources: &[InputSource<'_>],
    findings: &mut Findings<'_>,
) -> Option<MergedInput> {
    let spot = |(subgraph, it): &InputSource<'_>| subgraph.spot(&it.name);
    let spots = || sources.iter().map(spot);
    let element = || format!("{} `{coordinate}`", kind.noun);
    let described = || {
        let parts =
            sources.iter().map(|(subgraph, it)| format!("`{}` in `{}`", it.ty, subgraph.name));
        parts.collect::<Vec<_>>().join(", ")
    };
    let types = sources.iter().map(|(_, it)| &it.ty);
    let ty = match type_compatibility::merge(context, types, Variance::Input)? {
        MergedTypes::Equal(ty) => ty,
        MergedTypes::Compatible(ty) => {
            findings.hint(
                match kind.noun {
                    "argument" => Code::INCONSISTENT_BUT_COMPATIBLE_ARGUMENT_TYPE,
                    _ => Code::INCONSISTENT_BUT_COMPATIBLE_FIELD_TYPE,
                },
                Severity::Info,
                spots(),
                format!("{} has different types: {}; clients see `{ty}`", element(), described()),
                "use the same type everywhere, unless the difference is intended",
            );
            ty
        }
        MergedTypes::Incompatible => {
            findings.error(
                kind.type_mismatch,
                spots(),
                format!("{} has incompatible types: {}", element(), described()),
                "use types that differ in nullability only",
            );
            sources.first()?.1.ty.clone()
        }
    };
    let default = merge_default(kind, coordinate, sources, findings);
    let description = descriptions::merge(
        sources.iter().map(|it| (it.1.description.as_ref(), spot(it))),
        element,
        findings,
    );
    let applied: Vec<_> = sources
        .iter()
        .map(|it| DirectiveSource {
            subgraph: it.0,
            directives: &it.1.directives,
            spot: spot(it),
            is_external: false,
        })
        .collect();
    Some(MergedInput {
        name: name.clone(),
        description,
        ty,
        default,
        join_fields: Vec::new(),
        directives: directives::merge(context, &applied, &element, findings),
    })
}

/// Returns the default that all subgraphs give. Where only some give one, clients see none, because the others would
/// not apply it.
fn merge_default(
    kind: &InputKind,
    coordinate: &str,
    sources: &[InputSource<'_>],
    findings: &mut Findings<'_>,
) -> Option<Node<ast::Value>> {
    let given: Vec<_> = sources
        .iter()
        .filter_map(|(subgraph, it)| Some((subgraph, it.default.as_ref()?)))
        .collect();
    let (_, first) = given.first()?;
    let spots = || sources.iter().map(|(subgraph, it)| subgraph.spot(&it.name));
    let print = |value: &Node<ast::Value>| value.serialize().no_indent().to_string();
    if given.iter().any(|(_, default)| default != first) {
        let parts: Vec<_> = given
            .iter()
            .map(|(subgraph, default)| format!("`{}` in `{}`", print(default), subgraph.name))
            .collect();
        findings.error(
            kind.default_mismatch,
            spots(),
            format!("{} `{coordinate}` has different defaults: {}", kind.noun, parts.join(", ")),
            "use the same default everywhere",
        );
        return None;
    }
    if given.len() < sources.len() {
        findings.hint(
            Code::INCONSISTENT_DEFAULT_VALUE_PRESENCE,
            Severity::Warning,
            spots(),
            format!("{} `{coordinate}` has the default `{}` in some subgraphs only, so clients see none", kind.noun, print(first)),
            "give the default everywhere",
        );
        return None;
    }
    Some((*first).clone())
}
