//! The choice of holders that carry a field: one, or several if no single one leads to all selections below. The inputs
//! of a jump are chosen in the same way.

use std::rc::Rc;

use graph::{FieldSet, TypeId, TypeRefShape};

use super::{
    holders::{Gate, Holder},
    solution::{Carriers, Cost, Pick, Solution, Supply, used_holders},
    solve::Solver,
    tree::Wanted,
    unreachable::unreachable,
};
use crate::OperationKind;

/// The number of steps up to which more than two holders together, or two with different waves, may carry an object
/// that one could carry alone.
pub(super) const COMBINATION_STEPS_MAX: u64 = 5_000;

impl<'a> Solver<'a> {
    /// Returns the inputs of a jump, the depth at which they are available, and their cost.
    pub(super) fn supplies(
        &mut self,
        gate: Gate<'a>,
        ty: TypeId,
        holders: &[Holder<'a>],
    ) -> Option<(u32, Vec<Supply>, Cost)> {
        if self.is_root_below(ty, gate) {
            let first = holders.iter().map(|holder| holder.depth).min()?;
            return Some((first, Vec::new(), Cost::default()));
        }
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

    /// Chooses the holders that carry a field, and solves the selections below it.
    pub(super) fn pick(&mut self, wanted: &Rc<Wanted>, holders: &[Holder<'a>]) -> Option<Pick> {
        let graph = self.graph;
        let field = wanted.field()?;
        // Hot path: once for each field of each position that is tried, mostly with one or two holders.
        let mut first: Option<((bool, u32), usize)> = None;
        let mut carrying = 0;
        for (index, holder) in holders.iter().enumerate() {
            if !holder.carries_wanted(graph, wanted) {
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
            self.note(|graph| unreachable(graph, wanted, holders));
            return None;
        };
        if wanted.parts.is_empty() {
            return Some(Pick { wanted: wanted.clone(), carriers: first.into(), child: None });
        }
        let alone = [first];
        let mut several = Vec::new();
        if is_fetched {
            self.steps += carrying;
            if carrying > 1 {
                let carries = |&index: &usize| holders[index].carries_wanted(graph, wanted);
                several.extend((0..holders.len()).filter(carries));
                several.sort_by_key(|&index| holders[index].depth);
            }
        }
        let eligible = if several.is_empty() { &alone[..] } else { &several };
        let below = graph.field(field).ty.named();
        let mut best: Option<(Cost, Carriers, Rc<Solution>)> = None;
        for &index in eligible {
            let child = holders[index].child(graph, field);
            let Some(solution) = self.position(&wanted.parts, below, &mut [child]) else {
                continue;
            };
            let cost = solution.cost.after(holders[index].depth);
            let is_better = best.as_ref().is_none_or(|(best, _, _)| cost < *best);
            if is_better {
                best = Some((cost, index.into(), solution));
            }
        }
        if eligible.len() > 1 && self.kind != OperationKind::Mutation {
            best = self.pick_several(wanted, holders, eligible, best);
        }
        let (_, carriers, child) = best?;
        Some(Pick { wanted: wanted.clone(), carriers, child: Some(child) })
    }

    /// Chooses several holders for a field, each of which carries a part of the selections below: value types may be
    /// spread over subgraphs. Relies on all of them returning the same object (`@shareable`); for lists this is done
    /// only if no single holder leads to the fields, otherwise only if it saves requests.
    fn pick_several(
        &mut self,
        wanted: &Rc<Wanted>,
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
            let Some(solution) = self.position(&wanted.parts, below, &mut children) else {
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
