//! From fetch nodes to the plan: levels, merging of what asks the same subgraph at the same time,
//! batches over several paths, conditions, texts.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use graph::{SubgraphId, Supergraph};

use super::{
    PlanError,
    build::{Need, Node, NodeId, NodeKind, Nodes, SelectionId, Selections, merge_any_of},
    document::Writer,
};
use crate::{
    EntityBatch, EventField, Fetch, FetchId, FetchKind, Operation, OperationKind, Path, Plan,
    Representation, RepresentationField, Shape, SubgraphOperation, SubscriptionRoot,
};

/// How many aliases of `_entities` one request may have. Subgraphs bound aliases themselves, the
/// strictest known default is 15 root fields; more than that is split over several requests.
const BATCHES_MAX: usize = 15;

pub(super) fn finish(
    graph: &Supergraph,
    operation: &Operation,
    nodes: Nodes,
    shape: Shape,
    event: Option<EventField>,
) -> Result<Plan, PlanError> {
    let Nodes { mut nodes, mut selections, supplies } = nodes;
    spread_needs(&mut nodes, &supplies);
    let merged_into = merge_same_targets(&mut nodes, &mut selections);
    let resolve = |node: NodeId| merged_into[node];
    let mut groups = groups(&nodes, &selections, &merged_into);
    groups.sort_by_key(|group| (group.level, group.members[0]));

    let mut fetch_of: HashMap<NodeId, FetchId> = HashMap::new();
    let mut fetches: Vec<Fetch> = Vec::new();
    let mut subscription = event.map(SubscriptionRoot::Event);
    for group in &groups {
        let first = &nodes[group.members[0]];
        if matches!(first.kind, NodeKind::Event) {
            continue;
        }
        let number = fetches.len();
        let mut need = Need::NEVER;
        group.members.iter().for_each(|&member| need.add_need(&nodes[member].need));
        let any_of = match need {
            Need::Always => Vec::new(),
            Need::AnyOf(conditions) => conditions,
        };
        let mut writer = Writer {
            graph,
            operation,
            selections: &selections,
            subgraph: first.subgraph,
            implied: if any_of.len() == 1 { &any_of } else { &[] },
            variables: BTreeSet::new(),
        };
        let kind = match &first.kind {
            NodeKind::Root(kind) => {
                let body = writer.selection_set(first.selection);
                let written = writer.document(*kind, &body, number, &[]);
                if *kind == OperationKind::Subscription {
                    subscription = Some(SubscriptionRoot::Upstream {
                        subgraph: first.subgraph,
                        operation: written,
                    });
                    continue;
                }
                FetchKind::Root(written)
            }
            NodeKind::Publish(event) => FetchKind::Publish(event.clone()),
            NodeKind::Entity | NodeKind::Event => {
                let (operation, batches) = entities(&mut writer, &nodes, &group.members, number);
                FetchKind::Entities { operation, batches }
            }
        };
        let subgraph = first.subgraph;
        let depends_on = group.members.iter().flat_map(|&member| &nodes[member].depends_on);
        let depends_on: BTreeSet<FetchId> =
            depends_on.filter_map(|&node| fetch_of.get(&resolve(node)).copied()).collect();
        let id = FetchId(fetches.len() as u32);
        group.members.iter().for_each(|&member| {
            fetch_of.insert(member, id);
        });
        fetches.push(Fetch {
            subgraph,
            kind,
            depends_on: depends_on.into_iter().collect(),
            any_of,
        });
    }
    reduce(&mut fetches);
    Ok(Plan { kind: operation.kind, fetches, subscription, shape })
}

/// Whoever selects something only for others is needed when they are.
fn spread_needs(nodes: &mut [Node], supplies: &[(NodeId, NodeId)]) {
    let mut directly: Vec<Vec<NodeId>> = vec![Vec::new(); nodes.len()];
    for &(supplier, needy) in supplies {
        directly[supplier].push(needy);
    }
    let mut waiting: Vec<Vec<NodeId>> = vec![Vec::new(); nodes.len()];
    for (index, node) in nodes.iter().enumerate() {
        node.depends_on.iter().for_each(|&before| waiting[before].push(index));
    }
    // Suppliers were added before those they supply.
    for index in (0..nodes.len()).rev() {
        let mut need = nodes[index].need.clone();
        directly[index].iter().for_each(|&needy| need.add_need(&nodes[needy].need));
        if need == Need::NEVER {
            // Nothing of it is wanted for itself: it serves whoever waits for it.
            waiting[index].iter().for_each(|&needy| need.add_need(&nodes[needy].need));
        }
        if need == Need::NEVER {
            need = Need::Always;
        }
        nodes[index].need = need;
    }
}

/// Merges entity nodes of one subgraph, target, type, key and level. Says for each node where it went.
fn merge_same_targets(nodes: &mut [Node], selections: &mut Selections) -> Vec<NodeId> {
    let mut merged_into: Vec<NodeId> = (0..nodes.len()).collect();
    let mut seen: HashMap<(SubgraphId, Path, u32, u32, Vec<RepresentationField>), NodeId> =
        HashMap::new();
    for index in 0..nodes.len() {
        if nodes[index].kind != NodeKind::Entity {
            continue;
        }
        let node = &nodes[index];
        let keys = node.representation.iter().filter(|field| field.key).cloned().collect();
        let identity = (node.subgraph, node.target.clone(), node.ty.0, node.level, keys);
        let Some(&into) = seen.get(&identity) else {
            seen.insert(identity, index);
            continue;
        };
        merged_into[index] = into;
        let (selection, depends_on, need) =
            (node.selection, node.depends_on.clone(), node.need.clone());
        let representation = node.representation.clone();
        merge_selections(selections, nodes[into].selection, selection);
        let into = &mut nodes[into];
        into.depends_on.extend(depends_on);
        into.need.add_need(&need);
        for field in representation {
            merge_representation(&mut into.representation, field);
        }
    }
    merged_into
}

fn merge_representation(into: &mut Vec<RepresentationField>, field: RepresentationField) {
    let same = into.iter_mut().find(|known| {
        known.name == field.name && known.data_key == field.data_key && known.types == field.types
    });
    match same {
        Some(known) => {
            known.key |= field.key;
            field
                .fields
                .into_iter()
                .for_each(|below| merge_representation(&mut known.fields, below));
        }
        None => into.push(field),
    }
}

fn merge_selections(selections: &mut Selections, into: SelectionId, from: SelectionId) {
    for entry in selections[from].entries.clone() {
        let known = selections[into]
            .entries
            .iter_mut()
            .find(|known| known.on == entry.on && known.data_key == entry.data_key);
        match known {
            None => selections[into].entries.push(entry),
            Some(known) => {
                merge_any_of(&mut known.any_of, &entry.any_of);
                if let (Some(into), Some(from)) = (known.child, entry.child) {
                    merge_selections(selections, into, from);
                }
            }
        }
    }
}

/// Nodes that become one request.
struct Group {
    level: u32,
    members: Vec<NodeId>,
}

fn groups(nodes: &[Node], selections: &Selections, merged_into: &[NodeId]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut open: HashMap<(SubgraphId, u32), (usize, HashSet<u64>)> = HashMap::new();
    for (index, node) in nodes.iter().enumerate() {
        if merged_into[index] != index {
            continue;
        }
        let identity = (node.subgraph, node.level);
        if node.kind == NodeKind::Entity {
            // What is asked alike for objects at several places shares an alias.
            let print = fingerprint(selections, node);
            if let Some((group, prints)) = open.get_mut(&identity)
                && (prints.contains(&print) || prints.len() < BATCHES_MAX)
            {
                prints.insert(print);
                groups[*group].members.push(index);
                continue;
            }
            open.insert(identity, (groups.len(), HashSet::from([print])));
        }
        groups.push(Group { level: node.level, members: vec![index] });
    }
    groups
}

/// Equal for nodes that ask the same of objects of one type. Used to count aliases only: were two
/// different ones to collide, a request would have one alias more.
fn fingerprint(selections: &Selections, node: &Node) -> u64 {
    fn add(selections: &Selections, selection: SelectionId, hasher: &mut DefaultHasher) {
        let node = &selections[selection];
        (node.ty, node.says_type, node.entries.len()).hash(hasher);
        for entry in &node.entries {
            (entry.on, &entry.data_key, entry.field, &entry.arguments.text, &entry.any_of)
                .hash(hasher);
            if let Some(child) = entry.child {
                add(selections, child, hasher);
            }
        }
    }
    let mut hasher = DefaultHasher::new();
    (node.ty, &node.representation).hash(&mut hasher);
    add(selections, node.selection, &mut hasher);
    hasher.finish()
}

/// `_entities` of all members: one alias for each distinct representation and selection.
fn entities(
    writer: &mut Writer<'_>,
    nodes: &[Node],
    members: &[NodeId],
    number: usize,
) -> (SubgraphOperation, Vec<EntityBatch>) {
    struct Distinct {
        selection: String,
        representation: Representation,
        targets: Vec<Path>,
    }
    let mut distinct: Vec<Distinct> = Vec::new();
    for &member in members {
        let node = &nodes[member];
        let typename = writer.graph.ty(node.ty).name.clone();
        let selection = format!("...on {typename}{}", writer.selection_set(node.selection));
        let representation =
            Representation { typename: Some(typename), fields: node.representation.clone() };
        match distinct
            .iter_mut()
            .find(|known| known.selection == selection && known.representation == representation)
        {
            Some(known) => known.targets.push(node.target.clone()),
            None => distinct.push(Distinct {
                selection,
                representation,
                targets: vec![node.target.clone()],
            }),
        }
    }
    let is_single = distinct.len() == 1;
    let base = free_variable(writer);
    let mut body = String::from("{");
    let mut own = Vec::new();
    let mut batches = Vec::new();
    for (index, Distinct { selection, representation, targets }) in distinct.into_iter().enumerate()
    {
        let (data_key, variable, alias) = match is_single {
            true => ("_entities".to_owned(), base.clone(), String::new()),
            false => (format!("_e{index}"), format!("{base}{index}"), format!("_e{index}:")),
        };
        if index > 0 {
            body.push(' ');
        }
        body.push_str(&format!("{alias}_entities(representations:${variable}){{{selection}}}"));
        own.push((variable.clone().into_boxed_str(), "[_Any!]!"));
        batches.push(EntityBatch {
            data_key: data_key.into(),
            variable: variable.into(),
            targets,
            representation,
        });
    }
    body.push('}');
    (writer.document(OperationKind::Query, &body, number, &own), batches)
}

/// A prefix of no variable of the client.
fn free_variable(writer: &Writer<'_>) -> String {
    let mut name = "representations".to_owned();
    while writer.operation.variables.iter().any(|variable| variable.name.starts_with(&name)) {
        name.push('_');
    }
    name
}

/// Takes out dependencies that others imply.
fn reduce(fetches: &mut [Fetch]) {
    let mut ancestors: Vec<BTreeSet<FetchId>> = Vec::with_capacity(fetches.len());
    for fetch in fetches {
        let mut all: BTreeSet<FetchId> = BTreeSet::new();
        for &before in &fetch.depends_on {
            all.extend(&ancestors[before.0 as usize]);
        }
        fetch.depends_on.retain(|before| !all.contains(before));
        all.extend(&fetch.depends_on);
        ancestors.push(all);
    }
}
