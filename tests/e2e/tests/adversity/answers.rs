//! Answers as text, for comparison with what a test expects: status, the headers that matter, body.

use e2e::Answer;

/// Headers that are the same for each answer, or that change from one to the next.
const BORING: [&str; 7] = [
    "cache-control",
    "connection",
    "content-length",
    "date",
    "transfer-encoding",
    "vary",
    "x-content-type-options",
];

/// One answer, as in
///
/// ```text
/// 405 application/json; charset=utf-8
/// allow: GET, POST, PUT, DELETE, OPTIONS
/// {"errors":[…]}
/// ```
pub(crate) fn shown(answer: &Answer) -> String {
    let mut text = format!("{} {}\n", answer.status, answer.header("content-type").unwrap_or("-"));
    for (name, value) in &answer.headers {
        if name != "content-type" && !BORING.contains(&&**name) {
            text.push_str(&format!("{name}: {value}\n"));
        }
    }
    text.push_str(answer.text().trim_end());
    text.push('\n');
    text
}

/// A case of a table and its outcome.
pub(crate) fn case(name: &str, outcome: &str) -> String {
    format!("--- {name}\n{outcome}\n")
}
