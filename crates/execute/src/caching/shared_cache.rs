//! The interface to a store of entries that several routers share. `serving` implements it over Redis.

use std::any::Any;
use std::pin::Pin;

use cache::{EntryAddress, SharedEntry, SharedKey, SharedStart, StaleTags, Tags, Timestamp};

use crate::LocalFuture;

/// The maximum number of entries that one request looks up in the shared store. Further ones are fetched.
pub(crate) const WANTED_MAX: usize = 1_000;

/// A store of entries that several routers share, behind the store of the process.
///
/// It never fails: what cannot be read is a miss, and what cannot be written is counted.
pub trait SharedCache: Send + Sync {
    /// Returns the point of a fetch that begins now. It must be called before the request is sent. `None` if the
    /// response must not be shared.
    fn begin_fetch(&self) -> Option<SharedStart>;

    /// Copies into the store of the process what the shared store has of these entries, and waits a little for those
    /// that another router is fetching. Takes no longer than the time limits of the configuration.
    fn fill<'a>(&'a self, wanted: Vec<WantedEntry>) -> LocalFuture<'a, Filled>;

    /// Has an entry written. Nothing waits for that.
    fn store(&self, key: SharedKey, entry: SharedEntry);

    /// Announces an invalidation to all routers, before the caller applies it to the store of the process. The future
    /// ends when the log of invalidations has it, or when that takes too long; the announcement continues then.
    fn announce(&self, stale: StaleTags) -> Announcement;

    /// Announces an invalidation as [`SharedCache::announce`] does, for a caller that knows the new values: those with
    /// `tags`, which a request has brought that began at `since`. The second result is there if they may be shared,
    /// unless another invalidation of their tags comes.
    fn announce_replacing(
        &self,
        stale: StaleTags,
        since: SharedStart,
        tags: &Tags,
    ) -> (Announcement, Option<ReplacementStart>);
}

/// Ends when the log of invalidations was applied up to an invalidation with new values. Returns the start under which
/// they may be shared; `None` if they must not be, because another invalidation has come or the log is away.
pub type ReplacementStart = Pin<Box<dyn Future<Output = Option<SharedStart>> + Send>>;

/// See [`SharedCache::announce`].
pub type Announcement = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An entry that is looked up in the shared store.
#[derive(Clone, Debug)]
pub struct WantedEntry {
    /// Its key there.
    pub key: SharedKey,
    /// Its address in the store of the process.
    pub address: EntryAddress,
    /// The start of the fetch of the entry that the store of the process has already: only a later one is wanted.
    pub newer_than: Option<Timestamp>,
}

/// The result of looking into the shared store.
#[derive(Default)]
pub struct Filled {
    /// True if the store of the process has all wanted entries now.
    pub is_complete: bool,
    /// The right to fetch the others, if no other router has it.
    pub locks: FetchLocks,
}

/// The right to fetch entries for all routers. Dropping it, after the responses were stored, gives the right back.
#[derive(Default)]
pub struct FetchLocks(
    #[expect(dead_code, reason = "ends when dropped")] Option<Box<dyn Any + Send>>,
);

impl FetchLocks {
    /// Creates the right that lasts until `guard` is dropped.
    pub fn new(guard: impl Any + Send) -> Self {
        Self(Some(Box::new(guard)))
    }
}
