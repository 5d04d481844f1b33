//! What is asked of the server about streams, and how its answers are read. Holds no state.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::try_join_all;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, RedisResult, Value};

use super::entry::{StreamEntry, text};
use super::entry_id::EntryId;
use super::stream_info::StreamInfo;
use super::stream_table::{CatchUpRead, KeyRead, KeyStart};
use crate::Start;
use crate::redis::connection::{error_text, is_refusal};

/// Questions on their way at a time: enough to fill a round trip, few enough that answers stay small.
const CONCURRENT_QUERIES_MAX: usize = 64;

/// How long to wait before asking once more to wake a read that had not begun to wait.
const WAKE_AGAIN: Duration = Duration::from_millis(1);

/// Why a stream cannot be opened.
pub(super) enum OpenFailure {
    /// What follows the position is stored no more.
    Gone,
    /// The broker refuses, with its words.
    Refused(String),
    /// The connection is of no use any more.
    Lost(Box<str>),
}

impl From<RedisError> for OpenFailure {
    fn from(error: RedisError) -> Self {
        if is_about_the_key(&error) {
            Self::Refused(error_text(&error))
        } else {
            Self::Lost(error_text(&error).into())
        }
    }
}

/// Is it the key that the broker refuses (its type, the permissions), and not the server that cannot serve now
/// or serves other keys?
pub(super) fn is_about_the_key(error: &RedisError) -> bool {
    let is_about_the_server = |code| {
        matches!(
            code,
            "MOVED"
                | "ASK"
                | "CLUSTERDOWN"
                | "TRYAGAIN"
                | "LOADING"
                | "MASTERDOWN"
                | "BUSY"
                | "UNBLOCKED"
                | "NOAUTH"
        )
    };
    is_refusal(error) && !error.code().is_some_and(is_about_the_server)
}

/// Asks one thing.
async fn query(connection: &MultiplexedConnection, command: Cmd) -> RedisResult<Value> {
    match connection.clone().send_packed_command(&command).await? {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }
}

/// Asks the same of each, some at a time; answers are in the order of the items.
async fn query_each<'a, T: 'a, A, F: Future<Output = RedisResult<A>>>(
    items: &'a [T],
    asked: impl Fn(&'a T) -> F,
) -> RedisResult<Vec<A>> {
    let mut answers = Vec::with_capacity(items.len());
    for some in items.chunks(CONCURRENT_QUERIES_MAX) {
        answers.extend(try_join_all(some.iter().map(&asked)).await?);
    }
    Ok(answers)
}

/// How a stream is; one that does not exist is empty.
pub(super) async fn stream_info(
    connection: &MultiplexedConnection,
    key: &str,
) -> RedisResult<StreamInfo> {
    let mut command = redis::cmd("XINFO");
    command.arg("STREAM").arg(key);
    match query(connection, command).await {
        Ok(value) => StreamInfo::read(value)
            .ok_or_else(|| (redis::ErrorKind::UnexpectedReturnType, "XINFO STREAM").into()),
        Err(error) if error.detail().is_some_and(|detail| detail.contains("no such key")) => {
            Ok(StreamInfo::default())
        }
        Err(error) => Err(error),
    }
}

async fn read_range(
    connection: &MultiplexedConnection,
    key: &str,
    from: EntryId,
    to: &str,
    count: usize,
) -> RedisResult<Vec<StreamEntry>> {
    let mut command = redis::cmd("XRANGE");
    command.arg(key).arg(from.to_string()).arg(to).arg("COUNT").arg(count);
    Ok(StreamEntry::read_all(query(connection, command).await?))
}

/// The number by which the server knows that connection, if it tells and lets us wake it.
pub(super) async fn wakeable_client_id(
    blocked: &MultiplexedConnection,
    connection: &MultiplexedConnection,
) -> Option<u64> {
    let mut command = redis::cmd("CLIENT");
    command.arg("ID");
    let Ok(Value::Int(number)) = query(blocked, command).await else { return None };
    // It does not wait yet, so that nothing is woken; what counts is that it may be asked.
    let mut command = redis::cmd("CLIENT");
    command.arg("UNBLOCK").arg(number);
    query(connection, command).await.ok().map(|_| number.unsigned_abs())
}

/// Ends the wait of the blocked read on that connection. It may not wait yet, so that this goes on until it has
/// been woken, or until it is dropped because the read has ended by itself.
pub(super) async fn wake_blocked_read(
    connection: MultiplexedConnection,
    number: u64,
) -> RedisResult<()> {
    loop {
        let mut command = redis::cmd("CLIENT");
        command.arg("UNBLOCK").arg(number);
        if let Value::Int(1) = query(&connection, command).await? {
            return Ok(());
        }
        tokio::time::sleep(WAKE_AGAIN).await;
    }
}

/// Waits until one of the keys has something new, and reads it. `count` entries of each at most.
pub(super) async fn read_blocked(
    blocked: MultiplexedConnection,
    connection: MultiplexedConnection,
    keys: Vec<(Arc<str>, EntryId)>,
    count: usize,
    wait: Duration,
) -> RedisResult<Vec<KeyRead>> {
    let mut command = redis::cmd("XREAD");
    command.arg("COUNT").arg(count).arg("BLOCK").arg(wait.as_millis() as u64).arg("STREAMS");
    for (key, _) in &keys {
        command.arg(&**key);
    }
    for (_, from) in &keys {
        command.arg(from.to_string());
    }
    let Value::Map(pairs) = query(&blocked, command).await? else { return Ok(Vec::new()) };
    let asked: HashMap<&[u8], &(Arc<str>, EntryId)> =
        keys.iter().map(|asked| (asked.0.as_bytes(), asked)).collect();
    let reads = pairs.into_iter().filter_map(|(key, entries)| {
        let (key, from) = asked.get(&*text(key)?)?;
        let (key, entries) = (Arc::clone(key), StreamEntry::read_all(entries));
        Some(KeyRead { key, from: *from, entries, gap_after: None })
    });
    let mut reads: Vec<_> = reads.collect();
    // Trimming may have overtaken the reader. While the entry it has read last is there, it has not.
    let gap_after = query_each(&reads, |read| async {
        let is_there = read.from != EntryId::ZERO
            && !read_range(&connection, &read.key, read.from, &read.from.to_string(), 1)
                .await?
                .is_empty();
        if is_there { Ok(None) } else { find_gap(&connection, &read.key, read.from).await }
    })
    .await?;
    for (read, gap_after) in reads.iter_mut().zip(gap_after) {
        read.gap_after = gap_after;
    }
    Ok(reads)
}

/// Where the stream starts now, if something after `from` may be missing.
async fn find_gap(
    connection: &MultiplexedConnection,
    key: &str,
    from: EntryId,
) -> RedisResult<Option<EntryId>> {
    let state = stream_info(connection, key).await?;
    Ok((!state.is_whole_after(from)).then(|| state.begins_after()))
}

/// Reads what follows in one key, for one stream.
pub(super) async fn read_catch_up(
    connection: MultiplexedConnection,
    request: &CatchUpRead,
) -> RedisResult<KeyRead> {
    // Together with the entry that was read last: if it is there, nothing after it was trimmed.
    let mut entries =
        read_range(&connection, &request.key, request.from, "+", request.count + 1).await?;
    let gap_after = if entries.first().is_some_and(|entry| entry.id == request.from) {
        entries.remove(0);
        None
    } else {
        find_gap(&connection, &request.key, request.from).await?
    };
    Ok(KeyRead { key: Arc::clone(&request.key), from: request.from, entries, gap_after })
}

/// How each of the keys is. Those that the broker refuses are apart, with its words.
pub(super) async fn stream_infos(
    connection: &MultiplexedConnection,
    keys: &[Arc<str>],
) -> RedisResult<Vec<(Arc<str>, Result<StreamInfo, String>)>> {
    query_each(keys, |key| async {
        match stream_info(connection, key).await {
            Ok(state) => Ok((Arc::clone(key), Ok(state))),
            Err(error) if is_about_the_key(&error) => {
                Ok((Arc::clone(key), Err(error_text(&error))))
            }
            Err(error) => Err(error),
        }
    })
    .await
}

/// Where a stream over these keys starts.
pub(super) async fn key_starts(
    connection: MultiplexedConnection,
    keys: &[(u32, Arc<str>)],
    start: &Start,
) -> Result<Vec<KeyStart>, OpenFailure> {
    let stream_infos = query_each(keys, |(_, key)| stream_info(&connection, key)).await?;
    let from = match start {
        Start::At(ms) => Some(*ms),
        Start::Since(time) => Some(whole_ms_of(*time)),
        _ => None,
    };
    let next_from = match from {
        Some(ms) => {
            query_each(keys, |(_, key)| async {
                let entries = read_range(&connection, key, EntryId::of_ms(ms), "+", 1).await?;
                Ok(entries.first().map(|entry| entry.id))
            })
            .await?
        }
        None => vec![None; keys.len()],
    };
    let newest = stream_infos.iter().filter_map(|state| state.last.as_ref()).map(|it| it.id).max();
    let mut starts = Vec::with_capacity(keys.len());
    for (((number, _), mut state), next_from) in keys.iter().zip(stream_infos).zip(next_from) {
        // The latest of all: the others begin with what comes.
        let start = match start {
            Start::Last if state.last.as_ref().map(|it| it.id) != newest => &Start::New,
            start => start,
        };
        let read = state.start_after(start, *number, next_from).ok_or(OpenFailure::Gone)?;
        let first = match start {
            Start::Last | Start::LastPerTopic => state.last.take(),
            _ => None,
        };
        let is_behind = first.is_none() && read < state.latest;
        starts.push(KeyStart { read, is_behind, first });
    }
    Ok(starts)
}

/// The first millisecond that is not before that time.
fn whole_ms_of(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_between_milliseconds_begins_with_the_next() {
        let at = |nanoseconds| SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds);
        assert_eq!([7_000_000, 7_000_001].map(at).map(whole_ms_of), [7, 8]);
        assert_eq!(whole_ms_of(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), 0);
    }
}
