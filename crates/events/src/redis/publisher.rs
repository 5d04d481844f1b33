//! The connection for publications: kept by a task, used by whoever publishes.

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, RedisResult};
use tokio::sync::watch;

use super::Link;
use super::session::Dialer;

/// The type of a receiver of pushes that there is none of.
type NoPushes = fn(PushInfo) -> Result<(), std::convert::Infallible>;

/// Keeps a connection in `link` until nobody holds the other end any more.
pub(super) async fn run(mut dialer: Dialer, link: watch::Sender<Link<MultiplexedConnection>>) {
    loop {
        let attempt = tokio::select! {
            attempt = dialer.attempt(None::<NoPushes>) => attempt,
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

/// Returns when the broker has answered.
pub(super) async fn publish(
    mut connection: MultiplexedConnection,
    channel: &str,
    payload: &[u8],
) -> RedisResult<()> {
    redis::cmd("PUBLISH").arg(channel).arg(payload).exec_async(&mut connection).await
}
