//! A plan with everything that is constant between its executions: escaped request texts,
//! dependencies between fetches, the layout of responses, and the objects that may share values of
//! a response.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use astjson::Shape;
use bytes::Bytes;
use plan::{Fetch, FetchKind, Path, PathStep, Plan, SubgraphOperation};

use crate::compiled::{CompiledBatch, CompiledBelow, CompiledFetch};
use crate::compiled_objects::{
    CompiledRepresentation, CompiledReusePlace, CompiledTarget, common_steps, step_slots,
};
use crate::path_tree::PathTree;
use crate::projection::CompiledPrinting;
use crate::response_layout::ResponseLayout;

/// Initial capacity of the first payload of an operation.
const PAYLOAD_BYTES_GUESS: usize = 1024;

/// A plan that can be executed any number of times. It is built once per plan and kept beside the
/// plan; building takes a few microseconds per fetch.
#[derive(Debug)]
pub struct Executable {
    plan: Arc<Plan>,
    pub(crate) fetches: Vec<CompiledFetch>,
    pub(crate) printing: CompiledPrinting,
    /// Length of the last payload: the capacity for the next one.
    pub(crate) payload_bytes: AtomicUsize,
}

impl Executable {
    /// Compiles `plan`.
    pub fn new(plan: Arc<Plan>) -> Self {
        let mut layout = ResponseLayout::new(&plan);
        let responses: Vec<usize> = plan
            .fetches
            .iter()
            .map(|fetch| match &fetch.kind {
                FetchKind::Root { .. } => layout.add_root_response(&plan),
                FetchKind::RootBelow { target, .. } => {
                    layout.add_root_below_response(&plan, target)
                }
                FetchKind::Entities { batches, .. } => layout.add_entity_response(&plan, batches),
                FetchKind::Publish(_) | FetchKind::Request(_) => usize::MAX,
            })
            .collect();
        let shape = layout.shape();
        let targets = PathTree::new(&plan);
        let mut fetches: Vec<CompiledFetch> = plan
            .fetches
            .iter()
            .zip(responses)
            .map(|(fetch, response)| {
                compile_fetch(&plan, fetch, &layout, &targets, &shape, response)
            })
            .collect();
        for (index, fetch) in plan.fetches.iter().enumerate() {
            let mut waits_for: Vec<usize> =
                fetch.depends_on.iter().map(|id| id.0 as usize).collect();
            waits_for.sort_unstable();
            waits_for.dedup();
            // A plan is topologically sorted; any other dependency would wait for ever.
            waits_for.retain(|&dependency| dependency < index);
            fetches[index].dependencies = waits_for.len() as u32;
            for dependency in waits_for {
                fetches[dependency].dependents.push(index as u32);
            }
        }
        let printing = CompiledPrinting::new(&plan.shape, &layout, shape);
        Self { plan, fetches, printing, payload_bytes: AtomicUsize::new(PAYLOAD_BYTES_GUESS) }
    }

    /// The plan itself.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }
}

fn compile_fetch(
    plan: &Plan,
    fetch: &Fetch,
    layout: &ResponseLayout,
    all_targets: &PathTree<'_>,
    shape: &Shape,
    response: usize,
) -> CompiledFetch {
    let mut compiled = CompiledFetch {
        dependents: Vec::new(),
        dependencies: 0,
        head: Vec::new(),
        constant_body: Bytes::new(),
        below: None,
        batches: Vec::new(),
        response: shape.at(response),
    };
    match &fetch.kind {
        FetchKind::Root { operation, .. } => {
            compiled.head = request_head(operation);
            compiled.constant_body = [&compiled.head[..], b"}}"].concat().into();
        }
        FetchKind::RootBelow { operation, target } => {
            compiled.head = request_head(operation);
            compiled.below = Some(CompiledBelow {
                one_each: is_read_through(plan, target),
                object: shape.at(layout.kind_at(plan, target).unwrap_or(usize::MAX)),
                target: CompiledTarget {
                    shared_from: all_targets.shared_from(target),
                    as_before: 0,
                    slots: step_slots(plan, layout, target),
                    group: 0,
                },
            });
        }
        FetchKind::Entities { operation, batches } => {
            compiled.head = request_head(operation);
            compiled.batches = batches
                .iter()
                .map(|batch| {
                    let groups = all_targets.group_targets(&batch.targets);
                    let kind = layout.target(plan, batch);
                    let objects = layout.cursor(kind);
                    CompiledBatch {
                        representation: CompiledRepresentation::new(objects, &batch.representation),
                        reuse: CompiledReusePlace::compile_all(
                            plan,
                            layout,
                            all_targets,
                            &batch.reuse,
                        ),
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
                                slots: step_slots(plan, layout, path),
                                group,
                            })
                            .collect(),
                    }
                })
                .collect();
        }
        FetchKind::Publish(_) | FetchKind::Request(_) => {}
    }
    compiled
}

/// The request body up to and with the opening brace of `variables`.
pub(crate) fn request_head(operation: &SubgraphOperation) -> Vec<u8> {
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

/// Returns the steps after `path` in `longer`, if `longer` begins with the same keys.
fn steps_below<'a>(path: &Path, longer: &'a Path) -> Option<&'a [PathStep]> {
    let (first, rest) = longer.steps.split_at_checked(path.steps.len())?;
    let same = first.iter().zip(&path.steps).all(|(left, right)| left.data_key == right.data_key);
    (same && !rest.is_empty()).then_some(rest)
}

/// True if a target below `path` reads a value from an object at or above the end of `path`.
fn is_read_through(plan: &Plan, path: &Path) -> bool {
    let batches = plan.fetches.iter().flat_map(|fetch| fetch.kind.batches());
    batches.filter(|batch| !batch.context.is_empty()).any(|batch| {
        let mut sources = batch.context.iter().flat_map(|variable| &variable.sources);
        batch.targets.iter().any(|target| steps_below(path, target).is_some())
            && sources.any(|source| source.steps as usize <= path.steps.len())
    })
}
