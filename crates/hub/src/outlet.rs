//! How the hub reaches sockets. An outlet serves many connections (a reactor thread) or one (a task
//! per connection) and keeps the lists of members, the only ones there are: a group's event costs one command, and so
//! does its end.

use bytes::Bytes;
use execute::{GraphqlError, Payload};

/// A group of subscribers that get the same bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GroupId(pub u64);

/// One subscriber behind an outlet: which of its connections, and which operation there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Member {
    /// Connection, numbered by the outlet and never used twice.
    pub connection: u64,
    /// Operation, numbered by the connection.
    pub operation: u32,
}

/// What the hub tells an outlet. Commands of one group arrive in order.
#[derive(Clone, Debug)]
pub enum OutletCommand {
    /// `member` is in `group` from now on.
    Join {
        /// The group.
        group: GroupId,
        /// Who.
        member: Member,
    },
    /// To all members of `group`.
    Deliver {
        /// The group.
        group: GroupId,
        /// What.
        payload: Payload,
        /// The event is stored by its broker, and the outlet has just accepted a result of the group (see
        /// [`Outlet::accepts_result`]): the outlet must not drop it for want of room of its own.
        is_stored: bool,
    },
    /// All members of `group` have had everything up to here, though there was nothing for them since their last
    /// result. Worth nothing to a member that has yet to be given a result, or to be told what it lost: it would go on
    /// behind that.
    Position {
        /// The group.
        group: GroupId,
        /// What it may come again with, as payloads carry it: text without quotes or anything to escape.
        cursor: Bytes,
    },
    /// `member` of `group` has asked for its end; nothing follows for it.
    Leave {
        /// The group it was in.
        group: GroupId,
        /// Who.
        member: Member,
    },
    /// All members of `from` are members of `into` from now on; `from` is no more.
    Merge {
        /// A group that has caught up.
        from: GroupId,
        /// The one that it has caught up with. The outlet may have no members of it yet.
        into: GroupId,
    },
    /// `group` is over for all of its members; nothing follows for it.
    End {
        /// The group.
        group: GroupId,
        /// Why.
        reason: EndReason,
    },
}

/// Why a group ended.
#[derive(Clone, PartialEq, Debug)]
pub enum EndReason {
    /// The source completed.
    Complete,
    /// It cannot go on.
    Error(Box<GraphqlError>),
}

/// Takes commands without blocking and without loss of order. An outlet bounds what it queues for slow
/// sockets by its own policy; it never makes the hub wait.
pub trait Outlet: Send + Sync {
    /// Hands over one command.
    fn send(&self, command: OutletCommand);

    /// True if the outlet takes another result of `group`. False if it would drop the result for a reason that is not
    /// the client's: the thread or task that writes to the sockets has not run for a while. Results of stored events
    /// then stay in the group. A slow socket does not count here: its own policy acts.
    fn accepts_result(&self, group: GroupId) -> bool {
        let _ = group;
        true
    }

    /// Do all members of `group` keep up? Asked only before they are given again what they missed, of which there may be
    /// more than any queue holds; what comes live waits for no socket.
    fn has_room(&self, group: GroupId) -> bool {
        let _ = group;
        true
    }
}
