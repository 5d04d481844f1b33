//! Reduction of the number of requests for the whole operation. The solver counts the requests of each position, but
//! all positions with a request to one subgraph in one wave share it. So the solved operation is solved again with one
//! (subgraph, wave) less: its fields move to another subgraph, or to a later wave, that has a request anyway. The
//! number of waves never grows. For long operations [`cover`] chooses the requests first, and the solver is restricted
//! to these; for short ones that are hard to solve it is tried as well.

use std::rc::Rc;

use graph::{SubgraphId, SubgraphSet};

use super::{
    PlanError, allowed_requests::AllowedRequests, cover, selection_tree::CollectedFields,
    solution::ObjectSolution, solution_requests::SolutionRequests, solver::Solver,
};

/// The maximum steps of the search for a better solution, as a multiple of the steps of the first solution.
const SEARCH_FACTOR: u64 = 2;

/// The steps that the search may always take: about a millisecond, enough to try everything on small operations.
const SEARCH_STEPS_MIN: u64 = 10_000;

/// The number of distinct selection sets from which an operation counts as long: leaving out one request after the
/// other by solving the whole operation again would take too many steps, so the requests are chosen beforehand.
const LONG_SETS_MIN: usize = 16;

/// Solves root fields with as few waves, and then as few requests, as the search finds.
pub(super) fn solve_root(
    solver: &mut Solver<'_>,
    fields: &Rc<CollectedFields>,
    among: Option<SubgraphSet>,
) -> Result<Rc<ObjectSolution>, PlanError> {
    let is_long = solver.distinct_sets() >= LONG_SETS_MIN;
    if is_long && let Some(found) = solve_covered(solver, fields, among, None) {
        return Ok(found);
    }
    let before = solver.steps();
    let solution = solver.solve_root(fields, among)?;
    let is_hard = solver.steps() - before > SEARCH_STEPS_MIN;
    let best = minimize_requests(solver, fields, among, solution);
    let graph = solver.graph;
    let cost = |solution: &ObjectSolution| {
        let requests = SolutionRequests::of(solution, graph).all;
        (requests.waves(), requests.len())
    };
    let known = cost(&best);
    if !is_long && !is_hard {
        return Ok(best);
    }
    // The search may have ended before it had tried everything.
    let found = solve_covered(solver, fields, among, Some(known.0));
    Ok(found.filter(|it| cost(it) < known).unwrap_or(best))
}

/// Solves an operation with the requests that [`cover`] chooses, in `waves` if given. `None` if it chooses none, or if
/// they do not suffice.
fn solve_covered(
    solver: &mut Solver<'_>,
    fields: &Rc<CollectedFields>,
    among: Option<SubgraphSet>,
    waves: Option<u32>,
) -> Option<Rc<ObjectSolution>> {
    let ration = cover::choose_requests(solver, fields, among, waves)?;
    // Facts that the model does not represent, such as `@provides`, may still save requests. If solving alone takes
    // this many steps, the search ends.
    let until = solver.steps() + SEARCH_STEPS_MIN;
    let found = solver.solve_root_within(fields, among, ration)?;
    Some(RequestSearch { solver, fields, among, until }.leave_out_requests(found))
}

/// Searches for fewer requests until none can be saved or the steps are used up.
fn minimize_requests(
    solver: &mut Solver<'_>,
    fields: &Rc<CollectedFields>,
    among: Option<SubgraphSet>,
    solution: Rc<ObjectSolution>,
) -> Rc<ObjectSolution> {
    let first_steps = solver.steps();
    let until = first_steps + (first_steps * SEARCH_FACTOR).max(SEARCH_STEPS_MIN);
    let mut search = RequestSearch { solver, fields, among, until };
    let mut best = solution;
    let requests = SolutionRequests::of(&best, search.solver.graph);
    let waves = requests.all.waves();
    // All requests that can wait are moved to the last wave, together.
    let may_not_wait =
        |request: &(SubgraphId, u32)| request.1 == waves || requests.urgent.contains(request);
    let lazy: AllowedRequests = requests.all.iter().filter(may_not_wait).collect();
    if lazy != requests.all
        && let Some(found) = search.solve_within(lazy)
    {
        best = found;
    }
    best = search.leave_out_requests(best);
    // For small operations, solutions with other requests are tried as well, because they may lead to fewer requests.
    let mut has_improved = true;
    while has_improved {
        has_improved = false;
        let known = SolutionRequests::of(&best, search.solver.graph).all;
        for request in known.iter() {
            let others = AllowedRequests::all(search.solver.graph, waves).without(request);
            let Some(found) = search.solve_within(others) else { continue };
            let found = search.leave_out_requests(found);
            if SolutionRequests::of(&found, search.solver.graph).all.len() < known.len() {
                best = found;
                has_improved = true;
                break;
            }
        }
    }
    best
}

struct RequestSearch<'s, 'a> {
    solver: &'s mut Solver<'a>,
    fields: &'s Rc<CollectedFields>,
    among: Option<SubgraphSet>,
    until: u64,
}

impl RequestSearch<'_, '_> {
    fn solve_within(&mut self, ration: AllowedRequests) -> Option<Rc<ObjectSolution>> {
        if self.solver.steps() > self.until {
            return None;
        }
        self.solver.solve_root_within(self.fields, self.among, ration)
    }

    /// Leaves out one request after the other, as long as all fields remain available.
    fn leave_out_requests(&mut self, solution: Rc<ObjectSolution>) -> Rc<ObjectSolution> {
        let mut best = solution;
        let mut ration = SolutionRequests::of(&best, self.solver.graph).all;
        // Early waves come first, so that fields move to later waves with a request to the same subgraph.
        let mut candidates: Vec<(SubgraphId, u32)> = ration.iter().collect();
        candidates.sort_by_key(|&(subgraph, wave)| (wave, subgraph));
        for candidate in candidates {
            if !ration.contains(candidate) {
                continue;
            }
            if let Some(found) = self.solve_within(ration.without(candidate)) {
                ration = SolutionRequests::of(&found, self.solver.graph).all;
                best = found;
            }
        }
        best
    }
}
