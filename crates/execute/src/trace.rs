//! What one execution did, fetch by fetch, for whoever asked to be told.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use flights::Role;
use graph::SubgraphId;

/// Fetches that a trace names. Plans have a handful; what is over the bound is left out.
const FETCHES_MAX: usize = 1_000;

/// Records fetches. Filled by the execution that leads; who follows another's flight has an empty one.
#[derive(Debug)]
pub struct Trace {
    started: Instant,
    fetches: Mutex<Vec<FetchTrace>>,
}

/// One request to a subgraph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchTrace {
    /// Whom.
    pub subgraph: SubgraphId,
    /// When it began, from the start of the trace.
    pub began: Duration,
    /// How long it took.
    pub took: Duration,
    /// Length of the request's body.
    pub request_bytes: usize,
    /// HTTP status and length of the answer's body; `None`: there was no answer.
    pub answer: Option<(u16, usize)>,
    /// How it was shared; `None`: it may not be, or sharing is turned off.
    pub role: Option<Role>,
}

impl Trace {
    /// A trace that begins now.
    pub fn new() -> Self {
        Self { started: Instant::now(), fetches: Mutex::default() }
    }

    /// The fetches so far, in the order of their ends.
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
