//! The commands to a connection: the operations that begin, and the sending of new headers.

use std::sync::Arc;

use bytes::Bytes;
use events::{EventSender, EventStream, SubgraphSubscription};
use execute::FetchError;
use tokio::sync::oneshot;

use crate::http_exchange::AttemptFailure;

/// A command to a connection.
pub(super) enum ConnectionCommand {
    /// Begins an operation.
    Begin(NewOperation),
    /// Sends the latest headers of the partition at once, if the subgraph may expect them.
    SendHeaders,
}

/// An operation that begins.
pub(super) struct NewOperation {
    pub(super) wanted: Arc<SubgraphSubscription>,
    pub(super) reply: OperationReply,
}

/// The channel for the results of an operation.
pub(super) enum OperationReply {
    /// The channel for the stream of a subscription, or the reason why there is none.
    Stream(oneshot::Sender<Result<EventStream, AttemptFailure>>),
    /// The stream of a subscription that moves here, which its subscriber has already.
    Open(EventSender),
    /// The channel for the only result of a query or mutation.
    Single {
        result: oneshot::Sender<Result<Bytes, FetchError>>,
        /// Closes when the result is not needed any more.
        waiting: oneshot::Receiver<()>,
    },
}
