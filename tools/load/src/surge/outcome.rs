//! The outcome of one attempt: correct, refused or failed, and why.

use std::borrow::Cow;

use serde::Deserialize;

use crate::query::response::CompletedResponse;

/// The maximum length of a body that is kept. Of a longer one, only the beginning is checked.
pub(super) const KEPT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The outcome of an attempt that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Status 200 and no errors.
    Correct,
    /// Status 429 or 503: the server did not do the work.
    Refused(Reason),
    /// Another response than a correct one.
    Wrong(Reason),
    /// No response.
    NoResponse(Lost),
}

/// The reason for a response that is not correct, as reports name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reason {
    pub(super) status: u16,
    /// The code of the first GraphQL error.
    pub(super) code: Option<Box<str>>,
}

/// The reason for which there is no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lost {
    /// No connection could be opened.
    Connect,
    /// The connection ended before the response did.
    Closed,
    /// The bytes were not an HTTP response.
    Malformed,
}

/// The maximum length of a code in a report.
const CODE_BYTES_MAX: usize = 60;

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow, default)]
    errors: Option<Vec<GraphqlError<'a>>>,
    #[serde(default)]
    data: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct GraphqlError<'a> {
    #[serde(borrow, default)]
    extensions: Option<Extensions<'a>>,
}

#[derive(Deserialize)]
struct Extensions<'a> {
    #[serde(borrow, default)]
    code: Option<Cow<'a, str>>,
}

impl Reason {
    /// Returns the name in reports: `503 OVERLOADED`.
    pub(super) fn label(&self) -> String {
        match (&self.code, self.status) {
            (Some(code), status) => format!("{status} {code}"),
            (None, 200) => "200 with errors, or not a GraphQL response".to_owned(),
            (None, status) => format!("{status}"),
        }
    }
}

impl Lost {
    /// Returns the name in reports.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Connect => "cannot connect",
            Self::Closed => "connection closed",
            Self::Malformed => "not an HTTP response",
        }
    }
}

/// True if the status says that the server did not do the work, so that a client tries again later.
pub(super) fn is_refusal(status: u16) -> bool {
    matches!(status, 429 | 503)
}

/// Classifies a complete response. `is_whole` is false if only the beginning of the body was kept.
// hot path: a search at the speed of memory for each response; only those with errors are parsed.
pub(super) fn classify(response: &CompletedResponse, body: &[u8], is_whole: bool) -> Outcome {
    let status = response.status;
    if status == 200 {
        let has_data = || memchr::memmem::find(body, b"\"data\"").is_some();
        let has_errors = || memchr::memmem::find(body, b"\"errors\"").is_some();
        if response.encoded || !is_whole || (has_data() && !has_errors()) {
            return Outcome::Correct;
        }
    }
    // A body that is no JSON has no code.
    let parsed = serde_json::from_slice::<Body<'_>>(body).ok();
    let is_correct = parsed.as_ref().is_some_and(|it| it.errors.is_none() && it.data.is_some());
    if status == 200 && is_correct {
        // The word is in the data.
        return Outcome::Correct;
    }
    let code = parsed.and_then(|it| it.errors?.into_iter().next()?.extensions?.code);
    let code = code.map(|code| {
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        code.chars().filter(is_plain).take(CODE_BYTES_MAX).collect::<String>().into()
    });
    let reason = Reason { status, code };
    if is_refusal(status) { Outcome::Refused(reason) } else { Outcome::Wrong(reason) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::response::ResponseReader;

    fn outcome(status: &str, body: &str) -> String {
        let head = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
        let response = ResponseReader::default().read(&mut head.as_bytes(), |_| {});
        match classify(&response.unwrap().unwrap(), body.as_bytes(), true) {
            Outcome::Correct => "correct".to_owned(),
            Outcome::Refused(reason) => format!("refused: {}", reason.label()),
            Outcome::Wrong(reason) => format!("wrong: {}", reason.label()),
            Outcome::NoResponse(lost) => lost.label().to_owned(),
        }
    }

    #[test]
    fn responses_are_classified_by_status_and_code() {
        let overloaded = r#"{"errors":[{"message":"x","extensions":{"code":"OVERLOADED"}}]}"#;
        let failed =
            r#"{"data":{"a":null},"errors":[{"message":"x","extensions":{"code":"A B\n"}}]}"#;
        let nothing = "200 with errors, or not a GraphQL response";
        for (status, body, expected) in [
            ("200", r#"{"data":{"a":1}}"#, "correct"),
            ("200", r#"{"data":{"\"errors\"":1}}"#, "correct"),
            ("200", r#"{"data":{"errors":[]}}"#, "correct"),
            ("200", failed, "wrong: 200 AB"),
            ("200", r#"{"errors":[{"message":"x"}]}"#, &format!("wrong: {nothing}")),
            ("200", "<html>", &format!("wrong: {nothing}")),
            ("503", overloaded, "refused: 503 OVERLOADED"),
            ("429", "slow down", "refused: 429"),
            ("500", overloaded, "wrong: 500 OVERLOADED"),
            ("404", "", "wrong: 404"),
        ] {
            assert_eq!(outcome(status, body), expected, "{status} {body}");
        }
    }
}
