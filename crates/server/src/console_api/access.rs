//! The access to the JSON of the console: its token, and requests of foreign web pages.

use std::hint::black_box;

use config::Secret;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Method, Request};

use crate::cache_page;

/// The reason why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AccessRefused {
    /// The token is missing or wrong.
    Token,
    /// A web page of another origin sent a request that changes something.
    ForeignPage,
}

/// Checks a request to the JSON of the console. `token` is that of the configuration.
///
/// # Errors
/// The request must be refused.
pub(super) fn check<B>(request: &Request<B>, token: Option<&Secret>) -> Result<(), AccessRefused> {
    if *request.method() != Method::GET && cache_page::is_from_foreign_page(request) {
        return Err(AccessRefused::ForeignPage);
    }
    match token {
        Some(token) if !has_token(request.headers(), token) => Err(AccessRefused::Token),
        _ => Ok(()),
    }
}

fn has_token(headers: &HeaderMap, token: &Secret) -> bool {
    let value = headers.get(AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
    let given = value
        .split_at_checked("Bearer ".len())
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "))
        .map_or(&b""[..], |(_, given)| given);
    is_equal_in_constant_time(token.expose().as_bytes(), given)
}

/// Compares two texts in a time that depends on their lengths only.
fn is_equal_in_constant_time(expected: &[u8], given: &[u8]) -> bool {
    let pairs = expected.iter().zip(given);
    let difference = pairs.fold(0, |difference, (a, b)| black_box(difference | (a ^ b)));
    expected.len() == given.len() && black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Method, headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().method(method).header("host", "127.0.0.1:8088");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request")
    }

    #[test]
    fn the_token_must_be_sent_as_a_bearer_token() {
        let token = Secret::new("0123456789abcdef");
        for value in ["Bearer 0123456789abcdef", "bearer 0123456789abcdef"] {
            let request = request(Method::GET, &[("authorization", value)]);
            assert_eq!(check(&request, Some(&token)), Ok(()), "{value}");
        }
        for value in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer 0123456789abcdeF",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
        ] {
            let request = request(Method::GET, &[("authorization", value)]);
            assert_eq!(check(&request, Some(&token)), Err(AccessRefused::Token), "{value}");
        }
        assert_eq!(check(&request(Method::GET, &[]), Some(&token)), Err(AccessRefused::Token));
        assert_eq!(check(&request(Method::GET, &[]), None), Ok(()));
    }

    #[test]
    fn foreign_pages_cannot_change_anything() {
        let own = [("origin", "http://127.0.0.1:8088"), ("sec-fetch-site", "same-origin")];
        let foreign = [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")];
        assert_eq!(check(&request(Method::POST, &own), None), Ok(()));
        assert_eq!(check(&request(Method::POST, &[]), None), Ok(()), "no browser");
        assert_eq!(check(&request(Method::POST, &foreign), None), Err(AccessRefused::ForeignPage));
    }
}
