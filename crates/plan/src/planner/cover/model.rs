//! The model of an operation for which requests are chosen, as positions and bit masks.

use foldhash::HashMap;
use graph::SubgraphId;

/// The maximum number of subgraphs in a model: one bit each.
pub(super) const SUBGRAPHS_MAX: usize = 64;

/// A set of subgraphs of a model.
pub(super) type Mask = u64;

/// The subgraphs of each wave, starting with wave 0.
pub(super) type Waves = Vec<Mask>;

/// An operation as positions and masks.
#[derive(Default)]
pub(super) struct CoverModel {
    /// The subgraph of each bit.
    pub(super) subgraphs: Vec<SubgraphId>,
    /// The event subgraphs, which have their payload in wave 0.
    pub(super) events: Mask,
    pub(super) types: Vec<JumpType>,
    /// The positions. Children come before their parents.
    pub(super) nodes: Vec<CoverNode>,
    /// The root fields.
    pub(super) roots: Vec<CoverField>,
}

/// The jumps between subgraphs for objects of one type.
#[derive(Default)]
pub(super) struct JumpType {
    /// Classes of subgraphs from which keys of the object lead to the same subgraphs, each with these subgraphs.
    pub(super) classes: Vec<(Mask, Mask)>,
    /// The number of classes of all types before this one.
    pub(super) first_class: usize,
}

/// A position: the selections on an object.
pub(super) enum CoverNode {
    Object {
        /// The type, an index into [`CoverModel::types`].
        ty: usize,
        /// The subgraphs that define the type.
        knows: Mask,
        /// The subgraphs that resolve a leaf field for any object they have, for each leaf field.
        leaves: Vec<Mask>,
        /// The other fields.
        fields: Vec<CoverField>,
    },
    Abstract {
        /// The subgraphs that may return an object type here, and its node, for each object type.
        members: Vec<(Mask, usize)>,
    },
}

pub(super) struct CoverField {
    /// The subgraphs that resolve the field for any object they have.
    pub(super) by: Mask,
    /// The subgraphs that resolve the field if they are sent the fields that it requires.
    pub(super) requiring: Mask,
    /// The subgraphs that resolve a required field, for each required field.
    pub(super) needs: Vec<Mask>,
    /// The node below the field; `None` for a leaf.
    pub(super) child: Option<usize>,
}

impl CoverModel {
    /// Returns all possible requests in `waves` waves.
    pub(super) fn all_requests(&self, waves: usize) -> Waves {
        let servers = all_of(self.subgraphs.len()) & !self.events;
        let mut all = vec![servers; waves + 1];
        all[0] = 0;
        let roots = self.roots.iter().fold(0, |known, root| known | root.by);
        // Jumps are impossible in the first wave, unless an event has delivered its payload.
        if let Some(first) = all.get_mut(1)
            && roots & self.events == 0
        {
            *first &= roots;
        }
        all
    }

    /// Returns a lower bound on the waves of any plan, as if all subgraphs that resolve a field carried it.
    pub(super) fn min_waves(&self) -> usize {
        let mut known = HashMap::default();
        let root = |field: &CoverField| {
            let start = usize::from((field.by | field.requiring) & self.events == 0);
            start + field.child.map_or(0, |child| self.min_depth(child, field.by, &mut known))
        };
        self.roots.iter().map(root).max().unwrap_or(0)
    }

    /// Returns a lower bound on the number of waves after the one in which all of `holders` have the object.
    fn min_depth(
        &self,
        node: usize,
        holders: Mask,
        known: &mut HashMap<(usize, Mask), usize>,
    ) -> usize {
        if let Some(&depth) = known.get(&(node, holders)) {
            return depth;
        }
        let depth = match &self.nodes[node] {
            CoverNode::Abstract { members } => members
                .iter()
                .filter(|(mask, _)| mask & holders != 0)
                .map(|&(mask, member)| self.min_depth(member, mask & holders, known))
                .min(),
            CoverNode::Object { fields, leaves, .. } => fields
                .iter()
                .map(|field| {
                    let here = field.by & holders;
                    let below = |by: Mask, known: &mut _| {
                        field.child.map_or(0, |child| self.min_depth(child, by, known))
                    };
                    let now = (here != 0).then(|| below(here, known));
                    let later = 1 + below(field.by | field.requiring, known);
                    now.map_or(later, |now| now.min(later))
                })
                .chain(leaves.iter().map(|by| usize::from(by & holders == 0)))
                .max(),
        };
        let depth = depth.unwrap_or(0);
        known.insert((node, holders), depth);
        depth
    }
}

/// Returns a mask of the lowest `count` bits.
fn all_of(count: usize) -> Mask {
    if count >= SUBGRAPHS_MAX { Mask::MAX } else { (1 << count) - 1 }
}
