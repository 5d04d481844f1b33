//! The headers of a response that a rate limit refused: `retry-after`, and `ratelimit` and `ratelimit-policy` of the
//! IETF (draft-ietf-httpapi-ratelimit-headers).

use execute::RateLimitState;
use http::header::RETRY_AFTER;
use http::{HeaderName, HeaderValue};

/// Returns the headers for a limit that is reached.
pub fn rate_limit_headers(limit: &RateLimitState) -> [(HeaderName, Option<HeaderValue>); 3] {
    let RateLimitState { name, quota, window_seconds, remaining, retry_after_seconds, .. } = limit;
    let texts = [
        (RETRY_AFTER, retry_after_seconds.to_string()),
        (
            HeaderName::from_static("ratelimit"),
            format!("\"{name}\";r={remaining};t={retry_after_seconds}"),
        ),
        (
            HeaderName::from_static("ratelimit-policy"),
            format!("\"{name}\";q={quota};w={window_seconds}"),
        ),
    ];
    // Names of limits have no characters that a header could not have, so each value is valid.
    texts.map(|(header, text)| (header, HeaderValue::from_str(&text).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_have_the_policy_and_the_time_to_wait() {
        let limit = RateLimitState {
            name: "per-user".into(),
            quota: 100,
            window_seconds: 60,
            remaining: 2,
            retry_after_seconds: 3,
            close_after: 0,
        };
        let headers = rate_limit_headers(&limit).map(|(name, value)| {
            format!("{name}: {}", value.as_ref().and_then(|it| it.to_str().ok()).unwrap_or("?"))
        });
        let expected = [
            "retry-after: 3",
            "ratelimit: \"per-user\";r=2;t=3",
            "ratelimit-policy: \"per-user\";q=100;w=60",
        ];
        assert_eq!(headers, expected);
    }
}
