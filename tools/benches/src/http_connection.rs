//! A connection over which this program sends requests to a server, one after the other.

use std::io::{self, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use test_kit::commands::Failure;

/// The deadline for a part of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum length of a response.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A connection to a server, opened by the first request and again if the server has closed it.
pub(crate) struct HttpConnection {
    address: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
}

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl HttpConnection {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, stream: None }
    }

    /// Posts JSON and returns the response. If an earlier connection fails the request is repeated, so it must be one
    /// that may be.
    pub(crate) fn post(&mut self, path: &str, body: &str) -> Result<HttpResponse, Failure> {
        self.post_with_headers(path, &[], body)
    }

    /// Does what [`HttpConnection::post`] does, with further headers.
    pub(crate) fn post_with_headers(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<HttpResponse, Failure> {
        let is_reused = self.stream.is_some();
        let mut posted = self.exchange(path, headers, body);
        if posted.is_err() && is_reused {
            posted = self.exchange(path, headers, body);
        }
        posted.map_err(|error| format!("POST http://{}{path}: {error}", self.address))
    }

    fn exchange(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> io::Result<HttpResponse> {
        let address = self.address;
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect_timeout(&address, RESPONSE_TIMEOUT)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
                BufReader::new(stream)
            }
        };
        let length = body.len();
        let more: String =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\naccept: application/json\r\n\
             {more}content-length: {length}\r\n\r\n{body}"
        );
        stream.get_mut().write_all(request.as_bytes())?;
        let (response, is_kept) = read_response(&mut stream)?;
        self.stream = is_kept.then_some(stream);
        Ok(response)
    }
}

/// Reads a response with a known length; also returns whether the connection stays open.
fn read_response(stream: &mut impl io::BufRead) -> io::Result<(HttpResponse, bool)> {
    let malformed = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let status = status.ok_or_else(|| malformed("the response is no HTTP/1.1"))?;
    let (mut length, mut is_kept) = (None, true);
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        if line.trim_end().is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| malformed("a malformed header"))?;
        match (name.to_ascii_lowercase().as_str(), value.trim()) {
            ("content-length", value) => length = value.parse::<usize>().ok(),
            ("connection", "close") => is_kept = false,
            _ => {}
        }
    }
    let length = length.filter(|length| *length <= BODY_BYTES_MAX);
    let length = length.ok_or_else(|| malformed("the response has no acceptable length"))?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    let body = String::from_utf8(body).map_err(|_| malformed("the response is no UTF-8"))?;
    Ok((HttpResponse { status, body }, is_kept))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, Read as _};
    use std::net::TcpListener;

    #[test]
    fn requests_share_a_connection_until_the_server_closes_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connection = HttpConnection::new(listener.local_addr().unwrap());
        // By connection: the responses, after which the server closes it.
        let served = std::thread::spawn(move || {
            let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
            let last = "HTTP/1.1 202 Accepted\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
            let mut bodies = Vec::new();
            for responses in [&[ok, ok][..], &[last], &[ok]] {
                let (stream, _) = listener.accept().unwrap();
                let mut stream = BufReader::new(stream);
                for response in responses {
                    let mut head = String::new();
                    while !head.ends_with("\r\n\r\n") {
                        stream.read_line(&mut head).unwrap();
                    }
                    assert!(head.starts_with("POST /a HTTP/1.1\r\n"), "{head}");
                    let mut body = [0; 1];
                    stream.read_exact(&mut body).unwrap();
                    bodies.extend(body);
                    stream.get_mut().write_all(response.as_bytes()).unwrap();
                }
            }
            String::from_utf8(bodies).unwrap()
        });
        let statuses = ["1", "2", "3", "4"].map(|body| connection.post("/a", body).unwrap().status);
        assert_eq!(statuses, [200, 200, 202, 200]);
        assert_eq!(served.join().unwrap(), "1234");
    }

    #[test]
    fn only_responses_with_a_length_are_read() {
        for (text, expected) in [
            ("HTTP/1.1 503 No\r\ncontent-length: 1\r\n\r\nxy", Some((503, "x"))),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", None),
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab", None),
            ("SSH\r\n\r\n", None),
            ("", None),
        ] {
            let read = read_response(&mut text.as_bytes()).ok();
            let read = read.map(|(response, _)| (response.status, response.body));
            assert_eq!(read, expected.map(|(status, body)| (status, body.to_owned())), "{text}");
        }
    }
}
