//! A plan with everything that stays the same between its executions: escaped request texts,
//! who waits for whom, what answers look like, which objects may share what a subgraph answered.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use astjson::Shape;
use bytes::Bytes;
use plan::{
    EntityBatch, Fetch, FetchKind, Path, PathStep, Plan, Representation, RepresentationField,
    SubgraphOperation,
};

use crate::expected::{Cursor, Expected};
use crate::memo::{self, Source};
use crate::projection::Printing;
use crate::root_keys::root_keys;
use crate::target_tree::TargetTree;

/// Room for the first payload of an operation.
const PAYLOAD_BYTES_GUESS: usize = 1024;

/// A plan made ready to be executed any number of times. Build it once per plan and keep it
/// beside the plan; building costs a few microseconds per fetch.
#[derive(Debug)]
pub struct Executable {
    plan: Arc<Plan>,
    pub(crate) fetches: Vec<CompiledFetch>,
    pub(crate) printing: Printing,
    /// Length of the payload printed last: the room to make for the next one.
    pub(crate) payload_bytes: AtomicUsize,
}

/// What is constant about one fetch. Same index as in [`Plan::fetches`].
#[derive(Debug)]
pub(crate) struct CompiledFetch {
    /// The fetches that wait for this one.
    pub(crate) dependents: Vec<u32>,
    /// How many fetches this one waits for.
    pub(crate) dependencies: u32,
    /// The request body up to and with the opening brace of `variables`.
    pub(crate) head: Vec<u8>,
    /// The whole request body, for root fetches without variables.
    pub(crate) constant_body: Bytes,
    /// Root fetches: the keys of the answer's `data`, as the operation's text names them.
    pub(crate) root_keys: Vec<Box<str>>,
    /// Root fields below others: how to get to the objects.
    pub(crate) below: Option<CompiledBelow>,
    /// Entity fetches: by batch.
    pub(crate) batches: Vec<CompiledBatch>,
    /// What the answer looks like.
    pub(crate) answer: Shape,
}

/// What is constant about the objects that root fields below others are for.
#[derive(Debug)]
pub(crate) struct CompiledBelow {
    pub(crate) target: CompiledTarget,
    /// See [`CompiledBatch::one_each`].
    pub(crate) one_each: bool,
    /// What one of them looks like.
    pub(crate) object: Shape,
}

/// What is constant about one entity batch.
#[derive(Debug)]
pub(crate) struct CompiledBatch {
    /// By target path.
    pub(crate) targets: Vec<CompiledTarget>,
    /// Are there several groups among the targets?
    pub(crate) several_groups: bool,
    /// May no two objects share values, because what stands below depends on what stands above
    /// (`@fromContext`)?
    pub(crate) one_each: bool,
    /// How an object of the batch is represented.
    pub(crate) representation: CompiledRepresentation,
    /// What one entity looks like.
    pub(crate) entity: Shape,
    /// Where its entities may be known from.
    pub(crate) sources: Vec<Source>,
}

/// What is constant about representing an object.
#[derive(Debug)]
pub(crate) struct CompiledRepresentation {
    /// How it begins: with the type name, if that is known.
    pub(crate) opening: Box<[u8]>,
    /// Where the objects keep their `__typename`.
    pub(crate) typename_slot: usize,
    /// Which objects of the expected shape have all members in the slots that are given here; none have where
    /// one of the members is not expected.
    pub(crate) objects: usize,
    /// As its fields.
    pub(crate) members: Vec<CompiledMember>,
}

/// What is constant about one member of a representation. Slots are hints: objects that came
/// another way have none.
#[derive(Debug)]
pub(crate) struct CompiledMember {
    pub(crate) slot: usize,
    /// Comma, name and colon.
    pub(crate) printed_key: Box<[u8]>,
    /// Is it wanted of all objects, and whole?
    pub(crate) is_plain: bool,
    /// Where the objects below keep their `__typename`.
    pub(crate) typename_slot: usize,
    pub(crate) members: Vec<CompiledMember>,
}

/// Where the member that a step leads through is kept, and the `__typename` of what it leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepSlots {
    /// Which objects of the expected shape keep it there.
    pub(crate) objects: usize,
    pub(crate) member: usize,
    pub(crate) typename: usize,
}

/// What is constant about one target path.
#[derive(Debug)]
pub(crate) struct CompiledTarget {
    /// From this step on the same object may be met several times, because an earlier entity
    /// fetch linked its answers into the tree above.
    pub(crate) shared_from: usize,
    /// How many of its first steps are those of the target before it.
    pub(crate) as_before: usize,
    /// As the steps of the path.
    pub(crate) slots: Vec<StepSlots>,
    /// Targets with the same number may share the answer's values: whatever later fetches put
    /// below one of them, they put below the other too.
    pub(crate) group: u32,
}

impl Executable {
    /// Prepares `plan`.
    pub fn new(plan: Arc<Plan>) -> Self {
        let mut expected = Expected::new(&plan);
        let answers: Vec<usize> = plan
            .fetches
            .iter()
            .map(|fetch| match &fetch.kind {
                FetchKind::Root(_) => expected.root_answer(&plan),
                FetchKind::RootBelow { target, .. } => expected.root_below_answer(&plan, target),
                FetchKind::Entities { batches, .. } => expected.entity_answer(&plan, batches),
                FetchKind::Publish(_) | FetchKind::Request(_) => usize::MAX,
            })
            .collect();
        let shape = expected.shape();
        let targets = TargetTree::new(&plan);
        let mut fetches: Vec<CompiledFetch> = plan
            .fetches
            .iter()
            .zip(answers)
            .enumerate()
            .map(|(number, (fetch, answer))| {
                compile(&plan, number, fetch, &expected, &targets, &shape, answer)
            })
            .collect();
        for (index, fetch) in plan.fetches.iter().enumerate() {
            let mut waits_for: Vec<usize> =
                fetch.depends_on.iter().map(|id| id.0 as usize).collect();
            waits_for.sort_unstable();
            waits_for.dedup();
            // A plan is topologically sorted; anything else could only wait for ever.
            waits_for.retain(|&dependency| dependency < index);
            fetches[index].dependencies = waits_for.len() as u32;
            for dependency in waits_for {
                fetches[dependency].dependents.push(index as u32);
            }
        }
        let printing = Printing::new(&plan.shape, &expected, shape);
        Self { plan, fetches, printing, payload_bytes: AtomicUsize::new(PAYLOAD_BYTES_GUESS) }
    }

    /// The plan behind it.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }
}

fn compile(
    plan: &Plan,
    number: usize,
    fetch: &Fetch,
    expected: &Expected,
    all_targets: &TargetTree<'_>,
    shape: &Shape,
    answer: usize,
) -> CompiledFetch {
    let mut compiled = CompiledFetch {
        dependents: Vec::new(),
        dependencies: 0,
        head: Vec::new(),
        constant_body: Bytes::new(),
        root_keys: Vec::new(),
        below: None,
        batches: Vec::new(),
        answer: shape.at(answer),
    };
    match &fetch.kind {
        FetchKind::Root(operation) => {
            compiled.head = head(operation);
            compiled.constant_body = [&compiled.head[..], b"}}"].concat().into();
            compiled.root_keys = root_keys(&operation.text);
        }
        FetchKind::RootBelow { operation, target } => {
            compiled.head = head(operation);
            compiled.below = Some(CompiledBelow {
                one_each: is_read_through(plan, target),
                object: shape.at(expected.kind_at(plan, target).unwrap_or(usize::MAX)),
                target: CompiledTarget {
                    shared_from: all_targets.shared_from(target),
                    as_before: 0,
                    slots: step_slots(plan, expected, target),
                    group: 0,
                },
            });
        }
        FetchKind::Entities { operation, batches } => {
            compiled.head = head(operation);
            compiled.batches = batches
                .iter()
                .map(|batch| {
                    let groups = all_targets.groups(&batch.targets);
                    let kind = expected.target(plan, batch);
                    let objects = expected.cursor(kind);
                    CompiledBatch {
                        representation: CompiledRepresentation::new(objects, &batch.representation),
                        sources: memo::sources(plan, expected, all_targets, number, batch),
                        entity: shape.at(kind.unwrap_or(usize::MAX)),
                        several_groups: groups.iter().any(|&group| group != 0),
                        one_each: batch.targets.iter().any(|path| is_read_through(plan, path)),
                        targets: batch
                            .targets
                            .iter()
                            .zip(groups)
                            .enumerate()
                            .map(|(index, (path, group))| CompiledTarget {
                                shared_from: all_targets.shared_from(path),
                                as_before: common_steps(batch.targets[..index].last(), path),
                                slots: step_slots(plan, expected, path),
                                group,
                            })
                            .collect(),
                    }
                })
                .collect();
        }
        FetchKind::Publish(event) | FetchKind::Request(event) => {
            compiled.root_keys.push(event.data_key.clone());
        }
    }
    compiled
}

pub(crate) fn step_slots(plan: &Plan, expected: &Expected, path: &Path) -> Vec<StepSlots> {
    let mut cursor = expected.cursor(Some(plan.shape.root.0 as usize));
    path.steps
        .iter()
        .map(|step| {
            let objects = cursor.number_with([&*step.data_key]);
            let member = cursor.slot(&step.data_key);
            cursor = cursor.below(&step.data_key);
            StepSlots { objects, member, typename: cursor.slot("__typename") }
        })
        .collect()
}

/// How many steps two paths have in common from their beginning.
pub(crate) fn common_steps(before: Option<&Path>, path: &Path) -> usize {
    let before = before.map_or(&[][..], |before| &before.steps);
    before.iter().zip(&path.steps).take_while(|(left, right)| left == right).count()
}

impl CompiledRepresentation {
    /// For objects of this kind.
    pub(crate) fn new(objects: Cursor<'_>, representation: &Representation) -> Self {
        let mut opening = Vec::from(b"{\"__typename\":");
        if let Some(name) = &representation.typename {
            // A name needs no escapes.
            opening.extend_from_slice(&[b"\"", name.as_bytes(), b"\""].concat());
        }
        let keys = representation.fields.iter().map(|field| &*field.data_key);
        Self {
            opening: opening.into(),
            typename_slot: objects.slot("__typename"),
            objects: objects.number_with(keys),
            members: members(objects, &representation.fields),
        }
    }
}

fn members(objects: Cursor<'_>, fields: &[RepresentationField]) -> Vec<CompiledMember> {
    let member = |field: &RepresentationField| {
        let below = objects.below(&field.data_key);
        CompiledMember {
            printed_key: [b",\"", field.name.as_bytes(), b"\":"].concat().into(),
            is_plain: field.types.is_empty() && field.fields.is_empty(),
            slot: objects.slot(&field.data_key),
            typename_slot: below.slot("__typename"),
            members: members(below, &field.fields),
        }
    };
    fields.iter().map(member).collect()
}

/// The entity batches of a fetch.
pub(crate) fn batches_of(kind: &FetchKind) -> &[EntityBatch] {
    match kind {
        FetchKind::Entities { batches, .. } => batches,
        FetchKind::Root(_)
        | FetchKind::RootBelow { .. }
        | FetchKind::Publish(_)
        | FetchKind::Request(_) => &[],
    }
}

/// The request body up to and with the opening brace of `variables`.
pub(crate) fn head(operation: &SubgraphOperation) -> Vec<u8> {
    let mut head = Vec::with_capacity(operation.text.len() + 64);
    head.extend_from_slice(b"{\"query\":");
    astjson::print_string(&operation.text, &mut head);
    if let Some(name) = &operation.name {
        head.extend_from_slice(b",\"operationName\":");
        astjson::print_string(name, &mut head);
    }
    head.extend_from_slice(b",\"variables\":{");
    head
}

/// The steps that follow `path` in `longer`, if it leads through the same keys first.
fn beyond<'a>(path: &Path, longer: &'a Path) -> Option<&'a [PathStep]> {
    let (first, rest) = longer.steps.split_at_checked(path.steps.len())?;
    let same = first.iter().zip(&path.steps).all(|(left, right)| left.data_key == right.data_key);
    (same && !rest.is_empty()).then_some(rest)
}

/// Does anything below `path` read from an object at or above its end?
fn is_read_through(plan: &Plan, path: &Path) -> bool {
    let batches = plan.fetches.iter().flat_map(|fetch| batches_of(&fetch.kind));
    batches.filter(|batch| !batch.context.is_empty()).any(|batch| {
        let mut sources = batch.context.iter().flat_map(|variable| &variable.sources);
        batch.targets.iter().any(|target| beyond(path, target).is_some())
            && sources.any(|source| source.steps as usize <= path.steps.len())
    })
}
