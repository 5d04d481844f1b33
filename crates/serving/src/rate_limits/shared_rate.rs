//! The part of a rate limit that several routers share: its numbers, and the names of its keys in Redis.
//!
//! Keys contain a hash in place of what clients sent, which may be a token.

use std::sync::Arc;
use std::time::Duration;

use config::OnStoreFailure;
use redis_store::Store;
use sha2::{Digest, Sha256};

use super::gcra::Exceeded;
use super::key_accounts::KeyAccounts;

/// The number of bytes of a hash in a key. Two of a billion keys are equal with a probability of 10⁻²⁰.
const HASH_BYTES: usize = 16;

/// The shared part of a rate limit.
#[derive(Debug)]
pub(super) struct SharedRate {
    pub(super) store: Arc<Store>,
    pub(super) on_failure: OnStoreFailure,
    /// The beginning of each key: the kind of state, and the name of the limit.
    prefix: String,
    /// The microseconds in which one unit becomes available.
    pub(super) interval: u64,
    /// The units that may be taken at once.
    pub(super) burst: u64,
    /// The latest decisions of the store about keys at their limit, which survive reloads.
    pub(super) accounts: Arc<KeyAccounts>,
}

impl SharedRate {
    /// Creates the shared part of a limit, which continues these accounts.
    pub(super) fn new(
        settings: &config::RateLimit,
        store: &Arc<Store>,
        accounts: &Arc<KeyAccounts>,
    ) -> Self {
        Self {
            store: Arc::clone(store),
            on_failure: settings.on_failure,
            prefix: format!("rate:{}:", settings.name),
            interval: u64::try_from(settings.interval_micros()).unwrap_or(u64::MAX),
            burst: settings.burst().max(1).into(),
            accounts: Arc::clone(accounts),
        }
    }

    /// Returns the reason of a refusal that follows from earlier decisions of the store.
    pub(super) fn exceeded(&self, weight: u64) -> Exceeded {
        let retry_after = Duration::from_micros(self.interval.saturating_mul(weight));
        Exceeded { remaining: 0, retry_after }
    }

    /// Returns the key of the store for a key of the limit.
    pub(super) fn key(&self, key: &str) -> String {
        let digest = Sha256::digest(key.as_bytes());
        let hash = digest[..HASH_BYTES].iter().map(|byte| format!("{byte:02x}"));
        std::iter::once(self.prefix.clone()).chain(hash).collect()
    }
}
