//! The target paths of a plan's entity batches as one tree: it shows which of them lead through
//! which. Built once per plan, so that a plan with thousands of targets is compiled in linear time.

use foldhash::{HashMap, HashMapExt};
use plan::{FetchKind, Path, PathStep, Plan};

/// Identifies a batch: the index of its fetch, and its index in the fetch.
type BatchId = (usize, usize);

/// All target paths, by the keys on them.
pub(crate) struct PathTree<'a> {
    /// The nodes; the first is the root.
    nodes: Vec<PathNode<'a>>,
}

#[derive(Default)]
struct PathNode<'a> {
    below: HashMap<&'a str, usize>,
    /// The targets that end here.
    ends: Vec<(BatchId, &'a Path)>,
}

/// A target below a path: its batch, the types at the end of the path, and the steps after it.
type TargetBelow<'a> = (BatchId, &'a [Box<str>], &'a [PathStep]);

impl<'a> PathTree<'a> {
    pub(crate) fn new(plan: &'a Plan) -> Self {
        let mut tree = Self { nodes: vec![PathNode::default()] };
        for (fetch, it) in plan.fetches.iter().enumerate() {
            if let FetchKind::RootBelow { target, .. } = &it.kind {
                tree.add_target((fetch, 0), target);
            }
            for (batch, it) in it.kind.batches().iter().enumerate() {
                for target in &it.targets {
                    tree.add_target((fetch, batch), target);
                }
            }
        }
        tree
    }

    fn add_target(&mut self, batch: BatchId, path: &'a Path) {
        let mut at = 0;
        for step in &path.steps {
            let next = self.nodes.len();
            at = *self.nodes[at].below.entry(&step.data_key).or_insert(next);
            if at == next {
                self.nodes.push(PathNode::default());
            }
        }
        self.nodes[at].ends.push((batch, path));
    }

    /// Returns the first step of `path` from which on the same object may occur several times,
    /// because a target that ends before links responses into the tree. `usize::MAX` if there is
    /// none.
    pub(crate) fn shared_from(&self, path: &Path) -> usize {
        let mut at = 0;
        for (length, step) in path.steps.iter().enumerate() {
            if !self.nodes[at].ends.is_empty() {
                return length;
            }
            match self.nodes[at].below.get(&*step.data_key) {
                Some(&next) => at = next,
                None => break,
            }
        }
        usize::MAX
    }

    /// Gives a common number to targets below which exactly the same batches continue in the same
    /// way. Only those may share values: the same entity may be selected at two places with
    /// different fields under one key (`{a: product {reviews {body}} b: product {reviews {body:
    /// title}}}`), and values that are merged into a shared object are seen at both.
    pub(crate) fn group_targets(&self, targets: &[Path]) -> Vec<u32> {
        if targets.len() < 2 {
            return vec![0; targets.len()];
        }
        let mut first: HashMap<Vec<TargetBelow<'a>>, u32> = HashMap::new();
        let numbers = targets
            .iter()
            .enumerate()
            .map(|(index, path)| *first.entry(self.targets_below(path)).or_insert(index as u32));
        numbers.collect()
    }

    /// Returns all targets that lead through `path`, in an order of their own.
    fn targets_below(&self, path: &Path) -> Vec<TargetBelow<'a>> {
        let mut found = Vec::new();
        let Some(last) = path.steps.len().checked_sub(1) else { return found };
        let mut at = 0;
        for step in &path.steps {
            match self.nodes[at].below.get(&*step.data_key) {
                Some(&next) => at = next,
                None => return found,
            }
        }
        let mut pending: Vec<usize> = self.nodes[at].below.values().copied().collect();
        while let Some(at) = pending.pop() {
            let node = &self.nodes[at];
            pending.extend(node.below.values());
            for &(batch, other) in &node.ends {
                found.push((batch, &other.steps[last].types[..], &other.steps[last + 1..]));
            }
        }
        found.sort_unstable();
        found
    }
}
