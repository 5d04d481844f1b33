//! The nodes that become one request: nodes for the same objects are merged, and entity nodes of one subgraph and wave
//! share a request as aliases of it. Also the circumstances under which each request and alias is needed.

use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::{HashMap, HashSet, fast::FixedState};
use graph::SubgraphId;

use super::conditions::{self, merge_any_of};
use super::data_keys::PlaceId;
use super::fetch_graph::{
    FetchNode, FetchNodeId, FetchNodeKind, Need, SelectionId, Selections,
    merge_representation_field,
};
use super::limits::Batching;
use crate::{Condition, RepresentationField};

/// Propagates needs: a node that selects fields only for other nodes is needed when they are.
pub(super) fn propagate_needs(nodes: &mut [FetchNode], supplies: &[(FetchNodeId, FetchNodeId)]) {
    let mut directly: Vec<Vec<FetchNodeId>> = vec![Vec::new(); nodes.len()];
    for &(supplier, needy) in supplies {
        directly[supplier].push(needy);
    }
    let mut waiting: Vec<Vec<FetchNodeId>> = vec![Vec::new(); nodes.len()];
    for (index, node) in nodes.iter().enumerate() {
        node.depends_on.iter().for_each(|&before| waiting[before].push(index));
    }
    // Suppliers have smaller indices than their consumers.
    for index in (0..nodes.len()).rev() {
        let mut need = nodes[index].need.clone();
        directly[index].iter().for_each(|&needy| need.add_need(&nodes[needy].need));
        if need == Need::NEVER {
            // None of the fields is selected for itself: the node serves the nodes that wait for it.
            waiting[index].iter().for_each(|&needy| need.add_need(&nodes[needy].need));
        }
        if need == Need::NEVER {
            need = Need::Always;
        }
        nodes[index].need = need;
    }
}

/// Merges nodes below the root with equal subgraph, target, type, key and level. Returns the resulting node of each
/// node. Nodes with different needs stay separate, as aliases of one request, if their representations have more than a
/// key: the fields that one of them requires may not have been fetched while the other is needed. Nodes whose
/// representations have different values under one name also stay separate.
pub(super) fn merge_same_targets(
    nodes: &mut [FetchNode],
    selections: &mut Selections,
) -> Vec<FetchNodeId> {
    let mut merged_into: Vec<FetchNodeId> = (0..nodes.len()).collect();
    let mut seen: HashMap<_, Vec<FetchNodeId>> = HashMap::default();
    for index in 0..nodes.len() {
        if !matches!(nodes[index].kind, FetchNodeKind::Entity | FetchNodeKind::RootBelow) {
            continue;
        }
        let node = &nodes[index];
        let keys: Vec<RepresentationField> =
            node.representation.iter().filter(|field| field.key).cloned().collect();
        let identity = (node.subgraph, node.target.clone(), node.ty, node.level, keys);
        let alike = seen.entry(identity).or_default();
        let fits = |&known: &FetchNodeId| {
            let known = &nodes[known];
            let is_key_only = |node: &FetchNode| node.representation.iter().all(|field| field.key);
            (known.need == node.need || (is_key_only(known) && is_key_only(node)))
                && !has_conflict(&known.representation, &node.representation)
        };
        let Some(into) = alike.iter().copied().find(fits) else {
            alike.push(index);
            continue;
        };
        merged_into[index] = into;
        let (selection, depends_on) = (node.selection, node.depends_on.clone());
        let (representation, need) = (node.representation.clone(), node.need.clone());
        merge_selections(selections, nodes[into].selection, selection);
        let into = &mut nodes[into];
        into.depends_on.extend(depends_on);
        into.need.add_need(&need);
        for field in representation {
            merge_representation_field(&mut into.representation, field);
        }
    }
    merged_into
}

/// True if both representations have different values under one name. Two fields may require one field with different
/// arguments, but an object has one member of a name only.
fn has_conflict(one: &[RepresentationField], other: &[RepresentationField]) -> bool {
    let meet = |a: &RepresentationField, b: &RepresentationField| {
        a.types.is_empty() || b.types.is_empty() || a.types.iter().any(|ty| b.types.contains(ty))
    };
    one.iter().any(|a| {
        let same = other.iter().filter(|b| a.name == b.name && meet(a, b));
        same.into_iter().any(|b| a.data_key != b.data_key || has_conflict(&a.fields, &b.fields))
    })
}

fn merge_selections(selections: &mut Selections, into: SelectionId, from: SelectionId) {
    for entry in selections[from].entries().to_vec() {
        match selections[into].entry_mut(entry.on, &entry.data_key) {
            None => selections[into].push(entry),
            Some(known) => {
                merge_any_of(&mut known.any_of, &entry.any_of);
                if let (Some(into), Some(from)) = (known.child, entry.child) {
                    merge_selections(selections, into, from);
                }
            }
        }
    }
}

/// Returns the conditions under which objects may be at a place, in the form that fields have.
pub(super) fn any_of_place(reached: &HashMap<PlaceId, Need>, place: PlaceId) -> &[Condition] {
    match reached.get(&place) {
        Some(Need::AnyOf(conditions)) => conditions,
        Some(Need::Always) | None => &[],
    }
}

/// Nodes that become one request.
pub(super) struct RequestGroup {
    pub(super) level: u32,
    pub(super) members: Vec<FetchNodeId>,
}

pub(super) fn group_nodes(
    nodes: &[FetchNode],
    selections: &Selections,
    merged_into: &[FetchNodeId],
    exact_needs: &[Option<Need>],
    batching: &Batching,
    reached: &HashMap<PlaceId, Need>,
) -> Vec<RequestGroup> {
    let mut groups: Vec<RequestGroup> = Vec::new();
    let mut open: HashMap<(SubgraphId, u32), (usize, HashSet<u64>)> = HashMap::default();
    for (index, node) in nodes.iter().enumerate() {
        if merged_into[index] != index {
            continue;
        }
        let identity = (node.subgraph, node.level);
        let has_context_arguments =
            selections[node.selection].entries().iter().any(|entry| !entry.context.is_empty());
        if node.kind == FetchNodeKind::Entity && !has_context_arguments {
            // Equal selections on objects at several places share an alias.
            let given = any_of_place(reached, node.place);
            let print = fingerprint(selections, node, exact_needs[index].as_ref(), given);
            if let Some((group, prints)) = open.get_mut(&identity)
                && (prints.contains(&print)
                    || prints.len() < batching.of(node.subgraph).aliases as usize)
            {
                prints.insert(print);
                groups[*group].members.push(index);
                continue;
            }
            open.insert(identity, (groups.len(), HashSet::from_iter([print])));
        }
        groups.push(RequestGroup { level: node.level, members: vec![index] });
    }
    groups
}

/// Returns a hash that is equal for nodes with the same selections on objects of one type. It only counts aliases: if
/// two different nodes collided, a request would have one alias more.
fn fingerprint(
    selections: &Selections,
    node: &FetchNode,
    exact_need: Option<&Need>,
    given: &[Condition],
) -> u64 {
    fn hash_selection(
        selections: &Selections,
        selection: SelectionId,
        given: &[Condition],
        hasher: &mut impl Hasher,
    ) {
        let node = &selections[selection];
        (node.ty, node.selects_type, node.entries().len()).hash(hasher);
        for entry in node.entries() {
            let any_of = conditions::remaining_conditions(&entry.any_of, given);
            (entry.on, &entry.data_key, entry.field, &entry.arguments.text, any_of).hash(hasher);
            if let Some(child) = entry.child {
                hash_selection(selections, child, given, hasher);
            }
        }
    }
    let mut hasher = FixedState::default().build_hasher();
    (node.ty, &node.representation, exact_need).hash(&mut hasher);
    hash_selection(selections, node.selection, given, &mut hasher);
    hasher.finish()
}

/// Returns the exact needs of nodes that must not be fetched at other times, because their required fields may not have
/// been fetched then. Keys are available whenever the object is, unless a conditional request fetches them: the object
/// may come from another request.
pub(super) fn exact_needs(nodes: &[FetchNode], merged_into: &[FetchNodeId]) -> Vec<Option<Need>> {
    let is_conditional = |&before: &FetchNodeId| nodes[merged_into[before]].need != Need::Always;
    let exact_need = |node: &FetchNode| {
        let is_there = node.representation.iter().all(|field| field.key)
            && !node.depends_on.iter().any(is_conditional);
        (!is_there).then(|| node.need.clone())
    };
    nodes.iter().map(exact_need).collect()
}
