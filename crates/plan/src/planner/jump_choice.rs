//! The choice of jumps at a position: the candidates that may help, and the best subset of them. All combinations are
//! tried if there are few candidates, otherwise the choice is greedy.

use std::rc::Rc;

use graph::{FieldSet, TypeId};

use super::{
    field_choice::COMBINATION_STEPS_MAX,
    holders::{FieldSetRef, Holder, JumpCandidate, Resolvability, resolvability},
    interface_objects,
    selection_tree::{CollectedField, CollectedFields, CollectedTarget},
    solution::ObjectSolution,
    solver::Solver,
};

/// The maximum number of optional candidates of which all combinations are tried at one position; beyond it the choice
/// is greedy. 2^6 choices, each a pass over the fields, are still well under a millisecond.
const EXACT_CHOICES_MAX: usize = 6;

impl<'a> Solver<'a> {
    /// Returns all jumps that may help, in the order of the fields that they resolve.
    pub(super) fn find_jump_candidates(
        &mut self,
        wanted: &CollectedFields,
        holders: &[Holder<'a>],
    ) -> Vec<JumpCandidate<'a>> {
        let ty = wanted.on;
        let mut candidates: Vec<JumpCandidate<'a>> = Vec::new();
        let mut needed: Vec<Rc<CollectedField>> = wanted.fields.clone();
        let mut next = 0;
        while next < needed.len() {
            self.steps += 1;
            let wanted = needed[next].clone();
            next += 1;
            if wanted.target == CollectedTarget::Typename {
                for subgraph in interface_objects::typed_subgraphs(self.graph, ty) {
                    let candidate = JumpCandidate { subgraph, requires: None };
                    self.add_candidate(candidate, ty, holders, &mut candidates, &mut Vec::new());
                }
            }
            let Some(field) = wanted.field() else { continue };
            // A single request below is no later than one here. With several, a subgraph that is fetched from here may
            // have a key that the subgraphs below lack. In long operations this is not tried.
            let waves = if self.steps < COMBINATION_STEPS_MAX { 1 } else { u32::MAX };
            if self.is_resolved_by_holders(&wanted, holders, waves) {
                continue;
            }
            for subgraph in self.graph.field(field).resolved_by.iter() {
                let requires = match resolvability(self.graph, field, subgraph) {
                    Resolvability::No => continue,
                    Resolvability::Yes => None,
                    Resolvability::With(requires) => Some(FieldSetRef(requires)),
                };
                self.add_candidate(
                    JumpCandidate { subgraph, requires },
                    ty,
                    holders,
                    &mut candidates,
                    &mut needed,
                );
            }
        }
        // Key members that no holder has may come from a third subgraph.
        let mut next = 0;
        while next < candidates.len() {
            let candidate = candidates[next];
            next += 1;
            let is_direct = self.is_root_below(ty, candidate)
                || self
                    .graph
                    .keys_into(ty, candidate.subgraph)
                    .any(|key| self.is_set_resolved_by_holders(&key.fields, ty, holders));
            if is_direct {
                continue;
            }
            let keys: Vec<&'a FieldSet> =
                self.graph.keys_into(ty, candidate.subgraph).map(|key| &key.fields).collect();
            for key in keys {
                for member in &self.field_set(key, ty).fields {
                    let Some(field) = member.field() else { continue };
                    for subgraph in self.graph.field(field).resolved_by.iter() {
                        let helper = match resolvability(self.graph, field, subgraph) {
                            Resolvability::No => continue,
                            Resolvability::Yes => JumpCandidate { subgraph, requires: None },
                            Resolvability::With(requires) => {
                                JumpCandidate { subgraph, requires: Some(FieldSetRef(requires)) }
                            }
                        };
                        self.add_candidate(helper, ty, holders, &mut candidates, &mut Vec::new());
                    }
                }
            }
        }
        candidates
    }

    fn add_candidate(
        &mut self,
        candidate: JumpCandidate<'a>,
        ty: TypeId,
        holders: &[Holder<'a>],
        candidates: &mut Vec<JumpCandidate<'a>>,
        needed: &mut Vec<Rc<CollectedField>>,
    ) {
        let is_held = candidate.requires.is_none()
            && holders.iter().any(|holder| holder.subgraph == candidate.subgraph);
        let is_known = candidates.iter().any(|known| {
            known.subgraph == candidate.subgraph
                && known.requires.map(|set| set.0) == candidate.requires.map(|set| set.0)
        });
        let is_led_to = self.is_root_below(ty, candidate)
            || self.graph.keys_into(ty, candidate.subgraph).next().is_some();
        if is_held || is_known || !is_led_to {
            return;
        }
        candidates.push(candidate);
        if let Some(requires) = candidate.requires {
            needed.extend(self.field_set(requires.0, ty).fields.iter().cloned());
        }
    }

    /// True if the jump fetches root fields of the query below another field.
    pub(super) fn is_root_below(&self, ty: TypeId, candidate: JumpCandidate<'a>) -> bool {
        candidate.requires.is_none() && self.graph.is_query_root_in(ty, candidate.subgraph)
    }

    /// True if the holders alone resolve the field, with at most `waves` waves for the selections below it. Jumps for
    /// those are then left to the position below: requests of one level are batched over paths, so they cost the same
    /// there.
    fn is_resolved_by_holders(
        &mut self,
        wanted: &CollectedField,
        holders: &[Holder<'a>],
        waves: u32,
    ) -> bool {
        let Some(field) = wanted.field() else { return true };
        let graph = self.graph;
        let mut carriers =
            holders.iter().filter(|holder| holder.can_carry_collected(graph, wanted));
        if wanted.parts.is_empty() {
            return carriers.next().is_some();
        }
        let below = graph.field(field).ty.named();
        carriers.any(|holder| {
            let child = holder.child(graph, field);
            let is_payload = child.is_payload(graph);
            let found = self.solve_position(&wanted.parts, below, &mut [child]);
            // Depths of a position count from its first holder.
            is_payload || found.is_some_and(|found| found.cost.depth <= waves)
        })
    }

    fn is_set_resolved_by_holders(
        &mut self,
        set: &'a FieldSet,
        ty: TypeId,
        holders: &[Holder<'a>],
    ) -> bool {
        let wanted = self.field_set(set, ty);
        wanted.fields.iter().all(|wanted| self.is_resolved_by_holders(wanted, holders, u32::MAX))
    }

    /// Chooses the best subset of `candidates`.
    pub(super) fn choose_jumps(
        &mut self,
        wanted: &Rc<CollectedFields>,
        holders: &[Holder<'a>],
        candidates: &[JumpCandidate<'a>],
        is_root: bool,
    ) -> Option<Rc<ObjectSolution>> {
        let reachable: Vec<JumpCandidate<'a>>;
        // A greedy choice starts with all jumps, so impossible ones are left out first. When all combinations are
        // tried, those with such a jump fail by themselves.
        let candidates = match candidates.len() > EXACT_CHOICES_MAX || self.is_greedy() {
            false => candidates,
            true => {
                self.steps += candidates.len() as u64;
                let left = self.make_jumps(wanted.on, holders, candidates, is_root).left;
                reachable = candidates
                    .iter()
                    .filter(|candidate| !left.contains(candidate))
                    .copied()
                    .collect();
                &reachable
            }
        };
        if candidates.is_empty() {
            return self.evaluate_jumps(wanted, holders, &[], is_root).map(Rc::new);
        }
        let mandatory = self.mandatory_jumps(wanted, holders, candidates);
        let optional: Vec<usize> =
            (0..candidates.len()).filter(|index| !mandatory.contains(index)).collect();
        let subset = |chosen: &[usize]| -> Vec<JumpCandidate<'a>> {
            let mut all: Vec<usize> = mandatory.iter().chain(chosen).copied().collect();
            all.sort_unstable();
            all.into_iter().map(|index| candidates[index]).collect()
        };
        let mut best: Option<ObjectSolution> = None;
        if optional.len() <= EXACT_CHOICES_MAX && !self.is_greedy() {
            let mut masks: Vec<u32> = (0..1_u32 << optional.len()).collect();
            masks.sort_by_key(|mask| (mask.count_ones(), *mask));
            for mask in masks {
                if best.is_some() && self.is_greedy() {
                    self.was_greedy = true;
                    break;
                }
                let chosen: Vec<usize> = optional
                    .iter()
                    .enumerate()
                    .filter(|(bit, _)| mask & (1 << bit) != 0)
                    .map(|(_, &index)| index)
                    .collect();
                let found = self.evaluate_jumps(wanted, holders, &subset(&chosen), is_root);
                if let Some(found) = found
                    && best.as_ref().is_none_or(|best| found.cost < best.cost)
                {
                    best = Some(found);
                }
            }
            return best.map(Rc::new);
        }
        // Greedy: start with all jumps, then leave out each one that makes the solution no worse.
        self.was_greedy |= self.is_greedy();
        let mut chosen = optional;
        let mut best = self.evaluate_jumps(wanted, holders, &subset(&chosen), is_root)?;
        let mut index = chosen.len();
        while index > 0 && !self.is_exhausted() {
            index -= 1;
            let removed = chosen.remove(index);
            match self.evaluate_jumps(wanted, holders, &subset(&chosen), is_root) {
                Some(found) if found.cost <= best.cost => best = found,
                _ => chosen.insert(index, removed),
            }
        }
        Some(Rc::new(best))
    }

    /// Returns the indices of the jumps without which some field cannot be resolved.
    fn mandatory_jumps(
        &mut self,
        wanted: &CollectedFields,
        holders: &[Holder<'a>],
        candidates: &[JumpCandidate<'a>],
    ) -> Vec<usize> {
        let mut mandatory: Vec<usize> = Vec::new();
        let mut needed: Vec<Rc<CollectedField>> = wanted.fields.clone();
        let mut next = 0;
        while next < needed.len() {
            let wanted = needed[next].clone();
            next += 1;
            let Some(field) = wanted.field() else { continue };
            if holders.iter().any(|holder| holder.can_carry_collected(self.graph, &wanted)) {
                continue;
            }
            let ways: Vec<usize> = (0..candidates.len())
                .filter(|&index| {
                    match resolvability(self.graph, field, candidates[index].subgraph) {
                        Resolvability::No => false,
                        Resolvability::Yes => true,
                        Resolvability::With(requires) => {
                            candidates[index].requires.is_some_and(|set| set.0 == requires)
                        }
                    }
                })
                .collect();
            if let [only] = *ways
                && !mandatory.contains(&only)
            {
                mandatory.push(only);
                if let Some(requires) = candidates[only].requires {
                    needed.extend(self.field_set(requires.0, self.on(&wanted)).fields.clone());
                }
            }
        }
        mandatory
    }

    fn on(&self, wanted: &CollectedField) -> TypeId {
        wanted.field().map_or(TypeId(0), |field| self.graph.field(field).parent)
    }
}
