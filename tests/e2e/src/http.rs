//! One HTTP/1.1 exchange on a connection of its own, with exactly the bytes of the test.
//!
//! It is not a general client: tests use it to send requests that a proper client refuses to send.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The read timeout, longer than any response that a test waits for.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// An HTTP response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    /// The status code.
    pub status: u16,
    /// Header lines in order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, without the framing of `Transfer-Encoding: chunked`.
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// Returns the first header with this name (lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the body as text; invalid UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Sends a request with `Connection: close` and `Content-Length`, and reads the whole response.
///
/// # Errors
/// There is no connection, no response in time, or the response is not HTTP/1.1.
pub fn request(
    address: SocketAddr,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<HttpResponse> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(READ_TIMEOUT))?;
    let mut head = format!("{method} {target} HTTP/1.1\r\nhost: {address}\r\n");
    for (name, value) in headers {
        head.extend([*name, ": ", *value, "\r\n"]);
    }
    head.extend(["connection: close\r\ncontent-length: ", &body.len().to_string(), "\r\n\r\n"]);
    socket.write_all(head.as_bytes())?;
    // A server may respond and close before it has read everything (413).
    let _ = socket.write_all(body);
    let mut bytes = Vec::new();
    let read = socket.read_to_end(&mut bytes);
    match parse(&bytes) {
        Some(response) => Ok(response),
        None => Err(read.err().unwrap_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("not an HTTP response: {:?}", String::from_utf8_lossy(&bytes)),
            )
        })),
    }
}

/// Sends `bytes` on a connection of its own and reads until the server closes it. Returns the responses in order.
///
/// # Errors
/// There is no connection, no end in time, or a response is not HTTP/1.1.
pub fn exchange(address: SocketAddr, bytes: &[u8]) -> io::Result<Vec<HttpResponse>> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(READ_TIMEOUT))?;
    // A server may respond and close before it has read everything.
    let _ = socket.write_all(bytes);
    let mut received = Vec::new();
    let read = socket.read_to_end(&mut received);
    let (mut rest, mut responses) = (&received[..], Vec::new());
    while !rest.is_empty() {
        let Some((response, length)) = parse_first(rest) else {
            return Err(read.err().unwrap_or_else(|| {
                let text = String::from_utf8_lossy(rest);
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("not an HTTP response: {text:?}"),
                )
            }));
        };
        responses.push(response);
        rest = &rest[length..];
    }
    match (responses.is_empty(), read) {
        (true, Err(error)) => Err(error),
        _ => Ok(responses),
    }
}

/// Parses the first of several responses and returns its length. Without a length it extends to the end.
fn parse_first(bytes: &[u8]) -> Option<(HttpResponse, usize)> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let announced = std::str::from_utf8(&bytes[..head]).ok()?.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>())
    });
    let length = match announced {
        Some(length) => head + length.ok().filter(|length| *length <= bytes.len() - head)?,
        None => bytes.len(),
    };
    Some((parse(&bytes[..length])?, length))
}

fn parse(bytes: &[u8]) -> Option<HttpResponse> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let rest = &bytes[end + 4..];
    let chunked = headers
        .iter()
        .any(|(name, value)| name == "transfer-encoding" && value.eq_ignore_ascii_case("chunked"));
    let body = if chunked { decode_chunks(rest)? } else { rest.to_vec() };
    Some(HttpResponse { status, headers, body })
}

fn decode_chunks(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n")?;
        let size = std::str::from_utf8(&rest[..end]).ok()?.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        rest = &rest[end + 2..];
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size + 2..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_with_a_length_or_in_chunks_reads_the_same() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        let chunks =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n";
        assert_eq!(parse(whole).unwrap().text(), "hello");
        assert_eq!(parse(chunks).unwrap().text(), "hello");
        assert_eq!(parse(whole).unwrap().header("content-length"), Some("5"));
    }

    #[test]
    fn pipelined_responses_are_separated_by_their_lengths() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 400 Bad\r\n\r\nend";
        let (first, length) = parse_first(bytes).unwrap();
        assert_eq!((first.status, first.text().as_str()), (200, "ok"));
        let (second, _) = parse_first(&bytes[length..]).unwrap();
        assert_eq!((second.status, second.text().as_str()), (400, "end"));
        assert_eq!(parse_first(&bytes[..length - 1]), None);
    }

    #[test]
    fn an_answer_that_is_cut_off_is_none() {
        for bytes in [
            &b""[..],
            b"HTTP/1.1 200 OK\r\n",
            b"SMTP ready\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe",
        ] {
            assert_eq!(parse(bytes), None);
        }
    }
}
