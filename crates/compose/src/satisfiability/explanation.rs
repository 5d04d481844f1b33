//! The message about a query that cannot be planned: the query, and for each subgraph the reason.

use graph::{FieldId, SubgraphId, Supergraph, TypeId, TypeKind};

use super::resolution::{ObjectState, Resolution};
use crate::{code::Code, finding::Findings, subgraph::model::SubgraphModel};

/// The maximum number of subgraphs that a message explains.
const REASONS_MAX: usize = 8;

/// One step from a root to an object.
#[derive(Clone, Copy, Debug)]
pub(super) enum PathStep {
    /// A root type.
    Root(TypeId),
    /// A field with a value of the object type `ty`.
    Field { field: FieldId, ty: TypeId },
}

/// Reports that `field` of the object at the end of `path` cannot be resolved.
pub(super) fn report(
    resolution: &Resolution<'_>,
    subgraphs: &[SubgraphModel],
    path: &[PathStep],
    state: &ObjectState<'_>,
    field: FieldId,
    findings: &mut Findings<'_>,
) {
    let graph = resolution.graph;
    let ty = graph.ty(state.ty);
    let name = &graph.field(field).name;
    let reasons = explain(resolution, subgraphs, state, field);
    let advice = advise(resolution, subgraphs, state, field);
    let spots = subgraphs.iter().filter_map(|subgraph| {
        let own = subgraph.field(&ty.name, name)?;
        Some(subgraph.spot(&own.name))
    });
    findings.error(
        Code::SATISFIABILITY_ERROR,
        spots,
        format!(
            "the query `{}` cannot be planned, because no subgraph that the router can reach resolves `{}.{name}`:{reasons}",
            print_query(graph, path, field),
            ty.name
        ),
        advice,
    );
}

/// Prints the shortest query that reaches the field.
fn print_query(graph: &Supergraph, path: &[PathStep], field: FieldId) -> String {
    let mut text = String::new();
    let mut levels = 0;
    for step in path {
        match step {
            PathStep::Root(root) => {
                let keyword = match () {
                    () if *root == graph.query => "",
                    () if Some(*root) == graph.mutation => "mutation ",
                    () => "subscription ",
                };
                text.push_str(keyword);
                text.push_str("{ ");
                levels += 1;
            }
            PathStep::Field { field, ty } => {
                text.push_str(&print_field(graph, *field));
                text.push_str(" { ");
                levels += 1;
                if graph.field(*field).ty.named() != *ty {
                    text.push_str(&format!("... on {} {{ ", graph.ty(*ty).name));
                    levels += 1;
                }
            }
        }
    }
    text.push_str(&print_field(graph, field));
    if graph.ty(graph.field(field).ty.named()).kind.is_composite() {
        text.push_str(" { __typename }");
    }
    text.push_str(&" }".repeat(levels));
    text
}

/// Prints a field with its required arguments.
fn print_field(graph: &Supergraph, field: FieldId) -> String {
    let field = graph.field(field);
    let required = field.arguments.iter().filter(|it| it.ty.ends_with('!') && it.default.is_none());
    let arguments: Vec<_> = required.map(|it| format!("{}: …", it.name)).collect();
    match arguments.is_empty() {
        true => field.name.to_string(),
        false => format!("{}({})", field.name, arguments.join(", ")),
    }
}

fn name_list(graph: &Supergraph, subgraphs: impl Iterator<Item = SubgraphId>) -> String {
    let names: Vec<_> = subgraphs.map(|it| format!("`{}`", graph.subgraph(it).name)).collect();
    names.join(", ")
}

/// Returns the text of the keys of a type in a subgraph, as written.
fn key_texts(
    resolution: &Resolution<'_>,
    subgraphs: &[SubgraphModel],
    ty: TypeId,
    subgraph: SubgraphId,
) -> Vec<String> {
    let local = resolution.graph.local_type(ty, subgraph);
    let name = &*resolution.graph.ty(local).name;
    let model = subgraphs.get(usize::from(subgraph.0)).and_then(|it| it.types.get(name));
    let keys = model.map_or(&[][..], |ty| &ty.keys).iter().filter(|key| key.is_resolvable);
    keys.map(|key| format!("\"{}\"", key.fields)).collect()
}

/// Returns one line for each subgraph that has the object or the field.
fn explain(
    resolution: &Resolution<'_>,
    subgraphs: &[SubgraphModel],
    state: &ObjectState<'_>,
    field: FieldId,
) -> String {
    let graph = resolution.graph;
    let type_name = &graph.ty(state.ty).name;
    let definition = graph.field(field);
    let mut lines = Vec::new();
    for holder in state.holders.iter().filter(|it| !definition.resolved_by.contains(*it)) {
        let mention = graph.field_in(field, holder);
        let reason = match mention.is_some_and(|it| it.external) {
            true => "but has the field only as `@external`",
            false => "but does not resolve the field",
        };
        lines.push(format!("`{}` gives the object, {reason}", graph.subgraph(holder).name));
    }
    for owner in definition.resolved_by.iter() {
        let name = &graph.subgraph(owner).name;
        let keys = key_texts(resolution, subgraphs, state.ty, owner);
        lines.push(if state.reached.contains(owner) {
            let model = subgraphs.get(usize::from(owner.0));
            let own = model.and_then(|it| it.field(type_name, &definition.name));
            let requires = own.and_then(|it| it.requires.as_deref()).unwrap_or_default();
            match keys.is_empty() {
                true => format!("`{name}` resolves the field with `@requires(fields: \"{requires}\")`, but has no resolvable key by which the router could send it the required fields"),
                false => format!("`{name}` resolves the field, but its `@requires(fields: \"{requires}\")` cannot be resolved from there"),
            }
        } else if keys.is_empty() {
            format!("`{name}` resolves the field, but has no resolvable key for `{type_name}`")
        } else {
            format!(
                "`{name}` resolves the field for objects with the key {}, which {} cannot give",
                keys.join(" or "),
                name_list(graph, state.reached.iter())
            )
        });
    }
    let omitted = lines.len().saturating_sub(REASONS_MAX);
    lines.truncate(REASONS_MAX);
    if omitted > 0 {
        lines.push(format!("and {omitted} more subgraphs"));
    }
    lines.iter().map(|line| format!("\n    - {line}")).collect()
}

fn advise(
    resolution: &Resolution<'_>,
    subgraphs: &[SubgraphModel],
    state: &ObjectState<'_>,
    field: FieldId,
) -> String {
    let graph = resolution.graph;
    let ty = graph.ty(state.ty);
    let name = &graph.field(field).name;
    let holders = name_list(graph, state.holders.iter());
    let owners = graph.field(field).resolved_by;
    let keys: Vec<_> =
        owners.iter().flat_map(|owner| key_texts(resolution, subgraphs, state.ty, owner)).collect();
    let is_value = keys.is_empty() && ty.kind == TypeKind::Object;
    if is_value {
        format!(
            "add `@key` to `{}` in {} and resolve it there by reference, or resolve `{name}` in {holders} too and mark it `@shareable` everywhere",
            ty.name,
            name_list(graph, owners.iter())
        )
    } else {
        format!("add the fields of the key {} to `{}` in {holders}", keys.join(" or "), ty.name)
    }
}
