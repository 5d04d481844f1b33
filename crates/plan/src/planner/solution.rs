//! Solutions as plain data: the jumps and choices at a position, and their cost. `solver` finds them, `fetch_graph`
//! converts them to fetch nodes.

use std::{
    ops::{Deref, DerefMut},
    rc::Rc,
};

use graph::{SubgraphId, TypeId};

use super::{holders::Holder, selection_tree::CollectedField};

/// The cost of a solution, compared in the order of the fields.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Cost {
    /// The number of consecutive requests until all fields are available.
    pub(super) depth: u32,
    /// The number of requests at this position and below.
    pub(super) requests: u32,
    /// The number of selected fields.
    pub(super) fields: u32,
}

/// The solution for a position.
#[derive(Debug)]
pub(super) struct Solution {
    pub(super) cost: Cost,
    pub(super) kind: SolutionKind,
}

#[derive(Debug)]
pub(super) enum SolutionKind {
    Object(Rc<ObjectSolution>),
    /// The type is known at run time only.
    Abstract {
        /// Interface fields that are fetched for all types.
        common: Option<Rc<ObjectSolution>>,
        /// The other fields by object type, with the holders that know the type, by index: first the original holders,
        /// then the jumps of `common`.
        members: Vec<(Vec<usize>, Rc<ObjectSolution>)>,
        /// The interface on which all fields are selected, if no holder knows the type of the object and no selection
        /// depends on it.
        untyped: Option<TypeId>,
    },
}

/// The solution for one object type. Holders are numbered: first the original holders, then the jumps.
#[derive(Debug)]
pub(super) struct ObjectSolution {
    pub(super) ty: TypeId,
    pub(super) cost: Cost,
    pub(super) jumps: Vec<Jump>,
    pub(super) choices: Vec<FieldChoice>,
}

/// A further subgraph from which the object is fetched.
#[derive(Debug)]
pub(super) struct Jump {
    pub(super) subgraph: SubgraphId,
    /// The wave of the response, counted like the depths of the position's holders.
    pub(super) depth: u32,
    /// The members of the representation; empty for root fields.
    pub(super) inputs: Vec<JumpInput>,
}

/// A member of a representation and the choice of its holders.
#[derive(Debug)]
pub(super) struct JumpInput {
    pub(super) is_key: bool,
    pub(super) choice: FieldChoice,
}

/// A field and the holders that carry it.
#[derive(Debug)]
pub(super) struct FieldChoice {
    pub(super) wanted: Rc<CollectedField>,
    /// The indices of holders; several only if no single one leads to all selections below.
    pub(super) carriers: Carriers,
    pub(super) child: Option<Rc<Solution>>,
}

/// Indices of holders, mostly a single one.
#[derive(Clone, Debug)]
pub(super) enum Carriers {
    One([usize; 1]),
    Several(Vec<usize>),
}

impl From<usize> for Carriers {
    fn from(one: usize) -> Self {
        Self::One([one])
    }
}

impl Deref for Carriers {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        match self {
            Self::One(one) => one,
            Self::Several(several) => several,
        }
    }
}

impl DerefMut for Carriers {
    fn deref_mut(&mut self) -> &mut [usize] {
        match self {
            Self::One(one) => one,
            Self::Several(several) => several,
        }
    }
}

impl Cost {
    /// Returns the cost of both parts: the later end, all requests, all fields.
    pub(super) fn beside(self, other: Self) -> Self {
        Self {
            depth: self.depth.max(other.depth),
            requests: self.requests.saturating_add(other.requests),
            fields: self.fields.saturating_add(other.fields),
        }
    }

    /// Returns the cost of the same part, `depth` waves later.
    pub(super) fn after(self, depth: u32) -> Self {
        Self { depth: self.depth + depth, ..self }
    }
}

/// Returns for each of the first `held` holders whether a solution uses it.
pub(super) fn used_holders(solution: &Solution, held: usize) -> Vec<bool> {
    let mut used = vec![false; held];
    let mut mark = |object: &ObjectSolution, names: &dyn Fn(usize) -> Option<usize>| {
        let inputs = object.jumps.iter().flat_map(|jump| &jump.inputs).map(|s| &s.choice);
        for choice in inputs.chain(&object.choices) {
            for carrier in choice.carriers.iter().filter_map(|&carrier| names(carrier)) {
                used[carrier] = true;
            }
        }
    };
    match &solution.kind {
        SolutionKind::Object(object) => mark(object, &|at| (at < held).then_some(at)),
        SolutionKind::Abstract { common, members, .. } => {
            let there = |at: usize| (at < held).then_some(at);
            if let Some(common) = common {
                mark(common, &there);
            }
            for (knowing, object) in members {
                mark(object, &|at| knowing.get(at).copied().and_then(there));
            }
        }
    }
    used
}

/// Removes jumps that carry no field, and renumbers the carriers.
pub(super) fn drop_unused<'a>(
    held: usize,
    jumps: Vec<Jump>,
    costs: Vec<Cost>,
    holders: Vec<Holder<'a>>,
    choices: &mut [FieldChoice],
) -> (Vec<Jump>, Vec<Cost>, Vec<Holder<'a>>) {
    let mut used = vec![false; holders.len()];
    used[..held].fill(true);
    for carrier in choices.iter().flat_map(|choice| choice.carriers.iter()) {
        used[*carrier] = true;
    }
    // Jumps depend on earlier ones only.
    for (index, jump) in jumps.iter().enumerate().rev() {
        if used[held + index] {
            for carrier in jump.inputs.iter().flat_map(|input| input.choice.carriers.iter()) {
                used[*carrier] = true;
            }
        }
    }
    if used.iter().all(|&used| used) {
        return (jumps, costs, holders);
    }
    let mut numbers = vec![0; holders.len()];
    let mut next = 0;
    for (old, number) in numbers.iter_mut().enumerate() {
        *number = next;
        next += usize::from(used[old]);
    }
    let renumber = |choice: &mut FieldChoice| {
        choice.carriers.iter_mut().for_each(|carrier| *carrier = numbers[*carrier]);
    };
    choices.iter_mut().for_each(renumber);
    let mut kept_jumps = Vec::new();
    let mut kept_costs = Vec::new();
    for (index, (mut jump, cost)) in jumps.into_iter().zip(costs).enumerate() {
        if used[held + index] {
            jump.inputs.iter_mut().for_each(|input| renumber(&mut input.choice));
            kept_jumps.push(jump);
            kept_costs.push(cost);
        }
    }
    let holders =
        holders.into_iter().enumerate().filter(|(old, _)| used[*old]).map(|(_, h)| h).collect();
    (kept_jumps, kept_costs, holders)
}
