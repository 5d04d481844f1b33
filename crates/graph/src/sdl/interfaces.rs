//! What interface objects (`@interfaceObject`) say of the implementations of their interface, which
//! their subgraph does not know.

use crate::{SubgraphId, Supergraph, TypeId};

/// Lets every interface object stand for the implementations. Types, fields and field sets are read.
pub(super) fn stand_for_implementations(supergraph: &mut Supergraph) {
    let mut objects: Vec<(TypeId, SubgraphId)> = Vec::new();
    for (index, ty) in supergraph.types.iter().enumerate() {
        let there = ty.subgraphs.iter().filter(|there| there.interface_object);
        objects.extend(there.map(|there| (TypeId(index as u32), there.subgraph)));
    }
    for (interface, subgraph) in objects {
        for object_type in supergraph.ty(interface).possible.clone() {
            stand_for(supergraph, subgraph, interface, object_type);
        }
    }
}

fn stand_for(
    supergraph: &mut Supergraph,
    subgraph: SubgraphId,
    interface: TypeId,
    object_type: TypeId,
) {
    let ty = supergraph.ty(object_type);
    let is_known = ty.subgraphs.iter().any(|there| there.subgraph == subgraph)
        || ty.interface_objects.iter().any(|(there, _)| *there == subgraph);
    if is_known {
        return;
    }
    supergraph.types[object_type.0 as usize].interface_objects.push((subgraph, interface));
    for field in supergraph.ty(interface).fields.clone() {
        let Some(there) = supergraph.field_in(field, subgraph).cloned() else { continue };
        let name = &supergraph.field(field).name;
        if let Some(own) = supergraph.field_named(object_type, name) {
            let own = &mut supergraph.fields[own.0 as usize].subgraphs;
            own.retain(|known| known.subgraph != subgraph);
            own.push(there);
        }
    }
}
