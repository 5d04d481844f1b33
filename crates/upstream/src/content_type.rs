//! Checks the status and content type of responses (GraphQL over HTTP, sections 6.4.1 and 6.4.2).

use execute::FetchError;
use http::StatusCode;
use http::header::{self, HeaderMap};

/// Bytes of a content type that an error may repeat.
const CONTENT_TYPE_BYTES_MAX: usize = 64;

/// Checks that the body may be a GraphQL response.
///
/// `application/graphql-response+json` is one whatever the status is: only GraphQL servers write
/// it. `application/json` is one with a status of success only: with another status it may come
/// from any intermediary.
pub(crate) fn check_content_type(
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<(), FetchError> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let mut parts = content_type.unwrap_or_default().split(';').map(str::trim);
    let essence = content_type.and(parts.next());
    let is_graphql = match essence {
        Some(essence) if essence.eq_ignore_ascii_case("application/graphql-response+json") => true,
        Some(essence) => essence.eq_ignore_ascii_case("application/json") && status.is_success(),
        // Without a content type, a success may be JSON.
        None => status.is_success(),
    };
    if !is_graphql {
        let content_type = printable_media_type(headers);
        return Err(FetchError::Status { status, content_type, body: None });
    }
    let charset = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.eq_ignore_ascii_case("charset").then(|| value.trim_matches('"'))
    });
    // JSON is UTF-8 (RFC 8259, section 8.1), and US-ASCII is a subset of it.
    let is_utf8 =
        |it: &str| ["utf-8", "utf8", "us-ascii"].iter().any(|known| it.eq_ignore_ascii_case(known));
    if !charset.is_none_or(is_utf8) {
        return Err(FetchError::Protocol("the response is in another charset than UTF-8".into()));
    }
    Ok(())
}

/// True if the content type is `application/json`. With a status of failure such a body may hold
/// GraphQL errors, as sent by servers that are older than `application/graphql-response+json`.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    media_type(headers).is_some_and(|it| it.eq_ignore_ascii_case("application/json"))
}

/// Returns the media type of the body for an error: short, and without characters that would disturb a log.
pub(crate) fn printable_media_type(headers: &HeaderMap) -> Option<String> {
    let printable =
        |it: &str| it.chars().filter(char::is_ascii_graphic).take(CONTENT_TYPE_BYTES_MAX).collect();
    media_type(headers).map(printable)
}

/// Returns the content type without its parameters.
fn media_type(headers: &HeaderMap) -> Option<&str> {
    let content_type = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    content_type.split(';').next().map(str::trim)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn accepts_graphql_responses_only() {
        let cases = [
            (200, Some("application/json"), true),
            (200, Some("application/json; charset=utf-8"), true),
            (200, Some("application/json;charset=\"UTF-8\""), true),
            (200, Some("application/json; charset=utf-16"), false),
            (200, Some("Application/GraphQL-Response+JSON"), true),
            (203, Some("application/json"), true),
            (200, None, true),
            (400, Some("application/graphql-response+json; charset=utf-8"), true),
            (500, Some("application/graphql-response+json"), true),
            (400, Some("application/json"), false),
            (500, Some("application/json"), false),
            (302, Some("application/json"), false),
            (500, None, false),
            (200, Some("text/html"), false),
            (502, Some("text/html; charset=utf-8"), false),
            (302, Some("text/plain"), false),
            (200, Some(""), false),
        ];
        for (status, content_type, expected) in cases {
            let status = StatusCode::from_u16(status).unwrap();
            let mut headers = HeaderMap::new();
            if let Some(text) = content_type {
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(text));
            }
            assert_eq!(
                check_content_type(status, &headers).is_ok(),
                expected,
                "{status} {content_type:?}"
            );
        }
    }
}
