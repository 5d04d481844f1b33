//! The batches of an entity fetch: one alias of `_entities` for each distinct representation and selection, with the
//! paths to its objects.

use std::collections::BTreeSet;
use std::hash::BuildHasher;

use foldhash::{HashMap, fast::FixedState};
use graph::{FieldSetItem, Supergraph};

use super::fetch_graph::{FetchNode, Need, SubgraphSelection, merge_representation_field};
use super::operation_text::{OperationWriter, free_variable};
use crate::{
    Condition, EntityBatch, OperationKind, Path, Representation, RepresentationField, Requirement,
    SubgraphOperation, VariableId,
};

/// A node, its exact need if it has one, and the conditions that are known to hold at its place.
pub(super) struct NeededNode<'a, 'c> {
    pub(super) node: &'a FetchNode,
    pub(super) exact_need: Option<&'a Need>,
    pub(super) given: &'c [Condition],
}

/// Writes `_entities` of all members, with one alias for each distinct representation and selection. Also returns a
/// node of each batch, whose selection was written.
pub(super) fn write_entities<'a>(
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
            writer.write_document(OperationKind::Query, &format!("{{{field}}}"), number, declared)
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
    (writer.write_document(OperationKind::Query, &body, number, &own), batches, nodes)
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
        let selection =
            format!("...on {typename}{}", writer.write_selection_set(node.selection, given));
        let variables = std::mem::take(&mut writer.variables);
        let representation =
            Representation { typename: Some(typename), fields: node.representation.clone() };
        match distinct.iter_mut().find(|known| {
            known.selection == selection
                && known.representation == representation
                && known.exact_need.as_ref() == exact_need
        }) {
            Some(known) => {
                known.targets.add_target(&node.target);
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
        targets.add_target(target);
        targets
    }

    /// Adds a target. If it differs from a known one only in the types of its last step, the two are merged: interface
    /// objects have equal requests for objects of several types.
    fn add_target(&mut self, target: &Path) {
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
