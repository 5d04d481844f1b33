//! The requests of a solution. All positions with a request to one subgraph in one wave share it.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{Hash, Hasher},
    rc::Rc,
};

use foldhash::HashMap;
use graph::{SubgraphId, SubgraphKind, Supergraph};

use super::{
    allowed_requests::AllowedRequests,
    solution::{FieldChoice, ObjectSolution, Solution, SolutionKind},
};

/// The requests that a solution makes.
#[derive(Default)]
pub(super) struct SolutionRequests {
    pub(super) all: AllowedRequests,
    /// The requests that cannot be later, because they end in the last wave together with everything that waits for
    /// them.
    pub(super) urgent: BTreeSet<(SubgraphId, u32)>,
}

/// The requests of a part of a solution, in waves counted from that of its first holder.
#[derive(Default)]
struct PartRequests {
    /// The last wave of everything that waits for a request, by request.
    requests: BTreeMap<(SubgraphId, u32), u32>,
    /// The last wave of all.
    end: u32,
}

impl PartRequests {
    fn add(&mut self, request: (SubgraphId, u32), end: u32) {
        let known = self.requests.entry(request).or_insert(end);
        *known = end.max(*known);
        self.end = self.end.max(end);
    }

    /// Adds another part that starts `later` waves later.
    fn add_part(&mut self, part: &Self, later: u32) {
        for (&(subgraph, wave), &end) in &part.requests {
            self.add((subgraph, wave + later), end + later);
        }
        self.end = self.end.max(part.end + later);
    }
}

/// Collects the requests of the parts of a solution. A part may be used at many positions, so each is visited once for
/// each list of waves in which its holders have the object.
struct RequestCollector<'s, 'a> {
    graph: &'a Supergraph,
    known: HashMap<(SolutionRef<'s>, Box<[u32]>), Rc<PartRequests>>,
}

/// A solution, compared by its address: equal parts are mostly the same.
struct SolutionRef<'s>(&'s Solution);

impl PartialEq for SolutionRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for SolutionRef<'_> {}

impl Hash for SolutionRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::from_ref(self.0).hash(state);
    }
}

impl SolutionRequests {
    pub(super) fn of(solution: &ObjectSolution, graph: &Supergraph) -> Self {
        let mut collector = RequestCollector { graph, known: HashMap::default() };
        let mut part = PartRequests::default();
        collector.add_object(solution, &[], &mut part);
        let urgent = part.requests.iter().filter(|(_, end)| **end == part.end);
        Self {
            urgent: urgent.map(|(&request, _)| request).collect(),
            all: part.requests.keys().copied().collect(),
        }
    }
}

impl<'s> RequestCollector<'s, '_> {
    /// Adds the requests of `object`. Returns the wave in which all of it is available.
    fn add_object(
        &mut self,
        object: &'s ObjectSolution,
        held: &[u32],
        part: &mut PartRequests,
    ) -> u32 {
        let mut levels = held.to_vec();
        levels.extend(object.jumps.iter().map(|jump| jump.depth));
        // The last wave of everything that waits for a holder, by holder.
        let mut ends = levels.clone();
        for choice in &object.choices {
            let end = self.add_below(choice, &levels, part);
            choice.carriers.iter().for_each(|&at| ends[at] = ends[at].max(end));
        }
        // Jumps depend on earlier ones only.
        for (index, jump) in object.jumps.iter().enumerate().rev() {
            let own = held.len() + index;
            for input in &jump.inputs {
                let end = self.add_below(&input.choice, &levels, part).max(ends[own]);
                input.choice.carriers.iter().for_each(|&at| ends[at] = ends[at].max(end));
            }
            if self.graph.subgraph(jump.subgraph).kind != SubgraphKind::Events {
                part.add((jump.subgraph, levels[own]), ends[own]);
            }
        }
        let end = ends.into_iter().max().unwrap_or(0);
        part.end = part.end.max(end);
        end
    }

    fn add_below(
        &mut self,
        choice: &'s FieldChoice,
        levels: &[u32],
        part: &mut PartRequests,
    ) -> u32 {
        let Some(child) = &choice.child else { return 0 };
        let mut held: Vec<u32> = choice.carriers.iter().map(|&at| levels[at]).collect();
        let base = held.iter().copied().min().unwrap_or(0);
        held.iter_mut().for_each(|level| *level -= base);
        let below = self.collect_position(child, held);
        part.add_part(&below, base);
        below.end + base
    }

    fn collect_position(&mut self, solution: &'s Solution, held: Vec<u32>) -> Rc<PartRequests> {
        let key = (SolutionRef(solution), held.into_boxed_slice());
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let held = &key.1;
        let mut part = PartRequests::default();
        match &solution.kind {
            SolutionKind::Object(object) => {
                self.add_object(object, held, &mut part);
            }
            SolutionKind::Abstract { common, members, .. } => {
                let mut levels = held.to_vec();
                if let Some(common) = common {
                    self.add_object(common, held, &mut part);
                    levels.extend(common.jumps.iter().map(|jump| jump.depth));
                }
                for (knowing, object) in members {
                    let held: Vec<u32> = knowing.iter().map(|&at| levels[at]).collect();
                    self.add_object(object, &held, &mut part);
                }
            }
        }
        let part = Rc::new(part);
        self.known.insert(key, part.clone());
        part
    }
}
