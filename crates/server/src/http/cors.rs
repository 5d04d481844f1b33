//! Cross-origin resource sharing (Fetch standard, section 3.2): which pages of other origins may use
//! the endpoint. Off unless `cors.origins` names some.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderValue, ORIGIN, VARY,
};
use http::{HeaderMap, Method, StatusCode};

use super::answer::{self, Answer};
use crate::config::Cors;

/// How long a browser may remember a preflight, in seconds: two hours, the most that browsers keep.
const PREFLIGHT_SECONDS: HeaderValue = HeaderValue::from_static("7200");

/// The answer to a preflight request, if this is one.
pub(crate) fn preflight(method: &Method, headers: &HeaderMap) -> Option<Answer> {
    if method != Method::OPTIONS || !headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
        return None;
    }
    let mut answer = answer::empty(StatusCode::NO_CONTENT);
    let out = answer.headers_mut();
    out.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, PUT, DELETE"));
    if let Some(wanted) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        out.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    out.insert(ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECONDS);
    Some(answer)
}

/// Adds what an allowed origin needs to read `answer`; takes away from a preflight what others must not see.
pub(crate) fn apply(cors: &Cors, origin: Option<&HeaderValue>, answer: &mut Answer) {
    if cors.origins.is_empty() {
        remove(answer);
        return;
    }
    answer.headers_mut().append(VARY, HeaderValue::from(ORIGIN));
    let any = cors.origins.iter().any(|allowed| allowed == "*");
    let named = origin.filter(|origin| {
        cors.origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes())
    });
    match named {
        Some(origin) => {
            let headers = answer.headers_mut();
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
        None if any && origin.is_some() => {
            let wildcard = HeaderValue::from_static("*");
            answer.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, wildcard);
        }
        None => remove(answer),
    }
}

fn remove(answer: &mut Answer) {
    let headers = answer.headers_mut();
    // Every answer to a preflight has this one.
    if headers.remove(ACCESS_CONTROL_ALLOW_METHODS).is_some() {
        headers.remove(ACCESS_CONTROL_ALLOW_HEADERS);
        headers.remove(ACCESS_CONTROL_MAX_AGE);
    }
}

/// May a WebSocket be opened from `origin`? Browsers do not apply the same-origin policy to WebSockets, so
/// the server has to: without an `Origin` it is no browser; a page of this very host may.
pub(crate) fn may_connect(cors: &Cors, headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let Ok(text) = origin.to_str() else { return false };
    let host = headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    let same = text.split_once("://").is_some_and(|(_, authority)| Some(authority) == host);
    same || cors.origins.iter().any(|allowed| allowed == "*" || allowed == text)
}

/// May this GET come in? Foreign pages can send it without a preflight, by an image or an `EventSource`, with
/// the cookies of whoever looks at them. They could not read the answer, but the operation would run, and a
/// stream stay open. (POST is safe: its content type needs a preflight.)
///
/// Browsers say where a request comes from by `Origin`, or where they leave that out by `Sec-Fetch-Site`
/// (Fetch Metadata). Following a link is fine: the reader sees the answer, and not the page with the link.
pub(crate) fn may_get(cors: &Cors, headers: &HeaderMap) -> bool {
    if headers.contains_key(ORIGIN) {
        return may_connect(cors, headers);
    }
    let is = |name, value: &[u8]| headers.get(name).is_some_and(|it: &HeaderValue| it == value);
    let foreign = is("sec-fetch-site", b"cross-site") || is("sec-fetch-site", b"same-site");
    !foreign || is("sec-fetch-mode", b"navigate") || cors.origins.iter().any(|it| it == "*")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(origin: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ORIGIN, HeaderValue::from_static(origin));
        headers.insert(http::header::HOST, HeaderValue::from_static("127.0.0.1:4000"));
        headers
    }

    #[test]
    fn a_page_of_the_same_host_and_allowed_origins_may_open_sockets() {
        let cors = Cors { origins: vec!["https://app.example".into()] };
        assert!(may_connect(&cors, &HeaderMap::new()));
        assert!(may_connect(&cors, &headers("http://127.0.0.1:4000")));
        assert!(may_connect(&cors, &headers("https://app.example")));
        assert!(!may_connect(&cors, &headers("https://evil.example")));
    }

    #[test]
    fn what_a_foreign_page_embeds_is_refused_and_a_link_followed_is_not() {
        let cors = Cors { origins: vec!["https://app.example".into()] };
        let may = |pairs: &[(&'static str, &'static str)]| {
            let headers = pairs.iter().map(|&(name, value)| {
                (http::HeaderName::from_static(name), HeaderValue::from_static(value))
            });
            may_get(&cors, &headers.collect())
        };
        assert!(may(&[]));
        assert!(may(&[("sec-fetch-site", "same-origin")]));
        assert!(may(&[("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate")]));
        assert!(may(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")]));
        assert!(!may(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")]));
        assert!(!may(&[("sec-fetch-site", "same-site"), ("sec-fetch-mode", "no-cors")]));
        assert!(may(&[("sec-fetch-site", "cross-site"), ("origin", "https://app.example")]));
        assert!(!may(&[("origin", "https://evil.example")]));
    }

    #[test]
    fn only_allowed_origins_may_read_answers() {
        let cors = Cors { origins: vec!["https://app.example".into()] };
        let allowed = |origin: &'static str| {
            let mut answer = answer::empty(StatusCode::OK);
            apply(&cors, headers(origin).get(ORIGIN), &mut answer);
            answer.headers().get(ACCESS_CONTROL_ALLOW_ORIGIN).cloned()
        };
        assert_eq!(
            allowed("https://app.example"),
            Some(HeaderValue::from_static("https://app.example"))
        );
        assert_eq!(allowed("https://evil.example"), None);
    }
}
