//! The commands for Redis Streams, and the parsing of their responses. This module holds no state.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::try_join_all;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, RedisResult, Value};
use redis_connection::{error_text, is_refusal};

use super::entry::{StreamEntry, text};
use super::entry_id::EntryId;
use super::stream_info::StreamInfo;
use super::stream_table::{CatchUpRead, KeyRead, KeyStart};
use crate::Start;

/// The maximum number of commands that are sent at once: enough to fill a round trip, few enough to keep responses
/// small.
const CONCURRENT_QUERIES_MAX: usize = 64;

/// The pause before another attempt to wake a read that had not begun to wait.
const WAKE_AGAIN: Duration = Duration::from_millis(1);

/// The reason why a stream cannot be opened.
pub(super) enum KeyStartError {
    /// The entries behind the position are not stored any more.
    Gone,
    /// The broker refuses, with these words.
    Refused(String),
    /// The connection cannot be used any more.
    Lost(Box<str>),
}

impl From<RedisError> for KeyStartError {
    fn from(error: RedisError) -> Self {
        if is_about_the_key(&error) {
            Self::Refused(error_text(&error))
        } else {
            Self::Lost(error_text(&error).into())
        }
    }
}

/// True if the broker refuses the key (its type, or the permissions). False if the server cannot serve at present, or
/// serves other keys.
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

/// Sends one command and returns its response.
async fn query(connection: &MultiplexedConnection, command: Cmd) -> RedisResult<Value> {
    match connection.clone().send_packed_command(&command).await? {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }
}

/// Queries each of the items, a limited number at a time. The results are in the order of the items.
async fn query_each<'a, T: 'a, A, F: Future<Output = RedisResult<A>>>(
    items: &'a [T],
    asked: impl Fn(&'a T) -> F,
) -> RedisResult<Vec<A>> {
    let mut responses = Vec::with_capacity(items.len());
    for some in items.chunks(CONCURRENT_QUERIES_MAX) {
        responses.extend(try_join_all(some.iter().map(&asked)).await?);
    }
    Ok(responses)
}

/// Returns the state of a stream. A stream that does not exist is empty.
pub(super) async fn query_stream_info(
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

/// Returns the id by which the server knows the blocked connection, if it reports the id and allows waking the
/// connection.
pub(super) async fn query_wakeable_client_id(
    blocked: &MultiplexedConnection,
    connection: &MultiplexedConnection,
) -> Option<u64> {
    let mut command = redis::cmd("CLIENT");
    command.arg("ID");
    let Ok(Value::Int(number)) = query(blocked, command).await else { return None };
    // The connection does not wait yet, so nothing is woken. Only the permission matters here.
    let mut command = redis::cmd("CLIENT");
    command.arg("UNBLOCK").arg(number);
    query(connection, command).await.ok().map(|_| number.unsigned_abs())
}

/// Ends the wait of the blocked read on that connection. The read may not have begun to wait, so this repeats until the
/// read was woken. It is dropped if the read ends by itself.
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

/// Waits until one of the keys has new entries, and reads at most `count` of each key.
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
    // Entries may have been trimmed before they were read. That is not so if the entry that was read last still exists.
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

/// Returns the id after which the stream begins now, if entries behind `from` may be missing.
async fn find_gap(
    connection: &MultiplexedConnection,
    key: &str,
    from: EntryId,
) -> RedisResult<Option<EntryId>> {
    let state = query_stream_info(connection, key).await?;
    Ok((!state.is_whole_after(from)).then(|| state.id_before_first()))
}

/// Reads the next entries of one key for one stream.
pub(super) async fn read_catch_up(
    connection: MultiplexedConnection,
    request: &CatchUpRead,
) -> RedisResult<KeyRead> {
    // The entry that was read last is read again: if it exists, nothing behind it was trimmed.
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

/// Returns the state of each of the keys, or the broker's words for a key that it refuses.
pub(super) async fn query_stream_infos(
    connection: &MultiplexedConnection,
    keys: &[Arc<str>],
) -> RedisResult<Vec<(Arc<str>, Result<StreamInfo, String>)>> {
    query_each(keys, |key| async {
        match query_stream_info(connection, key).await {
            Ok(state) => Ok((Arc::clone(key), Ok(state))),
            Err(error) if is_about_the_key(&error) => {
                Ok((Arc::clone(key), Err(error_text(&error))))
            }
            Err(error) => Err(error),
        }
    })
    .await
}

/// Returns where a stream begins in each of these keys.
pub(super) async fn query_key_starts(
    connection: MultiplexedConnection,
    keys: &[(u32, Arc<str>)],
    start: &Start,
) -> Result<Vec<KeyStart>, KeyStartError> {
    let infos = query_each(keys, |(_, key)| query_stream_info(&connection, key)).await?;
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
    let newest = infos.iter().filter_map(|state| state.last.as_ref()).map(|it| it.id).max();
    let mut starts = Vec::with_capacity(keys.len());
    for (((number, _), mut state), next_from) in keys.iter().zip(infos).zip(next_from) {
        // `Last` means the latest entry of all keys. The other keys begin with their next entry.
        let start = match start {
            Start::Last if state.last.as_ref().map(|it| it.id) != newest => &Start::New,
            start => start,
        };
        let read = state.start_after(start, *number, next_from).ok_or(KeyStartError::Gone)?;
        let first = match start {
            Start::Last | Start::LastPerTopic => state.last.take(),
            _ => None,
        };
        let is_behind = first.is_none() && read < state.latest;
        starts.push(KeyStart { read, is_behind, first });
    }
    Ok(starts)
}

/// Returns the first millisecond that is not before that time.
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
