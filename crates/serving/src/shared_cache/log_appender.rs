//! Appends the invalidations of this router to the log.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use cache::{Sequence, SharedStart};
use events::{Backoff, Retry};
use redis_store::StoreError;
use tokio::time::sleep;

use super::outbox::OutboxMessage;
use super::redis_cache::{RedisCache, count};
use super::scripts::{UnexpectedReply, append, read_appended};

/// The time for which events of a broker are collected. Each router appends the events that it hears, so that a busy
/// topic makes a hundred messages in a second for each router.
const EVENT_PAUSE: Duration = Duration::from_millis(10);

/// The pauses between attempts to append.
const RETRY: Retry = Retry { initial: Duration::from_millis(5), max: Duration::from_millis(500) };

/// The reason why a message was not appended.
#[derive(Debug, thiserror::Error)]
enum AppendError {
    #[error("the log is not known yet")]
    NotJoined,
    #[error("the log has begun again")]
    OtherEpoch,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Reply(#[from] UnexpectedReply),
}

/// Appends messages until the level is dropped.
pub(super) async fn append_messages(cache: Arc<RedisCache>) {
    loop {
        let added = cache.outbox.added.notified();
        if cache.outbox.is_first_an_event() {
            sleep(EVENT_PAUSE).await;
        }
        match cache.outbox.take() {
            Some(message) => append_until_done(&cache, message).await,
            None => added.await,
        }
    }
}

/// Appends one message, again and again until the log has it. A message may be appended twice, which is harmless.
async fn append_until_done(cache: &RedisCache, message: OutboxMessage) {
    let mut backoff = Backoff::new(RETRY);
    let at = loop {
        match append_once(cache, &message).await {
            Ok(at) => break at,
            Err(error) => {
                count(&cache.stats.append_failures);
                if matches!(error, AppendError::OtherEpoch) {
                    // The report notices it, and the log is joined again.
                    cache.routers.request_report();
                }
                tracing::debug!(%error, "an invalidation is not in the log yet; trying again");
                sleep(backoff.next_delay()).await;
            }
        }
    };
    message.announced.iter().for_each(|stale| cache.view.end_announcement(stale));
    for waiting in message.waiting {
        // The caller may have stopped waiting.
        let _ = waiting.send(at);
    }
}

/// Appends the parts of a message, records their numbers, and returns the last one.
async fn append_once(
    cache: &RedisCache,
    message: &OutboxMessage,
) -> Result<SharedStart, AppendError> {
    let epoch = cache.view.position().ok_or(AppendError::NotJoined)?.epoch;
    let parts = message.parts();
    let commands = parts.iter().map(|part| append(epoch, &cache.router, part.encode()));
    let mut last = Sequence(0);
    for (reply, part) in cache.store.run(commands.collect()).await.into_iter().zip(parts) {
        last = read_appended(&reply?)?.ok_or(AppendError::OtherEpoch)?;
        cache.view.record(SharedStart { epoch, sequence: last }, &part.stale);
        cache.stats.appended.fetch_add(1, Relaxed);
    }
    Ok(SharedStart { epoch, sequence: last })
}
