//! Fewer requests for the whole operation. `solve` counts the requests of each position, but what
//! asks one subgraph in one wave becomes one request wherever it stands. So the solved operation is
//! solved again with one (subgraph, wave) less: what was asked there moves to another subgraph that
//! is asked anyway, or waits for a later wave in which the same subgraph is asked anyway. The number
//! of waves never grows.

use std::{collections::BTreeSet, rc::Rc};

use graph::{SubgraphId, SubgraphKind, SubgraphSet};

use super::{
    solution::{ObjectSolution, Pick, SolutionKind},
    solve::Solver,
    tree::Collected,
};

/// How many times the steps of the first solution may go into looking for a better one.
const SEARCH_FACTOR: u64 = 2;

/// How many steps may in any case: about a millisecond, enough to try everything on small operations.
const SEARCH_STEPS_MIN: u64 = 10_000;

/// The requests that a solution may make: subgraphs and the waves in which they may be asked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Ration(BTreeSet<(SubgraphId, u32)>);

impl Ration {
    /// The first wave from `earliest` on in which `subgraph` may be asked.
    pub(super) fn next(&self, subgraph: SubgraphId, earliest: u32) -> Option<u32> {
        self.0.range((subgraph, earliest)..=(subgraph, u32::MAX)).next().map(|&(_, wave)| wave)
    }

    fn without(&self, request: (SubgraphId, u32)) -> Self {
        let mut less = self.clone();
        less.0.remove(&request);
        less
    }

    /// Every subgraph that can be asked for entities, in every wave up to `waves`.
    fn everything(solver: &Solver<'_>, waves: u32) -> Self {
        let subgraphs = 0..solver.graph().subgraphs.len();
        Self(subgraphs.flat_map(|s| (1..=waves).map(move |w| (SubgraphId(s as u16), w))).collect())
    }
}

/// The requests of a solution, read off it.
#[derive(Default)]
struct Requests {
    all: Ration,
    /// Those that end in the last wave with everything that waits for them: they cannot be later.
    urgent: BTreeSet<(SubgraphId, u32)>,
    /// All single jumps: what they ask, and the last wave of what waits for them.
    jumps: Vec<((SubgraphId, u32), u32)>,
}

impl Requests {
    fn of(solution: &ObjectSolution, solver: &Solver<'_>) -> Self {
        let mut found = Self::default();
        let last = found.add(solution, &[], 0, solver);
        for (request, end) in std::mem::take(&mut found.jumps) {
            found.all.0.insert(request);
            if end == last {
                found.urgent.insert(request);
            }
        }
        found
    }

    fn waves(&self) -> u32 {
        self.all.0.iter().map(|&(_, wave)| wave).max().unwrap_or(0)
    }

    /// Says in which wave all of `object` is there.
    fn add(
        &mut self,
        object: &ObjectSolution,
        held: &[u32],
        base: u32,
        solver: &Solver<'_>,
    ) -> u32 {
        let mut levels = held.to_vec();
        levels.extend(object.jumps.iter().map(|jump| base + jump.depth));
        // For each holder the last wave of what waits for it.
        let mut ends = levels.clone();
        for pick in &object.picks {
            let end = self.below(pick, &levels, solver);
            pick.carriers.iter().for_each(|&at| ends[at] = ends[at].max(end));
        }
        // Jumps lean on earlier ones only.
        for (index, jump) in object.jumps.iter().enumerate().rev() {
            let own = held.len() + index;
            for supply in &jump.supplies {
                let end = self.below(&supply.pick, &levels, solver).max(ends[own]);
                supply.pick.carriers.iter().for_each(|&at| ends[at] = ends[at].max(end));
            }
            if solver.graph().subgraph(jump.subgraph).kind != SubgraphKind::Events {
                self.jumps.push(((jump.subgraph, levels[own]), ends[own]));
            }
        }
        ends.into_iter().max().unwrap_or(base)
    }

    fn below(&mut self, pick: &Pick, levels: &[u32], solver: &Solver<'_>) -> u32 {
        let Some(child) = &pick.child else { return 0 };
        let held: Vec<u32> = pick.carriers.iter().map(|&at| levels[at]).collect();
        let base = held.iter().copied().min().unwrap_or(0);
        match &child.kind {
            SolutionKind::Object(object) => self.add(object, &held, base, solver),
            SolutionKind::Abstract { common, members, .. } => {
                let mut end = 0;
                let mut levels = held.clone();
                if let Some(common) = common {
                    end = self.add(common, &held, base, solver);
                    levels.extend(common.jumps.iter().map(|jump| base + jump.depth));
                }
                for (knowing, object) in members {
                    let held: Vec<u32> = knowing.iter().map(|&at| levels[at]).collect();
                    end = end.max(self.add(object, &held, base, solver));
                }
                end
            }
        }
    }
}

/// Looks for fewer requests until nothing more is found or the steps for it are used up.
pub(super) fn fewest(
    solver: &mut Solver<'_>,
    fields: &Rc<Collected>,
    among: Option<SubgraphSet>,
    solution: Rc<ObjectSolution>,
) -> Rc<ObjectSolution> {
    let first_steps = solver.steps();
    let until = first_steps + (first_steps * SEARCH_FACTOR).max(SEARCH_STEPS_MIN);
    let mut search = Search { solver, fields, among, until };
    let mut best = solution;
    let requests = Requests::of(&best, search.solver);
    let waves = requests.waves();
    // What can wait waits for the last wave, all at once.
    let mut lazy = requests.all.clone();
    lazy.0.retain(|request| request.1 == waves || requests.urgent.contains(request));
    if lazy != requests.all
        && let Some(found) = search.within(lazy)
    {
        best = found;
    }
    best = search.reduced(best);
    // Small operations: the way to fewer requests may lead over other ones.
    let mut has_improved = true;
    while has_improved {
        has_improved = false;
        let known = Requests::of(&best, search.solver).all;
        for &request in &known.0 {
            let others = Ration::everything(search.solver, waves).without(request);
            let Some(found) = search.within(others) else { continue };
            let found = search.reduced(found);
            if Requests::of(&found, search.solver).all.0.len() < known.0.len() {
                best = found;
                has_improved = true;
                break;
            }
        }
    }
    best
}

struct Search<'s, 'a> {
    solver: &'s mut Solver<'a>,
    fields: &'s Rc<Collected>,
    among: Option<SubgraphSet>,
    until: u64,
}

impl Search<'_, '_> {
    fn within(&mut self, ration: Ration) -> Option<Rc<ObjectSolution>> {
        if self.solver.steps() > self.until {
            return None;
        }
        self.solver.root_within(self.fields, self.among, ration)
    }

    /// Leaves out one request after the other for as long as everything can still be had.
    fn reduced(&mut self, solution: Rc<ObjectSolution>) -> Rc<ObjectSolution> {
        let mut best = solution;
        let mut ration = Requests::of(&best, self.solver).all;
        // Early waves first: what can wait moves to where a later wave asks the same subgraph.
        let mut candidates: Vec<(SubgraphId, u32)> = ration.0.iter().copied().collect();
        candidates.sort_by_key(|&(subgraph, wave)| (wave, subgraph));
        for candidate in candidates {
            if !ration.0.contains(&candidate) {
                continue;
            }
            if let Some(found) = self.within(ration.without(candidate)) {
                ration = Requests::of(&found, self.solver).all;
                best = found;
            }
        }
        best
    }
}
