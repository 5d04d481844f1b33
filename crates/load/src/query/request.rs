//! The requests to send, written once: only the place of the value that is to be unique changes from one to the next.

use std::net::{SocketAddr, ToSocketAddrs};

use http::header::{HeaderName, HeaderValue};
use serde_json::{Map, Value};
use url::Url;

/// Digits of a unique value: more requests than any run sends.
const UNIQUE_DIGITS: usize = 12;

/// Kinds of requests in one run; each keeps its text and its first answer.
const REQUESTS_MAX: usize = 1000;

/// Where requests go.
#[derive(Debug, Clone)]
pub struct Target {
    url: Url,
    address: SocketAddr,
}

/// An operation with everything that is sent along.
#[derive(Debug, Clone, Default)]
pub struct Operation {
    /// GraphQL text.
    pub text: String,
    /// Which operation of the text.
    pub name: Option<String>,
    /// The variables of each request in turn; one without variables if there are none.
    pub variables: Vec<Map<String, Value>>,
    /// Headers beside those that every request has.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// A header with another value in every request, so that a router may share nothing between them.
    pub unique_header: Option<HeaderName>,
}

/// The text of one kind of request.
#[derive(Debug)]
pub(super) struct Request {
    text: Box<[u8]>,
    /// Where the unique value stands.
    unique: Option<usize>,
}

impl Target {
    /// Reads a URL and looks its host up.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the URL or its host.
    pub fn parse(text: &str) -> Result<Self, String> {
        let url = Url::parse(text).map_err(|error| format!("`{text}` is not a URL: {error}"))?;
        if url.scheme() != "http" {
            return Err(format!(
                "`{text}`: load is sent by plain HTTP/1.1; write http:// (TLS would measure two things at once)"
            ));
        }
        let host = url.host_str().ok_or_else(|| format!("`{text}` names no host"))?;
        let port = url.port_or_known_default().unwrap_or(80);
        let address = (host.trim_start_matches('[').trim_end_matches(']'), port)
            .to_socket_addrs()
            .map_err(|error| format!("cannot find {host}: {error}"))?
            .next()
            .ok_or_else(|| format!("{host} has no address"))?;
        Ok(Self { url, address })
    }

    /// The URL as it was given.
    pub fn url(&self) -> &str {
        self.url.as_str()
    }

    /// Where to connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Operation {
    /// Writes the requests of this operation, one for each set of variables.
    ///
    /// # Errors
    /// Where there are more than a thousand sets.
    pub(super) fn requests(&self, target: &Target) -> Result<Vec<Request>, String> {
        if self.variables.len() > REQUESTS_MAX {
            return Err(format!("more than {REQUESTS_MAX} sets of variables"));
        }
        if self.variables.is_empty() {
            return Ok(vec![self.request(target, None)]);
        }
        Ok(self.variables.iter().map(|variables| self.request(target, Some(variables))).collect())
    }

    fn request(&self, target: &Target, variables: Option<&Map<String, Value>>) -> Request {
        // By hand, so that the members come in this order whatever serde_json does with maps.
        let mut body = format!("{{\"query\":{}", Value::from(self.text.as_str()));
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
        Request { text: head.into(), unique }
    }
}

impl Request {
    /// Writes the request with this number into `into`, in place of what it holds.
    // hot path: one copy of the text for each request.
    pub(super) fn write(&self, number: u64, into: &mut Vec<u8>) {
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
        let target = Target::parse("http://127.0.0.1:4000/graphql?x=1").unwrap();
        let operation = Operation {
            text: "query A($a: Int) { a(a: $a) }".to_owned(),
            name: Some("A".to_owned()),
            variables: vec![serde_json::from_str(r#"{"a":1}"#).unwrap()],
            headers: vec![(HeaderName::from_static("x-y"), HeaderValue::from_static("z"))],
            unique_header: Some(http::header::AUTHORIZATION),
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
    fn only_plain_http_is_a_target() {
        for text in ["", "127.0.0.1:4000", "https://127.0.0.1/", "http://"] {
            assert!(Target::parse(text).is_err(), "{text}");
        }
        assert_eq!(Target::parse("http://[::1]:9/").unwrap().address().to_string(), "[::1]:9");
    }
}
