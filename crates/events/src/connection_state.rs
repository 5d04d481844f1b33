//! The state of a broker connection as the provider sees it, and the command by which the provider asks the task that
//! holds the connection for a stream. NATS, Kafka and Redis share these.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::event_stream::{EventStream, StreamRequest};

/// The time for which a new subscription or a publication waits for the connection before it fails. It covers the start
/// of the router and a broker that restarts, and is short enough not to be noticed as hanging.
const CONNECT_GRACE: Duration = Duration::from_secs(1);

/// The maximum number of commands that wait for the connection's task. It handles each in microseconds; when this many
/// wait the task is busy, and `subscribe` waits.
pub(crate) const COMMANDS_MAX: usize = 1024;

/// The reason that is reported for a connection that ended.
pub(crate) const LOST: &str = "the connection was lost";

/// The reason that is reported for a stream whose provider was dropped while the stream was being opened.
pub(crate) const PROVIDER_CLOSED: &str = "the provider was closed";

/// The state of a connection.
#[derive(Debug)]
pub(crate) enum ConnectionState<T> {
    /// The connection can be used through the value.
    Connected(T),
    /// There is no connection now, for this reason. It contains no credentials.
    Disconnected(Box<str>),
}

impl<T> ConnectionState<T> {
    /// Makes a channel for the state of a connection that has not been attempted yet.
    pub(crate) fn channel() -> (watch::Sender<Self>, watch::Receiver<Self>) {
        watch::channel(Self::Disconnected("not connected yet".into()))
    }

    /// True if the connection can be used.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(self, Self::Connected(_))
    }

    /// Returns the reason why there is no connection, for a command that arrives while the task connects.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Connected(_) => LOST.to_owned(),
            Self::Disconnected(reason) => reason.to_string(),
        }
    }
}

/// Returns the connection, and waits [`CONNECT_GRACE`] for it. The error is the reason why there is none.
pub(crate) async fn wait_connected<T: Clone>(
    state: &watch::Receiver<ConnectionState<T>>,
) -> Result<T, String> {
    let mut state = state.clone();
    // The state after the wait decides: it is the reason, unless the connection came up at the last moment.
    let _ = timeout(CONNECT_GRACE, state.wait_for(ConnectionState::is_connected)).await;
    match &*state.borrow() {
        ConnectionState::Connected(connection) => Ok(connection.clone()),
        ConnectionState::Disconnected(reason) => Err(reason.to_string()),
    }
}

/// The reason why the task that holds a connection stopped serving it.
pub(crate) enum ServeEnd {
    /// The connection is lost for this reason. The task makes another one.
    ConnectionLost(Box<str>),
    /// The provider was dropped.
    ProviderDropped,
}

/// The command to open a stream.
pub(crate) struct SubscribeCommand {
    /// The topics and the start of the stream.
    pub(crate) wanted: StreamRequest,
    /// Receives the stream, or the reason why there is no connection.
    pub(crate) reply: oneshot::Sender<Result<EventStream, String>>,
}

/// Sends a [`SubscribeCommand`] to the connection's task and waits for the stream.
pub(crate) async fn subscribe(
    commands: &mpsc::Sender<SubscribeCommand>,
    wanted: StreamRequest,
) -> Result<EventStream, String> {
    let closed = || PROVIDER_CLOSED.to_owned();
    let (reply, response) = oneshot::channel();
    commands.send(SubscribeCommand { wanted, reply }).await.map_err(|_| closed())?;
    response.await.map_err(|_| closed())?
}
