//! The choice of holders that carry a field: one, or several if no single one leads to all selections below. The inputs
//! of a jump are chosen in the same way.

use std::rc::Rc;

use graph::{FieldSet, TypeId, TypeRefShape};

use super::{
    holders::{Holder, JumpCandidate},
    selection_tree::CollectedField,
    solution::{Carriers, Cost, FieldChoice, JumpInput, Solution, used_holders},
    solver::Solver,
    unreachable_field::explain_unreachable,
};
use crate::OperationKind;

/// The number of steps up to which more than two holders together, or two with different waves, may carry an object
/// that one could carry alone.
pub(super) const COMBINATION_STEPS_MAX: u64 = 5_000;

impl<'a> Solver<'a> {
    /// Returns the inputs of a jump, the depth at which they are available, and their cost.
    pub(super) fn choose_inputs(
        &mut self,
        candidate: JumpCandidate<'a>,
        ty: TypeId,
        holders: &[Holder<'a>],
    ) -> Option<(u32, Vec<JumpInput>, Cost)> {
        if self.is_root_below(ty, candidate) {
            let first = holders.iter().map(|holder| holder.depth).min()?;
            return Some((first, Vec::new(), Cost::default()));
        }
        let mut best: Option<(u32, Vec<JumpInput>, Cost)> = None;
        let keys: Vec<&'a FieldSet> =
            self.graph.keys_into(ty, candidate.subgraph).map(|key| &key.fields).collect();
        for key in keys {
            let Some(found) = self.choose_inputs_of_set(key, ty, holders, true) else { continue };
            let is_better = best.as_ref().is_none_or(|(depth, inputs, cost)| {
                (found.0, found.2.requests, found.1.len()) < (*depth, cost.requests, inputs.len())
            });
            if is_better {
                best = Some(found);
            }
        }
        let (mut depth, mut inputs, mut cost) = best?;
        if let Some(requires) = candidate.requires {
            let (required_depth, required, required_cost) =
                self.choose_inputs_of_set(requires.0, ty, holders, false)?;
            depth = depth.max(required_depth);
            cost = cost.beside(required_cost);
            for input in required {
                let is_there = inputs.iter().any(|known| {
                    known.choice.wanted.target == input.choice.wanted.target
                        && input.choice.wanted.parts.is_empty()
                });
                if !is_there {
                    inputs.push(input);
                }
            }
        }
        Some((depth, inputs, cost))
    }

    fn choose_inputs_of_set(
        &mut self,
        set: &'a FieldSet,
        ty: TypeId,
        holders: &[Holder<'a>],
        is_key: bool,
    ) -> Option<(u32, Vec<JumpInput>, Cost)> {
        let wanted = self.field_set(set, ty);
        let mut depth = 0;
        let mut cost = Cost::default();
        let mut inputs = Vec::with_capacity(wanted.fields.len());
        for wanted in &wanted.fields {
            let choice = self.choose_carriers(wanted, holders)?;
            let base = choice.carriers.iter().map(|&carrier| holders[carrier].depth).max();
            let base = base.unwrap_or(0);
            depth = depth.max(base);
            if let Some(child) = &choice.child {
                let below = child.cost.after(base);
                depth = depth.max(below.depth);
                cost = cost.beside(below);
            }
            inputs.push(JumpInput { is_key, choice });
        }
        Some((depth, inputs, cost))
    }

    /// Chooses the holders that carry a field, and solves the selections below it.
    pub(super) fn choose_carriers(
        &mut self,
        wanted: &Rc<CollectedField>,
        holders: &[Holder<'a>],
    ) -> Option<FieldChoice> {
        let graph = self.graph;
        let field = wanted.field()?;
        // Hot path: once for each field of each position that is tried, mostly with one or two holders.
        let mut first: Option<((bool, u32), usize)> = None;
        let mut carrying = 0;
        for (index, holder) in holders.iter().enumerate() {
            if !holder.can_carry_collected(graph, wanted) {
                continue;
            }
            carrying += 1;
            // The earliest holder is chosen, but fields that an event subgraph declares are read from the payload.
            let rank = (!holder.is_payload(graph), holder.depth);
            if first.is_none_or(|(best, _)| rank < best) {
                first = Some((rank, index));
            }
        }
        self.steps += 1;
        let Some(((is_fetched, _), first)) = first else {
            self.record_reason(|graph| explain_unreachable(graph, wanted, holders));
            return None;
        };
        if wanted.parts.is_empty() {
            return Some(FieldChoice {
                wanted: wanted.clone(),
                carriers: first.into(),
                child: None,
            });
        }
        let alone = [first];
        let mut several = Vec::new();
        if is_fetched {
            self.steps += carrying;
            if carrying > 1 {
                let can_carry = |&index: &usize| holders[index].can_carry_collected(graph, wanted);
                several.extend((0..holders.len()).filter(can_carry));
                several.sort_by_key(|&index| holders[index].depth);
            }
        }
        let eligible = if several.is_empty() { &alone[..] } else { &several };
        let below = graph.field(field).ty.named();
        let mut best: Option<(Cost, Carriers, Rc<Solution>)> = None;
        for &index in eligible {
            let child = holders[index].child(graph, field);
            let Some(solution) = self.solve_position(&wanted.parts, below, &mut [child]) else {
                continue;
            };
            let cost = solution.cost.after(holders[index].depth);
            let is_better = best.as_ref().is_none_or(|(best, _, _)| cost < *best);
            if is_better {
                best = Some((cost, index.into(), solution));
            }
        }
        if eligible.len() > 1 && self.kind != OperationKind::Mutation {
            best = self.choose_several_carriers(wanted, holders, eligible, best);
        }
        let (_, carriers, child) = best?;
        Some(FieldChoice { wanted: wanted.clone(), carriers, child: Some(child) })
    }

    /// Chooses several holders for a field, each of which can_carry a part of the selections below: value types may be
    /// spread over subgraphs. Relies on all of them returning the same object (`@shareable`); for lists this is done
    /// only if no single holder leads to the fields, otherwise only if it saves requests.
    fn choose_several_carriers(
        &mut self,
        wanted: &Rc<CollectedField>,
        holders: &[Holder<'a>],
        eligible: &[usize],
        single: Option<(Cost, Carriers, Rc<Solution>)>,
    ) -> Option<(Cost, Carriers, Rc<Solution>)> {
        let graph = self.graph;
        let field = wanted.field()?;
        let definition = graph.field(field);
        let is_list = matches!(definition.ty.shape, TypeRefShape::List(_));
        if let Some((cost, _, _)) = &single {
            // Every further combination of holders is a further state for everything below, so in long operations only
            // pairs with equal waves are tried to save requests.
            let depth = holders[eligible[0]].depth;
            let is_pair =
                eligible.len() == 2 && eligible.iter().all(|&index| holders[index].depth == depth);
            let may_combine = is_pair || self.steps < COMBINATION_STEPS_MAX;
            if is_list || cost.requests == 0 || !may_combine {
                return single;
            }
        }
        let below = definition.ty.named();
        let mut carriers = eligible.to_vec();
        carriers.sort_unstable();
        loop {
            let mut children: Vec<_> =
                carriers.iter().map(|&index| holders[index].child(graph, field)).collect();
            let base = children.iter().map(|holder| holder.depth).min().unwrap_or(0);
            let Some(solution) = self.solve_position(&wanted.parts, below, &mut children) else {
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
                _ => Some((cost, Carriers::Several(carriers), solution)),
            };
        }
    }
}
