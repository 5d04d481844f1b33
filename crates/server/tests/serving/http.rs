//! A client of HTTP/1.1 for tests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::router::TIMEOUT;

/// A response.
pub(crate) struct TestResponse {
    pub(crate) status: u16,
    head: String,
    /// The body as text; invalid UTF-8 is replaced.
    pub(crate) body: String,
    pub(crate) bytes: Vec<u8>,
}

impl TestResponse {
    /// Returns the values of a header, joined by commas.
    pub(crate) fn header(&self, name: &str) -> String {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let values = lines.filter(|(known, _)| *known == name).map(|(_, value)| value);
        values.collect::<Vec<_>>().join(", ")
    }
}

/// Sends one request on a connection of its own.
pub(crate) fn request(
    address: SocketAddr,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: impl AsRef<[u8]>,
) -> TestResponse {
    let body = body.as_ref();
    let mut socket = connect(address);
    let mut head =
        format!("{method} {target} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    socket.write_all(&[head.as_bytes(), body].concat()).unwrap();
    read_response(&mut socket)
}

/// Reads a response that ends with the connection.
pub(crate) fn read_response(socket: &mut impl Read) -> TestResponse {
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no response: {:?}", String::from_utf8_lossy(&bytes)));
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let bytes = bytes.split_off(end + 4);
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    TestResponse { status, head, body: String::from_utf8_lossy(&bytes).into_owned(), bytes }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket
}

/// Opens the event stream of a subscription, and reads until the first comment has arrived.
pub(crate) fn stream(address: SocketAddr, query: &str) -> TcpStream {
    let mut socket = connect(address);
    let body = format!(r#"{{"query":"{query}"}}"#);
    let head = format!(
        "POST /graphql HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         accept: text/event-stream\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + &body).as_bytes()).unwrap();
    let mut received = String::new();
    while !received.contains(":\n\n") {
        let mut buffer = [0; 1024];
        let length = socket.read(&mut buffer).unwrap();
        assert_ne!(length, 0, "{received}");
        received.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
    }
    socket
}
