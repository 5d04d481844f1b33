//! The estimated costs of the requests of a plan, by subgraph.

use std::collections::BTreeMap;

use graph::{FieldId, SubgraphId, Supergraph, TypeId, TypeRefShape};
use plan::{
    EntityBatch, EventField, FetchKind, Operation, Path, Plan, SelectionSet, SubscriptionRoot,
};

use crate::estimate::{EstimateCompiler, FieldArguments};
use crate::fetch_selection::FetchSelection;
use crate::merged_fields::{MergedField, Source, merge_fields};
use crate::program::{Operand, ProgramLength};

/// Reads the texts of the plan's requests: one entry for each fetch, and one for the subscription of a subgraph.
pub(crate) fn read_fetches(graph: &Supergraph, plan: &Plan) -> Vec<Option<FetchSelection>> {
    let fetches = plan.fetches.iter().map(|fetch| match &fetch.kind {
        FetchKind::Root { operation, .. }
        | FetchKind::RootBelow { operation, .. }
        | FetchKind::Entities { operation, .. } => Some(FetchSelection::read(graph, operation)),
        FetchKind::Publish(_) | FetchKind::Request(_) => None,
    });
    let subscription = match &plan.subscription {
        Some(SubscriptionRoot::Upstream { operation, .. }) => {
            Some(FetchSelection::read(graph, operation))
        }
        Some(SubscriptionRoot::Event(_)) | None => None,
    };
    fetches.chain([subscription]).collect()
}

/// Compiles the costs of all requests to each subgraph. `read` is the result of [`read_fetches`], or empty if the costs
/// are not needed.
pub(crate) fn compile_fetches<'a>(
    compiler: &mut EstimateCompiler<'a>,
    operation: &'a Operation,
    plan: &Plan,
    read: &'a [Option<FetchSelection>],
) -> Vec<(SubgraphId, Operand)> {
    let Some((subscription, fetches)) = read.split_last() else { return Vec::new() };
    let default = compiler.list_size;
    let mut costs: BTreeMap<SubgraphId, Vec<Operand>> = BTreeMap::new();
    for (fetch, selection) in plan.fetches.iter().zip(fetches) {
        let list_size = list_size_of(compiler, fetch.subgraph);
        let cost = match (&fetch.kind, selection) {
            // All objects of a root below other fields are the same one, so the request is sent once.
            (FetchKind::Root { .. } | FetchKind::RootBelow { .. }, Some(selection)) => {
                compiler.set_list_size(list_size);
                root_cost(compiler, selection)
            }
            (FetchKind::Entities { batches, .. }, Some(selection)) => {
                let batch = |batch: &EntityBatch| {
                    let entities = selection.entities.iter();
                    let mut entities = entities.filter(|(key, _)| *key == batch.data_key);
                    let (_, set) = entities.next()?;
                    compiler.set_list_size(list_size);
                    let each = entity_cost(compiler, set);
                    compiler.set_list_size(default);
                    let targets = batch.targets.iter();
                    let targets: Vec<_> = targets
                        .map(|target| at_target(compiler, operation, target, each))
                        .collect();
                    let cost = compiler.builder.sum(targets);
                    Some(compiler.builder.when(&batch.any_of, cost))
                };
                let batches: Vec<_> = batches.iter().filter_map(batch).collect();
                compiler.builder.sum(batches)
            }
            (FetchKind::Publish(event) | FetchKind::Request(event), _) => {
                event_cost(compiler, event)
            }
            _ => Operand::ZERO,
        };
        compiler.set_list_size(default);
        let cost = compiler.builder.when(&fetch.any_of, cost);
        costs.entry(fetch.subgraph).or_default().push(cost);
    }
    match (&plan.subscription, subscription) {
        (Some(SubscriptionRoot::Upstream { subgraph, .. }), Some(selection)) => {
            compiler.set_list_size(list_size_of(compiler, *subgraph));
            let cost = root_cost(compiler, selection);
            compiler.set_list_size(default);
            costs.entry(*subgraph).or_default().push(cost);
        }
        (Some(SubscriptionRoot::Event(event)), _) => {
            let cost = event_cost(compiler, event);
            costs.entry(event.subgraph).or_default().push(cost);
        }
        _ => {}
    }
    costs.into_iter().map(|(subgraph, costs)| (subgraph, compiler.builder.sum(costs))).collect()
}

fn list_size_of(compiler: &EstimateCompiler<'_>, subgraph: SubgraphId) -> u64 {
    let settings = &compiler.model.settings;
    let own = settings.subgraph_list_sizes.get(usize::from(subgraph.0));
    own.copied().unwrap_or(settings.list_size)
}

fn root_cost<'a>(compiler: &mut EstimateCompiler<'a>, selection: &'a FetchSelection) -> Operand {
    match &selection.root {
        Some(root) => compiler.root(root),
        None => Operand::ZERO,
    }
}

/// Returns the cost of one entity: the largest of the object types that the request names.
fn entity_cost<'a>(compiler: &mut EstimateCompiler<'a>, set: &'a SelectionSet) -> Operand {
    let mut costs = Vec::new();
    for item in &set.items {
        let plan::Selection::Fragment(fragment) = item else { continue };
        costs.push(compiler.selection(fragment.on, Source::root(set), Vec::new(), true));
    }
    compiler.builder.largest(costs)
}

/// Returns the cost of what an event subgraph does for a field.
fn event_cost(compiler: &mut EstimateCompiler<'_>, event: &EventField) -> Operand {
    let costs = compiler.costs;
    let ty = costs.graph.field(event.field).ty.named();
    let declared = costs.field_weight(event.field, event.field);
    let each = declared.unwrap_or_else(|| match costs.graph.ty(ty).kind.is_composite() {
        true => costs.object_weight(ty, ty),
        false => costs.leaf_weight(ty),
    });
    let FieldArguments { constant, arguments } =
        compiler.arguments(event.field, event.field, &event.arguments);
    compiler.builder.with_arguments(Operand::Constant(each), constant, &arguments)
}

/// Multiplies a cost by the number of objects at the end of a path.
fn at_target<'a>(
    compiler: &mut EstimateCompiler<'a>,
    operation: &'a Operation,
    target: &Path,
    each: Operand,
) -> Operand {
    let graph = compiler.costs.graph;
    let root = operation.selection_set.on;
    let (mut types, mut sources) = (vec![root], Source::root(&operation.selection_set));
    let (mut sized, mut lengths) = (Vec::new(), Vec::new());
    for step in &target.steps {
        let Some(found) = find_step(compiler, &types, &sources, &step.data_key) else { break };
        let (field, below) = match found {
            FoundStep::Selected(merged) => {
                let arguments = &merged.field.arguments;
                let (here, sized_below) =
                    compiler.lengths(merged.definition, merged.selected, arguments, &sized);
                lengths.extend(here);
                sized = sized_below;
                (merged.definition, merged.below)
            }
            FoundStep::Internal(field) => {
                let mut ty = &graph.field(field).ty;
                while let TypeRefShape::List(inner) = &ty.shape {
                    lengths.push(ProgramLength::Constant(compiler.list_size));
                    ty = inner;
                }
                sized.clear();
                (field, Vec::new())
            }
        };
        sources = below;
        let possible = &graph.ty(graph.field(field).ty.named()).possible;
        let continues =
            |ty: &TypeId| step.types.is_empty() || step.types.contains(&graph.ty(*ty).name);
        types = possible.iter().copied().filter(continues).collect();
    }
    lengths.into_iter().fold(each, |cost, length| compiler.builder.times(length, cost))
}

/// The field of one step of a path.
enum FoundStep<'a> {
    /// A field that the client selects.
    Selected(MergedField<'a>),
    /// A field that the planner added, for a key or a requirement.
    Internal(FieldId),
}

fn find_step<'a>(
    compiler: &mut EstimateCompiler<'a>,
    types: &[TypeId],
    sources: &[Source<'a>],
    data_key: &str,
) -> Option<FoundStep<'a>> {
    let graph = compiler.costs.graph;
    for &ty in types {
        let fields = merge_fields(graph, ty, sources, &mut compiler.visited);
        let found = fields.into_iter().find(|it| *it.field.response_key == *data_key);
        if let Some(found) = found {
            return Some(FoundStep::Selected(found));
        }
    }
    let internal = types.iter().find_map(|&ty| graph.field_named(ty, data_key));
    internal.map(FoundStep::Internal)
}
