//! Values of `cache-control` (RFC 9111, section 5.2): which of two is stricter, and what personal responses say.

use http::header::{AUTHORIZATION, CACHE_CONTROL, COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue};

use crate::authentication::TokenSources;

/// How far a value restricts caches; more is stricter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Strictness {
    /// Shared caches may store the response, for that many seconds at most.
    Public(std::cmp::Reverse<u64>),
    /// Shared caches may not store the response, or must ask before each use.
    Private,
    NoStore,
}

fn strictness(value: &HeaderValue) -> Strictness {
    // A value that cannot be read must not become a permission to store.
    let Ok(text) = value.to_str() else { return Strictness::NoStore };
    let mut found = Strictness::Public(std::cmp::Reverse(u64::MAX));
    for directive in text.split(',') {
        let (name, argument) = directive.split_once('=').unwrap_or((directive, ""));
        let name = name.trim().to_ascii_lowercase();
        found = found.max(match &*name {
            "no-store" => Strictness::NoStore,
            "private" | "no-cache" => Strictness::Private,
            "max-age" | "s-maxage" => {
                let seconds = argument.trim().trim_matches('"').parse().unwrap_or(0);
                Strictness::Public(std::cmp::Reverse(seconds))
            }
            _ => continue,
        });
    }
    found
}

/// True if `value` restricts caches more than `other`.
pub fn is_stricter(value: &HeaderValue, other: &HeaderValue) -> bool {
    strictness(value) > strictness(other)
}

/// True if a request identifies its client. `tokens` are the places of tokens, where they are verified.
pub fn is_personal(headers: &HeaderMap, tokens: Option<&TokenSources>) -> bool {
    headers.contains_key(AUTHORIZATION)
        || headers.contains_key(COOKIE)
        || tokens.is_some_and(|it| it.has_token(headers))
}

/// True if caches may store a response with these headers.
pub fn may_be_stored(headers: &HeaderMap) -> bool {
    headers.get_all(CACHE_CONTROL).iter().all(|value| strictness(value) != Strictness::NoStore)
}

/// Sets `no-store` on a response unless it has that already, or a rule for headers of subgraphs has set another value
/// and the response is not personal.
pub fn restrict(headers: &mut HeaderMap, is_personal: bool) {
    let is_personal = is_personal || headers.contains_key(SET_COOKIE);
    let values = || headers.get_all(CACHE_CONTROL).iter();
    let is_set = values().next().is_some();
    let is_stored = may_be_stored(headers);
    // Event streams say so: a proxy that compressed them would hold events back.
    let says_no_transform =
        values().any(|value| value.to_str().is_ok_and(|it| it.contains("no-transform")));
    if !is_set || is_personal && is_stored {
        let value = if says_no_transform { "no-store, no-transform" } else { "no-store" };
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use config::{Jwt, JwtHeader};
    use http::HeaderName;

    use super::*;

    fn restricted(value: Option<&'static str>, is_personal: bool, has_cookie: bool) -> String {
        let mut headers = HeaderMap::new();
        if let Some(value) = value {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static(value));
        }
        if has_cookie {
            headers.insert(SET_COOKIE, HeaderValue::from_static("a=b"));
        }
        restrict(&mut headers, is_personal);
        headers[CACHE_CONTROL].to_str().expect("text").to_owned()
    }

    #[test]
    fn a_personal_response_is_never_stored() {
        assert_eq!(restricted(None, false, false), "no-store");
        assert_eq!(restricted(Some("max-age=60"), false, false), "max-age=60");
        assert_eq!(restricted(Some("public, max-age=60"), true, false), "no-store");
        assert_eq!(restricted(Some("private"), true, false), "no-store");
        assert_eq!(restricted(Some("max-age=60"), false, true), "no-store");
        let stream = restricted(Some("no-cache, no-transform"), true, false);
        assert_eq!(stream, "no-store, no-transform");
        assert_eq!(
            restricted(Some("no-store, no-transform"), true, true),
            "no-store, no-transform"
        );
    }

    #[test]
    fn the_stricter_value_is_the_one_that_stores_less() {
        let order = ["public", "max-age=60", "S-MaxAge=10", "max-age=x", "private", "No-Store"];
        for (index, value) in order.iter().enumerate() {
            for other in &order[..index] {
                let (value, other) =
                    (HeaderValue::from_static(value), HeaderValue::from_static(other));
                assert!(is_stricter(&value, &other), "{value:?} {other:?}");
                assert!(!is_stricter(&other, &value), "{value:?} {other:?}");
            }
        }
        let both = HeaderValue::from_static("max-age=60, no-store");
        assert!(is_stricter(&both, &HeaderValue::from_static("no-cache")));
    }

    #[test]
    fn a_request_with_credentials_is_personal() {
        let header = JwtHeader { name: HeaderName::from_static("x-token"), prefix: String::new() };
        let tokens = TokenSources::new(&Jwt { header, ..Jwt::default() });
        for (name, expected) in
            [("authorization", true), ("cookie", true), ("x-token", true), ("x-tenant", false)]
        {
            let header = (HeaderName::from_static(name), HeaderValue::from_static("1"));
            let headers = HeaderMap::from_iter([header]);
            assert_eq!(is_personal(&headers, Some(&tokens)), expected, "{name}");
        }
    }
}
