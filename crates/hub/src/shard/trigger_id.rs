//! The number of a trigger.

/// The number of a trigger within its shard.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct TriggerId(pub(super) u64);
