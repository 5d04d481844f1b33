//! The commands to a connection: the operations that begin, and new headers.

use std::sync::Arc;

use bytes::Bytes;
use events::{EventStream, SourceError, SubgraphSubscription};
use execute::FetchError;
use http::{HeaderName, HeaderValue};
use tokio::sync::oneshot;

/// A command to a connection.
pub(super) enum ConnectionCommand {
    /// Begins an operation.
    Begin(NewOperation),
    /// Sends these headers from now on, and at once if the subgraph may expect them.
    Renew(Arc<[(HeaderName, HeaderValue)]>),
}

/// An operation that begins.
pub(super) struct NewOperation {
    pub(super) wanted: Arc<SubgraphSubscription>,
    pub(super) reply: OperationReply,
}

/// The channel for the results of an operation.
pub(super) enum OperationReply {
    /// The channel for the stream of a subscription, or the reason why there is none.
    Stream(oneshot::Sender<Result<EventStream, SourceError>>),
    /// The channel for the only result of a query or mutation.
    Single {
        result: oneshot::Sender<Result<Bytes, FetchError>>,
        /// Closes when the result is not needed any more.
        waiting: oneshot::Receiver<()>,
    },
}
