//! Who resolves what: dynamic programming over positions. A state is (what is wanted, type,
//! holders); a choice is a set of jumps. Every holder that knows a field may carry it at no extra
//! request. Cost: depth first, then requests, then fields.

use std::{collections::HashMap, rc::Rc};

use graph::{FieldSet, SubgraphId, SubgraphKind, SubgraphSet, Supergraph, TypeId, TypeRefShape};

use super::{
    PlanError,
    holders::{ByAddress, Holder, Resolves, resolves},
    ration::Ration,
    solution::{
        Cost, Jump, ObjectSolution, Pick, Solution, SolutionKind, Supply, drop_unused, used_holders,
    },
    tree::{self, Collected, Part, PartsId, Set, Wanted, WantedTarget},
    unreachable::unreachable,
};
use crate::{Condition, OperationKind};

/// How many subgraphs that might help are tried in all combinations at one position; beyond it the
/// choice is greedy. 2^6 choices, each a pass over the fields, are still well under a millisecond.
const EXACT_CHOICES_MAX: usize = 6;

/// Steps up to which more than two holders together may carry an object that one could carry alone.
const COMBINATION_STEPS_MAX: u64 = 5_000;

/// How much more than [`crate::Limits::steps`] greedy planning may take before it ends with an error.
const STEPS_FACTOR_MAX: u64 = 4;

/// A jump that might be made: the subgraph, and what it needs beside a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Gate<'a> {
    subgraph: SubgraphId,
    requires: Option<ByAddress<'a>>,
}

/// The last number is the base where times matter, that is where requests are rationed.
type StateKey<'a> = (PartsId, TypeId, Vec<Holder<'a>>, u32);

pub(super) struct Solver<'a> {
    graph: &'a Supergraph,
    kind: OperationKind,
    steps: u64,
    steps_max: u64,
    /// The requests that may be made at all; `None`: any.
    ration: Option<Ration>,
    /// Depths of holders at the position being solved count from here.
    base: u32,
    /// `None` inside: being solved right now; coming back to it is a circle that leads nowhere.
    memo: HashMap<StateKey<'a>, Option<Option<Rc<Solution>>>>,
    /// Field sets as selections, by address and type.
    sets: HashMap<(usize, TypeId), Rc<Collected>>,
    /// What is wanted of an object type at a position, whoever holds the object.
    collected: HashMap<(PartsId, TypeId), Rc<Collected>>,
    /// Why something could not be reached, first come.
    reason: Option<String>,
}

impl<'a> Solver<'a> {
    /// Steps taken so far.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    pub(super) fn graph(&self) -> &'a Supergraph {
        self.graph
    }

    pub(super) fn new(graph: &'a Supergraph, kind: OperationKind, steps: u64) -> Self {
        Self {
            graph,
            kind,
            steps: 0,
            steps_max: steps,
            ration: None,
            base: 0,
            memo: HashMap::new(),
            sets: HashMap::new(),
            collected: HashMap::new(),
            reason: None,
        }
    }

    /// Solves root fields, asking only the subgraphs `among` (all if `None`).
    pub(super) fn root(
        &mut self,
        fields: &Rc<Collected>,
        among: Option<SubgraphSet>,
    ) -> Result<Rc<ObjectSolution>, PlanError> {
        self.reason = None;
        let mut gates = Vec::new();
        for wanted in &fields.fields {
            let Some(field) = wanted.field() else { continue };
            for subgraph in self.graph.field(field).resolved_by.iter() {
                let gate = Gate { subgraph, requires: None };
                if among.is_none_or(|among| among.contains(subgraph)) && !gates.contains(&gate) {
                    gates.push(gate);
                }
            }
        }
        let best = self.choose(fields, &[], &gates, true);
        self.check_steps()?;
        best.ok_or_else(|| PlanError::Unreachable(self.take_reason()))
    }

    /// Solves root fields once more with these requests only. `None`: they do not suffice, or there
    /// are no steps left for trying.
    pub(super) fn root_within(
        &mut self,
        fields: &Rc<Collected>,
        among: Option<SubgraphSet>,
        ration: Ration,
    ) -> Option<Rc<ObjectSolution>> {
        if self.is_greedy() {
            return None;
        }
        let reason = self.reason.take();
        self.memo.clear();
        self.ration = Some(ration);
        let found = self.root(fields, among);
        self.memo.clear();
        self.ration = None;
        self.reason = reason;
        // A greedy choice on the way is no worse than what is compared with it.
        found.ok()
    }

    fn take_reason(&mut self) -> String {
        self.reason
            .take()
            .unwrap_or_else(|| "the operation cannot be answered by the subgraphs".to_owned())
    }

    fn check_steps(&self) -> Result<(), PlanError> {
        if self.is_exhausted() {
            return Err(PlanError::TooComplex(
                "the operation is too complex to plan; ask for less at once".to_owned(),
            ));
        }
        Ok(())
    }

    fn is_exhausted(&self) -> bool {
        self.steps > self.steps_max.saturating_mul(STEPS_FACTOR_MAX)
    }

    fn is_greedy(&self) -> bool {
        self.steps > self.steps_max
    }

    /// What to do for `parts` at a position of type `ty`. `None`: it cannot be had.
    fn position(
        &mut self,
        parts: &[Part],
        ty: TypeId,
        holders: Vec<Holder<'a>>,
    ) -> Option<Rc<Solution>> {
        // States that differ only in when everything happens are one state.
        let base = holders.iter().map(|holder| holder.depth).min().unwrap_or(0);
        let relative: Vec<Holder<'a>> = holders
            .into_iter()
            .map(|holder| Holder { depth: holder.depth - base, ..holder })
            .collect();
        let outer = self.base;
        let state_base = if self.ration.is_some() { outer + base } else { 0 };
        let key = (tree::parts_id(parts), ty, relative, state_base);
        if let Some(known) = self.memo.get(&key) {
            return known.clone().flatten();
        }
        self.steps += 1;
        if self.is_exhausted() {
            return None;
        }
        self.memo.insert(key.clone(), None);
        self.base = outer + base;
        let solution = match self.graph.ty(ty).kind.is_abstract() {
            false => {
                let wanted = self.collect(parts, ty);
                self.object(&wanted, &key.2).map(|solution| {
                    Rc::new(Solution { cost: solution.cost, kind: SolutionKind::Object(solution) })
                })
            }
            true => self.abstract_position(parts, ty, &key.2).map(Rc::new),
        };
        self.base = outer;
        self.memo.insert(key, Some(solution.clone()));
        solution
    }

    /// When a request that could start after `before` others is answered.
    fn answered(&self, subgraph: SubgraphId, before: u32) -> Option<u32> {
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

    fn collect(&mut self, parts: &[Part], ty: TypeId) -> Rc<Collected> {
        let graph = self.graph;
        self.collected
            .entry((tree::parts_id(parts), ty))
            .or_insert_with(|| tree::collect(graph, parts, ty))
            .clone()
    }

    fn abstract_position(
        &mut self,
        parts: &[Part],
        ty: TypeId,
        holders: &[Holder<'a>],
    ) -> Option<Solution> {
        for holder in holders {
            let there = self.graph.type_in(holder.ty, holder.subgraph);
            if there.is_some_and(|there| there.interface_object) {
                self.note(|graph| {
                    format!(
                        "`{}` is an @interfaceObject in subgraph `{}`, which is not supported yet",
                        graph.ty(ty).name,
                        graph.subgraph(holder.subgraph).name
                    )
                });
                return None;
            }
        }
        let mut types: Vec<TypeId> = Vec::new();
        for holder in holders {
            types.extend(holder.possible(self.graph));
        }
        types.sort_unstable();
        types.dedup();
        // What is no member of the supergraph's type never comes here.
        types.retain(|member| self.graph.ty(ty).possible.contains(member));
        let common = match holders {
            [only] => self.common(parts, ty, only, &types),
            _ => None,
        };
        let mut cost = common.as_ref().map_or(Cost::default(), |common| common.cost);
        let mut members = Vec::new();
        for member in types {
            let wanted = self.collect(parts, member);
            let rest: Vec<Rc<Wanted>> = wanted
                .fields
                .iter()
                .filter(|wanted| {
                    wanted.field().is_some()
                        && !common.as_ref().is_some_and(|common| {
                            common
                                .picks
                                .iter()
                                .any(|pick| is_same(&pick.wanted, wanted, self.graph))
                        })
                })
                .cloned()
                .collect();
            if rest.is_empty() {
                continue;
            }
            let knowing: Vec<usize> = (0..holders.len())
                .filter(|&index| holders[index].possible(self.graph).contains(&member))
                .collect();
            let narrowed: Vec<Holder<'a>> = knowing
                .iter()
                .map(|&index| Holder { ty: member, ..holders[index].clone() })
                .collect();
            let solution = self.object(&Collected::new(member, rest), &narrowed)?;
            cost = cost.beside(solution.cost);
            members.push((knowing, solution));
        }
        Some(Solution { cost, kind: SolutionKind::Abstract { common, members } })
    }

    /// The interface fields that `holder` resolves for whatever object it returns.
    fn common(
        &mut self,
        parts: &[Part],
        ty: TypeId,
        holder: &Holder<'a>,
        types: &[TypeId],
    ) -> Option<Rc<ObjectSolution>> {
        // Where the subgraph's own type is narrower, its fields are looked up on the object types.
        if holder.ty != ty || types.len() < 2 {
            return None;
        }
        let in_fragments = tree::keys_in_fragments(parts);
        let mut picks = Vec::new();
        let mut cost = Cost { depth: holder.depth, ..Cost::default() };
        for wanted in &self.collect(parts, ty).fields {
            let Some(field) = wanted.field() else { continue };
            if wanted.key.as_deref().is_some_and(|key| in_fragments.contains(&key))
                || !holder.carries(self.graph, field)
            {
                continue;
            }
            let name = &self.graph.field(field).name;
            let is_everywhere = types.iter().all(|&member| {
                self.graph
                    .field_named(member, name)
                    .is_some_and(|own| holder.carries(self.graph, own))
            });
            if !is_everywhere {
                continue;
            }
            let mut child = None;
            if !wanted.parts.is_empty() {
                let below = self.graph.field(field).ty.named();
                let Some(solution) =
                    self.position(&wanted.parts, below, vec![holder.child(self.graph, field)])
                else {
                    continue;
                };
                cost = cost.beside(solution.cost.after(holder.depth));
                child = Some(solution);
            }
            cost.fields += 1;
            picks.push(Pick { wanted: wanted.clone(), carriers: vec![0], child });
        }
        (!picks.is_empty()).then(|| Rc::new(ObjectSolution { ty, cost, jumps: Vec::new(), picks }))
    }

    /// The best way to get `wanted` of an object that `holders` have.
    fn object(
        &mut self,
        wanted: &Rc<Collected>,
        holders: &[Holder<'a>],
    ) -> Option<Rc<ObjectSolution>> {
        let gates = self.gates(wanted, holders);
        self.choose(wanted, holders, &gates, false)
    }

    /// All jumps that may help, those that come to mind first in front.
    fn gates(&mut self, wanted: &Collected, holders: &[Holder<'a>]) -> Vec<Gate<'a>> {
        let ty = wanted.on;
        let mut gates: Vec<Gate<'a>> = Vec::new();
        let mut needed: Vec<Rc<Wanted>> = wanted.fields.clone();
        let mut next = 0;
        while next < needed.len() {
            self.steps += 1;
            let wanted = needed[next].clone();
            next += 1;
            let Some(field) = wanted.field() else { continue };
            if self.is_free(&wanted, holders) {
                continue;
            }
            for subgraph in self.graph.field(field).resolved_by.iter() {
                let requires = match resolves(self.graph, field, subgraph) {
                    Resolves::No => continue,
                    Resolves::Yes => None,
                    Resolves::With(requires) => Some(ByAddress(requires)),
                };
                self.add_gate(Gate { subgraph, requires }, ty, holders, &mut gates, &mut needed);
            }
        }
        // Key members that no holder has may come from a third subgraph.
        let mut next = 0;
        while next < gates.len() {
            let gate = gates[next];
            next += 1;
            let is_direct = self
                .graph
                .keys_into(ty, gate.subgraph)
                .any(|key| self.free_set(&key.fields, ty, holders));
            if is_direct {
                continue;
            }
            let keys: Vec<&'a FieldSet> =
                self.graph.keys_into(ty, gate.subgraph).map(|key| &key.fields).collect();
            for key in keys {
                for member in &self.field_set(key, ty).fields {
                    let Some(field) = member.field() else { continue };
                    for subgraph in self.graph.field(field).resolved_by.iter() {
                        let helper = match resolves(self.graph, field, subgraph) {
                            Resolves::No => continue,
                            Resolves::Yes => Gate { subgraph, requires: None },
                            Resolves::With(requires) => {
                                Gate { subgraph, requires: Some(ByAddress(requires)) }
                            }
                        };
                        self.add_gate(helper, ty, holders, &mut gates, &mut Vec::new());
                    }
                }
            }
        }
        gates
    }

    fn add_gate(
        &mut self,
        gate: Gate<'a>,
        ty: TypeId,
        holders: &[Holder<'a>],
        gates: &mut Vec<Gate<'a>>,
        needed: &mut Vec<Rc<Wanted>>,
    ) {
        let is_held = gate.requires.is_none()
            && holders.iter().any(|holder| holder.subgraph == gate.subgraph);
        let is_known = gates.iter().any(|known| {
            known.subgraph == gate.subgraph
                && known.requires.map(|set| set.0) == gate.requires.map(|set| set.0)
        });
        if is_held || is_known || self.graph.keys_into(ty, gate.subgraph).next().is_none() {
            return;
        }
        gates.push(gate);
        if let Some(requires) = gate.requires {
            needed.extend(self.field_set(requires.0, ty).fields.iter().cloned());
        }
    }

    /// Is there a way through the holders alone? Jumping for what is below is then left to the
    /// position below: requests of one level are batched over paths, so it costs the same there.
    fn is_free(&mut self, wanted: &Wanted, holders: &[Holder<'a>]) -> bool {
        let Some(field) = wanted.field() else { return true };
        let graph = self.graph;
        let mut carriers = holders.iter().filter(|holder| holder.carries(graph, field));
        if wanted.parts.is_empty() {
            return carriers.next().is_some();
        }
        let below = graph.field(field).ty.named();
        let children: Vec<_> = carriers.map(|holder| holder.child(graph, field)).collect();
        children.iter().any(|holder| holder.is_payload(graph))
            || children
                .into_iter()
                .any(|child| self.position(&wanted.parts, below, vec![child]).is_some())
    }

    fn free_set(&mut self, set: &'a FieldSet, ty: TypeId, holders: &[Holder<'a>]) -> bool {
        let wanted = self.field_set(set, ty);
        wanted.fields.iter().all(|wanted| self.is_free(wanted, holders))
    }

    /// A field set as selections on `ty`.
    fn field_set(&mut self, set: &'a FieldSet, ty: TypeId) -> Rc<Collected> {
        let key = (std::ptr::from_ref(set) as usize, ty);
        let graph = self.graph;
        if let Some(known) = self.sets.get(&key) {
            return known.clone();
        }
        let shared = Set::of_field_set(set, ty, graph);
        let collected =
            tree::collect(graph, &[Part { set: shared, condition: Condition::default() }], ty);
        self.sets.insert(key, collected.clone());
        collected
    }

    /// The best subset of `gates`.
    fn choose(
        &mut self,
        wanted: &Rc<Collected>,
        holders: &[Holder<'a>],
        gates: &[Gate<'a>],
        is_root: bool,
    ) -> Option<Rc<ObjectSolution>> {
        if gates.is_empty() {
            return self.evaluate(wanted, holders, &[], is_root).map(Rc::new);
        }
        let mandatory = self.mandatory(wanted, holders, gates);
        let optional: Vec<usize> =
            (0..gates.len()).filter(|index| !mandatory.contains(index)).collect();
        let subset = |chosen: &[usize]| -> Vec<Gate<'a>> {
            let mut all: Vec<usize> = mandatory.iter().chain(chosen).copied().collect();
            all.sort_unstable();
            all.into_iter().map(|index| gates[index]).collect()
        };
        let mut best: Option<ObjectSolution> = None;
        if optional.len() <= EXACT_CHOICES_MAX && !self.is_greedy() {
            let mut masks: Vec<u32> = (0..1_u32 << optional.len()).collect();
            masks.sort_by_key(|mask| (mask.count_ones(), *mask));
            for mask in masks {
                if best.is_some() && self.is_greedy() {
                    break;
                }
                let chosen: Vec<usize> = optional
                    .iter()
                    .enumerate()
                    .filter(|(bit, _)| mask & (1 << bit) != 0)
                    .map(|(_, &index)| index)
                    .collect();
                let found = self.evaluate(wanted, holders, &subset(&chosen), is_root);
                if let Some(found) = found
                    && best.as_ref().is_none_or(|best| found.cost < best.cost)
                {
                    best = Some(found);
                }
            }
            return best.map(Rc::new);
        }
        // Greedy: take all, then leave out what makes nothing worse.
        let mut chosen = optional;
        let mut best = self.evaluate(wanted, holders, &subset(&chosen), is_root)?;
        let mut index = chosen.len();
        while index > 0 && !self.is_exhausted() {
            index -= 1;
            let removed = chosen.remove(index);
            match self.evaluate(wanted, holders, &subset(&chosen), is_root) {
                Some(found) if found.cost <= best.cost => best = found,
                _ => chosen.insert(index, removed),
            }
        }
        Some(Rc::new(best))
    }

    /// The gates without which some field cannot be had.
    fn mandatory(
        &mut self,
        wanted: &Collected,
        holders: &[Holder<'a>],
        gates: &[Gate<'a>],
    ) -> Vec<usize> {
        let mut mandatory: Vec<usize> = Vec::new();
        let mut needed: Vec<Rc<Wanted>> = wanted.fields.clone();
        let mut next = 0;
        while next < needed.len() {
            let wanted = needed[next].clone();
            next += 1;
            let Some(field) = wanted.field() else { continue };
            if holders.iter().any(|holder| holder.carries(self.graph, field)) {
                continue;
            }
            let ways: Vec<usize> = (0..gates.len())
                .filter(|&index| match resolves(self.graph, field, gates[index].subgraph) {
                    Resolves::No => false,
                    Resolves::Yes => true,
                    Resolves::With(requires) => {
                        gates[index].requires.is_some_and(|set| set.0 == requires)
                    }
                })
                .collect();
            if let [only] = *ways
                && !mandatory.contains(&only)
            {
                mandatory.push(only);
                if let Some(requires) = gates[only].requires {
                    needed.extend(self.field_set(requires.0, self.on(&wanted)).fields.clone());
                }
            }
        }
        mandatory
    }

    fn on(&self, wanted: &Wanted) -> TypeId {
        wanted.field().map_or(TypeId(0), |field| self.graph.field(field).parent)
    }

    /// What exactly these jumps cost; `None`: they do not suffice.
    fn evaluate(
        &mut self,
        wanted: &Rc<Collected>,
        held: &[Holder<'a>],
        gates: &[Gate<'a>],
        is_root: bool,
    ) -> Option<ObjectSolution> {
        self.steps += 1 + wanted.fields.len() as u64 + gates.len() as u64;
        if self.is_exhausted() {
            return None;
        }
        let ty = wanted.on;
        let mut holders = held.to_vec();
        let mut jumps = Vec::new();
        let mut jump_costs = Vec::new();
        let mut pending: Vec<Gate<'a>> = gates.to_vec();
        while !pending.is_empty() {
            // The earliest first: what they bring may open the way to others. What comes at the
            // same time cannot.
            let mut ready: Vec<Option<(u32, Vec<Supply>, Cost)>> = Vec::new();
            for gate in &pending {
                let found = match is_root {
                    true => Some((0, Vec::new(), Cost::default())),
                    false => self.supplies(*gate, ty, &holders),
                };
                ready.push(found.and_then(|(depth, supplies, cost)| {
                    let depth = self.answered(gate.subgraph, depth)?;
                    // Root fields have nothing to wait for, and no entity request to share.
                    (!is_root || depth <= 1).then_some((depth, supplies, cost))
                }));
            }
            let earliest = ready.iter().flatten().map(|(depth, _, _)| *depth).min()?;
            let mut later = Vec::new();
            for (gate, found) in pending.into_iter().zip(ready) {
                let (depth, supplies, cost) = match found {
                    Some(found) if found.0 == earliest => found,
                    _ => {
                        later.push(gate);
                        continue;
                    }
                };
                holders.push(Holder {
                    subgraph: gate.subgraph,
                    depth,
                    ty,
                    provides: Vec::new(),
                    met: gate.requires,
                });
                jumps.push(Jump { subgraph: gate.subgraph, depth, supplies });
                jump_costs.push(cost);
            }
            pending = later;
        }
        let mut picks = Vec::with_capacity(wanted.fields.len());
        for field in &wanted.fields {
            if field.field().is_none() {
                continue;
            }
            picks.push(self.pick(field, &holders)?);
        }
        let (jumps, jump_costs, holders) =
            drop_unused(held.len(), jumps, jump_costs, holders, &mut picks);
        let first = held.iter().map(|holder| holder.depth).min().unwrap_or(0);
        let mut cost = Cost { depth: first, ..Cost::default() };
        let mut requests: Vec<(SubgraphId, u32)> = Vec::new();
        for (index, supply_cost) in jump_costs.iter().enumerate() {
            let holder = &holders[held.len() + index];
            cost = cost.beside(*supply_cost);
            cost.depth = cost.depth.max(holder.depth);
            if !requests.contains(&(holder.subgraph, holder.depth)) {
                requests.push((holder.subgraph, holder.depth));
            }
        }
        cost.requests += requests.len() as u32;
        for pick in &picks {
            cost.fields += pick.carriers.len() as u32;
            let base = pick.carriers.iter().map(|&carrier| holders[carrier].depth);
            let base = base.min().unwrap_or(0);
            cost.depth = cost.depth.max(base);
            if let Some(child) = &pick.child {
                cost = cost.beside(child.cost.after(base));
            }
        }
        Some(ObjectSolution { ty, cost, jumps, picks })
    }

    /// What a jump needs, and after how many requests it is there.
    fn supplies(
        &mut self,
        gate: Gate<'a>,
        ty: TypeId,
        holders: &[Holder<'a>],
    ) -> Option<(u32, Vec<Supply>, Cost)> {
        let mut best: Option<(u32, Vec<Supply>, Cost)> = None;
        let keys: Vec<&'a FieldSet> =
            self.graph.keys_into(ty, gate.subgraph).map(|key| &key.fields).collect();
        for key in keys {
            let Some(found) = self.supply(key, ty, holders, true) else { continue };
            let is_better = best.as_ref().is_none_or(|(depth, supplies, cost)| {
                (found.0, found.2.requests, found.1.len()) < (*depth, cost.requests, supplies.len())
            });
            if is_better {
                best = Some(found);
            }
        }
        let (mut depth, mut supplies, mut cost) = best?;
        if let Some(requires) = gate.requires {
            let (required_depth, required, required_cost) =
                self.supply(requires.0, ty, holders, false)?;
            depth = depth.max(required_depth);
            cost = cost.beside(required_cost);
            for supply in required {
                let is_there = supplies.iter().any(|known| {
                    known.pick.wanted.target == supply.pick.wanted.target
                        && supply.pick.wanted.parts.is_empty()
                });
                if !is_there {
                    supplies.push(supply);
                }
            }
        }
        Some((depth, supplies, cost))
    }

    fn supply(
        &mut self,
        set: &'a FieldSet,
        ty: TypeId,
        holders: &[Holder<'a>],
        is_key: bool,
    ) -> Option<(u32, Vec<Supply>, Cost)> {
        let wanted = self.field_set(set, ty);
        let mut depth = 0;
        let mut cost = Cost::default();
        let mut supplies = Vec::with_capacity(wanted.fields.len());
        for wanted in &wanted.fields {
            let pick = self.pick(wanted, holders)?;
            let base = pick.carriers.iter().map(|&carrier| holders[carrier].depth).max();
            let base = base.unwrap_or(0);
            depth = depth.max(base);
            if let Some(child) = &pick.child {
                let below = child.cost.after(base);
                depth = depth.max(below.depth);
                cost = cost.beside(below);
            }
            supplies.push(Supply { is_key, pick });
        }
        Some((depth, supplies, cost))
    }

    /// Who carries a field, and what follows below it.
    fn pick(&mut self, wanted: &Rc<Wanted>, holders: &[Holder<'a>]) -> Option<Pick> {
        let graph = self.graph;
        let field = wanted.field()?;
        let mut eligible: Vec<usize> =
            (0..holders.len()).filter(|&index| holders[index].carries(graph, field)).collect();
        eligible.sort_by_key(|&index| holders[index].depth);
        self.steps += eligible.len() as u64;
        // What the payload of an event declares is in the payload.
        if let Some(&payload) = eligible.iter().find(|&&index| holders[index].is_payload(graph)) {
            eligible = vec![payload];
        }
        let Some(&first) = eligible.first() else {
            self.note(|graph| unreachable(graph, wanted, holders));
            return None;
        };
        if wanted.parts.is_empty() {
            return Some(Pick { wanted: wanted.clone(), carriers: vec![first], child: None });
        }
        let below = graph.field(field).ty.named();
        let mut best: Option<(Cost, Vec<usize>, Rc<Solution>)> = None;
        for &index in &eligible {
            let child = holders[index].child(graph, field);
            let Some(solution) = self.position(&wanted.parts, below, vec![child]) else { continue };
            let cost = solution.cost.after(holders[index].depth);
            let is_better = best.as_ref().is_none_or(|(best, _, _)| cost < *best);
            if is_better {
                best = Some((cost, vec![index], solution));
            }
        }
        if eligible.len() > 1 && self.kind != OperationKind::Mutation {
            best = self.pick_several(wanted, holders, &eligible, best);
        }
        let (_, carriers, child) = best?;
        Some(Pick { wanted: wanted.clone(), carriers, child: Some(child) })
    }

    /// Value types may be spread over subgraphs: several carry the field, each its part of what is
    /// below. Relies on all giving the same object (`@shareable`); for lists that is only done where
    /// nothing else leads to the fields, elsewhere where it saves requests.
    fn pick_several(
        &mut self,
        wanted: &Rc<Wanted>,
        holders: &[Holder<'a>],
        eligible: &[usize],
        single: Option<(Cost, Vec<usize>, Rc<Solution>)>,
    ) -> Option<(Cost, Vec<usize>, Rc<Solution>)> {
        let graph = self.graph;
        let field = wanted.field()?;
        let definition = graph.field(field);
        let is_list = matches!(definition.ty.shape, TypeRefShape::List(_));
        if let Some((cost, _, _)) = &single {
            // Every further combination of holders is a further state for everything below, so in
            // long operations savings are looked for with pairs only.
            let depth = holders[eligible[0]].depth;
            let is_plain = eligible.iter().all(|&index| holders[index].depth == depth)
                && (eligible.len() == 2 || self.steps < COMBINATION_STEPS_MAX);
            if is_list || cost.requests == 0 || !is_plain {
                return single;
            }
        }
        let below = definition.ty.named();
        let mut carriers = eligible.to_vec();
        carriers.sort_unstable();
        loop {
            let children: Vec<_> =
                carriers.iter().map(|&index| holders[index].child(graph, field)).collect();
            let base = children.iter().map(|holder| holder.depth).min().unwrap_or(0);
            let Some(solution) = self.position(&wanted.parts, below, children) else {
                return single;
            };
            let used = used_holders(&solution, carriers.len());
            let needed: Vec<usize> =
                (0..carriers.len()).filter(|&at| used[at]).map(|at| carriers[at]).collect();
            if needed.len() < carriers.len() && !needed.is_empty() {
                carriers = needed;
                continue;
            }
            let cost = solution.cost.after(base);
            return match single {
                Some(single)
                    if (single.0.depth, single.0.requests) <= (cost.depth, cost.requests) =>
                {
                    Some(single)
                }
                _ => Some((cost, carriers, solution)),
            };
        }
    }

    fn note(&mut self, reason: impl FnOnce(&Supergraph) -> String) {
        if self.reason.is_none() {
            self.reason = Some(reason(self.graph));
        }
    }
}

/// Are these the same selection, one on the interface and one on a member?
fn is_same(a: &Wanted, b: &Wanted, graph: &Supergraph) -> bool {
    match (&a.key, &b.key) {
        (Some(a), Some(b)) => a == b,
        _ => match (a.target, b.target) {
            (WantedTarget::Field(x), WantedTarget::Field(y)) => {
                graph.field(x).name == graph.field(y).name && *a.arguments == *b.arguments
            }
            (x, y) => x == y,
        },
    }
}
