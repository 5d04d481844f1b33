//! The entry to planning. An operation passes through these modules in order:
//!
//! - `selection_tree`: selections as shared nodes, with those that `context_arguments` adds for `@fromContext`;
//! - `data_keys`: the field that each key of the data tree belongs to;
//! - `union_narrowing`: narrows unions to the members that every subgraph of a field knows;
//! - `request_minimizer`: the requests for the whole operation, with those that `cover` chooses for long operations;
//! - `solver`: the subgraphs for each field, by dynamic programming over positions, with `jump_choice` (the jumps to
//!   make) and `field_choice` (the holders that carry a field);
//! - `fetch_graph`: fetch nodes, with `conditions` (the conditions of selections);
//! - `fetch_assembly`: merging of nodes, batches;
//! - `operation_text`: the text of subgraph operations;
//! - `response_shape`: the shape of the response.

mod build;
mod conditions;
mod contexts;
mod cover;
mod data_keys;
mod document;
mod fewest;
mod finish;
mod fold;
mod gates;
mod holders;
mod interfaces;
mod picks;
mod ration;
mod requests;
mod shape;
mod solution;
mod solve;
mod tree;
mod unions;
mod unreachable;

use std::sync::Arc;

use graph::{EventRole, SubgraphKind, SubgraphSet, Supergraph};

use crate::{EventField, Operation, OperationKind, Plan, Value, VariableId};
use build::{Builder, NodeId, NodeKind};
use data_keys::DataKeys;
use solution::ObjectSolution;
use solve::Solver;
use tree::{Collected, Tree, Wanted, WantedTarget};

/// Bounds on planning, and on the requests of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The number of steps after which greedy choices replace exact ones. Planning ends after four times as many.
    pub steps: u64,
    /// The bounds on batches of entities.
    pub batching: Batching,
}

impl Default for Limits {
    fn default() -> Self {
        Self { steps: 1_000_000, batching: Batching::default() }
    }
}

/// The bounds on batches of entities, by subgraph.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batching {
    /// The bounds, indexed by the subgraph's number. Missing entries have the defaults.
    pub subgraphs: Arc<[BatchLimits]>,
}

impl Batching {
    fn of(&self, subgraph: graph::SubgraphId) -> BatchLimits {
        self.subgraphs.get(usize::from(subgraph.0)).copied().unwrap_or_default()
    }
}

/// Bounds of one request for entities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchLimits {
    /// The maximum number of aliases of `_entities`; 1 turns batching over different selections off.
    pub aliases: u32,
    /// The maximum number of representations.
    pub representations: u32,
}

impl Default for BatchLimits {
    /// Returns bounds that respect the usual limits of subgraphs. The strictest known default for aliases or root
    /// fields is 15, for the size of a request 100 kB: a thousand representations have some 50 bytes each.
    fn default() -> Self {
        Self { aliases: 15, representations: 1000 }
    }
}

/// The factor on [`Limits::steps`] after which planning ends with an error. The bound holds for all of planning:
/// choosing, writing the requests, and the shape of the response.
const STEPS_FACTOR_MAX: u64 = 4;

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

/// The reason why there is no plan.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// The planner does not support the operation.
    #[error("{0}")]
    NotSupported(String),
    /// A field cannot be fetched from any subgraph at its position in the operation.
    #[error("{0}")]
    Unreachable(String),
    /// The plan would be larger than [`Limits`] and the bounds on shapes allow.
    #[error("{0}")]
    TooComplex(String),
}

impl PlanError {
    fn too_complex() -> Self {
        Self::TooComplex("the operation is too complex to plan; ask for less at once".to_owned())
    }
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
    let mut tree = Tree::default();
    let root = tree.of_operation(&operation.selection_set, operation);
    let root = contexts::with_context_fields(graph, &mut tree, root);
    let parts = tree.parts_of(root.clone());
    let fields = tree.collect(graph, &parts, operation.selection_set.on);
    let mut keys = DataKeys::new(graph);
    for wanted in &fields.fields {
        let payload = event_subgraph(graph, wanted);
        keys.declare_root_field(wanted, payload);
    }
    let shared = unions::without_unshared_members(graph, &mut tree, root.clone());
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
        builder: Builder::new(graph, keys),
        steps_max: limits.steps.saturating_mul(STEPS_FACTOR_MAX),
    };
    let solved = match operation.kind {
        OperationKind::Query => planner.query(&fields).map(|()| None),
        OperationKind::Mutation => planner.mutation(&fields).map(|()| None),
        OperationKind::Subscription => planner.subscription(&fields),
    };
    let Planner { builder, solver, .. } = planner;
    effort.is_greedy = solver.has_been_greedy();
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
    let (keys, nodes) = builder.into_nodes();
    let left = steps_max - effort.steps;
    let (shape, steps) = shape::build(graph, &mut tree, &keys, &parts, left)?;
    effort.steps += steps;
    let (batching, left) = (&limits.batching, left - steps.min(left));
    let (plan, steps) =
        finish::finish(graph, operation, batching, nodes, shape, subscription, left)?;
    effort.steps += steps;
    Ok(plan)
}

struct Planner<'a> {
    graph: &'a Supergraph,
    operation: &'a Operation,
    solver: Solver<'a>,
    builder: Builder<'a>,
    steps_max: u64,
}

/// Returns the event subgraph that provides a root field, if any.
fn event_subgraph(graph: &Supergraph, wanted: &Wanted) -> Option<graph::SubgraphId> {
    let WantedTarget::Field(field) = wanted.target else { return None };
    let mut resolvers = graph.field(field).resolved_by;
    resolvers =
        resolvers.iter().filter(|&s| graph.subgraph(s).kind == SubgraphKind::Events).collect();
    resolvers.iter().next()
}

impl Planner<'_> {
    /// Adds the nodes of a solved root, within the steps that remain.
    fn build(&mut self, solution: &ObjectSolution, kind: NodeKind, before: &[NodeId]) {
        let steps_max = self.steps_max.saturating_sub(self.solver.all_steps());
        self.builder.root(solution, kind, before, steps_max);
    }

    /// Plans a query. Each field of an event subgraph is a request of its own; the other fields are solved together.
    fn query(&mut self, fields: &std::rc::Rc<Collected>) -> Result<(), PlanError> {
        let is_event = |wanted: &std::rc::Rc<Wanted>| event_subgraph(self.graph, wanted).is_some();
        if !fields.fields.iter().any(is_event) {
            return self.query_servers(fields);
        }
        let (events, others): (Vec<_>, Vec<_>) = fields.fields.iter().cloned().partition(is_event);
        for wanted in events {
            let Some(subgraph) = event_subgraph(self.graph, &wanted) else { continue };
            let kind = self.event_kind(subgraph, &wanted)?;
            let among = Some(SubgraphSet::of(subgraph));
            let alone = Collected::new(fields.on, vec![wanted]);
            let solution = fewest::solve(&mut self.solver, &alone, among)?;
            self.build(&solution, kind, &[]);
        }
        match others.is_empty() {
            true => Ok(()),
            false => self.query_servers(&Collected::new(fields.on, others)),
        }
    }

    fn query_servers(&mut self, fields: &std::rc::Rc<Collected>) -> Result<(), PlanError> {
        let solution = fewest::solve(&mut self.solver, fields, None)?;
        self.build(&solution, NodeKind::Root(OperationKind::Query), &[]);
        Ok(())
    }

    /// Returns the kind of a node for a root field of an event subgraph in a query or mutation.
    fn event_kind(
        &self,
        subgraph: graph::SubgraphId,
        wanted: &Wanted,
    ) -> Result<NodeKind, PlanError> {
        let event = self.event_field(subgraph, wanted)?;
        Ok(match self.graph.field(event.field).event_role(subgraph) {
            Some(EventRole::Request) => NodeKind::Request(event),
            // Other roles occur on other roots only, which is checked when a graph is read.
            _ => NodeKind::Publish(event),
        })
    }

    /// Plans a mutation. Root fields run in the order of the document; neighbours of one subgraph share a request, and
    /// all fetches that follow from a group end before the next one starts.
    fn mutation(&mut self, fields: &std::rc::Rc<Collected>) -> Result<(), PlanError> {
        let mut groups: Vec<(graph::SubgraphId, Vec<std::rc::Rc<Wanted>>)> = Vec::new();
        for wanted in &fields.fields {
            let WantedTarget::Field(field) = wanted.target else { continue };
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
            let before: Vec<_> = self.builder.all_nodes().collect();
            let kind = match event_subgraph(self.graph, &group[0]) {
                Some(_) => self.event_kind(subgraph, &group[0])?,
                None => NodeKind::Root(OperationKind::Mutation),
            };
            let group = Collected::new(fields.on, group);
            let among = Some(SubgraphSet::of(subgraph));
            let solution = fewest::solve(&mut self.solver, &group, among)?;
            self.build(&solution, kind, &before);
        }
        Ok(())
    }

    /// Returns the subgraph that serves a root field of a mutation with the fewest requests.
    fn best_subgraph(
        &mut self,
        wanted: &std::rc::Rc<Wanted>,
        resolvers: SubgraphSet,
    ) -> Result<graph::SubgraphId, PlanError> {
        let mut best = None;
        let mut failure = None;
        for subgraph in resolvers.iter() {
            let alone = Collected::new(self.operation.selection_set.on, vec![wanted.clone()]);
            match self.solver.root(&alone, Some(SubgraphSet::of(subgraph))) {
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

    fn subscription(
        &mut self,
        fields: &std::rc::Rc<Collected>,
    ) -> Result<Option<EventField>, PlanError> {
        let mut roots =
            fields.fields.iter().filter(|wanted| matches!(wanted.target, WantedTarget::Field(_)));
        let (Some(wanted), None) = (roots.next(), roots.next()) else {
            return Err(PlanError::NotSupported(
                "a subscription has exactly one root field".to_owned(),
            ));
        };
        match event_subgraph(self.graph, wanted) {
            Some(subgraph) => {
                let event = self.event_field(subgraph, wanted)?;
                let among = Some(SubgraphSet::of(subgraph));
                let solution = fewest::solve(&mut self.solver, fields, among)?;
                self.build(&solution, NodeKind::Event, &[]);
                Ok(Some(event))
            }
            None => {
                let WantedTarget::Field(field) = wanted.target else { return Ok(None) };
                let subgraph = self.best_subgraph(wanted, self.graph.field(field).resolved_by)?;
                let among = Some(SubgraphSet::of(subgraph));
                let solution = fewest::solve(&mut self.solver, fields, among)?;
                self.build(&solution, NodeKind::Root(OperationKind::Subscription), &[]);
                Ok(None)
            }
        }
    }

    fn event_field(
        &self,
        subgraph: graph::SubgraphId,
        wanted: &Wanted,
    ) -> Result<EventField, PlanError> {
        let WantedTarget::Field(field) = wanted.target else {
            return Err(PlanError::NotSupported("not a field of the schema".to_owned()));
        };
        let mut arguments = Vec::new();
        for argument in &self.graph.field(field).arguments {
            let given = wanted.arguments.values.iter().find(|(name, _)| *name == argument.name);
            let value = match (given, &argument.default) {
                (Some((_, value)), _) => value.clone(),
                (None, Some(default)) => match graph::ConstValue::parse(default) {
                    Some(value) => constant(value),
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

pub(crate) fn constant(value: graph::ConstValue) -> Value {
    use graph::ConstValue as C;
    match value {
        C::Null => Value::Null,
        C::Int(text) => Value::Int(text),
        C::Float(text) => Value::Float(text),
        C::String(text) => Value::String(text),
        C::Boolean(value) => Value::Boolean(value),
        C::Enum(name) => Value::Enum(name),
        C::List(items) => Value::List(items.into_iter().map(constant).collect()),
        C::Object(members) => Value::Object(
            members.into_iter().map(|(name, value)| (name, constant(value))).collect(),
        ),
    }
}

/// Collects the variables inside a value, in the order of their occurrence.
fn variables_of(value: &Value, into: &mut Vec<VariableId>) {
    match value {
        Value::Variable(id) => into.push(*id),
        Value::List(items) => items.iter().for_each(|item| variables_of(item, into)),
        Value::Object(members) => members.iter().for_each(|(_, value)| variables_of(value, into)),
        _ => {}
    }
}
