//! The connection for publications: kept by a task, used by whoever publishes.

use redis::aio::MultiplexedConnection;
use redis::RedisResult;
use tokio::sync::watch;

use super::Link;
use super::session::{Dialer, NO_PUSHES};
use super::streams;
use crate::Message;

/// Keeps a connection in `link` until nobody holds the other end any more.
pub(super) async fn run(mut dialer: Dialer, link: watch::Sender<Link<MultiplexedConnection>>) {
    loop {
        let attempt = tokio::select! {
            attempt = dialer.attempt(NO_PUSHES) => attempt,
            () = link.closed() => return,
        };
        let reason = match attempt {
            Ok(mut session) => {
                dialer.succeeded();
                link.send_replace(Link::Up(session.connection.clone()));
                let reason = tokio::select! {
                    reason = session.lost() => Some(reason),
                    () = link.closed() => None,
                };
                session.close().await;
                let Some(reason) = reason else { return };
                dialer.was_lost();
                reason
            }
            Err(reason) => reason,
        };
        link.send_replace(Link::Away(reason));
    }
}

/// Returns when the broker has answered. What is durable goes to the end of a stream, of which about `max_len`
/// entries are kept; keys and headers go there only.
pub(super) async fn publish(
    mut connection: MultiplexedConnection,
    message: &Message,
    max_len: u64,
) -> RedisResult<()> {
    let command = if message.durable {
        streams::add(message, max_len)
    } else {
        let mut command = redis::cmd("PUBLISH");
        command.arg(&*message.topic).arg(&*message.payload);
        command
    };
    command.exec_async(&mut connection).await
}
