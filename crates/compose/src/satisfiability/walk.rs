//! The walk over all states that queries can reach.

use std::collections::{HashMap, HashSet, VecDeque};

use graph::{FieldId, FieldSet, SubgraphId, SubgraphSet, Supergraph, TypeId};

use super::{
    explanation::{self, PathStep},
    resolution::{ObjectState, Resolution},
};
use crate::{finding::Findings, subgraph::model::SubgraphModel};

/// A visited state and the way to it.
struct VisitedState {
    parent: Option<usize>,
    step: PathStep,
}

/// Walks over all states and reports fields that cannot be resolved, each once.
pub(super) fn check(
    supergraph: &Supergraph,
    subgraphs: &[SubgraphModel],
    findings: &mut Findings<'_>,
) {
    let resolution = Resolution::new(supergraph);
    let mut walk = Walk {
        resolution: &resolution,
        visited: Vec::new(),
        queue: VecDeque::new(),
        known: HashMap::new(),
        reported: HashSet::new(),
        unknown_types: HashSet::new(),
    };
    let roots = [Some(supergraph.query), supergraph.mutation, supergraph.subscription];
    for root in roots.into_iter().flatten() {
        let holders: SubgraphSet =
            supergraph.ty(root).subgraphs.iter().map(|it| it.subgraph).collect();
        let state = resolution.state(root, holders, Vec::new(), &[]);
        walk.enqueue(None, PathStep::Root(root), state);
    }
    while let Some((index, state)) = walk.queue.pop_front() {
        walk.visit(index, &state, subgraphs, findings);
    }
}

struct Walk<'r, 'g> {
    resolution: &'r Resolution<'g>,
    visited: Vec<VisitedState>,
    queue: VecDeque<(usize, ObjectState<'g>)>,
    /// The visited states by type.
    known: HashMap<TypeId, Vec<ObjectState<'g>>>,
    reported: HashSet<FieldId>,
    /// The interfaces of objects with unknown types.
    unknown_types: HashSet<TypeId>,
}

/// Returns the first subgraph of a set that is not empty.
fn first_of(subgraphs: SubgraphSet) -> SubgraphId {
    subgraphs.iter().next().unwrap_or(SubgraphId(0))
}

impl<'g> Walk<'_, 'g> {
    fn enqueue(&mut self, parent: Option<usize>, step: PathStep, state: ObjectState<'g>) {
        let known = self.known.entry(state.ty).or_default();
        let has_less = |other: &ObjectState<'g>| {
            let has = |one: &(SubgraphId, &'g FieldSet)| {
                state.provided.iter().any(|it| it.0 == one.0 && std::ptr::eq(it.1, one.1))
            };
            other.holders.is_subset(state.holders)
                && other.provided.iter().all(has)
                && other.setters.iter().all(|it| state.setters.contains(it))
        };
        if known.iter().any(has_less) {
            return;
        }
        known.push(state.clone());
        self.visited.push(VisitedState { parent, step });
        self.queue.push_back((self.visited.len() - 1, state));
    }

    fn visit(
        &mut self,
        index: usize,
        state: &ObjectState<'g>,
        subgraphs: &[SubgraphModel],
        findings: &mut Findings<'_>,
    ) {
        let graph = self.resolution.graph;
        if graph.ty(state.ty).inaccessible {
            return;
        }
        if !self.resolution.is_type_known(state) {
            let path = self.path_to(index);
            if self.unknown_types.insert(graph.local_type(state.ty, first_of(state.holders))) {
                explanation::report_unknown_type(graph, subgraphs, &path, state, findings);
            }
            return;
        }
        let mut unresolved = Vec::new();
        for &field in &graph.ty(state.ty).fields {
            if graph.field(field).inaccessible {
                continue;
            }
            let carriers = self.resolution.carriers(state, field, &mut Vec::new());
            if carriers.is_empty() {
                if self.reported.insert(field) {
                    unresolved.push(field);
                }
                continue;
            }
            if !graph.ty(graph.field(field).ty.named()).kind.is_composite() {
                continue;
            }
            let states = self.resolution.states_below(state, field, carriers);
            for below in states {
                let step = PathStep::Field { field, ty: below.ty };
                self.enqueue(Some(index), step, below);
            }
        }
        if !unresolved.is_empty() {
            let path = self.path_to(index);
            explanation::report(self.resolution, subgraphs, &path, state, &unresolved, findings);
        }
    }

    fn path_to(&self, index: usize) -> Vec<PathStep> {
        let mut path = Vec::new();
        let mut next = Some(index);
        while let Some(index) = next {
            path.push(self.visited[index].step);
            next = self.visited[index].parent;
        }
        path.reverse();
        path
    }
}
