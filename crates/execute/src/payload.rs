//! What execution hands out: the printed answer.

use bytes::Bytes;

/// One printed answer: `{"data":…,"errors":…}`, `extensions` last if there are any. Cheap to clone;
/// every subscriber of a group gets the same bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Payload {
    /// JSON text.
    pub bytes: Bytes,
    /// Offset in `bytes` where a recipient's own `extensions` members may be inserted: before the closing
    /// brace of the answer, or, where the answer has `extensions` already, before theirs.
    pub splice: usize,
    /// Does the answer have a `data` entry (even null)? Without one it is a request error, which
    /// decides the HTTP status (GraphQL over HTTP, section 6.4.2).
    pub has_data: bool,
    /// How many errors it carries.
    pub errors: u32,
}

impl Payload {
    /// A copy with one more member in the answer's `extensions`; `value` is JSON text. Only recipients that
    /// need it pay for the copy.
    pub fn with_extension(&self, name: &str, value: &str) -> Self {
        let splice = self.splice.min(self.bytes.len());
        let (before, after) = self.bytes.split_at(splice);
        let mut bytes = Vec::with_capacity(self.bytes.len() + name.len() + value.len() + 24);
        bytes.extend_from_slice(before);
        // The splice is at the brace that closes the answer, or inside of `extensions`.
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
        Self { bytes: bytes.into(), splice, ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(text: &'static str, splice: usize) -> Payload {
        Payload { bytes: text.into(), splice, has_data: true, errors: 0 }
    }

    #[test]
    fn members_are_added_to_extensions_which_are_made_if_need_be() {
        let plain = payload(r#"{"data":{"a":1}}"#, 15);
        let lost = plain.with_extension("lost", "3");
        assert_eq!(lost.bytes, r#"{"data":{"a":1},"extensions":{"lost":3}}"#);
        let both = lost.with_extension("gap", "true");
        assert_eq!(both.bytes, r#"{"data":{"a":1},"extensions":{"gap":true,"lost":3}}"#);
    }

    #[test]
    fn extensions_that_are_there_already_stay() {
        let empty = payload(r#"{"data":null,"extensions":{}}"#, 27);
        let gap = empty.with_extension("gap", "true");
        assert_eq!(gap.bytes, r#"{"data":null,"extensions":{"gap":true}}"#);
        let traced = payload(r#"{"data":null,"extensions":{"trace":1}}"#, 27);
        let gap = traced.with_extension("gap", "true");
        assert_eq!(gap.bytes, r#"{"data":null,"extensions":{"gap":true,"trace":1}}"#);
    }
}
