//! The answers of the control to a request: the right to work, a wait or a refusal; and the outcome of work.

use std::time::Duration;

use crate::request::Request;
use crate::waiting_queue::WaiterId;

/// The right to work. It is given back by [`AdmissionControl::finish`](crate::AdmissionControl::finish).
#[derive(Debug)]
#[must_use = "work that is not finished stays in flight"]
pub struct Ticket {
    pub(crate) request: Request,
    pub(crate) client_key: u64,
    pub(crate) weight: u32,
    pub(crate) admitted_at: Duration,
    /// True if the work was admitted beyond the limit, because its client has far less than its share.
    pub(crate) is_beyond: bool,
    /// True if the work was admitted as the opening of a stream.
    pub(crate) is_stream: bool,
}

impl Ticket {
    /// Returns the request that was admitted.
    pub fn request(&self) -> Request {
        self.request
    }

    /// Returns the weight of the work, in [units](crate::UNITS).
    pub fn weight(&self) -> u32 {
        self.weight
    }
}

/// The end of admitted work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The work was done. Its latency and its cost are representative.
    Completed {
        /// The cost, in any unit that is the same for all work.
        cost: u64,
    },
    /// The work was done, and its latency says nothing about load, such as that of a cached response.
    Unmeasured {
        /// The cost, in the unit of [`Outcome::Completed`].
        cost: u64,
    },
    /// A stream was opened: the operation is known to do so from then on. The latency says nothing about load.
    Opened {
        /// The cost, in the unit of [`Outcome::Completed`].
        cost: u64,
    },
    /// Other work in flight has done this work: the latency is a part of that of the other, and the cost is next to
    /// nothing.
    Shared,
    /// The work was done, and has failed or its response has errors. Its latency counts only if it was longer than
    /// usual: many failures are quick, and those that took all of their time are the clearest sign of load.
    Failed {
        /// The cost, in the unit of [`Outcome::Completed`].
        cost: u64,
    },
    /// The work was given up. Its latency and its cost may be those of a part, so that each counts only if it is more
    /// than usual.
    Abandoned {
        /// The cost until then, in the unit of [`Outcome::Completed`].
        cost: u64,
    },
}

/// The decision about a request.
#[derive(Debug)]
pub enum Decision {
    /// The work may begin.
    Admitted(Ticket),
    /// The request waits. An [`Event`] decides, or at this time
    /// [`AdmissionControl::leave`](crate::AdmissionControl::leave) must be called.
    Waiting(WaiterId, Duration),
    /// The request is refused.
    Refused(Refusal),
}

/// The refusal of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The reason.
    pub reason: RefusalReason,
    /// The whole seconds after which the client should try again.
    pub retry_after_seconds: u64,
    /// True if the request was refused as one that opens a stream. Critical requests are not told apart.
    pub opens_stream: bool,
}

/// The reason of a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RefusalReason {
    /// The queue has no room.
    QueueFull,
    /// The request has waited for as long as it may.
    WaitedTooLong,
    /// The client has far more work in flight than its share.
    ClientShare,
}

impl RefusalReason {
    /// All reasons.
    pub const ALL: [Self; 3] = [Self::QueueFull, Self::WaitedTooLong, Self::ClientShare];

    /// The position of the reason in [`RefusalReason::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the name of the reason, for labels of metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::WaitedTooLong => "waited_too_long",
            Self::ClientShare => "client_share",
        }
    }
}

/// A later decision about a waiting request.
#[derive(Debug)]
pub enum Event {
    /// The work may begin, after this wait.
    Admitted(WaiterId, Ticket, Duration),
    /// The request is refused.
    Refused(WaiterId, Refusal),
}
