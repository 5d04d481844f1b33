//! Cross-origin resource sharing (Fetch standard, section 3.2): the pages of other origins that may use the endpoint.
//! All cross-origin checks are in this module. No origin is allowed unless a policy of `cors` has it; which policy
//! applies to an origin is decided in `cors_rules`.

use std::time::Instant;

use execute::{ErrorCode, GraphqlError};
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, AUTHORIZATION, COOKIE, HeaderName, HeaderValue, ORIGIN, VARY,
};
use http::{HeaderMap, StatusCode};
use telemetry::LogLimit;

use super::cors_rules::CorsRules;
use super::media::ResponseFormat;
use super::response::{self, Response};

/// The question of a browser whether a page of the public internet may reach a private network (Private Network Access,
/// section 3.1.3).
const REQUEST_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-request-private-network");

/// The consent to that.
const ALLOW_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-allow-private-network");

/// Returns the response to a preflight request with these headers; [`apply`] completes it.
pub(crate) fn preflight_response(rules: &CorsRules, headers: &HeaderMap) -> Response {
    let mut response = response::empty(StatusCode::NO_CONTENT);
    let origin = headers.get(ORIGIN);
    let Some(found) = origin.and_then(|origin| rules.find(origin)) else {
        log_refusal("preflight", origin);
        return response;
    };
    let rule = found.rule;
    let out = response.headers_mut();
    out.insert(ACCESS_CONTROL_ALLOW_METHODS, rule.methods.clone());
    match (&rule.allow_headers, headers.get(ACCESS_CONTROL_REQUEST_HEADERS)) {
        (Some(listed), _) => {
            out.insert(ACCESS_CONTROL_ALLOW_HEADERS, listed.clone());
        }
        (None, Some(wanted)) => {
            out.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
            out.append(VARY, HeaderValue::from(ACCESS_CONTROL_REQUEST_HEADERS));
        }
        (None, None) => {}
    }
    out.insert(ACCESS_CONTROL_MAX_AGE, rule.max_age.clone());
    if rule.has_private_network_access {
        out.append(VARY, HeaderValue::from(REQUEST_PRIVATE_NETWORK));
        if headers.get(REQUEST_PRIVATE_NETWORK).is_some_and(|it| it == "true") {
            out.insert(ALLOW_PRIVATE_NETWORK, HeaderValue::from_static("true"));
        }
    }
    response
}

/// Adds the headers that an allowed origin needs to read `response`.
pub(crate) fn apply(rules: &CorsRules, origin: Option<&HeaderValue>, response: &mut Response) {
    if rules.is_empty() {
        return;
    }
    let headers = response.headers_mut();
    headers.append(VARY, HeaderValue::from(ORIGIN));
    let Some((origin, found)) = origin.and_then(|it| Some((it, rules.find(it)?))) else { return };
    let allowed = if found.is_named { origin.clone() } else { HeaderValue::from_static("*") };
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
    if found.allows_credentials() {
        headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
    }
    // Every response to an allowed preflight has these methods.
    let is_preflight = headers.contains_key(ACCESS_CONTROL_ALLOW_METHODS);
    if let Some(exposed) = found.rule.expose_headers.as_ref().filter(|_| !is_preflight) {
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed.clone());
    }
}

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
        "a web page of another origin is refused; if it is yours, list its origin in `cors`"
    );
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
    rules: &CorsRules,
    access: CrossOriginAccess,
    headers: &HeaderMap,
) -> Option<Response> {
    match access {
        CrossOriginAccess::WebSocket if !may_connect(rules, headers) => Some(response::text(
            StatusCode::FORBIDDEN,
            "this origin may not connect: it is neither this host nor allowed by `cors` (\"*\" is for requests \
             without cookies)\n",
        )),
        CrossOriginAccess::Get if !may_get(rules, headers) => {
            let message = "pages of this origin may not use the endpoint: it is neither this host nor allowed by \
                           `cors` (\"*\" is for requests without cookies)";
            let error = GraphqlError::new(ErrorCode::BadRequest, message);
            Some(response::refused(StatusCode::FORBIDDEN, &[error], ResponseFormat::Json))
        }
        CrossOriginAccess::WebSocket | CrossOriginAccess::Get => None,
    }
}

/// True if a WebSocket may be opened by a request with these headers. Browsers do not apply the same-origin policy to
/// WebSockets, so the server has to. A request without `Origin` is not from a browser, and a page of this very host may
/// connect. Browsers send cookies with every handshake, so `"*"` allows only a handshake without credentials.
fn may_connect(rules: &CorsRules, headers: &HeaderMap) -> bool {
    let is_allowed = is_allowed_origin(rules, CrossOriginAccess::WebSocket, headers);
    if !is_allowed {
        log_refusal("websocket", headers.get(ORIGIN));
    }
    is_allowed
}

fn is_allowed_origin(rules: &CorsRules, access: CrossOriginAccess, headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let Ok(text) = origin.to_str() else { return false };
    let host = headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    let is_same_host = text.split_once("://").is_some_and(|(_, authority)| Some(authority) == host);
    is_same_host
        || rules.find(origin).is_some_and(|found| {
            (found.rule.allows_get || access != CrossOriginAccess::Get)
                && (found.allows_credentials() || !has_ambient_credentials(headers))
        })
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
fn may_get(rules: &CorsRules, headers: &HeaderMap) -> bool {
    let is = |name, value: &[u8]| headers.get(name).is_some_and(|it: &HeaderValue| it == value);
    let is_allowed = if headers.contains_key(ORIGIN) {
        is_allowed_origin(rules, CrossOriginAccess::Get, headers)
    } else {
        let foreign = is("sec-fetch-site", b"cross-site") || is("sec-fetch-site", b"same-site");
        !foreign
            || is("sec-fetch-mode", b"navigate")
            || rules.any_origin().is_some_and(|rule| rule.allows_get)
                && !has_ambient_credentials(headers)
    };
    if !is_allowed {
        log_refusal("get", headers.get(ORIGIN));
    }
    is_allowed
}

#[cfg(test)]
mod tests {
    use config::{Cors, CorsPolicy};

    use super::*;

    fn rules(origins: &[&str]) -> CorsRules {
        let origins = origins.iter().map(|&it| it.to_owned()).collect();
        CorsRules::new(&Cors { origins, policies: Vec::new() })
    }

    fn policy(policy: CorsPolicy) -> CorsRules {
        CorsRules::new(&Cors { origins: Vec::new(), policies: vec![policy] })
    }

    fn headers(origin: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ORIGIN, HeaderValue::from_static(origin));
        headers.insert(http::header::HOST, HeaderValue::from_static("127.0.0.1:4000"));
        headers
    }

    #[test]
    fn a_page_of_the_same_host_and_allowed_origins_may_open_sockets() {
        let cors = rules(&["https://app.example"]);
        assert!(may_connect(&cors, &HeaderMap::new()));
        assert!(may_connect(&cors, &headers("http://127.0.0.1:4000")));
        assert!(may_connect(&cors, &headers("https://app.example")));
        assert!(!may_connect(&cors, &headers("https://evil.example")));
    }

    #[test]
    fn embedding_by_a_foreign_page_is_refused_and_following_a_link_is_not() {
        let cors = rules(&["https://app.example"]);
        let may = |pairs: &[(&'static str, &'static str)]| {
            let headers = pairs.iter().map(|&(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
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
        let cors = rules(&["*", "https://app.example"]);
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
        let mut image =
            HeaderMap::from_iter(image.map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            }));
        assert!(may_get(&cors, &image));
        image.insert(COOKIE, HeaderValue::from_static("session=1"));
        assert!(!may_get(&cors, &image));
    }

    #[test]
    fn any_origin_may_read_responses_and_send_no_credentials() {
        let cors = rules(&["*"]);
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
        let cors = rules(&["https://app.example"]);
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

    /// The response to a preflight of `https://app.example` that carries this header, and each of its headers.
    fn preflight(rules: &CorsRules, pairs: &[(&'static str, &'static str)]) -> Vec<String> {
        let mut headers = headers("https://app.example");
        for &(name, value) in pairs {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let mut response = preflight_response(rules, &headers);
        apply(rules, headers.get(ORIGIN), &mut response);
        let headers = response.headers().iter();
        headers.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect()
    }

    #[test]
    fn a_preflight_gets_the_rules_of_the_policy() {
        let origins = vec!["https://*.example".into(), "https://app.example".into()];
        let rules = policy(CorsPolicy {
            origins: origins.clone(),
            credentials: false,
            methods: vec![config::CorsMethod::Post],
            allow_headers: vec![http::header::CONTENT_TYPE, AUTHORIZATION],
            max_age: std::time::Duration::from_secs(60),
            private_network_access: true,
            ..CorsPolicy::default()
        });
        let wanted = ("access-control-request-headers", "x-any");
        assert_eq!(
            preflight(&rules, &[wanted, ("access-control-request-private-network", "true")]),
            [
                "access-control-allow-methods: POST",
                "access-control-allow-headers: content-type, authorization",
                "access-control-max-age: 60",
                "vary: access-control-request-private-network",
                "vary: origin",
                "access-control-allow-private-network: true",
                "access-control-allow-origin: https://app.example",
            ]
        );
        let rules = policy(CorsPolicy { origins, ..CorsPolicy::default() });
        assert_eq!(
            preflight(&rules, &[wanted, ("access-control-request-private-network", "true")]),
            [
                "access-control-allow-methods: GET, POST, PUT, DELETE",
                "access-control-allow-headers: x-any",
                "vary: access-control-request-headers",
                "vary: origin",
                "access-control-max-age: 7200",
                "access-control-allow-origin: https://app.example",
                "access-control-allow-credentials: true",
            ]
        );
    }

    #[test]
    fn a_preflight_of_a_foreign_origin_gets_nothing() {
        let rules = policy(CorsPolicy {
            origins: vec!["https://other.example".into()],
            private_network_access: true,
            ..CorsPolicy::default()
        });
        assert_eq!(preflight(&rules, &[]), ["vary: origin"]);
        assert_eq!(preflight(&self::rules(&[]), &[]), [""; 0]);
    }

    #[test]
    fn a_page_reads_the_exposed_headers_of_a_response() {
        let rules = rules(&["https://app.example"]);
        let mut response = response::empty(StatusCode::OK);
        apply(&rules, headers("https://app.example").get(ORIGIN), &mut response);
        let exposed = response.headers().get(ACCESS_CONTROL_EXPOSE_HEADERS);
        assert_eq!(
            exposed,
            Some(&HeaderValue::from_static(
                "retry-after, www-authenticate, ratelimit, ratelimit-policy"
            ))
        );
    }

    #[test]
    fn a_policy_without_credentials_refuses_those_that_browsers_add() {
        let rules = policy(CorsPolicy {
            origins: vec!["https://app.example".into()],
            credentials: false,
            ..CorsPolicy::default()
        });
        let mut headers = headers("https://app.example");
        assert!(may_connect(&rules, &headers) && may_get(&rules, &headers));
        headers.insert(COOKIE, HeaderValue::from_static("session=1"));
        assert!(!may_connect(&rules, &headers) && !may_get(&rules, &headers));
    }

    #[test]
    fn a_policy_without_get_refuses_get_and_no_socket() {
        let rules = policy(CorsPolicy {
            origins: vec!["https://app.example".into(), "*".into()],
            methods: vec![config::CorsMethod::Post],
            ..CorsPolicy::default()
        });
        let headers = headers("https://app.example");
        assert!(may_connect(&rules, &headers));
        assert!(!may_get(&rules, &headers));
        let image = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")];
        let image = image
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        assert!(!may_get(&rules, &HeaderMap::from_iter(image)));
    }
}
