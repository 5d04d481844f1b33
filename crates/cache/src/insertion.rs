//! The parts of a new entry, and the result of storing it.

use crate::invalidation_table::Sequence;
use crate::policy::CachePolicy;
use crate::time::Timestamp;
use crate::time_to_live::ResponseContent;

/// The start of a fetch. It must be taken before the request is sent, so that an invalidation meanwhile makes the
/// response stale.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchStart {
    pub(crate) sequence: Sequence,
    pub(crate) at: Timestamp,
    /// The time from which the duration of the fetch counts, which decides how early the entry is refreshed.
    pub(crate) requested: Timestamp,
}

impl FetchStart {
    /// Returns this start with the times of the policy counted from `now`. For a response that was made of parts: its
    /// execution began at this start, and its policy was folded now. The duration of the execution stays known.
    #[must_use]
    pub fn counted_from(self, now: Timestamp) -> Self {
        Self { at: now, ..self }
    }
}

/// A response to store.
#[derive(Clone, Copy, Debug)]
pub struct NewEntry<'a> {
    /// Policy, with all tags that the address does not have.
    pub policy: &'a CachePolicy,
    /// The start of its fetch.
    pub start: FetchStart,
    /// Whether the body has data.
    pub content: ResponseContent,
    /// Bytes of the caller beside the body, such as printed headers: at most [`crate::EXTRA_BYTES_MAX`].
    pub extra: &'a [u8],
    /// The body, which is copied.
    pub body: &'a [u8],
}

/// The result of storing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreOutcome {
    /// The entry is stored.
    Stored,
    /// The response is private, and its client has no partition.
    NoPartition,
    /// One of its tags was invalidated after its fetch had begun.
    Outdated,
    /// It has no time left.
    Expired,
    /// It is larger than [`crate::Store::entry_bytes_max`], or its extra bytes are.
    TooLarge,
    /// A later fetch has stored its response already.
    Superseded,
}
