//! Why a field cannot be had, subgraph by subgraph.

use graph::{SubgraphKind, Supergraph};

use super::{holders::Holder, tree::Wanted};

/// Says why nobody can be asked for a field.
pub(super) fn unreachable(graph: &Supergraph, wanted: &Wanted, holders: &[Holder<'_>]) -> String {
    let coordinate = wanted.coordinate(graph);
    let Some(field) = wanted.field() else { return coordinate };
    let definition = graph.field(field);
    let ty = graph.ty(definition.parent);
    let here: Vec<&str> =
        holders.iter().map(|holder| &*graph.subgraph(holder.subgraph).name).collect();
    let here = if here.is_empty() { "the root".to_owned() } else { here.join(", ") };
    if definition.resolved_by.is_empty() {
        if ty.subgraphs.iter().any(|there| there.interface_object)
            || ty.implements.iter().any(|&interface| {
                graph.ty(interface).subgraphs.iter().any(|there| there.interface_object)
            })
        {
            return format!(
                "`{coordinate}` comes from an @interfaceObject, which is not supported yet"
            );
        }
        return format!("no subgraph resolves `{coordinate}`");
    }
    let mut reasons = Vec::new();
    for subgraph in definition.resolved_by.iter() {
        let name = &graph.subgraph(subgraph).name;
        let there = graph.type_in(definition.parent, subgraph);
        reasons.push(if graph.subgraph(subgraph).kind == SubgraphKind::Events {
            format!("`{name}` is an event subgraph, which cannot be asked")
        } else if there.is_some_and(|there| there.interface_object) {
            format!("`{name}` has it as an @interfaceObject, which is not supported yet")
        } else if graph.keys_into(definition.parent, subgraph).next().is_none() {
            format!("`{name}` has no resolvable @key for `{}`", ty.name)
        } else {
            format!(
                "no key of `{}` for `{name}` can be had there, or what the field requires",
                ty.name
            )
        });
    }
    format!("`{coordinate}` cannot be reached from {here}: {}", reasons.join("; "))
}
