//! The classification of requests: one look at the head of a request decides the handler.

use http::header::ACCESS_CONTROL_REQUEST_METHOD;
use http::{HeaderMap, Method, Uri, Version};

use super::page::{self, EndpointPage};
use super::single_connection::{self, StreamRequest};
use super::websocket;

/// The kind of a request to the listener of clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RequestKind {
    /// A browser asks which cross-origin requests are allowed.
    Preflight,
    /// A browser asks for the page, at the path of the endpoint.
    Page,
    /// Another path: a file of the page, or nothing.
    File,
    /// A request to the GraphQL endpoint.
    Endpoint(EndpointRequest),
}

/// The kind of a request to the GraphQL endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum EndpointRequest {
    /// OPTIONS: the allowed methods.
    Options,
    /// A WebSocket handshake, valid or not.
    WebSocket,
    /// A GraphQL request by GET or POST. `accept` and the operation decide the transport of the response.
    Operation,
    /// The same at the path of the persisted document with this id.
    Document(Box<str>),
    /// A request of single connection mode.
    Stream(StreamRequest),
    /// A method that the endpoint does not support.
    UnsupportedMethod,
}

impl EndpointRequest {
    /// True if the client must be authorized before its request is handled. The client of a WebSocket may send its
    /// token later, with `connection_init`.
    pub(super) fn requires_authorization(&self) -> bool {
        match self {
            Self::Options | Self::WebSocket => false,
            Self::Stream(request) => request.requires_authorization(),
            Self::Operation | Self::Document(_) | Self::UnsupportedMethod => true,
        }
    }
}

/// The parts of a request's head on which its kind depends.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestHead<'a> {
    pub(super) method: &'a Method,
    pub(super) version: Version,
    pub(super) uri: &'a Uri,
    pub(super) headers: &'a HeaderMap,
}

/// Returns the kind of a request.
pub(super) fn classify(head: RequestHead<'_>, endpoint: &EndpointPage) -> RequestKind {
    let RequestHead { method, uri, headers, .. } = head;
    if method == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
        RequestKind::Preflight
    } else if uri.path() != endpoint.path {
        match document_id(uri.path(), endpoint) {
            Some(id) => RequestKind::Endpoint(classify_document(method, id)),
            None => RequestKind::File,
        }
    } else if endpoint.page.is_some() && page::is_requested(method, uri, headers) {
        RequestKind::Page
    } else {
        RequestKind::Endpoint(classify_endpoint(head))
    }
}

/// Returns the id in the path of a persisted document; `None` if it is another path. The id is an opaque text: points
/// and percent-encoded slashes have no meaning.
pub(super) fn document_id(path: &str, endpoint: &EndpointPage) -> Option<Box<str>> {
    if !endpoint.has_documents {
        return None;
    }
    let id = path.strip_prefix(endpoint.path.trim_end_matches('/'))?.strip_prefix('/')?;
    if id.is_empty() || id.contains('/') {
        return None;
    }
    Some(percent_encoding::percent_decode_str(id).decode_utf8().ok()?.into())
}

fn classify_document(method: &Method, id: Box<str>) -> EndpointRequest {
    match *method {
        Method::OPTIONS => EndpointRequest::Options,
        Method::GET | Method::POST => EndpointRequest::Document(id),
        _ => EndpointRequest::UnsupportedMethod,
    }
}

fn classify_endpoint(head: RequestHead<'_>) -> EndpointRequest {
    let RequestHead { method, version, uri, headers } = head;
    if method == Method::OPTIONS {
        return EndpointRequest::Options;
    }
    // RFC 9110, section 7.8: `upgrade` is ignored in a request by HTTP/1.0.
    if version > Version::HTTP_10 && websocket::is_requested(headers) {
        return EndpointRequest::WebSocket;
    }
    if let Some(request) = single_connection::classify(method, uri, headers) {
        return EndpointRequest::Stream(request);
    }
    match *method {
        Method::GET | Method::POST => EndpointRequest::Operation,
        _ => EndpointRequest::UnsupportedMethod,
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use ide::{Page, PageConfig};

    use super::*;

    fn kind(
        method: &str,
        uri: &'static str,
        pairs: &[(&'static str, &'static str)],
    ) -> RequestKind {
        kind_of(Version::HTTP_11, method, uri, pairs)
    }

    fn kind_of(
        version: Version,
        method: &str,
        uri: &'static str,
        pairs: &[(&'static str, &'static str)],
    ) -> RequestKind {
        let method = &Method::from_bytes(method.as_bytes()).expect("a method");
        let uri = &Uri::from_static(uri);
        let headers = pairs
            .iter()
            .map(|&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let headers = &headers.collect();
        let tabs = Vec::new();
        let page = PageConfig { title: String::new(), endpoint: "/graphql".into(), tabs };
        let endpoint = EndpointPage {
            path: "/graphql".into(),
            has_documents: true,
            page: Some(Page::new(&page)),
        };
        classify(RequestHead { method, version, uri, headers }, &endpoint)
    }

    #[test]
    fn a_path_below_the_endpoint_is_that_of_a_document() {
        let document = |id: &str| RequestKind::Endpoint(EndpointRequest::Document(id.into()));
        for method in ["GET", "POST"] {
            assert_eq!(kind(method, "/graphql/abc", &[HTML, UPGRADE, TOKEN]), document("abc"));
        }
        for (path, id) in [
            ("/graphql/sha256:ab?variables={}", "sha256:ab"),
            ("/graphql/a%2Fb%2F..%2f", "a/b/../"),
            ("/graphql/..", ".."),
            ("/graphql/%C3%A4", "ä"),
        ] {
            assert_eq!(kind("GET", path, &[]), document(id), "{path}");
        }
        for path in ["/graphql/", "/graphql/a/b", "/graphql/../a", "/graphqlabc", "/graphql/%FF"] {
            assert_eq!(kind("GET", path, &[]), RequestKind::File, "{path}");
        }
        let other = RequestKind::Endpoint(EndpointRequest::UnsupportedMethod);
        assert_eq!(kind("DELETE", "/graphql/abc", &[]), other);
        let options = RequestKind::Endpoint(EndpointRequest::Options);
        assert_eq!(kind("OPTIONS", "/graphql/abc", &[]), options);
    }

    const TOKEN: (&str, &str) = ("x-graphql-event-stream-token", "stream-7");
    const HTML: (&str, &str) = ("accept", "text/html,*/*;q=0.8");
    const EVENTS: (&str, &str) = ("accept", "text/event-stream");
    const UPGRADE: (&str, &str) = ("upgrade", "websocket");

    #[test]
    fn the_path_and_the_accepted_types_tell_the_page_from_the_endpoint() {
        use RequestKind::{Endpoint, File, Page};
        assert_eq!(kind("GET", "/graphql", &[HTML]), Page);
        assert_eq!(kind("GET", "/graphql?query=x", &[HTML]), Endpoint(EndpointRequest::Operation));
        assert_eq!(kind("POST", "/graphql", &[HTML]), Endpoint(EndpointRequest::Operation));
        assert_eq!(kind("GET", "/ide.js", &[]), File);
        assert_eq!(kind("POST", "/", &[]), File);
    }

    #[test]
    fn a_preflight_is_recognized_at_every_path_and_needs_its_header() {
        let asks = ("access-control-request-method", "POST");
        assert_eq!(kind("OPTIONS", "/graphql", &[asks]), RequestKind::Preflight);
        assert_eq!(kind("OPTIONS", "/other", &[asks]), RequestKind::Preflight);
        let options = RequestKind::Endpoint(EndpointRequest::Options);
        assert_eq!(kind("OPTIONS", "/graphql", &[]), options);
        assert_eq!(kind("OPTIONS", "/graphql", &[UPGRADE]), options);
    }

    #[test]
    fn a_handshake_is_a_websocket_whatever_its_method_but_not_over_http_1_0() {
        let websocket = RequestKind::Endpoint(EndpointRequest::WebSocket);
        for method in ["GET", "POST", "PUT"] {
            assert_eq!(kind(method, "/graphql", &[UPGRADE, TOKEN]), websocket, "{method}");
        }
        assert_eq!(kind("GET", "/graphql", &[UPGRADE, HTML]), websocket);
        assert_eq!(kind("GET", "/other", &[UPGRADE]), RequestKind::File);
        let old = kind_of(Version::HTTP_10, "GET", "/graphql", &[UPGRADE]);
        assert_eq!(old, RequestKind::Endpoint(EndpointRequest::Operation));
        let h2c = kind("GET", "/graphql", &[("upgrade", "h2c")]);
        assert_eq!(h2c, RequestKind::Endpoint(EndpointRequest::Operation));
    }

    #[test]
    fn a_token_makes_a_request_one_of_single_connection_mode() {
        let token = || "stream-7".into();
        let stream = |request| RequestKind::Endpoint(EndpointRequest::Stream(request));
        for (method, uri, pairs, expected) in [
            ("PUT", "/graphql", &[][..], stream(StreamRequest::Reserve)),
            ("PUT", "/graphql", &[TOKEN], stream(StreamRequest::Reserve)),
            ("GET", "/graphql", &[TOKEN], stream(StreamRequest::Open(token()))),
            ("GET", "/graphql?token=stream-7", &[], stream(StreamRequest::Open(token()))),
            ("GET", "/graphql?query=x", &[TOKEN, EVENTS], stream(StreamRequest::Open(token()))),
            ("GET", "/graphql?query=x", &[TOKEN], stream(StreamRequest::Start(token()))),
            ("POST", "/graphql", &[TOKEN, EVENTS], stream(StreamRequest::Start(token()))),
            ("DELETE", "/graphql", &[TOKEN], stream(StreamRequest::Stop(token()))),
            // A parameter `token` of another purpose.
            (
                "GET",
                "/graphql?query=x&token=7",
                &[],
                RequestKind::Endpoint(EndpointRequest::Operation),
            ),
            ("DELETE", "/graphql", &[], RequestKind::Endpoint(EndpointRequest::UnsupportedMethod)),
            (
                "PATCH",
                "/graphql",
                &[TOKEN],
                RequestKind::Endpoint(EndpointRequest::UnsupportedMethod),
            ),
        ] {
            assert_eq!(kind(method, uri, pairs), expected, "{method} {uri} {pairs:?}");
        }
    }

    #[test]
    fn clients_with_the_token_of_a_stream_and_websockets_need_no_authorization_yet() {
        use EndpointRequest::{Document, Operation, Options, Stream, UnsupportedMethod, WebSocket};
        for request in [
            Options,
            WebSocket,
            Stream(StreamRequest::Open("a".into())),
            Stream(StreamRequest::Stop("a".into())),
        ] {
            assert!(!request.requires_authorization(), "{request:?}");
        }
        for request in [
            Operation,
            Document("a".into()),
            UnsupportedMethod,
            Stream(StreamRequest::Reserve),
            Stream(StreamRequest::Start("a".into())),
        ] {
            assert!(request.requires_authorization(), "{request:?}");
        }
    }
}
