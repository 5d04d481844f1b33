//! Assembly of the plan from fetch nodes: one fetch for each group of `request_groups`, its text and conditions, with
//! the batches of `entity_batches` and the known entities of `entity_reuse`.

use std::collections::BTreeSet;

use foldhash::HashMap;
use graph::Supergraph;

use super::conditions;
use super::data_keys::PlaceId;
use super::entity_batches::{NeededNode, write_entities};
use super::entity_reuse::{self, WrittenSelection};
use super::error::PlanError;
use super::fetch_graph::{FetchGraph, FetchNode, FetchNodeId, FetchNodeKind, Need, Selections};
use super::limits::Batching;
use super::operation_text::OperationWriter;
use super::request_groups::{
    RequestGroup, any_of_place, exact_needs, group_nodes, merge_same_targets, propagate_needs,
};
use crate::{
    Condition, EventField, Fetch, FetchId, FetchKind, Operation, OperationKind, Plan, Shape,
    SubscriptionRoot,
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
        let kind = match assembler.assemble_group(group, &any_of, fetches.len()) {
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
    fn assemble_group(
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
                let body = writer.write_selection_set(first.selection, any_of);
                let written = writer.write_document(*kind, &body, number, &[]);
                if *kind == OperationKind::Subscription {
                    self.fields_left = writer.fields_left;
                    return AssembledGroup::Subscription(SubscriptionRoot::Upstream {
                        subgraph: first.subgraph,
                        operation: written,
                    });
                }
                selections.push(WrittenSelection { selection: first.selection, reached: &[] });
                let data_keys = writer.root_data_keys(first.selection, any_of);
                FetchKind::Root { operation: written, data_keys }
            }
            FetchNodeKind::RootBelow => {
                let given = self.given_conditions(first, any_of);
                let body = writer.write_selection_set(first.selection, given);
                FetchKind::RootBelow {
                    operation: writer.write_document(OperationKind::Query, &body, number, &[]),
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
