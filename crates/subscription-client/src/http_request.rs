//! The HTTP requests that begin operations. No I/O.

use astjson::{Document, outline_members};
use bytes::Bytes;
use events::SubgraphSubscription;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, Uri};
use http_body_util::Full;
use upstream::{Target, belongs_to_connection};

/// The request of one operation, for either version of HTTP.
pub(crate) struct OperationRequest {
    method: Method,
    path: PathAndQuery,
    headers: HeaderMap,
    body: Bytes,
}

impl OperationRequest {
    /// Makes a POST request with this body.
    pub(crate) fn post(
        target: &Target,
        wanted: &SubgraphSubscription,
        accept: &'static str,
        body: Bytes,
    ) -> Result<Self, String> {
        let mut headers = headers(wanted, accept);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let path = target.path_and_query().parse();
        let path = path.map_err(|_| "the URL of its subscriptions is invalid".to_owned())?;
        Ok(Self { method: Method::POST, path, headers, body })
    }

    /// Makes a GET request with the members of the operation as parameters of the URL.
    pub(crate) fn get(
        target: &Target,
        wanted: &SubgraphSubscription,
        accept: &'static str,
    ) -> Result<Self, String> {
        let url = append_parameters(target.path_and_query(), &wanted.request);
        let path = url.parse();
        let path = path.map_err(|_| "the operation is too long for a GET request".to_owned())?;
        let headers = headers(wanted, accept);
        Ok(Self { method: Method::GET, path, headers, body: Bytes::new() })
    }

    /// Returns the request in the form of this version of HTTP.
    pub(crate) fn into_http(self, target: &Target, is_http2: bool) -> Request<Full<Bytes>> {
        let Self { method, path, mut headers, body } = self;
        let uri = match is_http2 {
            true => {
                let mut parts = target.absolute_uri().clone().into_parts();
                parts.path_and_query = Some(path);
                // Scheme and authority are those of a valid URL.
                Uri::from_parts(parts).unwrap_or_default()
            }
            false => {
                // The authority was parsed from a URL, so it is a valid value.
                if let Ok(host) = HeaderValue::from_str(target.authority()) {
                    headers.insert(HOST, host);
                }
                path.into()
            }
        };
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        request
    }
}

fn headers(wanted: &SubgraphSubscription, accept: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(4 + wanted.headers.len() + wanted.trace.len());
    headers.insert(ACCEPT, HeaderValue::from_static(accept));
    // Without the header a server may choose any coding (RFC 9110, section 12.5.3), and compressors hold results back.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    for (name, value) in &*wanted.headers {
        if !belongs_to_connection(name) {
            headers.append(name, value.clone());
        }
    }
    // These replace headers of the same names that a rule forwards.
    for (name, value) in &*wanted.trace {
        headers.insert(name, value.clone());
    }
    headers
}

/// Appends the members of a request, a JSON object, to a path as parameters (GraphQL over HTTP, section 5.3): strings
/// as they are, other values as JSON.
fn append_parameters(path: &str, request: &Bytes) -> String {
    let mut url = path.to_owned();
    // The router has printed the request.
    let _ = outline_members(request, |key, value| {
        url.push(if url.contains('?') { '&' } else { '?' });
        append_encoded(key.as_bytes(), &mut url);
        url.push('=');
        let mut document = Document::new();
        let text = document.parse(value.clone()).ok().and_then(|it| document.as_str(it));
        append_encoded(text.as_deref().map_or(&*value, str::as_bytes), &mut url);
    });
    url
}

/// Appends a text in percent-encoding. A space becomes `%20`, which servers decode in the same way whether they expect
/// forms or not.
fn append_encoded(text: &[u8], url: &mut String) {
    const DIGITS: [u8; 16] = *b"0123456789ABCDEF";
    for byte in text {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                url.push(char::from(*byte));
            }
            _ => {
                url.push('%');
                url.extend([byte >> 4, byte & 15].map(|it| char::from(DIGITS[usize::from(it)])));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_of_a_get_request_are_the_members_of_the_operation() {
        let request = Bytes::from(
            r#"{"query":"subscription{a(b:\"ü&\")}","operationName":"A","variables":{"x": 1},"extensions":{}}"#,
        );
        assert_eq!(
            append_parameters("/graphql?key=1", &request),
            "/graphql?key=1&query=subscription%7Ba%28b%3A%22%C3%BC%26%22%29%7D&operationName=A\
             &variables=%7B%22x%22%3A%201%7D&extensions=%7B%7D"
        );
        assert!(append_parameters("/", &request).starts_with("/?query=subscription"));
    }
}
