//! Follows the log of invalidations: joins it, applies its messages in order, and reports the position of this router.
//!
//! A connection of its own waits for messages, so that they arrive within a round trip. Whenever messages may have been
//! missed, everything that this router has stored is stale, and entries of the shared store from before that are, too.
//! While the connection is lost, the router serves what it has in its own memory, so that the loss of Redis does not
//! send all traffic to the subgraphs, and uses nothing of the shared store.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use cache::{LogEpoch, Sequence, SharedMessage, SharedStart, StaleTags};
use events::{Backoff, Retry};
use redis_store::{BlockingConnection, StoreError};
use telemetry::LogLimit;
use tokio::time::sleep;

use super::redis_cache::{RedisCache, count};
use super::scripts::{
    JoinedLog, MESSAGES_KEY, RouterPosition, RouterPositions, UnexpectedReply, join, read_after,
    read_messages, report,
};

/// The interval at which the position is reported, if nothing waits for it.
pub(super) const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// The interval while an invalidation waits for other routers.
const REPORT_PAUSE: Duration = Duration::from_millis(2);

/// The time for which the server waits for messages before it sends an empty reply.
const READ_WAIT: Duration = Duration::from_secs(1);

/// The time after which a server that has not replied counts as away.
const READ_LIMIT: Duration = Duration::from_millis(1_500);

/// The maximum number of messages in one reply.
const READ_COUNT: u64 = 1_000;

/// The pauses between attempts to join.
const RETRY: Retry = Retry { initial: Duration::from_millis(50), max: Duration::from_secs(2) };

/// The time after which a connection counts as stable, so that the next pause is the first one again.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// The reason why the log is joined again.
#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Reply(#[from] UnexpectedReply),
    /// The log has begun again.
    #[error("the log has begun again")]
    OtherEpoch,
    /// Messages are missing.
    #[error("messages of the log are missing")]
    Gap,
    #[error("the system has no random bytes: {0}")]
    Random(#[from] getrandom::Error),
}

/// Follows the log until the level is dropped.
pub(super) async fn follow(cache: Arc<RedisCache>) {
    let failures = LogLimit::new();
    let mut backoff = Backoff::new(RETRY);
    let mut skips_messages = false;
    loop {
        let began = Instant::now();
        let Err(error) = follow_once(&cache, skips_messages).await;
        let was_current = cache.view.is_current();
        cache.view.set_current(false);
        cache.stats.is_current.store(0, Relaxed);
        skips_messages = matches!(error, FollowError::Gap);
        // A log that has begun again is joined at once: nothing is shared until then.
        if skips_messages
            || matches!(error, FollowError::OtherEpoch)
            || began.elapsed() >= STABLE_AFTER
        {
            backoff.reset();
        }
        // A store that is away logs that itself. A refusal says what is missing: a permission, for example.
        let is_refused = matches!(
            error,
            FollowError::Store(StoreError::Refused(_))
                | FollowError::Reply(_)
                | FollowError::Random(_)
        );
        if (was_current || is_refused)
            && let Some(suppressed) = failures.admit(Instant::now())
        {
            tracing::warn!(
                store = cache.store.id(),
                %error,
                suppressed,
                "the log of invalidations is not followed; the shared cache is not used until it is"
            );
        }
        sleep(backoff.next_delay()).await;
    }
}

/// Joins the log and follows it until that fails. With `skips_messages`, everything in the log counts as missed.
async fn follow_once(cache: &RedisCache, skips_messages: bool) -> Result<Infallible, FollowError> {
    let mut connection = cache.store.open_blocking(MESSAGES_KEY).await?;
    let mut new_epoch = [0; 16];
    getrandom::fill(&mut new_epoch)?;
    let known = cache.view.position();
    let command = join(LogEpoch(new_epoch), known);
    let joined = JoinedLog::read(&connection.run(&command, READ_LIMIT).await?)?;
    let place = JoiningPlace::new(known, &joined, skips_messages);
    if known.is_none_or(|known| known.epoch != joined.epoch) {
        count(&cache.stats.epochs);
    }
    cache.view.begin_epoch(joined.epoch, Sequence(place.applied));
    // Before messages are read, so that invalidations wait for this router from now on.
    let positions = report_position(cache).await?;
    if place.is_gap {
        cache.process.invalidate_tags(&StaleTags::All);
        if known.is_some() {
            count(&cache.stats.gaps);
            tracing::warn!(
                store = cache.store.id(),
                "invalidations of other routers may have been lost; everything that is stored is stale now"
            );
        }
    }
    let mut reader =
        LogReader { cache, epoch: joined.epoch, applied: place.applied, known: place.known };
    while reader.applied < joined.last {
        reader.read(&mut connection).await?;
    }
    cache.view.set_current(true);
    cache.stats.is_current.store(1, Relaxed);
    tracing::info!(store = cache.store.id(), "following the log of invalidations");
    let is_alone = positions
        .routers
        .iter()
        .all(|(name, position)| *name == cache.router || *position == RouterPosition::Gone);
    if place.is_gap && is_alone && cache.follows_topics {
        // Events may have come while no router was there to hear them.
        cache.announce_event(StaleTags::All);
    }
    tokio::select! {
        followed = reader.follow(&mut connection) => followed,
        reported = report_positions(cache) => reported,
    }
}

/// The place at which a router begins to read the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct JoiningPlace {
    /// The number up to which the log counts as applied.
    applied: u64,
    /// True if messages may have been missed.
    is_gap: bool,
    /// Messages up to this number concern nothing that this router has stored.
    known: u64,
}

impl JoiningPlace {
    fn new(known: Option<SharedStart>, joined: &JoinedLog, skips_messages: bool) -> Self {
        let JoinedLog { epoch, last, oldest } = *joined;
        if let Some(known) = known.filter(|known| known.epoch == epoch && !skips_messages) {
            let applied = known.sequence.0;
            if applied <= last && oldest <= applied + 1 {
                return Self { applied, is_gap: false, known: applied };
            }
        }
        let applied = if skips_messages { last } else { oldest.saturating_sub(1) };
        Self { applied, is_gap: true, known: last }
    }
}

/// Reads and applies messages.
struct LogReader<'a> {
    cache: &'a RedisCache,
    epoch: LogEpoch,
    applied: u64,
    /// See [`JoiningPlace::known`].
    known: u64,
}

impl LogReader<'_> {
    async fn follow(
        mut self,
        connection: &mut BlockingConnection,
    ) -> Result<Infallible, FollowError> {
        loop {
            self.read(connection).await?;
        }
    }

    /// Waits for messages and applies them.
    async fn read(&mut self, connection: &mut BlockingConnection) -> Result<(), FollowError> {
        let command = read_after(self.applied, READ_COUNT, READ_WAIT);
        let reply = connection.run(&command, READ_LIMIT).await?;
        let received = Instant::now();
        let mut wants_confirmation = false;
        for message in read_messages(&reply)? {
            if message.number != self.applied + 1 {
                return Err(FollowError::Gap);
            }
            let is_own = message.router == self.cache.router.as_bytes();
            let content = SharedMessage::decode(message.message);
            wants_confirmation |= content.wants_confirmation;
            self.apply(message.number, &content, is_own, received);
        }
        if wants_confirmation {
            self.cache.routers.request_report();
        }
        Ok(())
    }

    fn apply(&mut self, number: u64, message: &SharedMessage, is_own: bool, received: Instant) {
        let cache = self.cache;
        let at = SharedStart { epoch: self.epoch, sequence: Sequence(number) };
        match is_own {
            true => cache.view.record(at, &message.stale),
            false => cache.view.record_foreign(at, &message.stale),
        }
        // This router has applied its own messages before it sent them, and hears events itself if it follows topics.
        let is_known = is_own || number <= self.known || message.is_event && cache.follows_topics;
        if !is_known {
            cache.process.invalidate_tags(&message.stale);
            let invalidations = match &message.stale {
                StaleTags::Tags(tags) => tags.len(),
                StaleTags::All => 1,
            };
            cache.invalidation_stats.router.count_message(invalidations, received.elapsed());
        }
        // Last: a fetch that begins with this number began after the message was applied here.
        cache.view.set_applied(at);
        cache.applied.send_replace(());
        self.applied = number;
        count(&cache.stats.applied);
    }
}

/// Reports the position of this router, and notes those of the others.
async fn report_position(cache: &RedisCache) -> Result<RouterPositions, FollowError> {
    let at = cache.view.position().ok_or(FollowError::OtherEpoch)?;
    let number = cache.routers.begin_report();
    let positions = RouterPositions::read(&cache.store.run_one(report(&cache.router, at)).await?)?;
    if positions.epoch != at.epoch {
        return Err(FollowError::OtherEpoch);
    }
    cache.routers.update(number, &positions, Instant::now());
    let lag = positions.last.saturating_sub(at.sequence.0);
    cache.stats.lag.store(lag, Relaxed);
    cache.stats.routers.store(cache.routers.count() as u64, Relaxed);
    Ok(positions)
}

/// Reports positions at intervals, until the log turns out to be another one.
async fn report_positions(cache: &RedisCache) -> Result<Infallible, FollowError> {
    let mut stalled_at = None;
    loop {
        let pause = if cache.routers.has_waiting() { REPORT_PAUSE } else { REPORT_INTERVAL };
        let is_regular = tokio::select! {
            () = sleep(pause) => pause == REPORT_INTERVAL,
            () = cache.routers.report_requested() => false,
        };
        match report_position(cache).await {
            Ok(positions) => {
                let applied = cache.view.position().map_or(0, |at| at.sequence.0);
                if positions.last < applied {
                    // Messages were lost at the server, after a failover for example.
                    return Err(FollowError::Gap);
                }
                // Messages that do not come although the log has them.
                let is_behind = positions.last > applied;
                if is_regular && is_behind && stalled_at == Some(applied) {
                    return Err(FollowError::Gap);
                }
                if is_regular || !is_behind {
                    stalled_at = is_behind.then_some(applied);
                }
            }
            // The position is reported again later. Whether the log can be read is decided elsewhere.
            Err(FollowError::Store(StoreError::Refused(code))) if &*code != "WRONGTYPE" => {}
            Err(FollowError::Store(error)) if !matches!(error, StoreError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: LogEpoch = LogEpoch([1; 16]);

    fn place(known: Option<(u8, u64)>, oldest: u64, skips: bool) -> (u64, bool, u64) {
        let known = known.map(|(epoch, sequence)| SharedStart {
            epoch: LogEpoch([epoch; 16]),
            sequence: Sequence(sequence),
        });
        let joined = JoinedLog { epoch: EPOCH, last: 20, oldest };
        let JoiningPlace { applied, is_gap, known } = JoiningPlace::new(known, &joined, skips);
        (applied, is_gap, known)
    }

    #[test]
    fn a_router_continues_where_it_was_if_the_log_still_has_what_follows() {
        assert_eq!(place(Some((1, 14)), 15, false), (14, false, 14));
        assert_eq!(place(Some((1, 20)), 21, false), (20, false, 20));
        assert_eq!(place(Some((1, 14)), 1, false), (14, false, 14));
    }

    #[test]
    fn a_router_that_may_have_missed_messages_reads_what_the_log_has() {
        for known in [None, Some((2, 14)), Some((1, 13)), Some((1, 25))] {
            assert_eq!(place(known, 15, false), (14, true, 20), "{known:?}");
        }
        assert_eq!(place(None, 21, false), (20, true, 20), "an empty log");
        assert_eq!(place(Some((1, 14)), 15, true), (20, true, 20), "a hole in the log");
    }
}
