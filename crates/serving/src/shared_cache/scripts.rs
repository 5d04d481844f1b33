//! The keys of entries in Redis, the keys and scripts of the log of invalidations, and the forms of their replies.
//!
//! All keys of the log have one hash tag, so that a cluster keeps them on one server and a script may use all of them.

use std::sync::LazyLock;
use std::time::Duration;

use cache::{LogEpoch, SHARED_ENTRY_BYTES_MAX, Sequence, SharedKey, SharedStart};
use redis_store::{Command, Reply, Script};

/// The state of the log: its epoch, and the number of its last message.
const STATE_KEY: &str = "cache:{log}:state";

/// The messages of the log, a stream. The id of message `n` is `n-0`.
pub(super) const MESSAGES_KEY: &str = "cache:{log}:messages";

/// The routers that follow the log, with the position of each.
const ROUTERS_KEY: &str = "cache:{log}:routers";

/// The number of messages that the log keeps. A router that was away for longer, or that starts, counts older entries
/// as stale. With 2 kB for the largest message the log has at most 100 MB, and mostly less than 5 MB.
const MESSAGES_KEPT: u64 = 50_000;

/// The time for which the log is kept after the last router has left.
const LOG_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The largest number that a table of invalidations can remember.
const NUMBER_MAX: u64 = (1 << 44) - 1;

/// The word that a router reports in place of its epoch when it leaves.
const GONE: &str = "gone";

/// The time after which a router that has not reported its position counts as gone.
const LEASE: Duration = Duration::from_secs(3);

static JOIN: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("join_log.lua")));
static APPEND: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("append_message.lua")));
static REPORT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("report_position.lua")));

/// A reply that no script gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the log of invalidations cannot be read")]
pub(super) struct UnexpectedReply;

/// The state of the log for a router that joins it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct JoinedLog {
    pub(super) epoch: LogEpoch,
    /// The number of the last message.
    pub(super) last: u64,
    /// The number of the oldest message that the log has; one above `last` if it has none.
    pub(super) oldest: u64,
}

/// The position of one router.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RouterPosition {
    /// It has applied the log up to this number.
    At(u64),
    /// It has not joined this epoch of the log yet.
    OtherEpoch,
    /// It has left.
    Gone,
}

/// The positions of all routers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RouterPositions {
    pub(super) epoch: LogEpoch,
    /// The number of the last message.
    pub(super) last: u64,
    /// The name and the position of each router.
    pub(super) routers: Vec<(Box<str>, RouterPosition)>,
}

/// A message of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StreamMessage<'a> {
    pub(super) number: u64,
    /// The name of the router that has appended it.
    pub(super) router: &'a [u8],
    pub(super) message: &'a [u8],
}

/// Returns the command that joins the log.
pub(super) fn join(new_epoch: LogEpoch, known: Option<SharedStart>) -> Command {
    let epoch = known.map(|it| epoch_text(it.epoch)).unwrap_or_default();
    Command::script(&JOIN, [STATE_KEY, MESSAGES_KEY, ROUTERS_KEY])
        .value(epoch_text(new_epoch))
        .value(epoch)
        .number(known.map_or(0, |it| it.sequence.0))
        .number(NUMBER_MAX)
        .number(millis(LOG_TTL))
}

/// Returns the command that appends a message.
pub(super) fn append(epoch: LogEpoch, router: &str, message: Vec<u8>) -> Command {
    Command::script(&APPEND, [STATE_KEY, MESSAGES_KEY])
        .value(epoch_text(epoch))
        .value(router)
        .value(message)
        .number(MESSAGES_KEPT)
}

/// Returns the command that reports the position of a router.
pub(super) fn report(router: &str, at: SharedStart) -> Command {
    report_as(router, epoch_text(at.epoch), at.sequence.0)
}

/// Returns the command that removes a router from those that are waited for.
pub(super) fn leave(router: &str) -> Command {
    report_as(router, GONE.to_owned(), 0)
}

fn report_as(router: &str, epoch: String, number: u64) -> Command {
    Command::script(&REPORT, [STATE_KEY, MESSAGES_KEY, ROUTERS_KEY])
        .value(router)
        .value(epoch)
        .number(number)
        .number(millis(LEASE))
        .number(millis(LOG_TTL))
}

/// Returns the command that reads at most `count` messages after `number`, and waits for the first one for `wait`.
pub(super) fn read_after(number: u64, count: u64, wait: Duration) -> Command {
    Command::new("XREAD")
        .value("COUNT")
        .number(count)
        .value("BLOCK")
        .number(millis(wait).max(1))
        .value("STREAMS")
        .key(MESSAGES_KEY)
        .value(format!("{number}-0"))
}

impl JoinedLog {
    /// Reads the reply to [`join`].
    pub(super) fn read(reply: &Reply) -> Result<Self, UnexpectedReply> {
        let [epoch, last, oldest] = reply.list().ok_or(UnexpectedReply)? else {
            return Err(UnexpectedReply);
        };
        Ok(Self { epoch: read_epoch(epoch)?, last: number(last)?, oldest: number(oldest)? })
    }
}

/// Reads the reply to [`append`]. `None` if the log has another epoch.
pub(super) fn read_appended(reply: &Reply) -> Result<Option<Sequence>, UnexpectedReply> {
    let number = number(reply)?;
    Ok((number > 0).then_some(Sequence(number)))
}

impl RouterPositions {
    /// Reads the reply to [`report`].
    pub(super) fn read(reply: &Reply) -> Result<Self, UnexpectedReply> {
        let [epoch, last, routers @ ..] = reply.list().ok_or(UnexpectedReply)? else {
            return Err(UnexpectedReply);
        };
        let (pairs, []) = routers.as_chunks::<2>() else { return Err(UnexpectedReply) };
        let router = |[name, at]: &[Reply; 2]| {
            let name = std::str::from_utf8(name.bytes().ok_or(UnexpectedReply)?);
            let at = at.integer().ok_or(UnexpectedReply)?;
            let position = match (u64::try_from(at), at) {
                (Ok(number), _) => RouterPosition::At(number),
                (Err(_), -2) => RouterPosition::Gone,
                (Err(_), _) => RouterPosition::OtherEpoch,
            };
            Ok((name.map_err(|_| UnexpectedReply)?.into(), position))
        };
        Ok(Self {
            epoch: read_epoch(epoch)?,
            last: number(last)?,
            routers: pairs.iter().map(router).collect::<Result<_, _>>()?,
        })
    }
}

/// Reads the reply to [`read_after`].
pub(super) fn read_messages(reply: &Reply) -> Result<Vec<StreamMessage<'_>>, UnexpectedReply> {
    if *reply == Reply::Nil {
        return Ok(Vec::new());
    }
    let [_, messages] = reply.list().ok_or(UnexpectedReply)? else { return Err(UnexpectedReply) };
    messages.list().ok_or(UnexpectedReply)?.iter().map(read_message).collect()
}

fn read_message(message: &Reply) -> Result<StreamMessage<'_>, UnexpectedReply> {
    let [id, fields] = message.list().ok_or(UnexpectedReply)? else { return Err(UnexpectedReply) };
    let id = std::str::from_utf8(id.bytes().ok_or(UnexpectedReply)?).ok();
    let number = id.and_then(|id| id.strip_suffix("-0")?.parse().ok()).ok_or(UnexpectedReply)?;
    let [_, router, _, message] = fields.list().ok_or(UnexpectedReply)? else {
        return Err(UnexpectedReply);
    };
    Ok(StreamMessage {
        number,
        router: router.bytes().ok_or(UnexpectedReply)?,
        message: message.bytes().ok_or(UnexpectedReply)?,
    })
}

fn number(reply: &Reply) -> Result<u64, UnexpectedReply> {
    reply.integer().and_then(|it| u64::try_from(it).ok()).ok_or(UnexpectedReply)
}

fn epoch_text(epoch: LogEpoch) -> String {
    epoch.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read_epoch(reply: &Reply) -> Result<LogEpoch, UnexpectedReply> {
    let text = reply.bytes().ok_or(UnexpectedReply)?;
    let (pairs, []) = text.as_chunks::<2>() else { return Err(UnexpectedReply) };
    let pairs: &[[u8; 2]; 16] = pairs.try_into().map_err(|_| UnexpectedReply)?;
    let mut epoch = [0; 16];
    for (byte, pair) in epoch.iter_mut().zip(pairs) {
        let digits = std::str::from_utf8(pair).map_err(|_| UnexpectedReply)?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| UnexpectedReply)?;
    }
    Ok(LogEpoch(epoch))
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the command that reads an entry. A key without a value is an empty range, and one of another type an error.
/// The bound limits what is read if another program has written the key.
pub(super) fn read_command(key: &SharedKey) -> Command {
    Command::new("GETRANGE")
        .key(key_text("entry", key))
        .number(0)
        .number(SHARED_ENTRY_BYTES_MAX as u64)
}

/// Returns the name of a key.
pub(super) fn key_text(kind: &str, key: &SharedKey) -> String {
    let mut text = String::with_capacity(80);
    text.push_str("cache:");
    text.push_str(kind);
    text.push(':');
    for byte in key.0 {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: LogEpoch = LogEpoch([0xa5; 16]);

    fn text(text: &str) -> Reply {
        Reply::Bytes(text.into())
    }

    fn epoch() -> Reply {
        text(&"a5".repeat(16))
    }

    #[test]
    fn replies_of_the_scripts_are_read() {
        let joined = Reply::List(vec![epoch(), Reply::Integer(7), Reply::Integer(3)]);
        assert_eq!(JoinedLog::read(&joined), Ok(JoinedLog { epoch: EPOCH, last: 7, oldest: 3 }));
        assert_eq!(read_appended(&Reply::Integer(8)), Ok(Some(Sequence(8))));
        assert_eq!(read_appended(&Reply::Integer(0)), Ok(None));
        let routers = [("a", 7), ("b", -1), ("c", -2)];
        let routers = routers.map(|(name, at)| [text(name), Reply::Integer(at)]).concat();
        let report = [&[epoch(), Reply::Integer(7)][..], &routers].concat();
        let routers = vec![
            ("a".into(), RouterPosition::At(7)),
            ("b".into(), RouterPosition::OtherEpoch),
            ("c".into(), RouterPosition::Gone),
        ];
        let expected = RouterPositions { epoch: EPOCH, last: 7, routers };
        assert_eq!(RouterPositions::read(&Reply::List(report)), Ok(expected));
        let fields = ["router", "a", "message", "m"].map(text).to_vec();
        let message = Reply::List(vec![text("9-0"), Reply::List(fields)]);
        let reply = Reply::List(vec![text("key"), Reply::List(vec![message])]);
        let expected = StreamMessage { number: 9, router: b"a", message: b"m" };
        assert_eq!(read_messages(&reply), Ok(vec![expected]));
        assert_eq!(read_messages(&Reply::Nil), Ok(Vec::new()));
    }

    #[test]
    fn other_replies_are_errors() {
        let foreign = [
            Reply::Integer(-1),
            text("OK"),
            Reply::List(Vec::new()),
            Reply::List(vec![text("a5"), Reply::Integer(1), Reply::Integer(1)]),
            Reply::List(vec![text(&"zz".repeat(16)), Reply::Integer(1), Reply::Integer(1)]),
            Reply::List(vec![text("key"), Reply::List(vec![Reply::List(vec![text("9-1")])])]),
        ];
        for reply in foreign {
            assert!(JoinedLog::read(&reply).is_err(), "{reply:?}");
            assert!(read_appended(&reply).is_err(), "{reply:?}");
            assert!(RouterPositions::read(&reply).is_err(), "{reply:?}");
            assert!(read_messages(&reply).is_err(), "{reply:?}");
        }
    }

    #[test]
    fn a_key_is_readable() {
        let mut key = SharedKey([0; 32]);
        key.0[0] = 0xaf;
        assert_eq!(key_text("entry", &key), format!("cache:entry:af{}", "0".repeat(62)));
    }
}
