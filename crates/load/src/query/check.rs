//! Whether an answer is right.
//!
//! The first answer to each kind of request is read in full. Those after it are compared with it as they arrive, which
//! costs a memory comparison; only where one differs is it kept and looked into.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::response::Completed;

/// An answer longer than this is not kept for a look into it.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// What a kept answer may leave behind in memory for the next one.
const SCRATCH_BYTES_MAX: usize = 1024 * 1024;

/// What makes an answer right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Check {
    /// Status 200; the body is not looked at.
    Status,
    /// Status 200 and a GraphQL response without `errors`.
    #[default]
    Graphql,
    /// As `Graphql`, and as long as the first answer.
    Length,
    /// As `Graphql`, and the same bytes as the first answer.
    Bytes,
}

/// What became of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Outcome {
    Right,
    /// A status other than 200.
    Status(u16),
    /// A GraphQL response with `errors`.
    Errors,
    /// Not a GraphQL response.
    NotGraphql,
    /// Other bytes, or another length, than the first answer.
    Different,
    /// Not an HTTP answer.
    Malformed,
    /// The connection ended before the answer did.
    Closed,
    /// No answer in time.
    Timeout,
    /// No connection.
    Connect,
}

impl Outcome {
    /// What a report calls it.
    pub(super) fn label(self) -> String {
        match self {
            Self::Right => "right".to_owned(),
            Self::Status(status) => format!("status {status}"),
            Self::Errors => "answers with errors".to_owned(),
            Self::NotGraphql => "not a GraphQL response".to_owned(),
            Self::Different => "differs from the first answer".to_owned(),
            Self::Malformed => "not an HTTP answer".to_owned(),
            Self::Closed => "connection closed".to_owned(),
            Self::Timeout => "timeout".to_owned(),
            Self::Connect => "cannot connect".to_owned(),
        }
    }
}

/// The body of one answer, as far as it has arrived.
#[derive(Debug, Default)]
pub(super) struct Body {
    length: usize,
    differs: bool,
    /// The whole body so far, where it differs from the first answer.
    kept: Vec<u8>,
}

impl Body {
    /// Takes the next bytes.
    // hot path: a comparison, at the speed of memory.
    pub(super) fn take(&mut self, check: Check, first: &[u8], bytes: &[u8]) {
        let before = self.length;
        self.length += bytes.len();
        if check == Check::Status {
            return;
        }
        if !self.differs {
            if first.get(before..self.length) == Some(bytes) {
                return;
            }
            self.differs = true;
            self.kept.extend_from_slice(&first[..before]);
        }
        if self.kept.len() + bytes.len() <= ANSWER_BYTES_MAX {
            self.kept.extend_from_slice(bytes);
        }
    }

    /// The body's length.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// What arrived of a body that is not the first answer.
    pub(super) fn kept(&self) -> &[u8] {
        &self.kept
    }

    /// What the complete answer is.
    pub(super) fn judge(&self, check: Check, first: &[u8], answer: &Completed) -> Outcome {
        if answer.status != 200 {
            return Outcome::Status(answer.status);
        }
        if check == Check::Status || (!self.differs && self.length == first.len()) {
            return Outcome::Right;
        }
        let found = if self.differs { &self.kept[..] } else { &first[..self.length] };
        if answer.encoded || found.len() != self.length {
            return Outcome::NotGraphql;
        }
        match look_into(found) {
            Outcome::Right => {}
            wrong => return wrong,
        }
        match check {
            Check::Bytes => Outcome::Different,
            Check::Length if self.length != first.len() => Outcome::Different,
            _ => Outcome::Right,
        }
    }

    /// Ready for the next answer.
    pub(super) fn clear(&mut self) {
        self.length = 0;
        self.differs = false;
        self.kept.clear();
        self.kept.shrink_to(SCRATCH_BYTES_MAX);
    }
}

#[derive(Deserialize)]
struct Response {
    #[serde(default)]
    errors: Option<IgnoredAny>,
    #[serde(default)]
    data: Option<IgnoredAny>,
}

/// Whether a body is a GraphQL response without errors.
pub(super) fn look_into(body: &[u8]) -> Outcome {
    match serde_json::from_slice::<Response>(body) {
        Err(_) => Outcome::NotGraphql,
        Ok(Response { errors: Some(_), .. }) => Outcome::Errors,
        Ok(Response { data: None, .. }) => Outcome::NotGraphql,
        Ok(_) => Outcome::Right,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_judged_by_what_was_asked_for() {
        let first = r#"{"data":{"a":1}}"#;
        let same_length = r#"{"data":{"a":2}}"#;
        let longer = r#"{"data":{"a":10}}"#;
        let errors = r#"{"data":{"a":1},"errors":[{"message":"x"}]}"#;
        let innocent = r#"{"data":{"a":"\"errors\":[1]"}}"#;
        let short = r#"{"data":{"a""#;
        use Outcome::*;
        for (body, expected) in [
            (first, [Right, Right, Right, Right]),
            (same_length, [Right, Right, Right, Different]),
            (longer, [Right, Right, Different, Different]),
            (errors, [Right, Errors, Errors, Errors]),
            (innocent, [Right, Right, Different, Different]),
            (short, [Right, NotGraphql, NotGraphql, NotGraphql]),
            ("<html>", [Right, NotGraphql, NotGraphql, NotGraphql]),
            ("{}", [Right, NotGraphql, NotGraphql, NotGraphql]),
            ("", [Right, NotGraphql, NotGraphql, NotGraphql]),
        ] {
            let checks = [Check::Status, Check::Graphql, Check::Length, Check::Bytes];
            for (check, expected) in checks.into_iter().zip(expected) {
                for size in [1, 4, 1000] {
                    let mut answer = Body::default();
                    for piece in body.as_bytes().chunks(size) {
                        answer.take(check, first.as_bytes(), piece);
                    }
                    let completed = Completed { status: 200, keep_alive: true, encoded: false };
                    let found = answer.judge(check, first.as_bytes(), &completed);
                    assert_eq!(found, expected, "{body} by {size} with {check:?}");
                }
            }
        }
    }

    #[test]
    fn another_status_is_wrong_whatever_the_body_says() {
        let completed = Completed { status: 500, keep_alive: true, encoded: false };
        let outcome = Body::default().judge(Check::Status, b"", &completed);
        assert_eq!(outcome, Outcome::Status(500));
    }
}
