//! The message about a query that cannot be planned: the query, and for each subgraph the reason.

use graph::{FieldId, SubgraphId, Supergraph, TypeId};

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

/// The fields of one object that cannot be resolved for the same reasons.
struct UnresolvedGroup {
    fields: Vec<FieldId>,
    reasons: String,
    advice: String,
}

/// Reports that `fields` of the object at the end of `path` cannot be resolved. Fields with the same reasons are one
/// finding.
pub(super) fn report(
    resolution: &Resolution<'_>,
    subgraphs: &[SubgraphModel],
    path: &[PathStep],
    state: &ObjectState<'_>,
    fields: &[FieldId],
    findings: &mut Findings<'_>,
) {
    let graph = resolution.graph;
    let mut groups: Vec<UnresolvedGroup> = Vec::new();
    for &field in fields {
        let reasons = explain(resolution, subgraphs, state, field);
        let advice = advise(resolution, subgraphs, state, field);
        match groups.iter_mut().find(|it| it.reasons == reasons && it.advice == advice) {
            Some(group) => group.fields.push(field),
            None => groups.push(UnresolvedGroup { fields: vec![field], reasons, advice }),
        }
    }
    let ty = &graph.ty(state.ty).name;
    for UnresolvedGroup { fields, reasons, advice } in groups {
        let name = |field: &FieldId| &*graph.field(*field).name;
        let spots = fields.iter().flat_map(|field| {
            subgraphs.iter().filter_map(move |subgraph| {
                let own = subgraph.field(ty, name(field))?;
                Some(subgraph.spot(&own.name))
            })
        });
        let others: Vec<_> =
            fields.iter().skip(1).map(|field| format!("`{}`", name(field))).collect();
        let others = match others.is_empty() {
            true => String::new(),
            false => format!("\n    The same is true of {}.", others.join(", ")),
        };
        let query = print_query(graph, path, fields[0]);
        let name = name(&fields[0]);
        findings.error(
            Code::SATISFIABILITY_ERROR,
            spots,
            format!(
                "the query `{query}` cannot be planned, because no subgraph that the router can reach resolves \
                 `{ty}.{name}`:{reasons}{others}"
            ),
            advice,
        );
    }
}

/// Reports that the type of the object at the end of `path` cannot be found: only interface objects give it, which do
/// not know the types of their objects.
pub(super) fn report_unknown_type(
    graph: &Supergraph,
    subgraphs: &[SubgraphModel],
    path: &[PathStep],
    state: &ObjectState<'_>,
    findings: &mut Findings<'_>,
) {
    let interfaces =
        state.holders.iter().map(|holder| (holder, graph.local_type(state.ty, holder)));
    let spots: Vec<_> = interfaces
        .filter_map(|(holder, interface)| {
            let model = subgraphs.get(usize::from(holder.0))?;
            Some(model.spot(&model.types.get(&*graph.ty(interface).name)?.name))
        })
        .collect();
    findings.error(
        Code::SATISFIABILITY_ERROR,
        spots,
        format!(
            "the query `{}` cannot be planned, because {} gives the object as an `@interfaceObject`, and no subgraph that knows \
             its type can be reached from there",
            print_selection(graph, path, "__typename"),
            name_list(graph, state.holders.iter())
        ),
        "give the interface a resolvable `@key` in the subgraph that defines it, with fields that the interface object has",
    );
}

/// Prints the shortest query that reaches the field.
fn print_query(graph: &Supergraph, path: &[PathStep], field: FieldId) -> String {
    let below = graph.ty(graph.field(field).ty.named()).kind.is_composite();
    let below = if below { " { __typename }" } else { "" };
    print_selection(graph, path, &format!("{}{below}", print_field(graph, field)))
}

/// Prints the shortest query that selects `leaf` of the object at the end of `path`.
fn print_selection(graph: &Supergraph, path: &[PathStep], leaf: &str) -> String {
    let mut text = String::new();
    let mut levels = 0;
    for step in path {
        match step {
            PathStep::Root(root) => {
                text.push_str(match () {
                    () if *root == graph.query => "{ ",
                    () if Some(*root) == graph.mutation => "mutation { ",
                    () => "subscription { ",
                });
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
    text.push_str(leaf);
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
        let context = missing_context(graph, state, field, owner);
        if let Some(argument) = context {
            lines.push(format!(
                "`{name}` resolves the field, but no object above sets the context of its argument `{argument}`"
            ));
            continue;
        }
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

/// Returns the first contextual argument without an object above that sets its context.
fn missing_context<'g>(
    graph: &'g Supergraph,
    state: &ObjectState<'_>,
    field: FieldId,
    owner: SubgraphId,
) -> Option<&'g str> {
    let arguments = &graph.field_in(field, owner)?.context;
    let is_missing = |argument: &&graph::ContextArgument| {
        !argument.selections.iter().any(|(ty, _)| state.setters.contains(ty))
    };
    arguments.iter().find(is_missing).map(|argument| &*argument.name)
}

fn advise(
    resolution: &Resolution<'_>,
    subgraphs: &[SubgraphModel],
    state: &ObjectState<'_>,
    field: FieldId,
) -> String {
    let graph = resolution.graph;
    let ty = &graph.ty(state.ty).name;
    let holders = name_list(graph, state.holders.iter());
    let owners = graph.field(field).resolved_by;
    if owners.iter().any(|owner| missing_context(graph, state, field, owner).is_some()) {
        return "put `@context` on every type that leads to the field, or remove the argument"
            .to_owned();
    }
    if owners.iter().any(|owner| state.reached.contains(owner)) {
        return "make the required fields reachable: their subgraph needs a key that is available here".to_owned();
    }
    let keys: Vec<_> =
        owners.iter().flat_map(|owner| key_texts(resolution, subgraphs, state.ty, owner)).collect();
    if keys.is_empty() {
        format!(
            "add `@key` to `{ty}` in {} and resolve it there by reference, or resolve the field in {holders} too and mark \
             it `@shareable` everywhere",
            name_list(graph, owners.iter())
        )
    } else {
        format!("add the fields of the key {} to `{ty}` in {holders}", keys.join(" or "))
    }
}
