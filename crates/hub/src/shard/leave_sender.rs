//! The channel by which subscriptions report their end to their shard.

use tokio::sync::mpsc;

use super::outlets::OutletPlace;
use crate::{GroupId, Subscriber};

/// A subscriber that left.
pub(crate) type Leave = (GroupId, OutletPlace, Subscriber);

/// Reports that a subscriber left. Unbounded, because dropping a handle cannot wait; its length is bounded by the
/// number of subscribers, each of which leaves once.
#[derive(Clone, Debug)]
pub(crate) struct LeaveSender(mpsc::UnboundedSender<Leave>);

impl LeaveSender {
    pub(crate) fn channel() -> (Self, mpsc::UnboundedReceiver<Leave>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    pub(crate) fn leave(&self, leave: Leave) {
        // A stopped shard has ended all subscribers already.
        let _ = self.0.send(leave);
    }
}
