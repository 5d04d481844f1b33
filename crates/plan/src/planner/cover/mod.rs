//! The smallest set of requests for a whole operation, as a set cover. A request is a subgraph and a wave, and all
//! positions of the operation share it, so choosing subgraphs position by position finds too many requests. Here the
//! operation is a tree of bit masks (`model`, built by `model_builder`), small enough to check a set of requests in
//! microseconds (`coverage_check`). The resulting set is a proposal: the solver plans it exactly, or it is dropped. So
//! the model leaves out rare facts (`@provides`, several subgraphs that carry one list, the fields inside of required
//! fields), and operations with interface objects have no model.

mod coverage_check;
mod model;
mod model_builder;

use std::rc::Rc;

use graph::SubgraphSet;

use super::{allowed_requests::AllowedRequests, selection_tree::CollectedFields, solver::Solver};
use coverage_check::CoverageCheck;
use model::{Mask, SUBGRAPHS_MAX, Waves};

/// The maximum number of waves of a set of requests. Longer chains are left to the solver alone.
const WAVES_MAX: usize = 12;

/// The maximum number of operations on masks in one search: some milliseconds.
const WORK_MAX: u64 = 2_000_000;

/// The number of operations on masks that cost as much as a step of the solver.
const WORK_IN_STEP: u64 = 16;

/// The number of random orders, the same in every run, in which requests are left out, tried in addition to the order
/// by wave.
const SHUFFLES: u64 = 4;

/// Chooses a small set of requests in `waves` waves that suffices for the operation and from which none can be left
/// out. Without `waves`, the lower bound on the waves of any plan is used. `None` if the model of the operation has no
/// such set, or is too large for the search.
pub(super) fn choose_requests(
    solver: &mut Solver<'_>,
    fields: &Rc<CollectedFields>,
    among: Option<SubgraphSet>,
    waves: Option<u32>,
) -> Option<AllowedRequests> {
    let mut check = CoverageCheck::new(model_builder::build_model(solver, fields, among)?);
    let waves = waves.map_or_else(|| check.model.min_waves(), |waves| waves as usize);
    let chosen = find_smallest_set(&mut check, waves);
    solver.steps += check.work / WORK_IN_STEP;
    let requests = list_requests(&chosen?).into_iter();
    let subgraph = |bit: Mask| check.model.subgraphs[bit.trailing_zeros() as usize];
    Some(requests.map(|(bit, wave)| (subgraph(bit), wave as u32)).collect())
}

fn find_smallest_set(check: &mut CoverageCheck, waves: usize) -> Option<Waves> {
    if waves > WAVES_MAX || check.work_of_check(waves + 1) > WORK_MAX {
        return None;
    }
    let all = check.model.all_requests(waves);
    if !check.is_sufficient(&all) {
        return None;
    }
    let mut optional = Vec::new();
    for request in list_requests(&all) {
        if check.work > WORK_MAX {
            return None;
        }
        if check.is_sufficient(&without_request(all.clone(), request)) {
            optional.push(request);
        }
    }
    let needed = count_requests(&all) - optional.len();
    // Early requests are left out first, so that fields wait for a wave that has a request to their subgraph anyway.
    let mut best = leave_out_requests(check, all.clone(), &optional);
    let mut order = optional.clone();
    order.reverse();
    for seed in 0..=SHUFFLES {
        if count_requests(&best) == needed || check.work > WORK_MAX {
            break;
        }
        let found = leave_out_requests(check, all.clone(), &order);
        if count_requests(&found) < count_requests(&best) {
            best = found;
        }
        fastrand::Rng::with_seed(seed + 1).shuffle(&mut order);
    }
    // A smaller set may have requests that the best one lacks, so each request of the best one is left out in turn.
    let mut has_improved = count_requests(&best) > needed;
    while has_improved && check.work < WORK_MAX {
        has_improved = false;
        for &request in &optional {
            if !contains_request(&best, request) || check.work > WORK_MAX {
                continue;
            }
            let mut order = optional.clone();
            // The sort is stable: requests of the best set are tried last.
            order.sort_by_key(|&request| contains_request(&best, request));
            let found = leave_out_requests(check, without_request(all.clone(), request), &order);
            if count_requests(&found) < count_requests(&best) {
                best = found;
                has_improved = true;
                break;
            }
        }
    }
    Some(best)
}

/// Leaves out one request after the other, as long as the rest suffices.
fn leave_out_requests(
    check: &mut CoverageCheck,
    mut requests: Waves,
    order: &[WaveRequest],
) -> Waves {
    for &(subgraph, wave) in order {
        if requests[wave] & subgraph == 0 || check.work > WORK_MAX {
            continue;
        }
        requests[wave] &= !subgraph;
        if !check.is_sufficient(&requests) {
            requests[wave] |= subgraph;
        }
    }
    requests
}

/// A request: one subgraph in one wave.
type WaveRequest = (Mask, usize);

fn contains_request(requests: &Waves, (subgraph, wave): WaveRequest) -> bool {
    requests[wave] & subgraph != 0
}

fn without_request(mut requests: Waves, (subgraph, wave): WaveRequest) -> Waves {
    requests[wave] &= !subgraph;
    requests
}

fn count_requests(requests: &Waves) -> usize {
    requests.iter().map(|mask| mask.count_ones() as usize).sum()
}

/// Returns the single requests of a set, by wave.
fn list_requests(requests: &Waves) -> Vec<WaveRequest> {
    let mut list = Vec::new();
    for (wave, &mask) in requests.iter().enumerate() {
        let bits = (0..SUBGRAPHS_MAX).map(|bit| 1 << bit).filter(|bit| mask & bit != 0);
        list.extend(bits.map(|bit: Mask| (bit, wave)));
    }
    list
}
