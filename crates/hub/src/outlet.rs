//! The interface from the hub to sockets. An outlet serves many connections (a reactor thread) or one (a task per
//! connection), and keeps the only lists of subscribers: an event of a group costs one command, and so does the end of
//! the group.

use std::sync::Arc;

use bytes::Bytes;
use execute::{GraphqlError, Payload};

use crate::GroupSpans;

/// A group of subscribers that get the same bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(pub u64);

/// One subscriber behind an outlet: its connection, and the operation there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Subscriber {
    /// The connection, numbered by the outlet. Numbers are never reused.
    pub connection: u64,
    /// The operation, numbered by the connection.
    pub operation: u32,
}

/// The transport of a subscriber: a number that the layer above assigns. The hub only counts subscribers by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TransportId(u8);

impl TransportId {
    /// The number of transports that the hub can tell apart.
    pub const COUNT_MAX: usize = 8;

    /// Returns the transport with this number.
    ///
    /// # Panics
    /// The number is not below [`TransportId::COUNT_MAX`].
    pub const fn new(number: u8) -> Self {
        assert!((number as usize) < Self::COUNT_MAX, "a number of a transport is small");
        Self(number)
    }

    /// Returns the number, which is below [`TransportId::COUNT_MAX`].
    pub const fn number(self) -> usize {
        self.0 as usize
    }
}

/// Numbers of subscribers by [`TransportId::number`].
pub type TransportCounts = [u64; TransportId::COUNT_MAX];

/// A command of the hub to an outlet. Commands of one group arrive in order.
#[derive(Clone, Debug)]
pub enum OutletCommand {
    /// Adds `member` to `group`.
    Join {
        /// The group.
        group: GroupId,
        /// The subscriber.
        member: Subscriber,
    },
    /// Delivers a payload to all subscribers of `group`.
    Deliver {
        /// The group.
        group: GroupId,
        /// The payload.
        payload: Payload,
        /// True if the broker stores the event or the payload is one of a sequence of patches, and the outlet has just
        /// accepted a result of the group (see [`Outlet::accepts_result`]). The outlet must then not drop the result
        /// because its own queue is full.
        is_stored: bool,
        /// The spans of the event or state in this group, if it has a trace. The outlet reports to it the time at which
        /// it had passed the payload on.
        spans: Option<Arc<GroupSpans>>,
    },
    /// Reports a new position to all subscribers of `group`: they have had everything up to here, though no event since
    /// their last result was for them. Must be ignored for a subscriber with an undelivered result or an unannounced
    /// loss, because it would resume after that.
    Position {
        /// The group.
        group: GroupId,
        /// The cursor to resume from, as payloads carry it: text without quotes or characters to escape.
        cursor: Bytes,
    },
    /// Confirms that `member` of `group` has left; no command for it follows.
    Leave {
        /// The group that it was in.
        group: GroupId,
        /// The subscriber.
        member: Subscriber,
    },
    /// Moves all subscribers of `from` to `into`; `from` no longer exists.
    Merge {
        /// A group that has caught up.
        from: GroupId,
        /// The group that continues. The outlet may have no subscribers of it yet.
        into: GroupId,
    },
    /// Ends `group` for all of its subscribers; no command for it follows.
    End {
        /// The group.
        group: GroupId,
        /// The reason.
        reason: EndReason,
    },
}

/// The reason why a group ended.
#[derive(Clone, PartialEq, Debug)]
pub enum EndReason {
    /// The source is complete.
    Complete,
    /// The group cannot continue.
    Error(Box<GraphqlError>),
}

/// Receives commands without blocking and in order. An outlet bounds the queues of slow sockets by its own policy; it
/// never makes the hub wait.
pub trait Outlet: Send + Sync {
    /// Passes one command to the outlet.
    fn send(&self, command: OutletCommand);

    /// True if the outlet takes another result of `group`. False if it would drop the result for a reason other than
    /// the client: the thread or task that writes to the sockets has not run for a while. Results of stored events and
    /// patches then stay in the group. A slow socket does not count here: its own policy acts.
    fn accepts_result(&self, group: GroupId) -> bool {
        let _ = group;
        true
    }

    /// True if all subscribers of `group` have room for more. Called only while a group catches up, when more events
    /// may follow than any queue holds; live events never wait for a socket.
    fn has_room(&self, group: GroupId) -> bool {
        let _ = group;
        true
    }
}
