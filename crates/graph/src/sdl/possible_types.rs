//! The object types that an interface or union can have at run time, in the whole graph and in each subgraph
//! (`@join__implements`, `@join__unionMember`).

use std::collections::HashMap;

use apollo_compiler::{Node, Schema, ast, schema::ExtendedType};

use super::{directive_arguments as arguments, directive_names::DirectiveNames};
use crate::{SubgraphId, SubgraphSet, Supergraph, TypeId};

/// Fills in [`crate::Type::possible`] and [`crate::TypeInSubgraph::possible`].
pub(super) fn fill_possible_types(
    supergraph: &mut Supergraph,
    schema: &Schema,
    graphs: &HashMap<String, SubgraphId>,
    names: &DirectiveNames,
) {
    // The object types that the schema states for each (abstract type, subgraph).
    let mut said: HashMap<(TypeId, SubgraphId), Vec<TypeId>> = HashMap::new();
    let mut is_said: std::collections::HashSet<TypeId> = std::collections::HashSet::new();
    let mut possible: Vec<Vec<TypeId>> = vec![Vec::new(); supergraph.types.len()];
    let graph_of = |directive: &Node<ast::Directive>| {
        arguments::enum_name(directive, "graph").and_then(|(name, _)| graphs.get(name).copied())
    };
    for (index, ty) in supergraph.types.iter().enumerate() {
        let id = TypeId(index as u32);
        let Some(definition) = schema.types.get(&*ty.name) else { continue };
        match definition {
            ExtendedType::Object(_) => {
                possible[index].push(id);
                for &interface in &ty.implements {
                    possible[interface.0 as usize].push(id);
                }
                for directive in definition.directives().get_all(&names.implements) {
                    let Some(interface) = arguments::read_text(directive, "interface")
                        .and_then(|(name, _)| supergraph.type_named(name))
                    else {
                        continue;
                    };
                    is_said.insert(interface);
                    if let Some(graph) = graph_of(directive) {
                        said.entry((interface, graph)).or_default().push(id);
                    }
                }
            }
            ExtendedType::Union(union) => {
                possible[index] =
                    union.members.iter().filter_map(|name| supergraph.type_named(name)).collect();
                for directive in definition.directives().get_all(&names.union_member) {
                    is_said.insert(id);
                    let member = arguments::read_text(directive, "member")
                        .and_then(|(name, _)| supergraph.type_named(name));
                    if let (Some(member), Some(graph)) = (member, graph_of(directive)) {
                        said.entry((id, graph)).or_default().push(member);
                    }
                }
            }
            _ => {}
        }
    }
    let defined: Vec<SubgraphSet> = supergraph
        .types
        .iter()
        .map(|ty| ty.subgraphs.iter().map(|there| there.subgraph).collect())
        .collect();
    for (index, (ty, possible)) in supergraph.types.iter_mut().zip(possible).enumerate() {
        ty.possible = possible;
        ty.possible.sort_unstable();
        ty.possible.dedup();
        if !ty.kind.is_abstract() {
            continue;
        }
        let id = TypeId(index as u32);
        for there in &mut ty.subgraphs {
            there.possible = match is_said.contains(&id) {
                _ if there.interface_object => ty.possible.clone(),
                true => said.remove(&(id, there.subgraph)).unwrap_or_default(),
                false => ty
                    .possible
                    .iter()
                    .copied()
                    .filter(|member| defined[member.0 as usize].contains(there.subgraph))
                    .collect(),
            };
            there.possible.sort_unstable();
            there.possible.dedup();
        }
    }
}
