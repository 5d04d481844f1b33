//! Caches the responses of subgraphs while one event is resolved, for all groups that it concerns.
//! Ten thousand groups that differ in properties that a subgraph does not see send it one request.
//!
//! A cache begins with its event and ends when the last group has finished, so no group gets a
//! response that is older than the event. It keeps the response after the request has ended,
//! because groups are resolved a thousand at a time. The bytes of all caches together are bounded;
//! responses beyond the bound are shared while they are in flight, and not after.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use single_flight::Role;
use tokio::sync::OnceCell;

use crate::query_key::QueryKey;
use crate::{FetchError, SubgraphResponse};

/// Maximum number of different requests of one event that are shared; further ones are sent
/// without.
const REQUESTS_MAX: usize = 65_536;

/// Size of a request in the cache beside its body and response.
const REQUEST_BYTES: usize = 256;

/// The bytes that all caches may hold together. Caches hold it by `Arc`.
#[derive(Debug)]
pub struct FetchCacheBudget {
    max: usize,
    used: AtomicUsize,
}

impl FetchCacheBudget {
    /// Creates room for `max` bytes.
    pub fn new(max: usize) -> Self {
        Self { max, used: AtomicUsize::new(0) }
    }

    /// The number of bytes in use.
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    fn reserve(&self, bytes: usize) -> bool {
        let fits = |used: usize| Some(used.saturating_add(bytes)).filter(|it| *it <= self.max);
        self.used.fetch_update(Relaxed, Relaxed, fits).is_ok()
    }
}

type CachedResult = Result<SubgraphResponse, FetchError>;

/// The cache of one event.
#[derive(Debug)]
pub struct EventFetchCache {
    results: Mutex<HashMap<QueryKey, Arc<OnceCell<CachedResult>>, foldhash::fast::RandomState>>,
    stored_bytes: AtomicUsize,
    room: Arc<FetchCacheBudget>,
}

impl EventFetchCache {
    /// Creates an empty cache.
    pub fn new(room: Arc<FetchCacheBudget>) -> Self {
        Self { results: Mutex::default(), stored_bytes: AtomicUsize::new(0), room }
    }

    /// Returns the response to a request, sent by the first caller, and whether this one has sent
    /// it. If the first caller is cancelled, the next one sends it again.
    pub(crate) async fn fetch_once<F: Future<Output = CachedResult>>(
        &self,
        key: QueryKey,
        fetch: impl FnOnce() -> F,
    ) -> (CachedResult, Role) {
        let Some(cell) = self.result_cell(&key) else { return (fetch().await, Role::Unshared) };
        let mut is_sender = false;
        let fetch = async {
            is_sender = true;
            fetch().await
        };
        let result = cell.get_or_init(|| fetch).await.clone();
        if is_sender {
            self.store(&key, &result);
        }
        (result, if is_sender { Role::Leader } else { Role::Follower })
    }

    /// True if the request is new; it is registered then, so that later calls return false.
    pub(crate) fn is_first(&self, key: &QueryKey) -> bool {
        let mut results = self.lock();
        if results.contains_key(key) {
            return false;
        }
        if results.len() < REQUESTS_MAX {
            results.insert(key.clone(), Arc::default());
        }
        true
    }

    fn result_cell(&self, key: &QueryKey) -> Option<Arc<OnceCell<CachedResult>>> {
        let mut results = self.lock();
        if let Some(known) = results.get(key) {
            return Some(Arc::clone(known));
        }
        (results.len() < REQUESTS_MAX).then(|| Arc::clone(results.entry(key.clone()).or_default()))
    }

    fn store(&self, key: &QueryKey, result: &CachedResult) {
        let response_bytes = result.as_ref().map_or(0, |response| response.body.len());
        let bytes = REQUEST_BYTES + key.body.len() + response_bytes;
        if self.room.reserve(bytes) {
            self.stored_bytes.fetch_add(bytes, Relaxed);
        } else {
            self.lock().remove(key);
        }
    }

    /// Locks the cache. A map is consistent at any time, so the map behind a poisoned lock is
    /// sound.
    fn lock(
        &self,
    ) -> MutexGuard<'_, HashMap<QueryKey, Arc<OnceCell<CachedResult>>, foldhash::fast::RandomState>>
    {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for EventFetchCache {
    fn drop(&mut self) {
        self.room.used.fetch_sub(self.stored_bytes.load(Relaxed), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use bytes::Bytes;
    use graph::SubgraphId;

    use super::*;
    use crate::ForwardedHeaders;

    fn key(body: &'static str, user: &str) -> QueryKey {
        let header = (http::header::AUTHORIZATION, http::HeaderValue::from_str(user).unwrap());
        // Only subgraph 1 receives the identity.
        let by_subgraph = vec![(SubgraphId(1), vec![header])];
        let headers = Arc::new(ForwardedHeaders { by_subgraph, ..ForwardedHeaders::default() });
        let subgraph = SubgraphId(u16::from(body.starts_with("private")));
        QueryKey {
            epoch: 0,
            generation: 1,
            subgraph,
            body: Bytes::from_static(body.as_bytes()),
            headers,
        }
    }

    fn cached_result(text: &'static str) -> CachedResult {
        let (status, headers) = (http::StatusCode::OK, http::HeaderMap::new());
        Ok(SubgraphResponse { status, headers, body: text.into(), policy: None, hedge: None })
    }

    async fn fetch_counted(cache: &EventFetchCache, key: QueryKey, sent: &Cell<u32>) {
        let is_sent = Cell::new(false);
        let fetch = || async {
            is_sent.set(true);
            sent.set(sent.get() + 1);
            tokio::task::yield_now().await;
            cached_result("{}")
        };
        let (result, role) = cache.fetch_once(key, fetch).await;
        assert_eq!(result.unwrap().body, "{}");
        assert_eq!(role == Role::Leader, is_sent.get());
    }

    #[tokio::test]
    async fn a_request_is_sent_once_for_all_clients_that_its_subgraph_cannot_distinguish() {
        let (cache, sent) =
            (EventFetchCache::new(Arc::new(FetchCacheBudget::new(10_000))), Cell::new(0));
        let all = ["a", "b", "a"].map(|user| fetch_counted(&cache, key("public", user), &sent));
        futures_util::future::join_all(all).await;
        fetch_counted(&cache, key("public", "c"), &sent).await;
        assert_eq!(sent.get(), 1, "also for a caller after the response");
        let all = ["a", "b", "a"].map(|user| fetch_counted(&cache, key("private", user), &sent));
        futures_util::future::join_all(all).await;
        assert_eq!(sent.get(), 3, "once for each user that it knows");
    }

    #[tokio::test]
    async fn a_cancelled_caller_leaves_the_request_to_the_next() {
        let (cache, sent) =
            (EventFetchCache::new(Arc::new(FetchCacheBudget::new(10_000))), Cell::new(0));
        let mut first = Box::pin(cache.fetch_once(key("public", "a"), std::future::pending));
        assert!(futures_util::poll!(&mut first).is_pending());
        let second = fetch_counted(&cache, key("public", "b"), &sent);
        drop(first);
        second.await;
        assert_eq!(sent.get(), 1);
    }

    #[tokio::test]
    async fn responses_over_the_room_are_not_kept_and_all_room_is_released() {
        let room = Arc::new(FetchCacheBudget::new(REQUEST_BYTES + 10));
        let (cache, sent) = (EventFetchCache::new(Arc::clone(&room)), Cell::new(0));
        for _ in 0..2 {
            fetch_counted(&cache, key("1", "a"), &sent).await;
            fetch_counted(&cache, key("2", "a"), &sent).await;
        }
        assert_eq!(sent.get(), 3, "there was room for the first only");
        assert_eq!(room.used(), REQUEST_BYTES + 3);
        drop(cache);
        assert_eq!(room.used(), 0);
    }
}
