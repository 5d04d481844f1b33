//! Responses as text, for comparison with expectations: status, relevant headers, body.

use e2e::HttpResponse;

/// The headers that are the same in all responses, or differ in each.
const IGNORED_HEADERS: [&str; 7] = [
    "cache-control",
    "connection",
    "content-length",
    "date",
    "transfer-encoding",
    "vary",
    "x-content-type-options",
];

/// Formats one response, for example:
///
/// ```text
/// 405 application/json; charset=utf-8
/// allow: GET, POST, PUT, DELETE, OPTIONS
/// {"errors":[…]}
/// ```
pub(crate) fn format_response(response: &HttpResponse) -> String {
    let mut text =
        format!("{} {}\n", response.status, response.header("content-type").unwrap_or("-"));
    for (name, value) in &response.headers {
        if name != "content-type" && !IGNORED_HEADERS.contains(&&**name) {
            text.push_str(&format!("{name}: {value}\n"));
        }
    }
    text.push_str(response.text().trim_end());
    text.push('\n');
    text
}

/// Formats a named case and its outcome.
pub(crate) fn case(name: &str, outcome: &str) -> String {
    format!("--- {name}\n{outcome}\n")
}
