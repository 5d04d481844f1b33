//! The handle of one subscription.

use crate::shard::{LeaveSender, OutletPlace};
use crate::{GroupId, Subscriber};

/// A live subscription. Dropping it ends it; the outlet then gets a `Leave`, unless the group has ended already.
#[derive(Debug)]
pub struct Subscription {
    group: GroupId,
    /// Connection and operation of its [`Subscriber`], as separate fields so that the struct stays small.
    connection: u64,
    operation: u32,
    outlet: OutletPlace,
    /// The channel that reports the end.
    leave_sender: LeaveSender,
}

// There is one for each subscriber, so a million of them are 32 MB.
const _: () = assert!(size_of::<Subscription>() <= 32);

impl Subscription {
    pub(crate) fn new(
        group: GroupId,
        outlet: OutletPlace,
        member: Subscriber,
        leave_sender: LeaveSender,
    ) -> Self {
        let Subscriber { connection, operation } = member;
        Self { group, connection, operation, outlet, leave_sender }
    }

    /// Returns the group of the subscriber.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Ends the subscription.
    pub fn unsubscribe(self) {
        drop(self);
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let member = Subscriber { connection: self.connection, operation: self.operation };
        self.leave_sender.leave((self.group, self.outlet, member));
    }
}
