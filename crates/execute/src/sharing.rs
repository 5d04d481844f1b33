//! Sends identical queries to subgraphs that are in flight at the same time only once.
//!
//! Two queries are identical if they go to the same subgraph of the same generation with the same
//! body and the same headers; clients that a subgraph can distinguish never share. Mutations are
//! never shared, and an operation that begins after a mutation has ended never gets a response from
//! before: see [`Epoch`].
//!
//! Whole operations are shared above this crate, with the same [`Epoch`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use single_flight::SingleFlight;

use crate::query_key::QueryKey;
use crate::{EventFetchCache, FetchError, SubgraphResponse};

/// State that operations share: those of a whole process, or those that resolve one event. Outlives
/// generations.
#[derive(Debug, Default)]
pub struct Sharing {
    /// Counts mutations.
    pub epoch: Epoch,
    /// Queries to subgraphs in flight; `None` if each operation sends its own.
    pub subgraph_queries: Option<SubgraphFlights>,
    /// Responses for the event that the operations resolve. If set, nothing else is shared.
    pub event: Option<EventFetchCache>,
}

/// Queries to subgraphs in flight.
#[derive(Clone, Debug, Default)]
pub struct SubgraphFlights(
    pub(crate) Arc<SingleFlight<QueryKey, Result<SubgraphResponse, FetchError>>>,
);

impl SubgraphFlights {
    /// The counters of the shared queries.
    pub fn stats(&self) -> &single_flight::SingleFlightStats {
        self.0.stats()
    }
}

/// The number of mutations that have ended. It is a part of every key, so that a client that sends
/// a mutation and then a query never gets the response to an earlier query.
#[derive(Debug, Default)]
pub struct Epoch(AtomicU64);

impl Epoch {
    /// Returns the current epoch.
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Advances the epoch, because data may have changed at a subgraph.
    fn advance(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Advances the epoch when a change is over, also if its request was cancelled: the change may have
/// happened.
pub(crate) struct EpochGuard<'a>(pub(crate) Option<&'a Epoch>);

impl Drop for EpochGuard<'_> {
    fn drop(&mut self) {
        if let Some(epoch) = self.0 {
            epoch.advance();
        }
    }
}
