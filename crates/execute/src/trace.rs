//! Records the fetches of one execution, if a client requested it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use graph::SubgraphId;
use single_flight::Role;

/// Maximum number of fetches in a trace. Plans have a handful; further ones are left out.
const FETCHES_MAX: usize = 1_000;

/// A record of fetches. It is filled by the execution that leads a shared one; the trace of a
/// follower is empty.
#[derive(Debug)]
pub struct Trace {
    started: Instant,
    fetches: Mutex<Vec<FetchTrace>>,
}

/// One request to a subgraph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchTrace {
    /// The subgraph.
    pub subgraph: SubgraphId,
    /// The start of the request, from the start of the trace.
    pub began: Duration,
    /// The duration of the request.
    pub took: Duration,
    /// Length of the request's body.
    pub request_bytes: usize,
    /// HTTP status and length of the response's body; `None` if there was no response.
    pub response: Option<(u16, usize)>,
    /// The role in a shared request; `None` if it must not be shared, or sharing is turned off.
    pub role: Option<Role>,
}

impl Trace {
    /// Creates a trace that begins now.
    pub fn new() -> Self {
        Self { started: Instant::now(), fetches: Mutex::default() }
    }

    /// The fetches so far, in the order in which they ended.
    pub fn fetches(&self) -> Vec<FetchTrace> {
        self.fetches.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn record(&self, fetch: FetchTrace) {
        let mut fetches = self.fetches.lock().unwrap_or_else(PoisonError::into_inner);
        if fetches.len() < FETCHES_MAX {
            fetches.push(fetch);
        }
    }
}

impl Default for Trace {
    fn default() -> Self {
        Self::new()
    }
}
