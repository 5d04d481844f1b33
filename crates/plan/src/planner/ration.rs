//! Fewer requests for the whole operation. The solver counts the requests of each position, but what
//! asks one subgraph in one wave becomes one request wherever it stands. So the solved operation is
//! solved again with one (subgraph, wave) less: what was asked there moves to another subgraph that
//! is asked anyway, or waits for a later wave in which the same subgraph is asked anyway. The number
//! of waves never grows. Long operations are solved once only, with requests that [`Cover`] has chosen.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{Hash, Hasher},
    rc::Rc,
};

use foldhash::HashMap;
use graph::{SubgraphId, SubgraphKind, SubgraphSet, Supergraph};

use super::{
    PlanError,
    cover::Cover,
    solution::{ObjectSolution, Pick, Solution, SolutionKind},
    solve::Solver,
    tree::Collected,
};

/// How many times the steps of the first solution may go into looking for a better one.
const SEARCH_FACTOR: u64 = 2;

/// How many steps may in any case: about a millisecond, enough to try everything on small operations.
const SEARCH_STEPS_MIN: u64 = 10_000;

/// Different selection sets from which on an operation is long: leaving out one request after the other by
/// solving all of it again would take too many steps, so the requests are chosen beforehand.
const LONG_SETS_MIN: usize = 16;

/// The requests that a solution may make: subgraphs and the waves in which they may be asked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Ration(BTreeSet<(SubgraphId, u32)>);

impl FromIterator<(SubgraphId, u32)> for Ration {
    fn from_iter<I: IntoIterator<Item = (SubgraphId, u32)>>(requests: I) -> Self {
        Self(requests.into_iter().collect())
    }
}

impl Ration {
    fn len(&self) -> usize {
        self.0.len()
    }

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
}

/// What a part of a solution asks, in waves counted from that of its first holder.
#[derive(Default)]
struct Asked {
    /// To the last wave of what waits for it.
    requests: BTreeMap<(SubgraphId, u32), u32>,
    /// The last wave of all.
    end: u32,
}

impl Asked {
    fn add(&mut self, request: (SubgraphId, u32), end: u32) {
        let known = self.requests.entry(request).or_insert(end);
        *known = end.max(*known);
        self.end = self.end.max(end);
    }

    /// Adds another part that starts so many waves later.
    fn add_part(&mut self, part: &Self, later: u32) {
        for (&(subgraph, wave), &end) in &part.requests {
            self.add((subgraph, wave + later), end + later);
        }
        self.end = self.end.max(part.end + later);
    }
}

/// Reads requests off parts of a solution. Parts stand at many places; each is read once for each list
/// of waves in which its holders have the object.
struct Reader<'s, 'a> {
    graph: &'a Supergraph,
    known: HashMap<(ByAddress<'s>, Box<[u32]>), Rc<Asked>>,
}

/// A solution, compared by its address: equal parts are mostly the same.
struct ByAddress<'s>(&'s Solution);

impl PartialEq for ByAddress<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for ByAddress<'_> {}

impl Hash for ByAddress<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::from_ref(self.0).hash(state);
    }
}

impl Requests {
    fn of(solution: &ObjectSolution, solver: &Solver<'_>) -> Self {
        let mut reader = Reader { graph: solver.graph(), known: HashMap::default() };
        let mut asked = Asked::default();
        reader.object(solution, &[], &mut asked);
        let urgent = asked.requests.iter().filter(|(_, end)| **end == asked.end);
        Self {
            urgent: urgent.map(|(&request, _)| request).collect(),
            all: Ration(asked.requests.keys().copied().collect()),
        }
    }

    fn waves(&self) -> u32 {
        self.all.0.iter().map(|&(_, wave)| wave).max().unwrap_or(0)
    }
}

impl<'s> Reader<'s, '_> {
    /// Adds what `object` asks. Says in which wave all of it is there.
    fn object(&mut self, object: &'s ObjectSolution, held: &[u32], asked: &mut Asked) -> u32 {
        let mut levels = held.to_vec();
        levels.extend(object.jumps.iter().map(|jump| jump.depth));
        // For each holder the last wave of what waits for it.
        let mut ends = levels.clone();
        for pick in &object.picks {
            let end = self.below(pick, &levels, asked);
            pick.carriers.iter().for_each(|&at| ends[at] = ends[at].max(end));
        }
        // Jumps lean on earlier ones only.
        for (index, jump) in object.jumps.iter().enumerate().rev() {
            let own = held.len() + index;
            for supply in &jump.supplies {
                let end = self.below(&supply.pick, &levels, asked).max(ends[own]);
                supply.pick.carriers.iter().for_each(|&at| ends[at] = ends[at].max(end));
            }
            if self.graph.subgraph(jump.subgraph).kind != SubgraphKind::Events {
                asked.add((jump.subgraph, levels[own]), ends[own]);
            }
        }
        let end = ends.into_iter().max().unwrap_or(0);
        asked.end = asked.end.max(end);
        end
    }

    fn below(&mut self, pick: &'s Pick, levels: &[u32], asked: &mut Asked) -> u32 {
        let Some(child) = &pick.child else { return 0 };
        let mut held: Vec<u32> = pick.carriers.iter().map(|&at| levels[at]).collect();
        let base = held.iter().copied().min().unwrap_or(0);
        held.iter_mut().for_each(|level| *level -= base);
        let part = self.position(child, held);
        asked.add_part(&part, base);
        part.end + base
    }

    fn position(&mut self, solution: &'s Solution, held: Vec<u32>) -> Rc<Asked> {
        let key = (ByAddress(solution), held.into_boxed_slice());
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let held = &key.1;
        let mut asked = Asked::default();
        match &solution.kind {
            SolutionKind::Object(object) => {
                self.object(object, held, &mut asked);
            }
            SolutionKind::Abstract { common, members, .. } => {
                let mut levels = held.to_vec();
                if let Some(common) = common {
                    self.object(common, held, &mut asked);
                    levels.extend(common.jumps.iter().map(|jump| jump.depth));
                }
                for (knowing, object) in members {
                    let held: Vec<u32> = knowing.iter().map(|&at| levels[at]).collect();
                    self.object(object, &held, &mut asked);
                }
            }
        }
        let asked = Rc::new(asked);
        self.known.insert(key, asked.clone());
        asked
    }
}

/// Solves root fields with as few waves and then as few requests as can be found.
pub(super) fn solve(
    solver: &mut Solver<'_>,
    fields: &Rc<Collected>,
    among: Option<SubgraphSet>,
) -> Result<Rc<ObjectSolution>, PlanError> {
    let mut cover = match solver.different_sets() >= LONG_SETS_MIN {
        true => Cover::new(solver, fields, among),
        false => None,
    };
    if let Some(cover) = &mut cover
        && let Some(waves) = cover.fewest_waves()
        // Otherwise the solver may know a way with fewer waves.
        && waves <= cover.waves_min()
        && let Some(ration) = cover.smallest(waves, solver)
    {
        let before = solver.steps();
        if let Some(found) = solver.root_within(fields, among, ration) {
            // What the cover does not know, such as `@provides`, may save requests still.
            let is_cheap = (solver.steps() - before) * 4 < SEARCH_STEPS_MIN;
            let until = solver.steps() + if is_cheap { SEARCH_STEPS_MIN } else { 0 };
            let mut search = Search { solver, fields, among, until };
            return Ok(if is_cheap { search.reduced(found) } else { found });
        }
    }
    let before = solver.steps();
    let solution = solver.root(fields, among)?;
    let is_hard = solver.steps() - before > SEARCH_STEPS_MIN;
    let best = fewest(solver, fields, among, solution);
    if cover.is_none() && is_hard {
        cover = Cover::new(solver, fields, among);
    }
    match cover {
        Some(mut cover) => Ok(covered(solver, fields, among, &mut cover, best)),
        None => Ok(best),
    }
}

/// The same with the requests of a smaller cover, if there is one.
fn covered(
    solver: &mut Solver<'_>,
    fields: &Rc<Collected>,
    among: Option<SubgraphSet>,
    cover: &mut Cover,
    best: Rc<ObjectSolution>,
) -> Rc<ObjectSolution> {
    let known = Requests::of(&best, solver);
    let waves = known.waves() as usize;
    let fewest_waves = cover.fewest_waves().unwrap_or(waves).min(waves);
    for waves in [fewest_waves, waves] {
        let Some(ration) = cover.smallest(waves, solver) else { continue };
        let cost = |all: &Ration, waves: u32| (waves, all.len());
        let known = cost(&known.all, known.waves());
        if cost(&ration, waves as u32) >= known {
            continue;
        }
        if let Some(found) = solver.root_within(fields, among, ration) {
            let requests = Requests::of(&found, solver);
            if cost(&requests.all, requests.waves()) < known {
                return found;
            }
        }
    }
    best
}

/// Looks for fewer requests until nothing more is found or the steps for it are used up.
fn fewest(
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
