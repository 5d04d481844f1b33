//! Which answers count, by status and content type (GraphQL over HTTP, section 6.4).

use execute::FetchError;
use http::StatusCode;
use http::header::{self, HeaderMap};

/// Bytes of a content type that an error may repeat.
const CONTENT_TYPE_BYTES_MAX: usize = 64;

/// Is the body worth reading as a GraphQL answer?
///
/// `application/graphql-response+json` is an answer whatever the status says. Other JSON is
/// handed on too: with a status of failure execution uses it only if it has `data` or `errors`.
pub(crate) fn check(status: StatusCode, headers: &HeaderMap) -> Result<(), FetchError> {
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING)
        && encoding != "identity"
    {
        return Err(FetchError::Protocol(
            "the answer is compressed, which was not asked for".into(),
        ));
    }
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = content_type.map(|it| it.split(';').next().unwrap_or_default().trim());
    let is_json = match essence {
        Some(essence) => {
            essence.eq_ignore_ascii_case("application/graphql-response+json")
                || essence.eq_ignore_ascii_case("application/json")
        }
        // Says nothing: a success is given the chance to be JSON.
        None => status.is_success(),
    };
    if is_json {
        return Ok(());
    }
    let content_type = essence
        .map(|it| it.chars().filter(char::is_ascii_graphic).take(CONTENT_TYPE_BYTES_MAX).collect());
    Err(FetchError::Status { status, content_type })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn what_counts_as_an_answer() {
        let cases = [
            (200, Some("application/json"), true),
            (200, Some("application/json; charset=utf-8"), true),
            (200, Some("Application/GraphQL-Response+JSON"), true),
            (200, None, true),
            (500, Some("application/graphql-response+json"), true),
            (500, Some("application/json"), true),
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
            assert_eq!(check(status, &headers).is_ok(), expected, "{status} {content_type:?}");
        }
    }

    #[test]
    fn a_compressed_answer_is_refused() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert!(matches!(check(StatusCode::OK, &headers), Err(FetchError::Protocol(_))));
    }
}
