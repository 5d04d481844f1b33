//! A plan with everything that stays the same between its executions: escaped request texts,
//! who waits for whom, which objects may share what a subgraph answered.

use std::sync::Arc;

use bytes::Bytes;
use plan::{Fetch, FetchKind, Path, PathStep, Plan, SubgraphOperation};

use crate::root_keys::root_keys;

/// A plan made ready to be executed any number of times. Build it once per plan and keep it
/// beside the plan; building costs a few microseconds per fetch.
#[derive(Debug)]
pub struct Executable {
    plan: Arc<Plan>,
    pub(crate) fetches: Vec<CompiledFetch>,
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
    /// Entity fetches: by batch.
    pub(crate) batches: Vec<CompiledBatch>,
}

/// What is constant about one entity batch.
#[derive(Debug)]
pub(crate) struct CompiledBatch {
    /// By target path.
    pub(crate) targets: Vec<CompiledTarget>,
    /// Are there several groups among the targets?
    pub(crate) several_groups: bool,
}

/// What is constant about one target path.
#[derive(Debug)]
pub(crate) struct CompiledTarget {
    /// From this step on the same object may be met several times, because an earlier entity
    /// fetch linked its answers into the tree above.
    pub(crate) shared_from: usize,
    /// Targets with the same number may share the answer's values: whatever later fetches put
    /// below one of them, they put below the other too.
    pub(crate) group: u32,
}

impl Executable {
    /// Prepares `plan`.
    pub fn new(plan: Arc<Plan>) -> Self {
        let mut fetches: Vec<CompiledFetch> =
            plan.fetches.iter().map(|fetch| compile(&plan, fetch)).collect();
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
        Self { plan, fetches }
    }

    /// The plan behind it.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }
}

fn compile(plan: &Plan, fetch: &Fetch) -> CompiledFetch {
    let mut compiled = CompiledFetch {
        dependents: Vec::new(),
        dependencies: 0,
        head: Vec::new(),
        constant_body: Bytes::new(),
        root_keys: Vec::new(),
        batches: Vec::new(),
    };
    match &fetch.kind {
        FetchKind::Root(operation) => {
            compiled.head = head(operation);
            compiled.constant_body = [&compiled.head[..], b"}}"].concat().into();
            compiled.root_keys = root_keys(&operation.text);
        }
        FetchKind::Entities { operation, batches } => {
            compiled.head = head(operation);
            compiled.batches = batches
                .iter()
                .map(|batch| {
                    let groups = groups(plan, &batch.targets);
                    CompiledBatch {
                        several_groups: groups.iter().any(|&group| group != 0),
                        targets: batch
                            .targets
                            .iter()
                            .zip(groups)
                            .map(|(path, group)| CompiledTarget {
                                shared_from: shared_from(plan, path),
                                group,
                            })
                            .collect(),
                    }
                })
                .collect();
        }
        FetchKind::Publish(event) => compiled.root_keys.push(event.data_key.clone()),
    }
    compiled
}

fn head(operation: &SubgraphOperation) -> Vec<u8> {
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

/// All target paths of all entity batches, with the position of their batch.
fn all_targets(plan: &Plan) -> impl Iterator<Item = ((usize, usize), &Path)> {
    plan.fetches.iter().enumerate().flat_map(|(fetch, it)| {
        let batches = match &it.kind {
            FetchKind::Entities { batches, .. } => &batches[..],
            FetchKind::Root(_) | FetchKind::Publish(_) => &[],
        };
        batches.iter().enumerate().flat_map(move |(batch, it)| {
            it.targets.iter().map(move |target| ((fetch, batch), target))
        })
    })
}

/// The steps that follow `path` in `longer`, if it leads through the same keys first.
fn beyond<'a>(path: &Path, longer: &'a Path) -> Option<&'a [PathStep]> {
    let (first, rest) = longer.steps.split_at_checked(path.steps.len())?;
    let same = first.iter().zip(&path.steps).all(|(left, right)| left.data_key == right.data_key);
    (same && !rest.is_empty()).then_some(rest)
}

fn shared_from(plan: &Plan, path: &Path) -> usize {
    all_targets(plan)
        .filter(|(_, other)| beyond(other, path).is_some())
        .map(|(_, other)| other.steps.len())
        .min()
        .unwrap_or(usize::MAX)
}

/// Gives targets below which exactly the same batches go on the same way a common number. Only
/// those may share values: the same entity may be wanted at two places with different fields
/// under one key (`{a: product {reviews {body}} b: product {reviews {body: title}}}`), and what is
/// merged into a shared value is seen at both.
fn groups(plan: &Plan, targets: &[Path]) -> Vec<u32> {
    if targets.len() < 2 {
        return vec![0; targets.len()];
    }
    let goes_on = |path: &Path| {
        let mut below: Vec<_> = all_targets(plan)
            .filter_map(|(batch, other)| {
                let rest = beyond(path, other)?;
                let last = path.steps.len().checked_sub(1)?;
                Some((batch, &other.steps[last].types[..], rest))
            })
            .collect();
        below.sort_unstable();
        below
    };
    let below: Vec<_> = targets.iter().map(goes_on).collect();
    below
        .iter()
        .map(|it| below.iter().position(|other| other == it).map_or(0, |first| first as u32))
        .collect()
}
