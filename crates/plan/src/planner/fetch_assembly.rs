//! Assembly of the plan from fetch nodes: merging of requests to one subgraph in one wave, batches over several paths,
//! conditions, texts.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, Hash, Hasher},
};

use foldhash::{HashMap, HashSet, fast::FixedState};
use graph::{FieldSetItem, SubgraphId, Supergraph};

use super::{
    conditions::{self, merge_any_of},
    data_keys::PlaceId,
    entity_reuse::{self, WrittenSelection},
    error::PlanError,
    fetch_graph::{
        FetchGraph, FetchNode, FetchNodeId, FetchNodeKind, Need, SelectionId, Selections,
        SubgraphSelection, merge_representation_field,
    },
    limits::Batching,
    operation_text::{OperationWriter, free_variable},
};
use crate::{
    Condition, EntityBatch, EventField, Fetch, FetchId, FetchKind, Operation, OperationKind, Path,
    Plan, Representation, RepresentationField, Requirement, Shape, SubgraphOperation,
    SubscriptionRoot, VariableId,
};

/// Assembles the plan. Returns it with the number of fields in all of its texts, which is less than `steps_max`;
/// otherwise returns an error.
pub(super) fn assemble_plan(
    graph: &Supergraph,
    operation: &Operation,
    batching: &Batching,
    fetch_graph: FetchGraph,
    shape: Shape,
    event: Option<EventField>,
    steps_max: u64,
) -> Result<(Plan, u64), PlanError> {
    let FetchGraph { mut nodes, mut selections, supplies, reached } = fetch_graph;
    propagate_needs(&mut nodes, &supplies);
    let merged_into = merge_same_targets(&mut nodes, &mut selections);
    let resolve = |node: FetchNodeId| merged_into[node];
    let exact_needs = exact_needs(&nodes, &merged_into);
    let mut groups =
        group_nodes(&nodes, &selections, &merged_into, &exact_needs, batching, &reached);
    groups.sort_by_key(|group| (group.level, group.members[0]));

    let mut fetch_of: HashMap<FetchNodeId, FetchId> = HashMap::default();
    let mut fetches: Vec<Fetch> = Vec::new();
    let mut written: Vec<Vec<WrittenSelection<'_>>> = Vec::new();
    let mut subscription = event.map(SubscriptionRoot::Event);
    let mut assembler = FetchAssembler {
        graph,
        operation,
        nodes: &nodes,
        selections: &selections,
        exact_needs: &exact_needs,
        reached: &reached,
        fields_left: steps_max,
    };
    for group in &groups {
        let first = &nodes[group.members[0]];
        if matches!(first.kind, FetchNodeKind::Event) {
            continue;
        }
        let mut need = Need::NEVER;
        group.members.iter().for_each(|&member| need.add_need(&nodes[member].need));
        let any_of = need.into_any_of();
        let kind = match assembler.assemble(group, &any_of, fetches.len()) {
            AssembledGroup::Fetch { kind, selections } => {
                written.push(selections);
                kind
            }
            AssembledGroup::Subscription(root) => {
                subscription = Some(root);
                continue;
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
            representations_max: batching.of(subgraph).representations.max(1),
        });
    }
    let fields_left = assembler.fields_left;
    if fields_left == 0 {
        return Err(PlanError::too_complex());
    }
    remove_implied_dependencies(&mut fetches);
    let mut plan = Plan { kind: operation.kind, fetches, subscription, shape };
    entity_reuse::add_reuse_places(graph, &selections, &written, &mut plan, fields_left);
    Ok((plan, steps_max - fields_left))
}

/// Writes the content of fetches.
struct FetchAssembler<'a> {
    graph: &'a Supergraph,
    operation: &'a Operation,
    nodes: &'a [FetchNode],
    selections: &'a Selections,
    /// The result of [`exact_needs`].
    exact_needs: &'a [Option<Need>],
    /// The conditions under which objects may be at a place.
    reached: &'a HashMap<PlaceId, Need>,
    /// The number of fields that may still be written, over all texts of the plan.
    fields_left: u64,
}

/// The result of one group of nodes.
enum AssembledGroup<'a> {
    Fetch {
        kind: FetchKind,
        /// The selection set of a root fetch, or of each entity batch.
        selections: Vec<WrittenSelection<'a>>,
    },
    /// The subscription of a subgraph, which is not a fetch of the plan.
    Subscription(SubscriptionRoot),
}

impl<'a> FetchAssembler<'a> {
    /// Writes the content of a group that is sent if any of `any_of` holds, as fetch with that number.
    fn assemble(
        &mut self,
        group: &RequestGroup,
        any_of: &[Condition],
        number: usize,
    ) -> AssembledGroup<'a> {
        let first = &self.nodes[group.members[0]];
        let mut writer = OperationWriter {
            graph: self.graph,
            operation: self.operation,
            selections: self.selections,
            subgraph: first.subgraph,
            variables: BTreeSet::new(),
            context: Vec::new(),
            fields_left: self.fields_left,
        };
        let mut selections = Vec::new();
        let kind = match &first.kind {
            FetchNodeKind::Root(kind) => {
                let body = writer.selection_set(first.selection, any_of);
                let written = writer.document(*kind, &body, number, &[]);
                if *kind == OperationKind::Subscription {
                    self.fields_left = writer.fields_left;
                    return AssembledGroup::Subscription(SubscriptionRoot::Upstream {
                        subgraph: first.subgraph,
                        operation: written,
                    });
                }
                selections.push(WrittenSelection { selection: first.selection, reached: &[] });
                let data_keys = writer.data_keys(first.selection, any_of);
                FetchKind::Root { operation: written, data_keys }
            }
            FetchNodeKind::RootBelow => {
                let given = self.given_conditions(first, any_of);
                let body = writer.selection_set(first.selection, given);
                FetchKind::RootBelow {
                    operation: writer.document(OperationKind::Query, &body, number, &[]),
                    target: first.target.clone(),
                }
            }
            FetchNodeKind::Publish(event) => FetchKind::Publish(event.clone()),
            FetchNodeKind::Request(event) => FetchKind::Request(event.clone()),
            FetchNodeKind::Entity | FetchNodeKind::Event => {
                let needed = |&member: &FetchNodeId| NeededNode {
                    node: &self.nodes[member],
                    exact_need: self.exact_needs[member].as_ref(),
                    given: self.given_conditions(&self.nodes[member], any_of),
                };
                let members: Vec<_> = group.members.iter().map(needed).collect();
                let (operation, mut batches, nodes) = write_entities(&mut writer, &members, number);
                selections.extend(nodes.into_iter().map(|node| WrittenSelection {
                    selection: node.selection,
                    reached: any_of_place(self.reached, node.place),
                }));
                for batch in batches.iter_mut().filter(|batch| batch.any_of == any_of) {
                    batch.any_of.clear();
                }
                FetchKind::Entities { operation, batches }
            }
        };
        self.fields_left = writer.fields_left;
        AssembledGroup::Fetch { kind, selections }
    }

    /// Returns the conditions that are known to hold for the objects of a node.
    fn given_conditions<'c>(
        &'c self,
        node: &FetchNode,
        any_of: &'c [Condition],
    ) -> &'c [Condition] {
        conditions::stronger_of(any_of, any_of_place(self.reached, node.place))
    }
}

/// Propagates needs: a node that selects fields only for other nodes is needed when they are.
fn propagate_needs(nodes: &mut [FetchNode], supplies: &[(FetchNodeId, FetchNodeId)]) {
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
fn merge_same_targets(nodes: &mut [FetchNode], selections: &mut Selections) -> Vec<FetchNodeId> {
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
fn any_of_place(reached: &HashMap<PlaceId, Need>, place: PlaceId) -> &[Condition] {
    match reached.get(&place) {
        Some(Need::AnyOf(conditions)) => conditions,
        Some(Need::Always) | None => &[],
    }
}

/// Nodes that become one request.
struct RequestGroup {
    level: u32,
    members: Vec<FetchNodeId>,
}

fn group_nodes(
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
    fn add(
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
                add(selections, child, given, hasher);
            }
        }
    }
    let mut hasher = FixedState::default().build_hasher();
    (node.ty, &node.representation, exact_need).hash(&mut hasher);
    add(selections, node.selection, given, &mut hasher);
    hasher.finish()
}

/// Returns the exact needs of nodes that must not be fetched at other times, because their required fields may not have
/// been fetched then. Keys are available whenever the object is, unless a conditional request fetches them: the object
/// may come from another request.
fn exact_needs(nodes: &[FetchNode], merged_into: &[FetchNodeId]) -> Vec<Option<Need>> {
    let is_conditional = |&before: &FetchNodeId| nodes[merged_into[before]].need != Need::Always;
    let exact_need = |node: &FetchNode| {
        let is_there = node.representation.iter().all(|field| field.key)
            && !node.depends_on.iter().any(is_conditional);
        (!is_there).then(|| node.need.clone())
    };
    nodes.iter().map(exact_need).collect()
}

/// A node, its exact need if it has one, and the conditions that are known to hold at its place.
struct NeededNode<'a, 'c> {
    node: &'a FetchNode,
    exact_need: Option<&'a Need>,
    given: &'c [Condition],
}

/// The nodes with equal representation, selection and exact need, which share an alias.
struct DistinctBatch<'a> {
    /// The first of the nodes.
    node: &'a FetchNode,
    selection: String,
    variables: BTreeSet<VariableId>,
    representation: Representation,
    data_keys: Vec<Box<str>>,
    requirements: Vec<Requirement>,
    exact_need: Option<Need>,
    need: Need,
    targets: TargetPaths,
}

/// Groups nodes by their representation, selection and exact need.
fn distinct_batches<'a>(
    writer: &mut OperationWriter<'_>,
    members: &[NeededNode<'a, '_>],
) -> Vec<DistinctBatch<'a>> {
    let mut distinct: Vec<DistinctBatch<'_>> = Vec::new();
    for &NeededNode { node, exact_need, given } in members {
        let typename = writer.graph.ty(node.ty).name.clone();
        writer.variables.clear();
        let selection = format!("...on {typename}{}", writer.selection_set(node.selection, given));
        let variables = std::mem::take(&mut writer.variables);
        let representation =
            Representation { typename: Some(typename), fields: node.representation.clone() };
        match distinct.iter_mut().find(|known| {
            known.selection == selection
                && known.representation == representation
                && known.exact_need.as_ref() == exact_need
        }) {
            Some(known) => {
                known.targets.add(&node.target);
                known.need.add_need(&node.need);
            }
            None => distinct.push(DistinctBatch {
                node,
                selection,
                variables,
                representation,
                data_keys: collect_data_keys(&writer.selections[node.selection]),
                requirements: collect_requirements(
                    writer.graph,
                    node,
                    &writer.selections[node.selection],
                ),
                exact_need: exact_need.cloned(),
                need: node.need.clone(),
                targets: TargetPaths::new(&node.target),
            }),
        }
    }
    distinct
}

/// Writes `_entities` of all members, with one alias for each distinct representation and selection. Also returns a node
/// of each batch, whose selection was written.
fn write_entities<'a>(
    writer: &mut OperationWriter<'_>,
    members: &[NeededNode<'a, '_>],
    number: usize,
) -> (SubgraphOperation, Vec<EntityBatch>, Vec<&'a FetchNode>) {
    let distinct = distinct_batches(writer, members);
    let is_single = distinct.len() == 1;
    let base = free_variable(writer.operation, "representations");
    let mut body = String::from("{");
    let mut own = Vec::new();
    let mut batches = Vec::new();
    let mut nodes = Vec::new();
    let mut all_variables = BTreeSet::new();
    for (index, batch) in distinct.into_iter().enumerate() {
        let (data_key, variable, alias) = match is_single {
            true => ("_entities".to_owned(), base.clone(), String::new()),
            false => (format!("_e{index}"), format!("{base}{index}"), format!("_e{index}:")),
        };
        if index > 0 {
            body.push(' ');
        }
        let selection = &batch.selection;
        let field = format!("{alias}_entities(representations:${variable}){{{selection}}}");
        body.push_str(&field);
        all_variables.extend(&batch.variables);
        let declared: (Box<str>, Box<str>) = (variable.clone().into(), "[_Any!]!".into());
        let alone = (!is_single).then(|| {
            writer.variables = batch.variables;
            let declared = std::slice::from_ref(&declared);
            writer.document(OperationKind::Query, &format!("{{{field}}}"), number, declared)
        });
        own.push(declared);
        nodes.push(batch.node);
        batches.push(EntityBatch {
            data_key: data_key.into(),
            variable: variable.into(),
            targets: batch.targets.paths,
            representation: batch.representation,
            data_keys: batch.data_keys,
            requirements: batch.requirements,
            any_of: batch.need.into_any_of(),
            alone,
            context: Vec::new(),
            reuse: Vec::new(),
        });
    }
    // A node that reads values from further up has a request of its own.
    for (variable, ty) in std::mem::take(&mut writer.context) {
        own.push((variable.variable.clone(), ty));
        batches.iter_mut().for_each(|batch| batch.context.push(variable.clone()));
    }
    body.push('}');
    writer.variables = all_variables;
    (writer.document(OperationKind::Query, &body, number, &own), batches, nodes)
}

/// Returns the keys of a selection without duplicates.
fn collect_data_keys(selection: &SubgraphSelection) -> Vec<Box<str>> {
    let keys: BTreeSet<&str> = selection.entries().iter().map(|entry| &*entry.data_key).collect();
    keys.into_iter().map(Into::into).collect()
}

/// Returns the requirements of the fields of a selection, one for each data key.
fn collect_requirements(
    graph: &Supergraph,
    node: &FetchNode,
    selection: &SubgraphSelection,
) -> Vec<Requirement> {
    let mut found: Vec<Requirement> = Vec::new();
    for entry in selection.entries() {
        let there = graph.field_in(entry.field, node.subgraph);
        let Some(set) = there.and_then(|there| there.requires.as_ref()) else { continue };
        let fields = select_required(graph, &node.representation, &set.items);
        let known = found.iter_mut().find(|known| *known.data_key == *entry.data_key);
        match known {
            Some(known) => {
                fields
                    .into_iter()
                    .for_each(|field| merge_representation_field(&mut known.fields, field));
            }
            None => found.push(Requirement { data_key: entry.data_key.as_ref().into(), fields }),
        }
    }
    found
}

/// Returns the part of a representation that a field set names, on any type.
fn select_required(
    graph: &Supergraph,
    representation: &[RepresentationField],
    set: &[FieldSetItem],
) -> Vec<RepresentationField> {
    let mut found = Vec::new();
    for item in set {
        match item {
            FieldSetItem::Field { field, fields, .. } => {
                let name = &graph.field(*field).name;
                for member in representation.iter().filter(|member| member.name == *name) {
                    let fields = select_required(graph, &member.fields, &fields.items);
                    merge_representation_field(
                        &mut found,
                        RepresentationField { fields, ..member.clone() },
                    );
                }
            }
            FieldSetItem::Fragment { fields, .. } => {
                let of_type = select_required(graph, representation, &fields.items);
                of_type.into_iter().for_each(|field| merge_representation_field(&mut found, field));
            }
        }
    }
    found
}

/// The paths of objects with equal representation and selection.
struct TargetPaths {
    paths: Vec<Path>,
    /// The indices in `paths`, by the hash of the path without the types of the last step.
    known: HashMap<u64, Vec<usize>>,
}

impl TargetPaths {
    fn new(target: &Path) -> Self {
        let mut targets = Self { paths: Vec::new(), known: HashMap::default() };
        targets.add(target);
        targets
    }

    /// Adds a target. If it differs from a known one only in the types of its last step, the two are merged: interface
    /// objects have equal requests for objects of several types.
    fn add(&mut self, target: &Path) {
        let alike = |known: &Path| match (known.steps.split_last(), target.steps.split_last()) {
            (Some((a, above)), Some((b, other))) => {
                above == other
                    && a.data_key == b.data_key
                    && a.types.is_empty() == b.types.is_empty()
            }
            _ => false,
        };
        let above = target.steps.split_last().map(|(last, above)| (above, &last.data_key));
        let candidates = self.known.entry(FixedState::default().hash_one(above)).or_default();
        let found = candidates.iter().copied().find(|&at| alike(&self.paths[at]));
        match (found, target.steps.last()) {
            (Some(at), Some(step)) => {
                // Both have a last step, or they would not be alike.
                let Some(known) = self.paths[at].steps.last_mut() else { return };
                for ty in &step.types {
                    if !known.types.contains(ty) {
                        known.types.push(ty.clone());
                    }
                }
            }
            _ => {
                candidates.push(self.paths.len());
                self.paths.push(target.clone());
            }
        }
    }
}

/// Removes dependencies that others imply.
fn remove_implied_dependencies(fetches: &mut [Fetch]) {
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
