//! Explanations, subgraph by subgraph, why a field is unreachable.

use graph::{FieldId, SubgraphKind, Supergraph};

use super::{holders::Holder, selection_tree::CollectedField};

/// Returns the reasons why a field cannot be fetched from any subgraph.
pub(super) fn explain_unreachable(
    graph: &Supergraph,
    wanted: &CollectedField,
    holders: &[Holder<'_>],
) -> String {
    let coordinate = wanted.coordinate(graph);
    let Some(field) = wanted.field() else { return coordinate };
    let definition = graph.field(field);
    let ty = graph.ty(definition.parent);
    let here: Vec<&str> =
        holders.iter().map(|holder| &*graph.subgraph(holder.subgraph).name).collect();
    let here = if here.is_empty() { "the root".to_owned() } else { here.join(", ") };
    let mut reasons = Vec::from_iter(second_interface_object(graph, field));
    for subgraph in definition.resolved_by.iter() {
        let name = &graph.subgraph(subgraph).name;
        reasons.push(if graph.subgraph(subgraph).kind == SubgraphKind::Events {
            format!("`{name}` is an event subgraph, which serves no requests")
        } else if graph.keys_into(definition.parent, subgraph).next().is_none() {
            format!("`{name}` has no resolvable @key for `{}`", ty.name)
        } else {
            format!(
                "a key of `{}` for `{name}`, or a required field, is not available there",
                ty.name
            )
        });
    }
    let external = definition.subgraphs.iter().filter(|there| there.external);
    reasons.extend(
        external
            .filter(|there| !definition.resolved_by.contains(there.subgraph))
            .map(|there| format!("in `{}` it is @external", graph.subgraph(there.subgraph).name)),
    );
    if reasons.is_empty() {
        return format!("no subgraph resolves `{coordinate}`");
    }
    format!("`{coordinate}` cannot be reached from {here}: {}", reasons.join("; "))
}

/// Returns a reason if a second interface object of the type has the field. One subgraph may have several interfaces of
/// a type as interface objects, but only the first of them represents the type.
fn second_interface_object(graph: &Supergraph, field: FieldId) -> Option<String> {
    let definition = graph.field(field);
    let ty = graph.ty(definition.parent);
    ty.implements.iter().find_map(|&interface| {
        let general = graph.field(graph.field_named(interface, &definition.name)?);
        ty.interface_objects.iter().find_map(|&(subgraph, first)| {
            let is_second = first != interface
                && graph.is_interface_object(interface, subgraph)
                && general.resolved_by.contains(subgraph)
                && !definition.resolved_by.contains(subgraph);
            is_second.then(|| {
                format!(
                    "`{}` has it on the @interfaceObject `{}`, but `{}` is fetched there as `{}`, \
                     and two interface objects for one type are not supported",
                    graph.subgraph(subgraph).name,
                    graph.ty(interface).name,
                    ty.name,
                    graph.ty(first).name
                )
            })
        })
    })
}
