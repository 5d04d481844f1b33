//! Looking up and storing the responses to whole operations.

use std::time::Duration;

use cache::{
    EntryAddress, FetchStart, Lookup, NewEntry, PolicyFold, RefreshClaim, ResponseContent, Scope,
    StoreOutcome, Validator,
};
use execute::Payload;

use super::generation_caches::GenerationCaches;
use super::process_caches::{ProcessCaches, now};
use super::response_keys::{CachedQuery, response_keys};
use super::stored_payload::{StoredExtra, stored_payload};
use crate::trace::ResponseSource;

/// The place of a whole response in its store.
#[derive(Clone, Debug)]
pub(crate) struct ResponseSlot {
    address: EntryAddress,
    start: FetchStart,
}

/// A whole response from memory.
pub(crate) struct StoredResponse {
    pub(crate) payload: Payload,
    /// The time since it was stored.
    pub(crate) age: Duration,
    /// True if its time is over.
    pub(crate) is_stale: bool,
}

impl StoredResponse {
    /// The source, for a trace.
    pub(crate) fn source(&self) -> ResponseSource {
        ResponseSource::Memory { age: self.age, is_stale: self.is_stale }
    }
}

/// The result of looking up a whole response.
pub(crate) enum ResponseLookup {
    /// The response.
    Hit(StoredResponse),
    /// The response, and the right to execute the operation again in the background.
    Refresh(StoredResponse, ResponseSlot, ResponseRefresh),
    /// The operation must be executed, and its response may be stored here.
    Miss(ResponseSlot),
}

/// The right to execute the operation of a stored response again.
pub(crate) struct ResponseRefresh {
    /// The time for which the response is still fresh.
    pub(crate) fresh_for: Duration,
    /// Held until the new response is stored.
    pub(crate) claim: RefreshClaim,
}

impl GenerationCaches {
    /// Looks up the whole response of a query.
    pub(crate) fn look_up(&self, query: &CachedQuery<'_>) -> ResponseLookup {
        let ProcessCaches { responses, response_stats, secret, .. } = &*self.process;
        let address = EntryAddress {
            keys: response_keys(secret, self.number, query),
            tags: Default::default(),
        };
        let now = now();
        let slot = |address| ResponseSlot { address, start: responses.begin_fetch(now) };
        let random = fastrand::u64(..);
        match responses.lookup(&address, now, random, response_stats) {
            Lookup::Fresh(mut hit) | Lookup::Stale(mut hit) => {
                if cache::is_sampled(random) {
                    responses.count_hit(&hit, now, || query.label(hit.is_private()));
                }
                let mut fold = PolicyFold::default();
                // The headers for clients contain times, and the response is stored nowhere else.
                fold.add(&hit.times(), hit.age);
                let mut folded = fold.finish();
                if let Some(folded) = &mut folded {
                    folded.copies = Some(responses.copies_of(&hit));
                }
                let Some(payload) = stored_payload(hit.shared_body(), hit.extra(), folded) else {
                    return ResponseLookup::Miss(slot(address));
                };
                let (age, is_stale) = (hit.age, hit.age >= hit.times().fresh_for);
                let stored = StoredResponse { payload, age, is_stale };
                match hit.refresh.take() {
                    None => ResponseLookup::Hit(stored),
                    Some(claim) => {
                        let refresh = ResponseRefresh { fresh_for: hit.fresh_for(), claim };
                        ResponseLookup::Refresh(stored, slot(address), refresh)
                    }
                }
            }
            Lookup::StaleIfError(_) | Lookup::Miss(_) => ResponseLookup::Miss(slot(address)),
        }
    }

    /// Stores a whole response, if its policy allows it and all clients with its key may get it.
    pub(crate) fn store(&self, slot: &ResponseSlot, query: &CachedQuery<'_>, payload: &Payload) {
        let Some(caching) = &payload.caching else { return };
        // Headers of subgraphs are not stored.
        if payload.errors > 0 || payload.headers.is_some() {
            return;
        }
        let responses = &self.process.responses;
        if payload.bytes.len() as u64 > responses.entry_bytes_max() {
            // Hashing it would be in vain.
            self.process.response_stats.count_store(StoreOutcome::TooLarge);
            return;
        }
        let now = now();
        let validator = Validator::of(&payload.bytes);
        let extra = StoredExtra { splice: payload.splice as u64, validator, cost: payload.cost };
        let extra = extra.to_bytes();
        let new = NewEntry {
            policy: &caching.policy,
            start: slot.start.counted_from(now),
            content: ResponseContent::Data,
            extra: &extra,
            body: &payload.bytes,
        };
        let responses = &self.process.responses;
        responses.insert(&slot.address, &new, now, &self.process.response_stats);
        let scope = caching.policy.scope;
        let label = || query.label(scope == Scope::Private);
        responses.note_stored(&slot.address, scope, &payload.bytes, label);
    }
}
