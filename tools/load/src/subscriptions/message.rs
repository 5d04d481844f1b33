//! The messages of a server over graphql-transport-ws, read as cheaply as possible: results, the bulk of a run, are
//! recognised by their first bytes and searched, never parsed.

use std::time::Duration;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The digits of a time in microseconds since 1970, from 2001 to 2286.
const STAMP_DIGITS: usize = 16;

/// The usual beginnings of the message of a result for operation `1`. Other messages are parsed.
const USUAL_BEGINNINGS: [&[u8]; 3] = [
    br#"{"id":"1","type":"next","#,
    br#"{"type":"next","id":"1","#,
    br#"{"type":"next","payload":"#,
];

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageKind {
    Ack,
    Next,
    Error,
    Complete,
    Ping,
    Pong,
    Unknown,
}

/// The relevant content of a result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ResultInfo {
    /// The publishing time of its event, in microseconds since 1970.
    pub(super) stamp: Option<u64>,
    /// The number of earlier results that the server reports as not delivered.
    pub(super) lost: u64,
    /// True if the server reports that it may have missed events.
    pub(super) gap: bool,
    pub(super) has_errors: bool,
}

/// Reads results and remembers the position of the time in the last one.
#[derive(Debug)]
pub(super) struct ResultReader {
    errors: Finder<'static>,
    extensions: Finder<'static>,
    stamp_at: usize,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "type", borrow)]
    kind: std::borrow::Cow<'a, str>,
}

#[derive(Deserialize)]
struct Next {
    payload: Payload,
}

#[derive(Deserialize, Default)]
struct Payload {
    #[serde(default)]
    errors: Option<IgnoredAny>,
    #[serde(default)]
    extensions: Option<Extensions>,
}

#[derive(Deserialize)]
struct ErrorMessage {
    payload: Vec<OperationError>,
}

#[derive(Deserialize)]
struct OperationError {
    #[serde(default)]
    extensions: ErrorExtensions,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ErrorExtensions {
    retry_after: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Extensions {
    lost: u64,
    gap: bool,
}

impl Default for ResultReader {
    fn default() -> Self {
        Self {
            errors: Finder::new("\"errors\""),
            extensions: Finder::new("\"extensions\""),
            stamp_at: 0,
        }
    }
}

/// Returns the kind of a message.
// hot path: a comparison of its first bytes.
pub(super) fn kind(text: &[u8]) -> MessageKind {
    if USUAL_BEGINNINGS.iter().any(|beginning| text.starts_with(beginning)) {
        return MessageKind::Next;
    }
    let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(text) else {
        return MessageKind::Unknown;
    };
    match &*envelope.kind {
        "connection_ack" => MessageKind::Ack,
        "next" => MessageKind::Next,
        "error" => MessageKind::Error,
        "complete" => MessageKind::Complete,
        "ping" => MessageKind::Ping,
        "pong" => MessageKind::Pong,
        _ => MessageKind::Unknown,
    }
}

/// Returns the time of a message of the kind [`MessageKind::Error`] after which the operation may be tried again. There
/// is one if the first error has `extensions.retryAfter`, in seconds.
pub(super) fn retry_after(text: &[u8]) -> Option<Duration> {
    let message = serde_json::from_slice::<ErrorMessage>(text).ok()?;
    message.payload.first()?.extensions.retry_after.map(Duration::from_secs)
}

impl ResultReader {
    /// Reads a message of the kind [`MessageKind::Next`].
    // hot path: two searches at the speed of memory, and a check of 18 bytes.
    pub(super) fn result(&mut self, text: &[u8]) -> ResultInfo {
        let mut result = ResultInfo { stamp: self.stamp(text), ..ResultInfo::default() };
        // Both words may also occur in the data.
        if self.errors.find(text).is_some() || self.extensions.find(text).is_some() {
            match serde_json::from_slice::<Next>(text) {
                Ok(Next { payload }) => {
                    let Extensions { lost, gap } = payload.extensions.unwrap_or_default();
                    result =
                        ResultInfo { lost, gap, has_errors: payload.errors.is_some(), ..result };
                }
                Err(_) => result.has_errors = true,
            }
        }
        result
    }

    /// Returns the first run of exactly 16 digits in quotes.
    pub(super) fn stamp(&mut self, text: &[u8]) -> Option<u64> {
        if let Some(stamp) = stamp_at(text, self.stamp_at) {
            return Some(stamp);
        }
        let (at, stamp) = find_stamp(text)?;
        self.stamp_at = at;
        Some(stamp)
    }
}

/// Returns the position of the first run of exactly 16 digits in quotes, and the number.
pub(crate) fn find_stamp(text: &[u8]) -> Option<(usize, u64)> {
    memchr::memchr_iter(b'"', text)
        .find_map(|quote| stamp_at(text, quote + 1).map(|stamp| (quote + 1, stamp)))
}

fn stamp_at(text: &[u8], at: usize) -> Option<u64> {
    let quoted = text.get(at.checked_sub(1)?..=at + STAMP_DIGITS)?;
    let [b'"', digits @ .., b'"'] = quoted else { return None };
    let mut stamp = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        stamp = stamp * 10 + u64::from(digit - b'0');
    }
    Some(stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_recognised_with_any_order_of_members() {
        for (text, expected) in [
            (r#"{"type":"connection_ack"}"#, MessageKind::Ack),
            (r#"{"id":"1","type":"next","payload":{"data":null}}"#, MessageKind::Next),
            (r#"{"type":"next","id":"1","payload":{}}"#, MessageKind::Next),
            (
                r#"{ "payload": {"data":{"type":"error"}}, "type": "next", "id": "1" }"#,
                MessageKind::Next,
            ),
            (r#"{"id":"1","type":"error","payload":[]}"#, MessageKind::Error),
            (r#"{"id":"1","type":"complete"}"#, MessageKind::Complete),
            (r#"{"type":"ping"}"#, MessageKind::Ping),
            (r#"{"type":"pong","payload":{}}"#, MessageKind::Pong),
            (r#"{"type":"ka"}"#, MessageKind::Unknown),
            ("[]", MessageKind::Unknown),
            ("", MessageKind::Unknown),
        ] {
            assert_eq!(kind(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn a_result_contains_its_publishing_time_and_losses() {
        let mut reader = ResultReader::default();
        let stamp = Some(1_790_000_000_000_001);
        for (payload, expected) in [
            (
                r#"{"data":{"t":{"id":"1790000000000001"}}}"#,
                ResultInfo { stamp, ..ResultInfo::default() },
            ),
            (
                r#"{"data":{"t":{"name":"x","id":"1790000000000001"}},"extensions":{"lost":3}}"#,
                ResultInfo { stamp, lost: 3, ..ResultInfo::default() },
            ),
            (
                r#"{"extensions":{"gap":true},"data":{"errors":"1790000000000001"}}"#,
                ResultInfo { stamp, gap: true, ..ResultInfo::default() },
            ),
            (
                r#"{"errors":[{"message":"12345678901234567"}]}"#,
                ResultInfo { has_errors: true, ..ResultInfo::default() },
            ),
            (r#"{"data":{"extensions":"123456789012345"}}"#, ResultInfo::default()),
        ] {
            let text = format!(r#"{{"id":"1","type":"next","payload":{payload}}}"#);
            assert_eq!(reader.result(text.as_bytes()), expected, "{payload}");
        }
    }
}
