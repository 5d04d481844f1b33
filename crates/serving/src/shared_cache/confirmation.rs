//! The routers that have applied an invalidation.

/// The routers that have applied an invalidation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Confirmation {
    /// The number of routers that follow the log, this one included.
    pub routers: usize,
    /// The number of those that did not confirm in time.
    pub unconfirmed: usize,
    /// True if the log does not have the invalidation yet. It gets it as soon as it can be reached.
    pub is_pending: bool,
}

impl Confirmation {
    /// True if every router that follows the log has applied the invalidation.
    pub fn is_complete(self) -> bool {
        self.unconfirmed == 0 && !self.is_pending
    }
}
