//! The number of a trigger.

/// The number of a trigger. No other one of the hub ever has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct TriggerId(pub(super) u64);
