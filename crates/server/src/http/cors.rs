//! Cross-origin resource sharing (Fetch standard, section 3.2): the pages of other origins that may use the endpoint.
//! All cross-origin checks are in this module. No origin is allowed unless `cors.origins` lists it.

use std::time::Instant;

use config::Cors;
use execute::{ErrorCode, GraphqlError};
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    AUTHORIZATION, COOKIE, HeaderValue, ORIGIN, VARY,
};
use http::{HeaderMap, StatusCode};
use telemetry::LogLimit;

use super::media::ResponseFormat;
use super::response::{self, Response};

/// The time for which a browser may remember a preflight, in seconds: two hours, the most that browsers keep.
const PREFLIGHT_SECONDS: HeaderValue = HeaderValue::from_static("7200");

/// Returns the response to a preflight request with these headers; [`apply`] completes it.
pub(crate) fn preflight_response(headers: &HeaderMap) -> Response {
    let mut response = response::empty(StatusCode::NO_CONTENT);
    let out = response.headers_mut();
    out.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, PUT, DELETE"));
    if let Some(wanted) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        out.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    out.insert(ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECONDS);
    response
}

/// Adds the headers that an allowed origin needs to read `answer`, and removes from a preflight those that others must
/// not see. `"*"` never allows credentials: only an origin that is listed by name may send them.
pub(crate) fn apply(cors: &Cors, origin: Option<&HeaderValue>, response: &mut Response) {
    if cors.origins.is_empty() {
        remove(response, origin);
        return;
    }
    response.headers_mut().append(VARY, HeaderValue::from(ORIGIN));
    let named = origin.filter(|origin| is_listed(cors, origin.as_bytes()));
    match named {
        Some(origin) => {
            let headers = response.headers_mut();
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
        None if allows_any(cors) && origin.is_some() => {
            let wildcard = HeaderValue::from_static("*");
            response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, wildcard);
        }
        None => remove(response, origin),
    }
}

/// True if `cors.origins` contains this origin by name.
fn is_listed(cors: &Cors, origin: &[u8]) -> bool {
    cors.origins.iter().any(|allowed| allowed != ANY && allowed.as_bytes() == origin)
}

/// True if `cors.origins` contains `"*"`.
fn allows_any(cors: &Cors) -> bool {
    cors.origins.iter().any(|allowed| allowed == ANY)
}

/// The entry of `cors.origins` for all origins.
const ANY: &str = "*";

/// The length of an origin in a log line; longer ones are cut.
const ORIGIN_CHARS_LOGGED: usize = 200;

/// Writes a log line about a page that may not use the endpoint.
fn log_refusal(request: &'static str, origin: Option<&HeaderValue>) {
    static LIMIT: LogLimit = LogLimit::new();
    let Some(suppressed) = LIMIT.admit(Instant::now()) else { return };
    let origin = origin.map_or("none".into(), |it| String::from_utf8_lossy(it.as_bytes()));
    let origin: String = origin.chars().take(ORIGIN_CHARS_LOGGED).collect();
    tracing::warn!(
        ?origin,
        what = request,
        suppressed,
        "a web page of another origin is refused; if it is yours, list its origin in `cors.origins`"
    );
}

fn remove(response: &mut Response, origin: Option<&HeaderValue>) {
    let headers = response.headers_mut();
    // Every response to a preflight has this header.
    if headers.remove(ACCESS_CONTROL_ALLOW_METHODS).is_some() {
        log_refusal("preflight", origin);
        headers.remove(ACCESS_CONTROL_ALLOW_HEADERS);
        headers.remove(ACCESS_CONTROL_MAX_AGE);
    }
}

/// A request that pages of other origins can send without a preflight, and that has an effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CrossOriginAccess {
    /// A WebSocket handshake.
    WebSocket,
    /// A GET request to the endpoint.
    Get,
}

/// Returns the response to a request that a page of a forbidden origin has sent; `None` if the request is allowed.
pub(crate) fn refusal(
    cors: &Cors,
    access: CrossOriginAccess,
    headers: &HeaderMap,
) -> Option<Response> {
    match access {
        CrossOriginAccess::WebSocket if !may_connect(cors, headers) => Some(response::text(
            StatusCode::FORBIDDEN,
            "this origin may not connect: it is neither this host nor listed in `cors.origins` (\"*\" is for requests \
             without cookies)\n",
        )),
        CrossOriginAccess::Get if !may_get(cors, headers) => {
            let message = "pages of this origin may not use the endpoint: it is neither this host nor listed in \
                           `cors.origins` (\"*\" is for requests without cookies)";
            let error = GraphqlError::new(ErrorCode::BadRequest, message);
            Some(response::refused(StatusCode::FORBIDDEN, &[error], ResponseFormat::Json))
        }
        CrossOriginAccess::WebSocket | CrossOriginAccess::Get => None,
    }
}

/// True if a WebSocket may be opened by a request with these headers. Browsers do not apply the same-origin policy to
/// WebSockets, so the server has to. A request without `Origin` is not from a browser, and a page of this very host may
/// connect. Browsers send cookies with every handshake, so `"*"` allows only a handshake without credentials.
fn may_connect(cors: &Cors, headers: &HeaderMap) -> bool {
    let is_allowed = is_allowed_origin(cors, headers);
    if !is_allowed {
        log_refusal("websocket", headers.get(ORIGIN));
    }
    is_allowed
}

fn is_allowed_origin(cors: &Cors, headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let Ok(text) = origin.to_str() else { return false };
    let host = headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    let is_same_host = text.split_once("://").is_some_and(|(_, authority)| Some(authority) == host);
    is_same_host
        || is_listed(cors, text.as_bytes())
        || allows_any(cors) && !has_ambient_credentials(headers)
}

/// True if the request carries credentials that browsers add by themselves: cookies, or the user name and password (or
/// ticket) of HTTP authentication. A `Bearer` token is put there by the page's own code, which has it already.
fn has_ambient_credentials(headers: &HeaderMap) -> bool {
    const AMBIENT: [&str; 4] = ["basic", "digest", "negotiate", "ntlm"];
    let is_ambient = |value: &HeaderValue| {
        let scheme = value.as_bytes().split(|byte| *byte == b' ').next().unwrap_or_default();
        AMBIENT.iter().any(|it| scheme.eq_ignore_ascii_case(it.as_bytes()))
    };
    headers.contains_key(COOKIE) || headers.get_all(AUTHORIZATION).iter().any(is_ambient)
}

/// True if a GET request with these headers is allowed. Pages of other origins can send it without a preflight, by an
/// image or an `EventSource`, with the cookies of their reader. They could not read the response, but the operation
/// would run, or a stream stay open. (POST is safe: its content type needs a preflight.)
///
/// Browsers name the origin of a request in `Origin`, or where they leave that out in `Sec-Fetch-Site` (Fetch
/// Metadata). Following a link is allowed: the response goes to the reader and not to the page with the link.
fn may_get(cors: &Cors, headers: &HeaderMap) -> bool {
    let is = |name, value: &[u8]| headers.get(name).is_some_and(|it: &HeaderValue| it == value);
    let is_allowed = if headers.contains_key(ORIGIN) {
        is_allowed_origin(cors, headers)
    } else {
        let foreign = is("sec-fetch-site", b"cross-site") || is("sec-fetch-site", b"same-site");
        !foreign
            || is("sec-fetch-mode", b"navigate")
            || allows_any(cors) && !has_ambient_credentials(headers)
    };
    if !is_allowed {
        log_refusal("get", headers.get(ORIGIN));
    }
    is_allowed
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
    fn embedding_by_a_foreign_page_is_refused_and_following_a_link_is_not() {
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
    fn any_origin_may_come_without_credentials_and_none_with_them() {
        let cors = Cors { origins: vec!["*".into(), "https://app.example".into()] };
        let with = |origin: &'static str, name: &'static str, value: &'static str| {
            let mut headers = headers(origin);
            headers.insert(name, HeaderValue::from_static(value));
            headers
        };
        for may in [may_connect, may_get] {
            assert!(may(&cors, &headers("https://other.example")));
            assert!(may(&cors, &with("https://other.example", "authorization", "Bearer t")));
            for (name, value) in [
                ("cookie", "session=1"),
                ("authorization", "Basic eA=="),
                ("authorization", "NTLM x"),
            ] {
                assert!(!may(&cors, &with("https://other.example", name, value)), "{name}");
                assert!(!may(&cors, &with("*", name, value)), "{name}");
                assert!(!may(&cors, &with("null", name, value)), "{name}");
                assert!(may(&cors, &with("https://app.example", name, value)), "{name}");
                assert!(may(&cors, &with("http://127.0.0.1:4000", name, value)), "{name}");
            }
        }
        let image = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")];
        let mut image = HeaderMap::from_iter(image.map(|(name, value)| {
            (http::HeaderName::from_static(name), HeaderValue::from_static(value))
        }));
        assert!(may_get(&cors, &image));
        image.insert(COOKIE, HeaderValue::from_static("session=1"));
        assert!(!may_get(&cors, &image));
    }

    #[test]
    fn any_origin_may_read_responses_and_send_no_credentials() {
        let cors = Cors { origins: vec!["*".into()] };
        for origin in ["https://other.example", "*", "null"] {
            let mut response = response::empty(StatusCode::OK);
            apply(&cors, Some(&HeaderValue::from_static(origin)), &mut response);
            let allowed = response.headers().get(ACCESS_CONTROL_ALLOW_ORIGIN);
            assert_eq!(allowed, Some(&HeaderValue::from_static("*")));
            assert!(!response.headers().contains_key(ACCESS_CONTROL_ALLOW_CREDENTIALS), "{origin}");
        }
    }

    #[test]
    fn only_allowed_origins_may_read_responses() {
        let cors = Cors { origins: vec!["https://app.example".into()] };
        let allowed = |origin: &'static str| {
            let mut response = response::empty(StatusCode::OK);
            apply(&cors, headers(origin).get(ORIGIN), &mut response);
            response.headers().get(ACCESS_CONTROL_ALLOW_ORIGIN).cloned()
        };
        assert_eq!(
            allowed("https://app.example"),
            Some(HeaderValue::from_static("https://app.example"))
        );
        assert_eq!(allowed("https://evil.example"), None);
    }
}
