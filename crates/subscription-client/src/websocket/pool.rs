//! The operations of one subgraph over WebSocket: each begins on the connection of its partition.

use std::sync::Arc;

use bytes::Bytes;
use events::{EventStream, SourceError, SubgraphSubscription};
use execute::FetchError;
use tokio::sync::{Semaphore, oneshot};
use wire::upstream::SubprotocolChoice;

use super::command::{NewOperation, OperationReply};
use super::connection::ConnectionTask;
use super::connection_table::ConnectionTable;
use super::probe;
use crate::endpoint::SubscriptionEndpoint;
use crate::http_exchange::AttemptFailure;
use crate::operation_task::RESUMPTIONS_MAX;
use crate::probe_outcome::{ProbeError, ProbeErrorKind};
use crate::result_queue;

/// The reason that is reported if a task has ended in a way that it never should.
const DEFECT: &str = "the task of the connection has ended because of a defect of the router";

/// The connections of one subgraph.
#[derive(Debug)]
pub(crate) struct WebSocketPool {
    table: Arc<ConnectionTable>,
    /// The permits of subscriptions that move here, for their first attempts.
    resumptions: Semaphore,
}

impl WebSocketPool {
    pub(crate) fn new(endpoint: Arc<SubscriptionEndpoint>) -> Self {
        let table = Arc::new(ConnectionTable::new(endpoint));
        Self { table, resumptions: Semaphore::new(RESUMPTIONS_MAX) }
    }

    /// Opens a connection without headers, and closes it when the subgraph has accepted it.
    pub(crate) async fn probe(&self) -> Result<(), ProbeError> {
        let offer = self.table.subprotocols();
        match probe::probe(&self.table.endpoint, offer).await {
            // As `note_refusal`: the subgraph may know the older subprotocol only.
            Err(error)
                if offer == SubprotocolChoice::Auto && error.kind == ProbeErrorKind::Unusable =>
            {
                let second = probe::probe(&self.table.endpoint, SubprotocolChoice::Ws).await;
                second.map_err(|_| error)
            }
            result => result,
        }
    }

    /// Begins a subscription on the connection of its partition, which is opened if there is none.
    pub(crate) async fn subscribe(
        &self,
        wanted: Arc<SubgraphSubscription>,
    ) -> Result<EventStream, SourceError> {
        let begun = self.begin(wanted).await;
        begun.map_err(|failure| self.table.endpoint.error(failure.reason))
    }

    async fn begin(
        &self,
        wanted: Arc<SubgraphSubscription>,
    ) -> Result<EventStream, AttemptFailure> {
        let refuse = |reason: String| {
            self.table.endpoint.log_failure(&wanted.field, &reason, &reason);
            AttemptFailure::permanent(reason)
        };
        let (reply, response) = oneshot::channel();
        let reply = OperationReply::Stream(reply);
        self.send(NewOperation { wanted: Arc::clone(&wanted), reply }).map_err(refuse)?;
        response.await.unwrap_or_else(|_| Err(refuse(DEFECT.to_owned())))
    }

    /// Begins a subscription that moves here. If the first attempt to connect fails for a reason that may pass, it
    /// continues as one with a lost connection.
    pub(crate) async fn resubscribe(
        &self,
        wanted: Arc<SubgraphSubscription>,
    ) -> Result<EventStream, SourceError> {
        // The latest headers must outlive a connection that fails.
        let _member = self.table.endpoint.latest_headers.add(&wanted);
        // The semaphore is never closed.
        let turn = self.resumptions.acquire().await;
        let begun = self.begin(Arc::clone(&wanted)).await;
        drop(turn);
        match begun {
            Err(failure) if failure.is_transient => {}
            begun => return begun.map_err(|it| self.table.endpoint.error(it.reason)),
        }
        let (mut sender, stream) = result_queue::new();
        sender.announce_gap();
        let reply = OperationReply::Open(sender);
        let new = NewOperation { wanted: Arc::clone(&wanted), reply };
        self.send(new).map_err(|reason| self.table.endpoint.refuse(&wanted.field, reason))?;
        Ok(stream)
    }

    /// Sends a query or mutation on the connection of its partition, and waits for the result. Dropping the future ends
    /// the operation.
    pub(crate) async fn fetch(
        &self,
        wanted: Arc<SubgraphSubscription>,
    ) -> Result<Bytes, FetchError> {
        let (result, response) = oneshot::channel();
        let (still_waiting, waiting) = oneshot::channel();
        let reply = OperationReply::Single { result, waiting };
        // The limit is the router's own, and says nothing about the subgraph.
        self.send(NewOperation { wanted, reply }).map_err(|_| FetchError::Overloaded)?;
        let result = response.await.unwrap_or_else(|_| Err(FetchError::Closed(DEFECT.into())));
        drop::<oneshot::Sender<()>>(still_waiting);
        result
    }

    /// Passes an operation to a connection, which is opened if there is none. `Err` has the reason why there is none.
    fn send(&self, new: NewOperation) -> Result<(), String> {
        if let Some(added) = self.table.send(new)? {
            tokio::spawn(ConnectionTask::new(Arc::clone(&self.table), added).run());
        }
        Ok(())
    }

    /// Makes the connections of a partition send its latest headers.
    pub(crate) fn send_latest_headers(&self, partition: &[u8]) {
        self.table.send_latest_headers(partition);
    }
}
