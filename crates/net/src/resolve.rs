//! Name resolution by the system's resolver, away from the worker threads, with a short-lived cache that all workers
//! share.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::ConnectError;

/// The time for which a result is used. The system's resolver does not report the time to live of its records; this is
/// the shortest one in common use, so that no request goes to a server that was removed long ago.
const FRESH: Duration = Duration::from_secs(5);

/// The time for which a failure is used: long enough that a burst of connections causes one lookup.
const FAILED: Duration = Duration::from_secs(1);

/// The time for which old addresses are used while the resolver fails.
const STALE_MAX: Duration = Duration::from_secs(300);

/// The maximum number of cached names. A graph has some hundred subgraphs; each name takes a few hundred bytes.
const NAMES_MAX: usize = 1024;

/// The maximum number of addresses that are kept for a name.
const ADDRESSES_MAX: usize = 64;

static CACHE: LazyLock<AddressCache> = LazyLock::new(AddressCache::default);

/// Returns the addresses of `host` in the system's order of preference.
///
/// # Errors
/// [`ConnectError::Resolve`] if there are none.
pub(crate) async fn addresses_of(host: &str) -> Result<Arc<[IpAddr]>, ConnectError> {
    if let Ok(ip) = host.parse() {
        return Ok(Arc::new([ip]));
    }
    // tokio runs `getaddrinfo` on a blocking thread.
    let lookup =
        || async { Ok(tokio::net::lookup_host((host, 0)).await?.map(|it| it.ip()).collect()) };
    CACHE.resolve(host, lookup).await
}

/// The cache. The first caller that needs a name looks it up; other callers wait for that lookup.
#[derive(Default)]
struct AddressCache(Mutex<HashMap<Box<str>, Slot>>);

type Slot = Arc<tokio::sync::Mutex<CachedAddresses>>;

#[derive(Default)]
struct CachedAddresses {
    addresses: Option<(Arc<[IpAddr]>, Instant)>,
    failed: Option<Instant>,
}

impl AddressCache {
    async fn resolve<F>(
        &self,
        host: &str,
        lookup: impl FnOnce() -> F,
    ) -> Result<Arc<[IpAddr]>, ConnectError>
    where
        F: Future<Output = io::Result<Vec<IpAddr>>>,
    {
        let slot = self.slot(host);
        let mut known = slot.lock().await;
        let now = Instant::now();
        let age = |since: Instant| now.saturating_duration_since(since);
        if let Some((addresses, since)) = &known.addresses
            && age(*since) < FRESH
        {
            return Ok(Arc::clone(addresses));
        }
        if known.failed.is_none_or(|since| age(since) >= FAILED) {
            match lookup().await {
                Ok(mut found) if !found.is_empty() => {
                    found.truncate(ADDRESSES_MAX);
                    let mut seen = Vec::with_capacity(found.len());
                    found.retain(|it| {
                        !seen.contains(it) && {
                            seen.push(*it);
                            true
                        }
                    });
                    let addresses: Arc<[IpAddr]> = found.into();
                    *known = CachedAddresses {
                        addresses: Some((Arc::clone(&addresses), Instant::now())),
                        failed: None,
                    };
                    return Ok(addresses);
                }
                _ => known.failed = Some(Instant::now()),
            }
        }
        match &known.addresses {
            Some((addresses, since)) if age(*since) < STALE_MAX => Ok(Arc::clone(addresses)),
            _ => Err(ConnectError::Resolve),
        }
    }

    fn slot(&self, host: &str) -> Slot {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = names.get(host) {
            return Arc::clone(slot);
        }
        if names.len() >= NAMES_MAX {
            // Drops the names that no caller is using. Their addresses can be looked up again.
            names.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
        let slot = Slot::default();
        if names.len() < NAMES_MAX {
            names.insert(host.into(), Arc::clone(&slot));
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A resolver that counts its lookups.
    struct Resolver {
        cache: AddressCache,
        result: Cell<Option<u8>>,
        lookups: Cell<u32>,
    }

    impl Resolver {
        fn new() -> Self {
            Self {
                cache: AddressCache::default(),
                result: Cell::new(Some(1)),
                lookups: Cell::new(0),
            }
        }

        async fn ask(&self) -> Option<IpAddr> {
            let lookup = || async {
                self.lookups.set(self.lookups.get() + 1);
                tokio::time::sleep(Duration::from_millis(5)).await;
                let last = self.result.get().ok_or(io::ErrorKind::Other)?;
                Ok(vec![IpAddr::from([127, 0, 0, last]); 3])
            };
            let found = self.cache.resolve("a.example", lookup).await.ok()?;
            assert_eq!(found.len(), 1, "an address is named once");
            Some(found[0])
        }
    }

    fn local(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([127, 0, 0, last]))
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_and_closely_following_callers_share_one_lookup() {
        let resolver = Resolver::new();
        let (one, two) = tokio::join!(resolver.ask(), resolver.ask());
        assert_eq!((one, two, resolver.lookups.get()), (local(1), local(1), 1));
        tokio::time::advance(FRESH / 2).await;
        resolver.result.set(Some(2));
        assert_eq!((resolver.ask().await, resolver.lookups.get()), (local(1), 1));
        tokio::time::advance(FRESH).await;
        assert_eq!((resolver.ask().await, resolver.lookups.get()), (local(2), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn old_addresses_are_used_while_the_resolver_fails_but_not_for_ever() {
        let resolver = Resolver::new();
        resolver.ask().await;
        resolver.result.set(None);
        tokio::time::advance(FRESH).await;
        assert_eq!((resolver.ask().await, resolver.lookups.get()), (local(1), 2));
        assert_eq!((resolver.ask().await, resolver.lookups.get()), (local(1), 2));
        tokio::time::advance(STALE_MAX).await;
        assert_eq!((resolver.ask().await, resolver.lookups.get()), (None, 3));
        tokio::time::advance(FAILED).await;
        resolver.result.set(Some(3));
        assert_eq!(resolver.ask().await, local(3));
    }

    #[tokio::test]
    async fn an_address_needs_no_resolver() {
        assert_eq!(addresses_of("::1").await.unwrap()[..], ["::1".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let cache = AddressCache::default();
        for number in 0..2 * NAMES_MAX {
            cache.slot(&number.to_string());
        }
        assert!(cache.0.lock().unwrap().len() <= NAMES_MAX);
    }
}
