//! The choice of jumps at a position: the candidates that may help, and the best subset of them. All combinations are
//! tried if there are few candidates, otherwise the choice is greedy.

use std::rc::Rc;

use graph::{FieldSet, TypeId};

use super::{
    holders::{ByAddress, Gate, Holder, Resolves, resolves},
    interfaces,
    picks::COMBINATION_STEPS_MAX,
    solution::ObjectSolution,
    solve::Solver,
    tree::{Collected, Wanted, WantedTarget},
};

/// The maximum number of optional candidates of which all combinations are tried at one position; beyond it the choice
/// is greedy. 2^6 choices, each a pass over the fields, are still well under a millisecond.
const EXACT_CHOICES_MAX: usize = 6;

impl<'a> Solver<'a> {
    /// Returns all jumps that may help, in the order of the fields that they resolve.
    pub(super) fn gates(&mut self, wanted: &Collected, holders: &[Holder<'a>]) -> Vec<Gate<'a>> {
        let ty = wanted.on;
        let mut gates: Vec<Gate<'a>> = Vec::new();
        let mut needed: Vec<Rc<Wanted>> = wanted.fields.clone();
        let mut next = 0;
        while next < needed.len() {
            self.steps += 1;
            let wanted = needed[next].clone();
            next += 1;
            if wanted.target == WantedTarget::Typename {
                for subgraph in interfaces::those_who_say_types(self.graph, ty) {
                    let gate = Gate { subgraph, requires: None };
                    self.add_gate(gate, ty, holders, &mut gates, &mut Vec::new());
                }
            }
            let Some(field) = wanted.field() else { continue };
            // A single request below is no later than one here. With several, a subgraph that is fetched from here may
            // have a key that the subgraphs below lack. In long operations this is not tried.
            let waves = if self.steps < COMBINATION_STEPS_MAX { 1 } else { u32::MAX };
            if self.is_free(&wanted, holders, waves) {
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
            let is_direct = self.is_root_below(ty, gate)
                || self
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
        let is_led_to = self.is_root_below(ty, gate)
            || self.graph.keys_into(ty, gate.subgraph).next().is_some();
        if is_held || is_known || !is_led_to {
            return;
        }
        gates.push(gate);
        if let Some(requires) = gate.requires {
            needed.extend(self.field_set(requires.0, ty).fields.iter().cloned());
        }
    }

    /// True if the jump fetches root fields of the query below another field.
    pub(super) fn is_root_below(&self, ty: TypeId, gate: Gate<'a>) -> bool {
        gate.requires.is_none() && self.graph.is_query_root_in(ty, gate.subgraph)
    }

    /// True if the holders alone resolve the field, with at most `waves` waves for the selections below it. Jumps for
    /// those are then left to the position below: requests of one level are batched over paths, so they cost the same
    /// there.
    fn is_free(&mut self, wanted: &Wanted, holders: &[Holder<'a>], waves: u32) -> bool {
        let Some(field) = wanted.field() else { return true };
        let graph = self.graph;
        let mut carriers = holders.iter().filter(|holder| holder.carries_wanted(graph, wanted));
        if wanted.parts.is_empty() {
            return carriers.next().is_some();
        }
        let below = graph.field(field).ty.named();
        carriers.any(|holder| {
            let child = holder.child(graph, field);
            let is_payload = child.is_payload(graph);
            let found = self.position(&wanted.parts, below, &mut [child]);
            // Depths of a position count from its first holder.
            is_payload || found.is_some_and(|found| found.cost.depth <= waves)
        })
    }

    fn free_set(&mut self, set: &'a FieldSet, ty: TypeId, holders: &[Holder<'a>]) -> bool {
        let wanted = self.field_set(set, ty);
        wanted.fields.iter().all(|wanted| self.is_free(wanted, holders, u32::MAX))
    }

    /// Chooses the best subset of `gates`.
    pub(super) fn choose(
        &mut self,
        wanted: &Rc<Collected>,
        holders: &[Holder<'a>],
        gates: &[Gate<'a>],
        is_root: bool,
    ) -> Option<Rc<ObjectSolution>> {
        let reachable: Vec<Gate<'a>>;
        // A greedy choice starts with all jumps, so impossible ones are left out first. When all combinations are
        // tried, those with such a jump fail by themselves.
        let gates = match gates.len() > EXACT_CHOICES_MAX || self.is_greedy() {
            false => gates,
            true => {
                self.steps += gates.len() as u64;
                let left = self.reach(wanted.on, holders, gates, is_root).left;
                reachable = gates.iter().filter(|gate| !left.contains(gate)).copied().collect();
                &reachable
            }
        };
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
                    self.has_been_greedy = true;
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
        // Greedy: start with all jumps, then leave out each one that makes the solution no worse.
        self.has_been_greedy |= self.is_greedy();
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

    /// Returns the indices of the jumps without which some field cannot be resolved.
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
            if holders.iter().any(|holder| holder.carries_wanted(self.graph, &wanted)) {
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
}
