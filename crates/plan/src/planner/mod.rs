//! The entry to planning. An operation passes through these steps in order:
//!
//! 1. `selection_tree`: selections as shared nodes, with those that `context_arguments` adds for `@fromContext`.
//! 2. `data_keys`: the field that each key of the data tree belongs to.
//! 3. `union_narrowing`: narrows unions to the members that every subgraph of a field knows.
//! 4. `request_minimizer`: the requests for the whole operation, with those that `cover` chooses for long operations.
//!    `allowed_requests` restricts the solver to them, `solution_requests` counts those of a solution.
//! 5. `solver`: the subgraphs for each field, by dynamic programming over positions, with `holders` (the fields that a
//!    subgraph can resolve here), `jump_choice` (the jumps to make), `field_choice` (the holders that carry a field)
//!    and `interface_objects`. Its result is a `solution`; `unreachable_field` explains why there is none.
//! 6. `fetch_graph`: fetch nodes, with `conditions` (the conditions of selections).
//! 7. `fetch_assembly`: the fetches of the plan, with `request_groups` (the nodes that become one request),
//!    `entity_batches` (the aliases of an entity request), `operation_text` and `fragment_folding` (the text of
//!    subgraph operations) and `entity_reuse` (the entities that a request knows already).
//! 8. `response_shape`: the shape of the response.
//!
//! A new rule begins with a fixture: a supergraph, an operation and the wanted plan in `tests/fixtures`. Facts that
//! hold for all operations, such as the resolvers of a field, belong to the crate `graph`. Rules about possible
//! requests belong to `holders` and `jump_choice`; the cost by which the solver prefers one is in `solution`. Rules
//! about the number of requests belong to `request_groups` and `entity_batches`. The crate `soundness` checks every
//! plan of tests and debug builds, and has to know a rule that permits new plans.

mod allowed_requests;
mod conditions;
mod context_arguments;
mod cover;
mod data_keys;
mod entity_batches;
mod entity_reuse;
mod error;
mod fetch_assembly;
mod fetch_graph;
mod field_choice;
mod fragment_folding;
mod holders;
mod interface_objects;
mod jump_choice;
mod limits;
mod operation_text;
mod request_groups;
mod request_minimizer;
mod response_shape;
mod selection_tree;
mod solution;
mod solution_requests;
mod solver;
mod union_narrowing;
mod unreachable_field;

use graph::{EventRole, SubgraphKind, SubgraphSet, Supergraph};

use crate::{EventField, Operation, OperationKind, Plan};
use data_keys::DataKeys;
pub use error::PlanError;
use fetch_graph::{FetchGraphBuilder, FetchNodeId, FetchNodeKind};
use limits::STEPS_FACTOR_MAX;
pub use limits::{BatchLimits, Batching, Limits};
use selection_tree::{CollectedField, CollectedFields, CollectedTarget, SelectionTree};
use solution::ObjectSolution;
use solver::Solver;

/// The effort of planning one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Effort {
    /// The number of steps, never many more than four times [`Limits::steps`]. A step visits one selection, one route
    /// to a field, or one field of a request or of the response.
    pub steps: u64,
    /// True if choices were made greedily because [`Limits::steps`] were used up: the plan is correct, but another one
    /// may have fewer requests.
    pub is_greedy: bool,
}

/// Plans `operation` over `graph`.
///
/// # Errors
/// No plan gives the whole response, or planning exceeds its limits.
pub fn plan(graph: &Supergraph, operation: &Operation, limits: &Limits) -> Result<Plan, PlanError> {
    plan_with_effort(graph, operation, limits).0
}

/// Plans like [`plan()`], and returns the effort in any case.
pub fn plan_with_effort(
    graph: &Supergraph,
    operation: &Operation,
    limits: &Limits,
) -> (Result<Plan, PlanError>, Effort) {
    let mut effort = Effort::default();
    let result = plan_counted(graph, operation, limits, &mut effort);
    (result, effort)
}

fn plan_counted(
    graph: &Supergraph,
    operation: &Operation,
    limits: &Limits,
    effort: &mut Effort,
) -> Result<Plan, PlanError> {
    let mut tree = SelectionTree::new(&operation.denied);
    let root = tree.of_operation(&operation.selection_set, operation);
    let root = context_arguments::add_context_fields(graph, &mut tree, root);
    let parts = tree.parts_of(root.clone());
    let fields = tree.collect(graph, &parts, operation.selection_set.on);
    let mut keys = DataKeys::new(graph);
    for wanted in &fields.fields {
        let payload = event_subgraph(graph, wanted);
        keys.declare_root_field(wanted, payload);
    }
    let shared = union_narrowing::narrow_unions(graph, &mut tree, root.clone());
    let fields = match shared == root {
        true => fields,
        false => {
            let parts = tree.parts_of(shared);
            tree.collect(graph, &parts, operation.selection_set.on)
        }
    };
    let mut planner = Planner {
        graph,
        operation,
        solver: Solver::new(graph, operation.kind, limits.steps, tree),
        builder: FetchGraphBuilder::new(graph, keys),
        steps_max: limits.steps.saturating_mul(STEPS_FACTOR_MAX),
    };
    let solved = match operation.kind {
        OperationKind::Query => planner.plan_query(&fields).map(|()| None),
        OperationKind::Mutation => planner.plan_mutation(&fields).map(|()| None),
        OperationKind::Subscription => planner.plan_subscription(&fields),
    };
    let Planner { builder, solver, .. } = planner;
    effort.is_greedy = solver.was_greedy();
    effort.steps = solver.all_steps() + builder.steps();
    let subscription = solved?;
    let steps_max = limits.steps.saturating_mul(STEPS_FACTOR_MAX);
    if effort.steps > steps_max {
        return Err(PlanError::too_complex());
    }
    let mut tree = solver.into_tree();
    if let Some(problem) = builder.problem() {
        return Err(PlanError::NotSupported(problem.to_owned()));
    }
    let (keys, fetch_graph) = builder.into_fetch_graph();
    let left = steps_max - effort.steps;
    let (shape, steps) = response_shape::build_shape(graph, &mut tree, &keys, &parts, left)?;
    effort.steps += steps;
    let (batching, left) = (&limits.batching, left - steps.min(left));
    let (plan, steps) = fetch_assembly::assemble_plan(
        graph,
        operation,
        batching,
        fetch_graph,
        shape,
        subscription,
        left,
    )?;
    effort.steps += steps;
    Ok(plan)
}

struct Planner<'a> {
    graph: &'a Supergraph,
    operation: &'a Operation,
    solver: Solver<'a>,
    builder: FetchGraphBuilder<'a>,
    steps_max: u64,
}

/// Returns the event subgraph that provides a root field, if any.
fn event_subgraph(graph: &Supergraph, wanted: &CollectedField) -> Option<graph::SubgraphId> {
    let CollectedTarget::Field(field) = wanted.target else { return None };
    let mut resolvers = graph.field(field).resolved_by;
    resolvers =
        resolvers.iter().filter(|&s| graph.subgraph(s).kind == SubgraphKind::Events).collect();
    resolvers.iter().next()
}

impl Planner<'_> {
    /// Adds the nodes of a solved root, within the steps that remain.
    fn add_nodes(
        &mut self,
        solution: &ObjectSolution,
        kind: FetchNodeKind,
        before: &[FetchNodeId],
    ) {
        let steps_max = self.steps_max.saturating_sub(self.solver.all_steps());
        self.builder.add_root(solution, kind, before, steps_max);
    }

    /// Plans a query. Each field of an event subgraph is a request of its own; the other fields are solved together.
    fn plan_query(&mut self, fields: &std::rc::Rc<CollectedFields>) -> Result<(), PlanError> {
        let is_event =
            |wanted: &std::rc::Rc<CollectedField>| event_subgraph(self.graph, wanted).is_some();
        if !fields.fields.iter().any(is_event) {
            return self.plan_server_query(fields);
        }
        let (events, others): (Vec<_>, Vec<_>) = fields.fields.iter().cloned().partition(is_event);
        for wanted in events {
            let Some(subgraph) = event_subgraph(self.graph, &wanted) else { continue };
            let kind = self.event_kind(subgraph, &wanted)?;
            let among = Some(SubgraphSet::of(subgraph));
            let alone = CollectedFields::new(fields.on, vec![wanted]);
            let solution = request_minimizer::solve_root(&mut self.solver, &alone, among)?;
            self.add_nodes(&solution, kind, &[]);
        }
        match others.is_empty() {
            true => Ok(()),
            false => self.plan_server_query(&CollectedFields::new(fields.on, others)),
        }
    }

    fn plan_server_query(
        &mut self,
        fields: &std::rc::Rc<CollectedFields>,
    ) -> Result<(), PlanError> {
        let solution = request_minimizer::solve_root(&mut self.solver, fields, None)?;
        self.add_nodes(&solution, FetchNodeKind::Root(OperationKind::Query), &[]);
        Ok(())
    }

    /// Returns the kind of a node for a root field of an event subgraph in a query or mutation.
    fn event_kind(
        &self,
        subgraph: graph::SubgraphId,
        wanted: &CollectedField,
    ) -> Result<FetchNodeKind, PlanError> {
        let event = self.event_field(subgraph, wanted)?;
        Ok(match self.graph.field(event.field).event_role(subgraph) {
            Some(EventRole::Request) => FetchNodeKind::Request(event),
            // Other roles occur on other roots only, which is checked when a graph is read.
            _ => FetchNodeKind::Publish(event),
        })
    }

    /// Plans a mutation. Root fields run in the order of the document; neighbours of one subgraph share a request, and
    /// all fetches that follow from a group end before the next one starts.
    fn plan_mutation(&mut self, fields: &std::rc::Rc<CollectedFields>) -> Result<(), PlanError> {
        let mut groups: Vec<(graph::SubgraphId, Vec<std::rc::Rc<CollectedField>>)> = Vec::new();
        for wanted in &fields.fields {
            let CollectedTarget::Field(field) = wanted.target else { continue };
            let resolvers = self.graph.field(field).resolved_by;
            let event = event_subgraph(self.graph, wanted);
            if let Some((subgraph, group)) = groups.last_mut()
                && event.is_none()
                && resolvers.contains(*subgraph)
            {
                group.push(wanted.clone());
                continue;
            }
            let subgraph = match event {
                Some(subgraph) => subgraph,
                None => self.best_subgraph(wanted, resolvers)?,
            };
            groups.push((subgraph, vec![wanted.clone()]));
        }
        for (subgraph, group) in groups {
            let before: Vec<_> = self.builder.node_ids().collect();
            let kind = match event_subgraph(self.graph, &group[0]) {
                Some(_) => self.event_kind(subgraph, &group[0])?,
                None => FetchNodeKind::Root(OperationKind::Mutation),
            };
            let group = CollectedFields::new(fields.on, group);
            let among = Some(SubgraphSet::of(subgraph));
            let solution = request_minimizer::solve_root(&mut self.solver, &group, among)?;
            self.add_nodes(&solution, kind, &before);
        }
        Ok(())
    }

    /// Returns the subgraph that serves a root field of a mutation with the fewest requests.
    fn best_subgraph(
        &mut self,
        wanted: &std::rc::Rc<CollectedField>,
        resolvers: SubgraphSet,
    ) -> Result<graph::SubgraphId, PlanError> {
        let mut best = None;
        let mut failure = None;
        for subgraph in resolvers.iter() {
            let alone = CollectedFields::new(self.operation.selection_set.on, vec![wanted.clone()]);
            match self.solver.solve_root(&alone, Some(SubgraphSet::of(subgraph))) {
                Ok(solution) if best.is_none_or(|(cost, _)| solution.cost < cost) => {
                    best = Some((solution.cost, subgraph));
                }
                Ok(_) => {}
                Err(error) => failure = Some(error),
            }
        }
        match (best, failure) {
            (Some((_, subgraph)), _) => Ok(subgraph),
            (None, Some(error)) => Err(error),
            (None, None) => Err(PlanError::Unreachable(format!(
                "no subgraph resolves `{}`",
                wanted.coordinate(self.graph)
            ))),
        }
    }

    fn plan_subscription(
        &mut self,
        fields: &std::rc::Rc<CollectedFields>,
    ) -> Result<Option<EventField>, PlanError> {
        let mut roots = fields
            .fields
            .iter()
            .filter(|wanted| matches!(wanted.target, CollectedTarget::Field(_)));
        let (Some(wanted), None) = (roots.next(), roots.next()) else {
            return Err(PlanError::NotSupported(
                "a subscription has exactly one root field".to_owned(),
            ));
        };
        match event_subgraph(self.graph, wanted) {
            Some(subgraph) => {
                let event = self.event_field(subgraph, wanted)?;
                let among = Some(SubgraphSet::of(subgraph));
                let solution = request_minimizer::solve_root(&mut self.solver, fields, among)?;
                self.add_nodes(&solution, FetchNodeKind::Event, &[]);
                Ok(Some(event))
            }
            None => {
                let CollectedTarget::Field(field) = wanted.target else { return Ok(None) };
                let subgraph = self.best_subgraph(wanted, self.graph.field(field).resolved_by)?;
                let among = Some(SubgraphSet::of(subgraph));
                let solution = request_minimizer::solve_root(&mut self.solver, fields, among)?;
                self.add_nodes(&solution, FetchNodeKind::Root(OperationKind::Subscription), &[]);
                Ok(None)
            }
        }
    }

    fn event_field(
        &self,
        subgraph: graph::SubgraphId,
        wanted: &CollectedField,
    ) -> Result<EventField, PlanError> {
        let CollectedTarget::Field(field) = wanted.target else {
            return Err(PlanError::NotSupported("not a field of the schema".to_owned()));
        };
        let mut arguments = Vec::new();
        for argument in &self.graph.field(field).arguments {
            let given = wanted.arguments.values.iter().find(|(name, _)| *name == argument.name);
            let value = match (given, &argument.default) {
                (Some((_, value)), _) => value.clone(),
                (None, Some(default)) => match graph::ConstValue::parse(default) {
                    Some(value) => value.into(),
                    None => continue,
                },
                (None, None) => continue,
            };
            arguments.push((argument.name.clone(), value));
        }
        let data_key = wanted.key.as_deref().unwrap_or_default().into();
        Ok(EventField { subgraph, field, data_key, arguments })
    }
}
