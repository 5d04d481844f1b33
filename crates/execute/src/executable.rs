//! A plan with everything that is constant between its executions: escaped request texts,
//! dependencies between fetches, the layout of responses, and the objects that may share values of
//! a response.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use astjson::Shape;
use bytes::Bytes;
use cost::OperationCost;
use plan::{
    Fetch, FetchKind, Path, PathStep, Plan, SubgraphOperation, SubscriptionRoot, Variables,
};

use crate::caching::{ChangedEntity, FetchCaching};
use crate::compiled::{CompiledBatch, CompiledBelow, CompiledFetch, CompiledSubscription};
use crate::compiled_objects::{
    CompiledRepresentation, CompiledReusePlace, CompiledTarget, common_steps, step_slots,
};
use crate::fetch_times::{FetchTimes, FetchTimesReading};
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
    /// The requests of each fetch, apart from its constants: workers write to it.
    pub(crate) times: Box<[FetchTimes]>,
    /// The subscription of a subgraph that starts each execution.
    pub(crate) subscription: Option<CompiledSubscription>,
    pub(crate) printing: CompiledPrinting,
    /// The cost of the operation, if it is measured.
    pub(crate) cost: Option<Arc<OperationCost>>,
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
        let result = match &plan.subscription {
            Some(SubscriptionRoot::Upstream { .. }) => Some(layout.add_root_response(&plan)),
            Some(SubscriptionRoot::Event(_)) | None => None,
        };
        let shape = layout.shape();
        let subscription = result.and_then(|it| compile_subscription(&plan, shape.at(it)));
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
        let payload_bytes = AtomicUsize::new(PAYLOAD_BYTES_GUESS);
        let times = plan.fetches.iter().map(|_| FetchTimes::new()).collect();
        Self { plan, fetches, times, subscription, printing, cost: None, payload_bytes }
    }

    /// Measures the cost of each response.
    #[must_use]
    pub fn with_cost(mut self, cost: Option<Arc<OperationCost>>) -> Self {
        self.cost = cost;
        self
    }

    /// Stores the responses to fetches with these facts, by fetch.
    #[must_use]
    pub fn with_caching(mut self, caching: Vec<Option<FetchCaching>>) -> Self {
        for (fetch, caching) in self.fetches.iter_mut().zip(caching) {
            fetch.caching = caching.map(Arc::new);
        }
        self
    }

    /// Makes stale, in the caches, the entities that responses to mutations return, by fetch.
    #[must_use]
    pub fn with_changed_entities(mut self, changed: Vec<Vec<ChangedEntity>>) -> Self {
        for (fetch, changed) in self.fetches.iter_mut().zip(changed) {
            fetch.changed = changed;
        }
        self
    }

    /// The plan itself.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Returns the requests of each fetch so far, with the same index as in [`Plan::fetches`].
    pub fn fetch_times(&self) -> impl Iterator<Item = FetchTimesReading> {
        self.times.iter().map(FetchTimes::read)
    }

    /// The request that begins the subscription at its subgraph, a JSON object with `query`, `variables` and
    /// `extensions`, if `extensions` (a JSON object) is given. `None` if the operation is no subscription of a
    /// subgraph.
    pub fn subscription_request(
        &self,
        variables: &Variables,
        extensions: Option<&Bytes>,
    ) -> Option<Bytes> {
        let CompiledSubscription { fetch, head, .. } = self.subscription.as_ref()?;
        let FetchKind::Root { operation, .. } = &fetch.kind else { return None };
        let mut body = head.clone();
        write_variables(operation, variables, &mut body);
        body.push(b'}');
        if let Some(extensions) = extensions {
            body.extend_from_slice(b",\"extensions\":");
            body.extend_from_slice(extensions);
        }
        body.push(b'}');
        Some(body.into())
    }
}

fn compile_subscription(plan: &Plan, response: Shape) -> Option<CompiledSubscription> {
    let Some(SubscriptionRoot::Upstream { subgraph, operation }) = &plan.subscription else {
        return None;
    };
    let root = plan.shape.objects.get(plan.shape.root.0 as usize)?;
    let fields = root.variants.iter().flat_map(|variant| &variant.fields);
    let mut data_keys: Vec<_> = fields.map(|field| field.data_key.clone()).collect();
    data_keys.sort_unstable();
    data_keys.dedup();
    let fetch = Fetch {
        subgraph: *subgraph,
        kind: FetchKind::Root { operation: operation.clone(), data_keys },
        depends_on: Vec::new(),
        any_of: Vec::new(),
        representations_max: u32::MAX,
    };
    Some(CompiledSubscription { fetch, head: request_head(operation), response })
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
        caching: None,
        changed: Vec::new(),
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

/// Writes the members of `variables`. Returns the separator before another member.
pub(crate) fn write_variables(
    operation: &SubgraphOperation,
    variables: &Variables,
    body: &mut Vec<u8>,
) -> &'static [u8] {
    let mut separator: &'static [u8] = b"";
    for (name, id) in &operation.variables {
        let Some(value) = variables.get(*id) else { continue };
        body.extend_from_slice(separator);
        separator = b",";
        body.push(b'"');
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(b"\":");
        body.extend_from_slice(value.as_bytes());
    }
    separator
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
