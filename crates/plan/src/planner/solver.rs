//! The solver, which chooses the subgraphs that resolve each field: dynamic programming over positions. A state
//! consists of selections, type and holders; a choice is a set of jumps. Every holder that resolves a field may carry
//! it without an additional request. Cost: depth first, then requests, then fields. `jump_choice` determines the jumps,
//! `field_choice` the holders that carry a field.

use std::rc::Rc;

use foldhash::{HashMap, HashSet};
use graph::{DeniedAccess, FieldSet, SubgraphId, SubgraphKind, SubgraphSet, Supergraph, TypeId};

use super::{
    allowed_requests::AllowedRequests,
    error::PlanError,
    holders::{Holder, JumpCandidate, possible_types},
    limits::STEPS_FACTOR_MAX,
    selection_tree::{
        self, CollectedField, CollectedFields, CollectedTarget, GuardedSets, SelectionTree,
    },
    solution::{
        Cost, FieldChoice, Jump, JumpInput, ObjectSolution, Solution, SolutionKind, drop_unused,
    },
};
use crate::OperationKind;

/// A state: the numbers of the selections and of the holders, the type, and the base wave. The base is constant unless
/// the requests are restricted, because absolute waves matter only then.
type StateKey = (u32, u32, TypeId, u32);

/// The jumps that can be made for one object.
pub(super) struct MadeJumps<'a> {
    /// The original holders, then one for each jump.
    holders: Vec<Holder<'a>>,
    jumps: Vec<Jump>,
    /// The cost of the inputs of each jump.
    costs: Vec<Cost>,
    /// The candidates whose inputs are not available in time.
    pub(super) left: Vec<JumpCandidate<'a>>,
}

pub(super) struct Solver<'a> {
    pub(super) graph: &'a Supergraph,
    pub(super) kind: OperationKind,
    pub(super) steps: u64,
    steps_max: u64,
    pub(super) was_greedy: bool,
    /// The requests that may be made; `None` if all may.
    ration: Option<AllowedRequests>,
    /// The wave from which the depths of holders at the current position count.
    base: u32,
    /// The solved states. The inner `None` marks a state that is being solved: reaching it again is a cycle without
    /// result.
    memo: HashMap<StateKey, Option<Option<Rc<Solution>>>>,
    /// The numbers of lists of holders, for state keys.
    holders: HashMap<Box<[Holder<'a>]>, u32>,
    /// Field sets as selections, by address and type.
    sets: HashMap<(usize, TypeId), Rc<CollectedFields>>,
    tree: SelectionTree,
    /// The first reason why a field is unreachable.
    reason: Option<String>,
}

impl<'a> Solver<'a> {
    /// Returns the number of steps taken so far.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    pub(super) fn graph(&self) -> &'a Supergraph {
        self.graph
    }

    pub(super) fn new(
        graph: &'a Supergraph,
        kind: OperationKind,
        steps: u64,
        tree: SelectionTree,
    ) -> Self {
        Self {
            graph,
            kind,
            steps: 0,
            steps_max: steps,
            was_greedy: false,
            ration: None,
            base: 0,
            memo: HashMap::default(),
            holders: HashMap::default(),
            sets: HashMap::default(),
            tree,
            reason: None,
        }
    }

    /// Returns the fields and types that the client may not use.
    pub(super) fn denied(&self) -> &DeniedAccess {
        self.tree.denied()
    }

    /// Returns the approximate number of distinct selection sets in the operation.
    pub(super) fn distinct_sets(&self) -> usize {
        self.tree.distinct_sets()
    }

    /// Returns the selections for the next phase of planning.
    pub(super) fn into_tree(self) -> SelectionTree {
        self.tree
    }

    /// Solves root fields with requests to the subgraphs `among` only (to all if `None`).
    pub(super) fn solve_root(
        &mut self,
        fields: &Rc<CollectedFields>,
        among: Option<SubgraphSet>,
    ) -> Result<Rc<ObjectSolution>, PlanError> {
        self.reason = None;
        let mut candidates = Vec::new();
        for wanted in &fields.fields {
            let Some(field) = wanted.field() else { continue };
            for subgraph in self.graph.field(field).resolved_by.iter() {
                let candidate = JumpCandidate { subgraph, requires: None };
                if among.is_none_or(|among| among.contains(subgraph))
                    && !candidates.contains(&candidate)
                {
                    candidates.push(candidate);
                }
            }
        }
        let best = self.choose_jumps(fields, &[], &candidates, true);
        self.check_steps()?;
        best.ok_or_else(|| PlanError::Unreachable(self.take_reason()))
    }

    /// Solves root fields again with these requests only. `None` if they do not suffice, or if no steps are left.
    pub(super) fn solve_root_within(
        &mut self,
        fields: &Rc<CollectedFields>,
        among: Option<SubgraphSet>,
        ration: AllowedRequests,
    ) -> Option<Rc<ObjectSolution>> {
        if self.is_greedy() {
            return None;
        }
        let reason = self.reason.take();
        self.memo.clear();
        self.ration = Some(ration);
        let found = self.solve_root(fields, among);
        self.memo.clear();
        self.ration = None;
        self.reason = reason;
        // A greedy choice on the way is no worse than the solution that it is compared with.
        found.ok()
    }

    fn take_reason(&mut self) -> String {
        self.reason
            .take()
            .unwrap_or_else(|| "the subgraphs cannot resolve the operation".to_owned())
    }

    fn check_steps(&self) -> Result<(), PlanError> {
        if self.is_exhausted() { Err(PlanError::too_complex()) } else { Ok(()) }
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.all_steps() > self.steps_max.saturating_mul(STEPS_FACTOR_MAX)
    }

    /// Returns the steps of solving and of collecting selections.
    pub(super) fn all_steps(&self) -> u64 {
        self.steps + self.tree.visited()
    }

    /// True if a choice was made greedily, or a search for a better one was abandoned.
    pub(super) fn was_greedy(&self) -> bool {
        self.was_greedy
    }

    pub(super) fn is_greedy(&self) -> bool {
        self.steps > self.steps_max
    }

    /// Solves the selections `parts` at a position of type `ty`. `None` if some field is unreachable.
    pub(super) fn solve_position(
        &mut self,
        parts: &GuardedSets,
        ty: TypeId,
        holders: &mut [Holder<'a>],
    ) -> Option<Rc<Solution>> {
        // States that differ only in their absolute waves are one state.
        let base = holders.iter().map(|holder| holder.depth).min().unwrap_or(0);
        holders.iter_mut().for_each(|holder| holder.depth -= base);
        let outer = self.base;
        let state_base = if self.ration.is_some() { outer + base } else { 0 };
        let key = (parts.id(), self.holders_number(holders), ty, state_base);
        if let Some(known) = self.memo.get(&key) {
            return known.clone().flatten();
        }
        self.steps += 1;
        if self.is_exhausted() {
            return None;
        }
        self.memo.insert(key, None);
        self.base = outer + base;
        let solution = match self.graph.ty(ty).kind.is_abstract() {
            false => {
                let wanted = self.collect(parts, ty);
                self.solve_object(&wanted, holders).map(|solution| {
                    Rc::new(Solution { cost: solution.cost, kind: SolutionKind::Object(solution) })
                })
            }
            true => self.solve_abstract_position(parts, ty, holders).map(Rc::new),
        };
        self.base = outer;
        self.memo.insert(key, Some(solution.clone()));
        solution
    }

    /// Returns the wave of the response to a request that could start after `before` other waves.
    pub(super) fn response_wave(&self, subgraph: SubgraphId, before: u32) -> Option<u32> {
        if self.graph.subgraph(subgraph).kind == SubgraphKind::Events {
            return Some(before);
        }
        match &self.ration {
            None => Some(before + 1),
            Some(ration) => {
                ration.next(subgraph, self.base + before + 1).map(|level| level - self.base)
            }
        }
    }

    /// Returns a number that is equal for equal lists of holders.
    fn holders_number(&mut self, holders: &[Holder<'a>]) -> u32 {
        if let Some(&known) = self.holders.get(holders) {
            return known;
        }
        let number = self.holders.len() as u32;
        self.holders.insert(holders.into(), number);
        number
    }

    pub(super) fn collect(&mut self, parts: &GuardedSets, ty: TypeId) -> Rc<CollectedFields> {
        self.tree.collect(self.graph, parts, ty)
    }

    fn solve_abstract_position(
        &mut self,
        parts: &GuardedSets,
        ty: TypeId,
        holders: &[Holder<'a>],
    ) -> Option<Solution> {
        if holders.iter().any(|holder| holder.is_untyped(self.graph)) {
            return self.solve_untyped_position(parts, ty, holders);
        }
        let common = match holders {
            [only] => self.solve_common(parts, ty, only),
            _ => None,
        };
        self.solve_members(parts, ty, holders, common)
    }

    /// Solves the selections by object type, without the fields of `common`. Every holder that is not untyped knows the
    /// type of the object.
    pub(super) fn solve_members(
        &mut self,
        parts: &GuardedSets,
        ty: TypeId,
        holders: &[Holder<'a>],
        common: Option<Rc<ObjectSolution>>,
    ) -> Option<Solution> {
        let graph = self.graph;
        let typed: Vec<usize> =
            (0..holders.len()).filter(|&index| !holders[index].is_untyped(graph)).collect();
        let types = possible_types(graph, ty, holders);
        let possible: Vec<HashSet<TypeId>> =
            holders.iter().map(|holder| holder.possible(graph).iter().copied().collect()).collect();
        let mut cost = common.as_ref().map_or(Cost::default(), |common| common.cost);
        let mut members = Vec::new();
        for member in types {
            let wanted = self.collect(parts, member);
            let rest: Vec<Rc<CollectedField>> = wanted
                .fields
                .iter()
                .filter(|wanted| {
                    wanted.field().is_some()
                        && !common.as_ref().is_some_and(|common| {
                            common
                                .choices
                                .iter()
                                .any(|choice| is_same(&choice.wanted, wanted, self.graph))
                        })
                })
                .cloned()
                .collect();
            if rest.is_empty() {
                continue;
            }
            let knowing: Vec<usize> =
                typed.iter().copied().filter(|&index| possible[index].contains(&member)).collect();
            let narrowed: Vec<Holder<'a>> = knowing
                .iter()
                .map(|&index| Holder { ty: member, ..holders[index].clone() })
                .collect();
            let solution = self.solve_object(&CollectedFields::new(member, rest), &narrowed)?;
            cost = cost.beside(solution.cost);
            members.push((knowing, solution));
        }
        let kind = SolutionKind::Abstract { common, members, untyped: None };
        Some(Solution { cost, kind })
    }

    /// Solves the interface fields that `holder` resolves for all objects that it returns.
    fn solve_common(
        &mut self,
        parts: &GuardedSets,
        ty: TypeId,
        holder: &Holder<'a>,
    ) -> Option<Rc<ObjectSolution>> {
        let types = possible_types(self.graph, ty, std::slice::from_ref(holder));
        // If the subgraph's own type is narrower, its fields are looked up on the object types. Fields added by type
        // must be available before anything below is fetched. Nothing is fetched for objects that are denied.
        if holder.ty != ty
            || types.len() < 2
            || selection_tree::has_added_fields_in_fragments(parts)
            || self.denied().has_type_within(self.graph, ty)
        {
            return None;
        }
        let in_fragments = selection_tree::keys_in_fragments(parts, ty);
        let mut choices = Vec::new();
        let mut cost = Cost { depth: holder.depth, ..Cost::default() };
        for wanted in &self.collect(parts, ty).fields {
            let Some(field) = wanted.field() else { continue };
            if wanted.key.as_deref().is_some_and(|key| in_fragments.contains(&key))
                || !holder.can_carry(self.graph, field)
            {
                continue;
            }
            let name = &self.graph.field(field).name;
            let is_everywhere = types.iter().all(|&member| {
                self.graph
                    .field_named(member, name)
                    .is_some_and(|own| holder.can_carry(self.graph, own))
            });
            if !is_everywhere {
                continue;
            }
            let mut child = None;
            if !wanted.parts.is_empty() {
                let below = self.graph.field(field).ty.named();
                let Some(solution) = self.solve_position(
                    &wanted.parts,
                    below,
                    &mut [holder.child(self.graph, field)],
                ) else {
                    continue;
                };
                cost = cost.beside(solution.cost.after(holder.depth));
                child = Some(solution);
            }
            cost.fields += 1;
            choices.push(FieldChoice { wanted: wanted.clone(), carriers: 0.into(), child });
        }
        (!choices.is_empty())
            .then(|| Rc::new(ObjectSolution { ty, cost, jumps: Vec::new(), choices }))
    }

    /// Returns the best solution for `wanted` of an object that `holders` have.
    pub(super) fn solve_object(
        &mut self,
        wanted: &Rc<CollectedFields>,
        holders: &[Holder<'a>],
    ) -> Option<Rc<ObjectSolution>> {
        let candidates = self.find_jump_candidates(wanted, holders);
        self.choose_jumps(wanted, holders, &candidates, false)
    }

    /// Returns a field set as selections on `ty`.
    pub(super) fn field_set(&mut self, set: &'a FieldSet, ty: TypeId) -> Rc<CollectedFields> {
        let key = (std::ptr::from_ref(set) as usize, ty);
        let graph = self.graph;
        if let Some(known) = self.sets.get(&key) {
            return known.clone();
        }
        let shared = self.tree.of_field_set(set, ty, graph);
        let parts = self.tree.parts_of(shared);
        let collected = self.tree.collect(graph, &parts, ty);
        self.sets.insert(key, collected.clone());
        collected
    }

    /// Makes these jumps for an object that `held` have, each as soon as its inputs are available.
    pub(super) fn make_jumps(
        &mut self,
        ty: TypeId,
        held: &[Holder<'a>],
        candidates: &[JumpCandidate<'a>],
        is_root: bool,
    ) -> MadeJumps<'a> {
        let mut reached = MadeJumps {
            holders: held.to_vec(),
            jumps: Vec::new(),
            costs: Vec::new(),
            left: candidates.to_vec(),
        };
        while !reached.left.is_empty() {
            // The earliest jumps come first: they may enable others. Jumps of the same wave cannot enable each other.
            let mut ready: Vec<Option<(u32, Vec<JumpInput>, Cost)>> = Vec::new();
            for candidate in &reached.left {
                let found = match is_root {
                    true => Some((0, Vec::new(), Cost::default())),
                    false => self.choose_inputs(*candidate, ty, &reached.holders),
                };
                ready.push(found.and_then(|(depth, inputs, cost)| {
                    let depth = self.response_wave(candidate.subgraph, depth)?;
                    // Root fields depend on nothing, and share no entity request.
                    (!is_root || depth <= 1).then_some((depth, inputs, cost))
                }));
            }
            let Some(earliest) = ready.iter().flatten().map(|(depth, _, _)| *depth).min() else {
                break;
            };
            for (candidate, found) in std::mem::take(&mut reached.left).into_iter().zip(ready) {
                let (depth, inputs, cost) = match found {
                    Some(found) if found.0 == earliest => found,
                    _ => {
                        reached.left.push(candidate);
                        continue;
                    }
                };
                reached.holders.push(Holder {
                    subgraph: candidate.subgraph,
                    depth,
                    ty,
                    provides: Vec::new(),
                    met: candidate.requires,
                });
                reached.jumps.push(Jump { subgraph: candidate.subgraph, depth, inputs });
                reached.costs.push(cost);
            }
        }
        reached
    }

    /// Returns the solution with exactly these jumps, with its cost. `None` if they do not suffice.
    pub(super) fn evaluate_jumps(
        &mut self,
        wanted: &Rc<CollectedFields>,
        held: &[Holder<'a>],
        candidates: &[JumpCandidate<'a>],
        is_root: bool,
    ) -> Option<ObjectSolution> {
        self.steps += 1 + wanted.fields.len() as u64 + candidates.len() as u64;
        if self.is_exhausted() {
            return None;
        }
        let ty = wanted.on;
        let reached = self.make_jumps(ty, held, candidates, is_root);
        if !reached.left.is_empty() {
            return None;
        }
        let MadeJumps { holders, jumps, costs: jump_costs, .. } = reached;
        let mut choices = Vec::with_capacity(wanted.fields.len());
        for field in &wanted.fields {
            if field.field().is_none() {
                choices.extend(self.choose_type_carrier(field, ty, &holders)?);
                continue;
            }
            choices.push(self.choose_carriers(field, &holders)?);
        }
        let (jumps, jump_costs, holders) =
            drop_unused(held.len(), jumps, jump_costs, holders, &mut choices);
        let first = held.iter().map(|holder| holder.depth).min().unwrap_or(0);
        let mut cost = Cost { depth: first, ..Cost::default() };
        let mut requests: Vec<(SubgraphId, u32)> = Vec::new();
        for (index, input_cost) in jump_costs.iter().enumerate() {
            let holder = &holders[held.len() + index];
            cost = cost.beside(*input_cost);
            cost.depth = cost.depth.max(holder.depth);
            if !requests.contains(&(holder.subgraph, holder.depth)) {
                requests.push((holder.subgraph, holder.depth));
            }
        }
        cost.requests += requests.len() as u32;
        for choice in &choices {
            cost.fields += choice.carriers.len() as u32;
            let base = choice.carriers.iter().map(|&carrier| holders[carrier].depth);
            let base = base.min().unwrap_or(0);
            cost.depth = cost.depth.max(base);
            if let Some(child) = &choice.child {
                cost = cost.beside(child.cost.after(base));
            }
        }
        Some(ObjectSolution { ty, cost, jumps, choices })
    }

    pub(super) fn record_reason(&mut self, reason: impl FnOnce(&Supergraph) -> String) {
        if self.reason.is_none() {
            self.reason = Some(reason(self.graph));
        }
    }
}

/// True if both are the same selection, one on the interface and one on a member.
fn is_same(a: &CollectedField, b: &CollectedField, graph: &Supergraph) -> bool {
    match (&a.key, &b.key) {
        (Some(a), Some(b)) => a == b,
        _ => match (a.target, b.target) {
            (CollectedTarget::Field(x), CollectedTarget::Field(y)) => {
                graph.field(x).name == graph.field(y).name && *a.arguments == *b.arguments
            }
            (x, y) => x == y,
        },
    }
}
