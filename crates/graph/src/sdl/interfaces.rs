//! Interface objects (`@interfaceObject`) and keys of interfaces: the fields that an interface object's subgraph adds
//! to implementations that it does not know, and the subgraphs from which objects of an interface can be fetched.

use crate::{SubgraphId, Supergraph, TypeId, TypeKind};

/// Registers every interface object with all implementations of its interface. Types, fields and field sets must have
/// been read.
pub(super) fn register_interface_objects(supergraph: &mut Supergraph) {
    let mut objects: Vec<(TypeId, SubgraphId)> = Vec::new();
    for (index, ty) in supergraph.types.iter().enumerate() {
        let there = ty.subgraphs.iter().filter(|there| there.interface_object);
        objects.extend(there.map(|there| (TypeId(index as u32), there.subgraph)));
    }
    for (interface, subgraph) in objects {
        for object_type in supergraph.ty(interface).possible.clone() {
            register_interface_object(supergraph, subgraph, interface, object_type);
        }
    }
}

fn register_interface_object(
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

/// Makes the keys of an interface unusable in subgraphs that have no entity for it: a subgraph resolves an object of an
/// interface only as one of its implementations, by a key that it resolves for that type.
pub(super) fn disable_keys_without_entities(supergraph: &mut Supergraph) {
    let mut closed = Vec::new();
    for (index, ty) in supergraph.types.iter().enumerate() {
        let there = ty.subgraphs.iter().filter(|there| !there.interface_object);
        for there in there.filter(|there| ty.kind == TypeKind::Interface && !there.keys.is_empty())
        {
            let is_entity = |&member: &TypeId| {
                let own = supergraph.type_in(member, there.subgraph);
                own.is_some_and(|own| own.keys.iter().any(|key| key.resolvable))
            };
            if there.possible.is_empty() || !there.possible.iter().all(is_entity) {
                closed.push((index, there.subgraph));
            }
        }
    }
    for (index, subgraph) in closed {
        let there = supergraph.types[index].subgraphs.iter_mut();
        for there in there.filter(|there| there.subgraph == subgraph) {
            there.keys.iter_mut().for_each(|key| key.resolvable = false);
        }
    }
}
