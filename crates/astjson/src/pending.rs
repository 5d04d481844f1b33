//! The work list of a merge.

use crate::limits::WALK_DEPTH_MAX;
use crate::node::NodeId;

/// A pair of values that is still to be merged.
#[derive(Clone, Copy)]
pub(crate) struct Pending {
    pub(crate) target: NodeId,
    pub(crate) source: NodeId,
    pub(crate) level: MergeLevel,
}

/// Depth of a merge, and its treatment of `null`.
#[derive(Clone, Copy)]
pub(crate) struct MergeLevel {
    depth: u32,
    /// If set, a `null` on the right side leaves the value of the left side.
    pub(crate) fills: bool,
}

impl MergeLevel {
    /// The level of the values that a merge begins with.
    pub(crate) fn new(fills: bool) -> Self {
        Self { depth: 0, fills }
    }

    /// The level of the members of values at this level.
    pub(crate) fn below(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }

    /// True if the values contain themselves, or are nested too deeply.
    pub(crate) fn is_too_deep(self) -> bool {
        self.depth as usize > WALK_DEPTH_MAX
    }
}
