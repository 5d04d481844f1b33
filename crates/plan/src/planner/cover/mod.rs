//! The smallest set of requests for a whole operation, as a set cover. A request is a subgraph and a wave, and all
//! positions of the operation share it, so choosing subgraphs position by position finds too many requests. Here the
//! operation is a tree of bit masks (`model`, built by `model_builder`), small enough to check a set of requests in
//! microseconds (`coverage_check`). The resulting set is a proposal: the solver plans it exactly, or it is dropped. So
//! the model leaves out rare facts (`@provides`, several subgraphs that carry one list, the fields inside of required
//! fields), and operations with interface objects have no model.

mod build;
mod check;
mod model;

use std::rc::Rc;

use graph::SubgraphSet;

use super::{ration::Ration, solve::Solver, tree::Collected};
use check::Check;
use model::{Mask, SUBGRAPHS_MAX, Waves};

/// The maximum number of waves of a set of requests. Longer chains are left to the solver alone.
const WAVES_MAX: usize = 12;

/// The maximum number of operations on masks in one search: some milliseconds.
const WORK_MAX: u64 = 2_000_000;

/// The number of operations on masks that cost as much as a step of the solver.
const WORK_IN_STEP: u64 = 16;

/// The number of random orders in which requests are left out, tried in addition to the order by wave.
const SHUFFLES: u64 = 4;

/// Chooses a small set of requests in `waves` waves that suffices for the operation and from which none can be left
/// out. Without `waves`, the lower bound on the waves of any plan is used. `None` if the model of the operation has no
/// such set, or is too large for the search.
pub(super) fn choose(
    solver: &mut Solver<'_>,
    fields: &Rc<Collected>,
    among: Option<SubgraphSet>,
    waves: Option<u32>,
) -> Option<Ration> {
    let mut check = Check::new(build::model(solver, fields, among)?);
    let waves = waves.map_or_else(|| check.model.waves_min(), |waves| waves as usize);
    let chosen = smallest(&mut check, waves);
    solver.steps += check.work / WORK_IN_STEP;
    let requests = requests_of(&chosen?).into_iter();
    let subgraph = |bit: Mask| check.model.subgraphs[bit.trailing_zeros() as usize];
    Some(requests.map(|(bit, wave)| (subgraph(bit), wave as u32)).collect())
}

fn smallest(check: &mut Check, waves: usize) -> Option<Waves> {
    if waves > WAVES_MAX || check.work_of_check(waves + 1) > WORK_MAX {
        return None;
    }
    let all = check.model.everything(waves);
    if !check.suffices(&all) {
        return None;
    }
    let mut optional = Vec::new();
    for request in requests_of(&all) {
        if check.work > WORK_MAX {
            return None;
        }
        if check.suffices(&without(all.clone(), request)) {
            optional.push(request);
        }
    }
    let needed = size(&all) - optional.len();
    // Early requests are left out first, so that fields wait for a wave that has a request to their subgraph anyway.
    let mut best = reduced(check, all.clone(), &optional);
    let mut order = optional.clone();
    order.reverse();
    for seed in 0..=SHUFFLES {
        if size(&best) == needed || check.work > WORK_MAX {
            break;
        }
        let found = reduced(check, all.clone(), &order);
        if size(&found) < size(&best) {
            best = found;
        }
        shuffle(&mut order, seed + 1);
    }
    // A smaller set may have requests that the best one lacks, so each request of the best one is left out in turn.
    let mut has_improved = size(&best) > needed;
    while has_improved && check.work < WORK_MAX {
        has_improved = false;
        for &request in &optional {
            if !is_in(&best, request) || check.work > WORK_MAX {
                continue;
            }
            let mut order = optional.clone();
            // The sort is stable: requests of the best set are tried last.
            order.sort_by_key(|&request| is_in(&best, request));
            let found = reduced(check, without(all.clone(), request), &order);
            if size(&found) < size(&best) {
                best = found;
                has_improved = true;
                break;
            }
        }
    }
    Some(best)
}

/// Leaves out one request after the other, as long as the rest suffices.
fn reduced(check: &mut Check, mut requests: Waves, order: &[Request]) -> Waves {
    for &(subgraph, wave) in order {
        if requests[wave] & subgraph == 0 || check.work > WORK_MAX {
            continue;
        }
        requests[wave] &= !subgraph;
        if !check.suffices(&requests) {
            requests[wave] |= subgraph;
        }
    }
    requests
}

/// A request: one subgraph in one wave.
type Request = (Mask, usize);

fn is_in(requests: &Waves, (subgraph, wave): Request) -> bool {
    requests[wave] & subgraph != 0
}

fn without(mut requests: Waves, (subgraph, wave): Request) -> Waves {
    requests[wave] &= !subgraph;
    requests
}

fn size(requests: &Waves) -> usize {
    requests.iter().map(|mask| mask.count_ones() as usize).sum()
}

/// Returns the single requests of a set, by wave.
fn requests_of(requests: &Waves) -> Vec<Request> {
    let mut list = Vec::new();
    for (wave, &mask) in requests.iter().enumerate() {
        let bits = (0..SUBGRAPHS_MAX).map(|bit| 1 << bit).filter(|bit| mask & bit != 0);
        list.extend(bits.map(|bit: Mask| (bit, wave)));
    }
    list
}

/// Shuffles a list, with the same result in every run (xorshift64*, then Fisher and Yates).
fn shuffle<T>(list: &mut [T], seed: u64) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for at in (1..list.len()).rev() {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let random = state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        list.swap(at, random as usize % (at + 1));
    }
}
