//! What a server says over graphql-transport-ws, read as cheaply as it can be: the results that make up a run are
//! recognised by their first bytes and searched, never parsed.

use memchr::memmem::Finder;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Digits of a time in microseconds since 1970, from 2001 to 2286.
const STAMP_DIGITS: usize = 16;

/// How servers begin the message of a result to the operation `1`. Others are parsed.
const USUAL_BEGINNINGS: [&[u8]; 3] = [
    br#"{"id":"1","type":"next","#,
    br#"{"type":"next","id":"1","#,
    br#"{"type":"next","payload":"#,
];

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Ack,
    Next,
    Error,
    Complete,
    Ping,
    Pong,
    Unknown,
}

/// What matters of a result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// When its event was published, in microseconds since 1970.
    pub(super) stamp: Option<u64>,
    /// Results before it that the server says it did not deliver.
    pub(super) lost: u64,
    /// The server says that it may have missed events.
    pub(super) gap: bool,
    pub(super) has_errors: bool,
}

/// Reads results; remembers where the last one had its time.
#[derive(Debug)]
pub(super) struct Reader {
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

#[derive(Deserialize, Default)]
#[serde(default)]
struct Extensions {
    lost: u64,
    gap: bool,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            errors: Finder::new("\"errors\""),
            extensions: Finder::new("\"extensions\""),
            stamp_at: 0,
        }
    }
}

/// What `text` is.
// hot path: a comparison of its first bytes.
pub(super) fn kind(text: &[u8]) -> Kind {
    if USUAL_BEGINNINGS.iter().any(|beginning| text.starts_with(beginning)) {
        return Kind::Next;
    }
    let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(text) else {
        return Kind::Unknown;
    };
    match &*envelope.kind {
        "connection_ack" => Kind::Ack,
        "next" => Kind::Next,
        "error" => Kind::Error,
        "complete" => Kind::Complete,
        "ping" => Kind::Ping,
        "pong" => Kind::Pong,
        _ => Kind::Unknown,
    }
}

impl Reader {
    /// What matters of a message of the kind [`Kind::Next`].
    // hot path: two searches at the speed of memory, and a look at 18 bytes.
    pub(super) fn result(&mut self, text: &[u8]) -> Outcome {
        let mut result = Outcome { stamp: self.stamp(text), ..Outcome::default() };
        // Both words may also stand in the data.
        if self.errors.find(text).is_some() || self.extensions.find(text).is_some() {
            match serde_json::from_slice::<Next>(text) {
                Ok(Next { payload }) => {
                    let Extensions { lost, gap } = payload.extensions.unwrap_or_default();
                    result = Outcome { lost, gap, has_errors: payload.errors.is_some(), ..result };
                }
                Err(_) => result.has_errors = true,
            }
        }
        result
    }

    /// The first run of exactly 16 digits in quotes.
    pub(super) fn stamp(&mut self, text: &[u8]) -> Option<u64> {
        if let Some(stamp) = stamp_at(text, self.stamp_at) {
            return Some(stamp);
        }
        let (at, stamp) = find_stamp(text)?;
        self.stamp_at = at;
        Some(stamp)
    }
}

/// Where the first run of exactly 16 digits in quotes begins, and the number.
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
    fn messages_are_told_apart_whatever_the_order_of_their_members() {
        for (text, expected) in [
            (r#"{"type":"connection_ack"}"#, Kind::Ack),
            (r#"{"id":"1","type":"next","payload":{"data":null}}"#, Kind::Next),
            (r#"{"type":"next","id":"1","payload":{}}"#, Kind::Next),
            (r#"{ "payload": {"data":{"type":"error"}}, "type": "next", "id": "1" }"#, Kind::Next),
            (r#"{"id":"1","type":"error","payload":[]}"#, Kind::Error),
            (r#"{"id":"1","type":"complete"}"#, Kind::Complete),
            (r#"{"type":"ping"}"#, Kind::Ping),
            (r#"{"type":"pong","payload":{}}"#, Kind::Pong),
            (r#"{"type":"ka"}"#, Kind::Unknown),
            ("[]", Kind::Unknown),
            ("", Kind::Unknown),
        ] {
            assert_eq!(kind(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn a_result_says_when_it_was_published_and_what_was_lost() {
        let mut reader = Reader::default();
        let stamp = Some(1_790_000_000_000_001);
        for (payload, expected) in [
            (
                r#"{"data":{"t":{"id":"1790000000000001"}}}"#,
                Outcome { stamp, ..Outcome::default() },
            ),
            (
                r#"{"data":{"t":{"name":"x","id":"1790000000000001"}},"extensions":{"lost":3}}"#,
                Outcome { stamp, lost: 3, ..Outcome::default() },
            ),
            (
                r#"{"extensions":{"gap":true},"data":{"errors":"1790000000000001"}}"#,
                Outcome { stamp, gap: true, ..Outcome::default() },
            ),
            (
                r#"{"errors":[{"message":"12345678901234567"}]}"#,
                Outcome { has_errors: true, ..Outcome::default() },
            ),
            (r#"{"data":{"extensions":"123456789012345"}}"#, Outcome::default()),
        ] {
            let text = format!(r#"{{"id":"1","type":"next","payload":{payload}}}"#);
            assert_eq!(reader.result(text.as_bytes()), expected, "{payload}");
        }
    }
}
