//! The result of an execution: the printed response.

use std::sync::Arc;

use bytes::Bytes;
use cache::FoldedPolicy;
use http::HeaderMap;

use crate::ErrorCode;

/// One printed response: `{"data":…,"errors":…}`, `extensions` last if there are any. Cheap to
/// clone; every subscriber of a group gets the same bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Payload {
    /// JSON text.
    pub bytes: Bytes,
    /// Offset in `bytes` at which a recipient's own members of `extensions` may be inserted: before
    /// the closing brace of the response, or, if the response has `extensions` already, before
    /// their first member.
    pub splice: usize,
    /// True if the response has a `data` entry (even null). Without one it is a request error,
    /// which decides the HTTP status (GraphQL over HTTP, section 6.4.2).
    pub has_data: bool,
    /// The number of errors.
    pub errors: u32,
    /// The code of the first error, for metrics.
    pub first_error: Option<ErrorCode>,
    /// The number of requests to subgraphs that the execution needed, for metrics. Requests that it shared with other
    /// executions count; a response from a cache has none.
    pub subgraph_requests: u32,
    /// Headers of subgraphs' responses that reach the client, if its transport supports them.
    pub headers: Option<Arc<HeaderMap>>,
    /// The cost of the response, if costs are measured.
    pub cost: Option<u64>,
    /// For how long the response may be used, and by which clients; `None` if it may not be stored.
    pub caching: Option<Arc<FoldedPolicy>>,
    /// The place of the payload in a sequence of results that follow each other as patches; `None` if the payload
    /// stands alone. A recipient must not lose a payload of a sequence, because the next one changes it.
    pub revision: Option<Arc<Revision>>,
}

/// The result that the recipients of a payload have after it, in a sequence of patches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Revision {
    /// The number of the payload in the sequence, from 1. Zero: no patch may follow.
    pub number: u64,
    /// The number of the result among those of the process, from 1. Zero: it has none.
    pub state: u64,
    /// The complete response. Empty in a payload on its way to a client, which must not keep it.
    pub complete: Bytes,
}

/// The events that a recipient lost before a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Missed {
    /// Number of events dropped on the way: `extensions.lost`.
    pub lost: u64,
    /// True if the source may have lost an unknown number of events: `extensions.gap`.
    pub gap: bool,
}

impl Missed {
    /// Returns the sum of both.
    pub fn and(self, other: Self) -> Self {
        Self { lost: self.lost.saturating_add(other.lost), gap: self.gap || other.gap }
    }
}

impl Payload {
    /// Takes the result that recipients have after this payload. The payload keeps its place in the sequence, without
    /// the complete response.
    pub fn take_revision(&mut self) -> Option<Revision> {
        let revision = self.revision.take()?;
        let Revision { number, state, complete: _ } = *revision;
        self.revision = Some(Arc::new(Revision { number, state, complete: Bytes::new() }));
        Some(Arc::unwrap_or_clone(revision))
    }

    /// Returns the losses that the payload announces already. Code that drops a payload must
    /// announce these to the recipient later, and one more lost event.
    pub fn missed(&self) -> Missed {
        self.announced().0
    }

    /// Returns a copy that announces `missed` in addition to the losses that it announces already.
    pub fn with_missed(&self, missed: Missed) -> Self {
        if missed == Missed::default() {
            return self.clone();
        }
        let (announced, length) = self.announced();
        let missed = missed.and(announced);
        let mut payload = self.clone();
        if length > 0 {
            let rest = &self.bytes[self.splice + length..];
            payload.bytes = [&self.bytes[..self.splice], rest].concat().into();
        }
        // The member that is added last comes first, and `announced` reads `lost` before `gap`.
        if missed.gap {
            payload = payload.with_extension("gap", "true");
        }
        if missed.lost > 0 {
            payload = payload.with_extension("lost", &missed.lost.to_string());
        }
        payload
    }

    /// Returns the losses that [`Payload::with_missed`] has inserted at the splice, and the length
    /// of their text with a comma after it.
    fn announced(&self) -> (Missed, usize) {
        let all = self.bytes.get(self.splice..).unwrap_or_default();
        let (mut missed, mut rest) = (Missed::default(), all);
        if let Some(after) = rest.strip_prefix(b"\"lost\":") {
            let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let number = std::str::from_utf8(&after[..digits]).ok().and_then(|it| it.parse().ok());
            missed.lost = number.unwrap_or(u64::MAX);
            rest = &after[digits..];
            rest = rest.strip_prefix(b",").unwrap_or(rest);
        }
        if let Some(after) = rest.strip_prefix(b"\"gap\":true") {
            missed.gap = true;
            rest = after.strip_prefix(b",").unwrap_or(after);
        }
        (missed, all.len() - rest.len())
    }

    /// Returns the cursor with which a client may resume after this payload, if one was added by
    /// [`Payload::with_extension`], and after it nothing but losses.
    pub fn cursor(&self) -> Option<&str> {
        let (_, length) = self.announced();
        let rest = self.bytes.get(self.splice + length..)?;
        let text = rest.strip_prefix(b"\"cursor\":\"")?;
        // Base64 has no quotes and no escapes.
        let end = text.iter().position(|byte| *byte == b'"')?;
        std::str::from_utf8(&text[..end]).ok()
    }

    /// Returns a copy with one more member in the `extensions` of the response; `value` is JSON
    /// text. Only recipients that need it pay for the copy.
    pub fn with_extension(&self, name: &str, value: &str) -> Self {
        let splice = self.splice.min(self.bytes.len());
        let (before, after) = self.bytes.split_at(splice);
        let mut bytes = Vec::with_capacity(self.bytes.len() + name.len() + value.len() + 24);
        bytes.extend_from_slice(before);
        // The splice is at the brace that closes the response, or inside of `extensions`.
        let opens = after == b"}";
        if opens {
            bytes.extend_from_slice(if before.ends_with(b"{") {
                b"\"extensions\":{"
            } else {
                b",\"extensions\":{"
            });
        }
        let splice = bytes.len();
        astjson::print_string(name, &mut bytes);
        bytes.push(b':');
        bytes.extend_from_slice(value.as_bytes());
        if opens {
            bytes.push(b'}');
        } else if !after.starts_with(b"}") {
            bytes.push(b',');
        }
        bytes.extend_from_slice(after);
        Self {
            bytes: bytes.into(),
            splice,
            has_data: self.has_data,
            errors: self.errors,
            first_error: self.first_error,
            subgraph_requests: self.subgraph_requests,
            headers: self.headers.clone(),
            cost: self.cost,
            caching: self.caching.clone().map(of_changed_bytes),
            revision: self.revision.clone(),
        }
    }
}

/// The policy of a response with changed bytes.
fn of_changed_bytes(mut caching: Arc<FoldedPolicy>) -> Arc<FoldedPolicy> {
    if caching.validator.is_some() || caching.copies.is_some() {
        let changed = Arc::make_mut(&mut caching);
        (changed.validator, changed.copies) = (None, None);
    }
    caching
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(text: &'static str, splice: usize) -> Payload {
        Payload {
            bytes: text.into(),
            splice,
            has_data: true,
            errors: 0,
            first_error: None,
            subgraph_requests: 0,
            headers: None,
            cost: None,
            caching: None,
            revision: None,
        }
    }

    #[test]
    fn members_are_added_to_extensions_which_are_created_if_missing() {
        let plain = payload(r#"{"data":{"a":1}}"#, 15);
        let lost = plain.with_extension("lost", "3");
        assert_eq!(lost.bytes, r#"{"data":{"a":1},"extensions":{"lost":3}}"#);
        let both = lost.with_extension("gap", "true");
        assert_eq!(both.bytes, r#"{"data":{"a":1},"extensions":{"gap":true,"lost":3}}"#);
    }

    #[test]
    fn losses_add_up() {
        let plain = payload(r#"{"data":1}"#, 9);
        assert_eq!(plain.missed(), Missed::default());
        assert_eq!(plain.with_missed(Missed::default()), plain);
        let lost = plain.with_missed(Missed { lost: 2, gap: false });
        assert_eq!(lost.bytes, r#"{"data":1,"extensions":{"lost":2}}"#);
        let both = lost.with_missed(Missed { lost: 10, gap: true });
        assert_eq!(both.bytes, r#"{"data":1,"extensions":{"lost":12,"gap":true}}"#);
        assert_eq!(both.missed(), Missed { lost: 12, gap: true });
        let gap = plain.with_missed(Missed { lost: 0, gap: true });
        assert_eq!(gap.bytes, r#"{"data":1,"extensions":{"gap":true}}"#);
        assert_eq!(gap.missed(), Missed { lost: 0, gap: true });
        let more = gap.with_missed(Missed { lost: 1, gap: false });
        assert_eq!(more.bytes, r#"{"data":1,"extensions":{"lost":1,"gap":true}}"#);
        let traced = payload(r#"{"data":1,"extensions":{"trace":1}}"#, 24);
        let lost = traced.with_missed(Missed { lost: 1, gap: true });
        let expected = r#"{"data":1,"extensions":{"lost":1,"gap":true,"trace":1}}"#;
        assert_eq!(lost.bytes, expected);
        assert_eq!(
            lost.with_missed(Missed { lost: 1, gap: false }).bytes,
            expected.replace(":1,\"gap", ":2,\"gap")
        );
    }

    #[test]
    fn a_cursor_is_found_after_losses() {
        let plain = payload(r#"{"data":1}"#, 9);
        assert_eq!(plain.cursor(), None);
        let resumable = plain.with_extension("cursor", r#""Abc-_9""#);
        assert_eq!(resumable.cursor(), Some("Abc-_9"));
        let lost = resumable.with_missed(Missed { lost: 3, gap: true });
        assert_eq!(lost.cursor(), Some("Abc-_9"));
        assert_eq!(lost.missed(), Missed { lost: 3, gap: true });
        let more = lost.with_missed(Missed { lost: 1, gap: false });
        let expected = r#"{"data":1,"extensions":{"lost":4,"gap":true,"cursor":"Abc-_9"}}"#;
        assert_eq!((&*more.bytes, more.cursor()), (expected.as_bytes(), Some("Abc-_9")));
        let traced = payload(r#"{"data":1,"extensions":{"trace":1}}"#, 24);
        let resumable = traced.with_extension("cursor", r#""A""#);
        assert_eq!(resumable.cursor(), Some("A"));
        assert_eq!(traced.cursor(), None);
    }

    #[test]
    fn existing_extensions_stay() {
        let empty = payload(r#"{"data":null,"extensions":{}}"#, 27);
        let gap = empty.with_extension("gap", "true");
        assert_eq!(gap.bytes, r#"{"data":null,"extensions":{"gap":true}}"#);
        let traced = payload(r#"{"data":null,"extensions":{"trace":1}}"#, 27);
        let gap = traced.with_extension("gap", "true");
        assert_eq!(gap.bytes, r#"{"data":null,"extensions":{"gap":true,"trace":1}}"#);
    }
}
