//! The requests to send, formatted once: only the unique value differs between them.

use std::net::{SocketAddr, ToSocketAddrs};

use http::header::{HeaderName, HeaderValue};
use serde_json::{Map, Value};
use url::Url;

/// The number of digits of a unique value: enough for more requests than any run sends.
const UNIQUE_DIGITS: usize = 12;

/// The maximum number of kinds of requests in one run; each keeps its text and its first response.
const REQUESTS_MAX: usize = 1000;

/// The destination of requests.
#[derive(Debug, Clone)]
pub struct QueryTarget {
    url: Url,
    address: SocketAddr,
}

/// An operation with everything that is sent with it.
#[derive(Debug, Clone, Default)]
pub struct MeasuredOperation {
    /// The GraphQL text.
    pub text: String,
    /// The id of a persisted document, which is sent in place of the text.
    pub document_id: Option<String>,
    /// The name of the operation, if the text has several.
    pub name: Option<String>,
    /// The variables of each request in turn. If it is empty, requests have no variables.
    pub variables: Vec<Map<String, Value>>,
    /// Headers in addition to those that every request has.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// A header with a different value in every request, so that a router can share nothing between them.
    pub unique_header: Option<HeaderName>,
}

/// The text of one kind of request.
#[derive(Debug)]
pub(crate) struct RequestTemplate {
    text: Box<[u8]>,
    /// The offset of the unique value.
    unique: Option<usize>,
}

impl QueryTarget {
    /// Parses a URL and looks up its host.
    ///
    /// # Errors
    /// A message about the URL or its host.
    pub fn parse(text: &str) -> Result<Self, String> {
        let url = Url::parse(text).map_err(|error| format!("`{text}` is not a URL: {error}"))?;
        if url.scheme() != "http" {
            return Err(format!(
                "`{text}`: load is sent over plain HTTP/1.1; write http:// (with TLS, two things would be measured at once)"
            ));
        }
        let host = url.host_str().ok_or_else(|| format!("`{text}` has no host"))?;
        let port = url.port_or_known_default().unwrap_or(80);
        let address = (host.trim_start_matches('[').trim_end_matches(']'), port)
            .to_socket_addrs()
            .map_err(|error| format!("cannot find {host}: {error}"))?
            .next()
            .ok_or_else(|| format!("{host} has no address"))?;
        Ok(Self { url, address })
    }

    /// Returns the URL as given.
    pub fn url(&self) -> &str {
        self.url.as_str()
    }

    /// Returns the address to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl MeasuredOperation {
    /// Formats the requests of this operation, one for each set of variables.
    ///
    /// # Errors
    /// There are more than a thousand sets.
    pub(crate) fn requests(&self, target: &QueryTarget) -> Result<Vec<RequestTemplate>, String> {
        if self.variables.len() > REQUESTS_MAX {
            return Err(format!("more than {REQUESTS_MAX} sets of variables"));
        }
        if self.variables.is_empty() {
            return Ok(vec![self.request(target, None)]);
        }
        Ok(self.variables.iter().map(|variables| self.request(target, Some(variables))).collect())
    }

    fn request(
        &self,
        target: &QueryTarget,
        variables: Option<&Map<String, Value>>,
    ) -> RequestTemplate {
        // Formatted by hand, so that the members have this order regardless of serde_json's maps.
        let (member, named) = match &self.document_id {
            Some(id) => ("documentId", id),
            None => ("query", &self.text),
        };
        let mut body = format!("{{\"{member}\":{}", Value::from(named.as_str()));
        if let Some(name) = &self.name {
            body.push_str(&format!(",\"operationName\":{}", Value::from(name.as_str())));
        }
        if let Some(variables) = variables {
            body.push_str(&format!(",\"variables\":{}", Value::Object(variables.clone())));
        }
        body.push('}');

        let url = &target.url;
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        let authority = &url[url::Position::BeforeHost..url::Position::AfterPort];
        let mut head =
            format!("POST {}{query} HTTP/1.1\r\nhost: {authority}\r\n", url.path()).into_bytes();
        let given = |name: &str| self.headers.iter().any(|(header, _)| header.as_str() == name);
        if !given("content-type") {
            head.extend_from_slice(b"content-type: application/json\r\n");
        }
        if !given("accept") {
            head.extend_from_slice(b"accept: application/json\r\n");
        }
        for (name, value) in &self.headers {
            head.extend_from_slice(name.as_str().as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        let unique = self.unique_header.as_ref().map(|name| {
            head.extend_from_slice(name.as_str().as_bytes());
            head.extend_from_slice(b": Bearer bench-");
            let place = head.len();
            head.extend_from_slice(&[b'0'; UNIQUE_DIGITS]);
            head.extend_from_slice(b"\r\n");
            place
        });
        head.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
        head.extend_from_slice(body.as_bytes());
        RequestTemplate { text: head.into(), unique }
    }
}

impl RequestTemplate {
    /// Replaces the content of `into` by the request with this number.
    // hot path: one copy of the text for each request.
    pub(crate) fn write(&self, number: u64, into: &mut Vec<u8>) {
        into.clear();
        into.extend_from_slice(&self.text);
        if let Some(place) = self.unique {
            let mut rest = number;
            for digit in into[place..place + UNIQUE_DIGITS].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_written_with_its_headers_and_a_value_of_its_own() {
        let target = QueryTarget::parse("http://127.0.0.1:4000/graphql?x=1").unwrap();
        let operation = MeasuredOperation {
            text: "query A($a: Int) { a(a: $a) }".to_owned(),
            name: Some("A".to_owned()),
            variables: vec![serde_json::from_str(r#"{"a":1}"#).unwrap()],
            headers: vec![(HeaderName::from_static("x-y"), HeaderValue::from_static("z"))],
            unique_header: Some(http::header::AUTHORIZATION),
            ..MeasuredOperation::default()
        };
        let requests = operation.requests(&target).unwrap();
        let mut text = Vec::new();
        requests[0].write(1_234, &mut text);
        let body =
            r#"{"query":"query A($a: Int) { a(a: $a) }","operationName":"A","variables":{"a":1}}"#;
        let expected = format!(
            "POST /graphql?x=1 HTTP/1.1\r\nhost: 127.0.0.1:4000\r\ncontent-type: application/json\r\n\
             accept: application/json\r\nx-y: z\r\nauthorization: Bearer bench-000000001234\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn the_id_of_a_document_takes_the_place_of_the_text() {
        let target = QueryTarget::parse("http://127.0.0.1:4000/graphql").unwrap();
        let operation = MeasuredOperation {
            document_id: Some("a\"b".to_owned()),
            variables: vec![serde_json::from_str(r#"{"a":1}"#).unwrap()],
            ..MeasuredOperation::default()
        };
        let mut text = Vec::new();
        operation.requests(&target).unwrap()[0].write(0, &mut text);
        let text = String::from_utf8(text).unwrap();
        let body = text.split_once("\r\n\r\n").unwrap().1;
        assert_eq!(body, r#"{"documentId":"a\"b","variables":{"a":1}}"#);
    }

    #[test]
    fn only_plain_http_is_a_target() {
        for text in ["", "127.0.0.1:4000", "https://127.0.0.1/", "http://"] {
            assert!(QueryTarget::parse(text).is_err(), "{text}");
        }
        assert_eq!(QueryTarget::parse("http://[::1]:9/").unwrap().address().to_string(), "[::1]:9");
    }
}
