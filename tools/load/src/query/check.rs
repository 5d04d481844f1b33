//! Checks whether responses are correct.
//!
//! The first response to each kind of request is parsed in full. Later ones are compared with it as they arrive, at
//! the cost of a memory comparison; only a response that differs is kept and parsed.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::response::CompletedResponse;

/// The maximum length of a response that is kept for parsing.
const KEPT_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The capacity that a kept response may leave allocated for the next one.
const SCRATCH_BYTES_MAX: usize = 1024 * 1024;

/// The condition for a correct response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Check {
    /// Status 200; the body is not checked.
    Status,
    /// Status 200 and a GraphQL response without `errors`.
    #[default]
    Graphql,
    /// As `Graphql`, and the length of the first response.
    Length,
    /// As `Graphql`, and the bytes of the first response.
    Bytes,
}

/// The outcome of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum RequestOutcome {
    Correct,
    /// A status other than 200.
    Status(u16),
    /// A GraphQL response with `errors`.
    Errors,
    /// Not a GraphQL response.
    NotGraphql,
    /// Other bytes, or another length, than the first response.
    Different,
    /// Not an HTTP response.
    Malformed,
    /// The connection ended before the response did.
    Closed,
    /// No response in time.
    Timeout,
    /// No connection could be opened.
    Connect,
}

impl RequestOutcome {
    /// Returns the name in reports.
    pub(super) fn label(self) -> String {
        match self {
            Self::Correct => "correct".to_owned(),
            Self::Status(status) => format!("status {status}"),
            Self::Errors => "responses with errors".to_owned(),
            Self::NotGraphql => "not a GraphQL response".to_owned(),
            Self::Different => "differs from the first response".to_owned(),
            Self::Malformed => "not an HTTP response".to_owned(),
            Self::Closed => "connection closed".to_owned(),
            Self::Timeout => "timeout".to_owned(),
            Self::Connect => "cannot connect".to_owned(),
        }
    }
}

/// The part of the body of one response that has arrived.
#[derive(Debug, Default)]
pub(super) struct ReceivedBody {
    length: usize,
    differs: bool,
    /// The whole body so far, if it differs from the first response.
    differing_bytes: Vec<u8>,
}

impl ReceivedBody {
    /// Adds the next bytes.
    // hot path: a comparison, at the speed of memory.
    pub(super) fn add(&mut self, check: Check, first: &[u8], bytes: &[u8]) {
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
            self.differing_bytes.extend_from_slice(&first[..before]);
        }
        if self.differing_bytes.len() + bytes.len() <= KEPT_BYTES_MAX {
            self.differing_bytes.extend_from_slice(bytes);
        }
    }

    /// Returns the length of the body.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Returns the body if it differs from the first response.
    pub(super) fn differing_bytes(&self) -> &[u8] {
        &self.differing_bytes
    }

    /// Returns the body, if the check keeps bodies: any check but [`Check::Status`].
    pub(super) fn bytes<'a>(&'a self, first: &'a [u8]) -> &'a [u8] {
        // A body that does not differ is the first response, or its beginning.
        if self.differs { &self.differing_bytes } else { &first[..self.length.min(first.len())] }
    }

    /// Classifies the complete response.
    pub(super) fn classify(
        &self,
        check: Check,
        first: &[u8],
        response: &CompletedResponse,
    ) -> RequestOutcome {
        if response.status != 200 {
            return RequestOutcome::Status(response.status);
        }
        if check == Check::Status || (!self.differs && self.length == first.len()) {
            return RequestOutcome::Correct;
        }
        let found = self.bytes(first);
        if response.encoded || found.len() != self.length {
            return RequestOutcome::NotGraphql;
        }
        match classify_body(found) {
            RequestOutcome::Correct => {}
            wrong => return wrong,
        }
        match check {
            Check::Bytes => RequestOutcome::Different,
            Check::Length if self.length != first.len() => RequestOutcome::Different,
            _ => RequestOutcome::Correct,
        }
    }

    /// Resets for the next response.
    pub(super) fn clear(&mut self) {
        self.length = 0;
        self.differs = false;
        self.differing_bytes.clear();
        self.differing_bytes.shrink_to(SCRATCH_BYTES_MAX);
    }
}

#[derive(Deserialize)]
struct ParsedResponse {
    #[serde(default)]
    errors: Option<IgnoredAny>,
    #[serde(default)]
    data: Option<IgnoredAny>,
}

/// Classifies a body: correct if it is a GraphQL response without errors.
pub(super) fn classify_body(body: &[u8]) -> RequestOutcome {
    match serde_json::from_slice::<ParsedResponse>(body) {
        Err(_) => RequestOutcome::NotGraphql,
        Ok(ParsedResponse { errors: Some(_), .. }) => RequestOutcome::Errors,
        Ok(ParsedResponse { data: None, .. }) => RequestOutcome::NotGraphql,
        Ok(_) => RequestOutcome::Correct,
    }
}

#[cfg(test)]
mod tests {
    use super::super::response::NOTHING;
    use super::*;

    #[test]
    fn a_response_is_classified_by_the_requested_check() {
        let first = r#"{"data":{"a":1}}"#;
        let same_length = r#"{"data":{"a":2}}"#;
        let longer = r#"{"data":{"a":10}}"#;
        let errors = r#"{"data":{"a":1},"errors":[{"message":"x"}]}"#;
        let innocent = r#"{"data":{"a":"\"errors\":[1]"}}"#;
        let short = r#"{"data":{"a""#;
        use RequestOutcome::*;
        for (body, expected) in [
            (first, [Correct, Correct, Correct, Correct]),
            (same_length, [Correct, Correct, Correct, Different]),
            (longer, [Correct, Correct, Different, Different]),
            (errors, [Correct, Errors, Errors, Errors]),
            (innocent, [Correct, Correct, Different, Different]),
            (short, [Correct, NotGraphql, NotGraphql, NotGraphql]),
            ("<html>", [Correct, NotGraphql, NotGraphql, NotGraphql]),
            ("{}", [Correct, NotGraphql, NotGraphql, NotGraphql]),
            ("", [Correct, NotGraphql, NotGraphql, NotGraphql]),
        ] {
            let checks = [Check::Status, Check::Graphql, Check::Length, Check::Bytes];
            for (check, expected) in checks.into_iter().zip(expected) {
                for size in [1, 4, 1000] {
                    let mut response = ReceivedBody::default();
                    for piece in body.as_bytes().chunks(size) {
                        response.add(check, first.as_bytes(), piece);
                    }
                    let completed = CompletedResponse { status: 200, ..NOTHING };
                    let found = response.classify(check, first.as_bytes(), &completed);
                    assert_eq!(found, expected, "{body} by {size} with {check:?}");
                    if check != Check::Status {
                        assert_eq!(response.bytes(first.as_bytes()), body.as_bytes());
                    }
                }
            }
        }
    }

    #[test]
    fn another_status_is_wrong_regardless_of_the_body() {
        let completed = CompletedResponse { status: 500, ..NOTHING };
        let outcome = ReceivedBody::default().classify(Check::Status, b"", &completed);
        assert_eq!(outcome, RequestOutcome::Status(500));
    }
}
