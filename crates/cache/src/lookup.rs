//! The results of lookups.

use std::time::Duration;

use bytes::Bytes;

use crate::address::EntryAddress;
use crate::entry::{ENTRY_OVERHEAD_BYTES, StoredEntry};
use crate::keys::CacheKey;
use crate::policy::{CachePolicy, PolicyFold};
use crate::refresh::RefreshClaim;
use crate::time::Timestamp;
use crate::time_to_live::ResponseContent;

/// The result of a lookup.
#[derive(Debug)]
pub enum Lookup {
    /// A fresh entry. If it has a [`Hit::refresh`], the caller serves it and also fetches it again.
    Fresh(Hit),
    /// An entry that may be served during the next fetch. The caller fetches if it has the [`Hit::refresh`]; otherwise
    /// another caller does.
    Stale(Hit),
    /// An entry that may be served only if fetching fails. The caller fetches first.
    StaleIfError(Hit),
    /// No usable entry.
    Miss(MissReason),
}

/// The reason of a miss.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MissReason {
    /// There is no entry, or it was evicted.
    Absent,
    /// The entry was invalidated.
    Invalidated,
    /// The times of the entry are over.
    Expired,
}

/// An entry that was found.
#[derive(Debug)]
pub struct Hit {
    pub(crate) key: CacheKey,
    pub(crate) entry: StoredEntry,
    /// The time since the fetch of the entry began.
    pub age: Duration,
    /// The right to fetch the entry again, if this caller should do that. Keep it until the new entry is stored.
    pub refresh: Option<RefreshClaim>,
}

/// A stored entry that is recognised when it is found again. It keeps the memory of the entry.
#[derive(Clone, Debug)]
pub struct EntryHandle(StoredEntry);

impl EntryHandle {
    /// The memory of the entry, in bytes.
    pub fn bytes(&self) -> usize {
        self.0.len() + ENTRY_OVERHEAD_BYTES
    }
}

impl Hit {
    /// The key of the entry.
    pub fn key(&self) -> CacheKey {
        self.key
    }

    /// Returns a handle of the entry.
    pub fn handle(&self) -> EntryHandle {
        EntryHandle(self.entry.clone())
    }

    /// True if this is the entry of the handle, and no other one that has taken its place.
    pub fn is(&self, handle: &EntryHandle) -> bool {
        self.entry.is_same(&handle.0)
    }

    /// The body.
    pub fn body(&self) -> &[u8] {
        self.entry.body()
    }

    /// The body as shared bytes, which keep the entry alive. Costs one small allocation and copies nothing.
    pub fn shared_body(&self) -> Bytes {
        self.entry.shared_body()
    }

    /// The bytes that were stored beside the body.
    pub fn extra(&self) -> &[u8] {
        self.entry.extra()
    }

    /// True if the entry belongs to the clients of one partition.
    pub fn is_private(&self) -> bool {
        self.entry.is_private()
    }

    /// Whether the body has data.
    pub fn content(&self) -> ResponseContent {
        self.entry.content()
    }

    /// The time at which the fetch of the entry began.
    pub fn began(&self) -> Timestamp {
        self.entry.began()
    }

    /// The time for which the entry is still fresh.
    pub fn fresh_for(&self) -> Duration {
        self.entry.fresh_for().saturating_sub(self.age)
    }

    /// Adds the entry to the parts of a response, with its tags and those of `address`.
    pub fn add_to(&self, address: &EntryAddress, fold: &mut PolicyFold) {
        let tags = self.entry.stored_tags().chain(address.tags.iter().copied());
        fold.add_part(&self.entry.times(), self.age, tags, self.entry.is_unbounded());
    }

    /// The policy as it was stored, without tags: for a response that is stored nowhere else. Fold it with
    /// [`Hit::age`].
    pub fn times(&self) -> CachePolicy {
        self.entry.times()
    }
}
