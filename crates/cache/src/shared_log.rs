//! Positions in the log of invalidations that routers share.

use crate::invalidation_table::Sequence;

/// The random name of one life of the log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LogEpoch(pub [u8; 16]);

/// The point in the order of shared invalidations at which a fetch began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedStart {
    /// The life of the log.
    pub epoch: LogEpoch,
    /// The number of the last invalidation that was applied.
    pub sequence: Sequence,
}
