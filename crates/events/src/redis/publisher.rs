//! The connection for publications: kept by a task, used by whoever publishes.

use redis::Cmd;
use redis::aio::MultiplexedConnection;
use tokio::sync::watch;

use super::Link;
use super::dialer::Dialer;
use super::session::NO_PUSHES;
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

/// What publishes a message. What is durable goes to the end of a stream, of which about `max_len` entries are kept;
/// keys and headers go there only.
pub(super) fn command(message: &Message, max_len: u64, is_sharded: bool) -> Cmd {
    if message.durable {
        return streams::add(message, max_len);
    }
    let mut command = redis::cmd(if is_sharded { "SPUBLISH" } else { "PUBLISH" });
    command.arg(&*message.topic).arg(&*message.payload);
    command
}
