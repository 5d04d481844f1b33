//! Requests of operators to reload the graph or to return to the one before, and their results. The task that reloads
//! (`reload`) serves them in turn.

use tokio::sync::{mpsc, oneshot};

/// The maximum number of requests that wait for the one that runs: those of some operators and one pipeline.
const WAITING_MAX: usize = 4;

/// The request of an operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReloadRequest {
    /// Reads the graph from its source now.
    Reload,
    /// Returns to the graph before the one that serves.
    Rollback,
}

/// The result of reading a graph, or of returning to the one before. A generation is named by its id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ReloadOutcome {
    /// Another graph serves.
    Loaded {
        /// The generation that serves now.
        generation: String,
        /// The generation that served before.
        before: String,
    },
    /// The graph at the source is the one that serves.
    Unchanged {
        /// The generation that serves.
        generation: String,
    },
    /// There is no graph, or it does not load.
    Refused {
        /// The generation that continues to serve.
        generation: String,
        /// The reasons.
        problems: Vec<String>,
    },
    /// There is no graph to return to.
    NothingBefore {
        /// The generation that continues to serve.
        generation: String,
    },
}

/// A request that waits for its result.
pub(crate) struct WaitingRequest {
    /// The request.
    pub(crate) request: ReloadRequest,
    /// Takes the result.
    pub(crate) respond: oneshot::Sender<ReloadOutcome>,
}

/// The reason why a request has no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoOutcome {
    /// Too many requests wait.
    Busy,
    /// The router is shutting down.
    Stopped,
}

/// Passes requests to the task that reloads.
#[derive(Clone, Debug)]
pub(crate) struct ReloadRequests(mpsc::Sender<WaitingRequest>);

impl ReloadRequests {
    /// Creates a queue; the receiver is for the task that reloads.
    pub(crate) fn new() -> (Self, mpsc::Receiver<WaitingRequest>) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (Self(sender), receiver)
    }

    /// Sends a request and waits for its result.
    ///
    /// # Cancellation
    /// The request is served all the same.
    ///
    /// # Errors
    /// There will be no result.
    pub(crate) async fn send(&self, request: ReloadRequest) -> Result<ReloadOutcome, NoOutcome> {
        let (respond, outcome) = oneshot::channel();
        self.0.try_send(WaitingRequest { request, respond }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NoOutcome::Busy,
            mpsc::error::TrySendError::Closed(_) => NoOutcome::Stopped,
        })?;
        outcome.await.map_err(|_| NoOutcome::Stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_get_their_results_in_turn_and_their_number_is_bounded() {
        let (requests, mut waiting) = ReloadRequests::new();
        let send = || {
            let requests = requests.clone();
            tokio::spawn(async move { requests.send(ReloadRequest::Reload).await })
        };
        let sent: Vec<_> = (0..WAITING_MAX).map(|_| send()).collect();
        while waiting.len() < WAITING_MAX {
            tokio::task::yield_now().await;
        }
        assert_eq!(requests.send(ReloadRequest::Rollback).await, Err(NoOutcome::Busy));
        for (number, sent) in sent.into_iter().enumerate() {
            let next = waiting.recv().await.unwrap();
            let outcome = ReloadOutcome::Unchanged { generation: number.to_string() };
            next.respond.send(outcome.clone()).unwrap();
            assert_eq!(sent.await.unwrap(), Ok(outcome));
        }
        drop(waiting);
        assert_eq!(requests.send(ReloadRequest::Reload).await, Err(NoOutcome::Stopped));
    }
}
