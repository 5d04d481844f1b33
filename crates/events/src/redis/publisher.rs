//! The task that holds the connection for publications, and the commands that publish.

use redis::Cmd;
use redis::aio::MultiplexedConnection;
use redis_connection::NO_PUSHES;
use tokio::sync::watch;

use super::dialer::Dialer;
use super::streams;
use crate::Message;
use crate::connection_state::ConnectionState;

/// Keeps a connection in `state` until all receivers of the state are dropped.
pub(super) async fn run(
    mut dialer: Dialer,
    state: watch::Sender<ConnectionState<MultiplexedConnection>>,
) {
    loop {
        let attempt = tokio::select! {
            attempt = dialer.connect(NO_PUSHES) => attempt,
            () = state.closed() => return,
        };
        let reason = match attempt {
            Ok(mut connection) => {
                dialer.on_connected();
                state.send_replace(ConnectionState::Connected(connection.multiplexed.clone()));
                let reason = tokio::select! {
                    reason = connection.wait_lost() => Some(reason),
                    () = state.closed() => None,
                };
                connection.close().await;
                let Some(reason) = reason else { return };
                dialer.on_lost(&reason, None);
                reason
            }
            Err(reason) => reason,
        };
        state.send_replace(ConnectionState::Disconnected(reason));
    }
}

/// Returns the command that publishes a message. A durable message is added to a stream, of which about `max_len`
/// entries are kept. Only there it keeps its key and headers.
pub(super) fn publish_command(message: &Message, max_len: u64, is_sharded: bool) -> Cmd {
    if message.durable {
        return streams::add_command(message, max_len);
    }
    let mut command = redis::cmd(if is_sharded { "SPUBLISH" } else { "PUBLISH" });
    command.arg(&*message.topic).arg(&*message.payload);
    command
}
