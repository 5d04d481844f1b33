//! A server that hands each request to the test, which writes the response byte by byte.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The time limit of every wait: far more than a busy machine needs.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A listening server.
pub(crate) struct ScriptedServer {
    listener: TcpListener,
}

/// A request that waits for its response.
pub(crate) struct ReceivedRequest {
    /// The request line and the headers, in lower case.
    pub(crate) head: String,
    pub(crate) body: String,
    /// The same as `head`, as received.
    pub(crate) raw_head: String,
    pub(crate) stream: TcpStream,
}

impl ScriptedServer {
    pub(crate) async fn start() -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    pub(crate) async fn start_at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free port");
        Self { listener }
    }

    /// Stops listening. Returns the address.
    pub(crate) fn stop(self) -> SocketAddr {
        self.listener.local_addr().expect("a bound address")
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/graphql", self.listener.local_addr().expect("a bound address"))
    }

    /// Waits for the next connection and reads its request.
    pub(crate) async fn next_request(&self) -> ReceivedRequest {
        let read = async {
            let (mut stream, _) = self.listener.accept().await.expect("a connection");
            let mut bytes = Vec::new();
            let head_end = loop {
                assert!(stream.read_buf(&mut bytes).await.expect("a request") > 0, "cut off");
                if let Some(at) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
                    break at + 4;
                }
            };
            let raw_head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
            let head = raw_head.to_lowercase();
            let length = head.split("content-length: ").nth(1);
            let length = length.and_then(|it| it.lines().next()?.parse().ok()).unwrap_or(0);
            while bytes.len() < head_end + length {
                assert!(stream.read_buf(&mut bytes).await.expect("a body") > 0, "cut off");
            }
            let body = String::from_utf8_lossy(&bytes[head_end..]).into_owned();
            ReceivedRequest { head, body, raw_head, stream }
        };
        tokio::time::timeout(DEADLINE, read).await.expect("a request in time")
    }
}

impl ScriptedServer {
    /// Waits for the next request, and begins a response of server-sent events.
    pub(crate) async fn next_event_stream(&self) -> ReceivedRequest {
        let mut request = self.next_request().await;
        request.begin_events().await;
        request
    }
}

impl ReceivedRequest {
    /// Begins a response of server-sent events.
    pub(crate) async fn begin_events(&mut self) {
        self.send(&response_head("200 OK", "text/event-stream")).await;
    }

    /// Sends a whole response.
    pub(crate) async fn respond(mut self, status: &str, content_type: &str, body: &str) {
        let head = response_head(status, content_type);
        self.send(&format!("{head}{body}")).await;
    }

    /// Sends a result as an event.
    pub(crate) async fn send_event(&mut self, payload: &str) {
        self.send(&format!("event: next\ndata: {payload}\n\n")).await;
    }

    /// Sends a part of the response.
    pub(crate) async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.expect("an open connection");
    }

    /// Waits until the client has closed the connection.
    pub(crate) async fn wait_for_close(mut self) {
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(DEADLINE, self.stream.read_to_end(&mut rest)).await;
        // A reset is a close too.
        drop(closed.expect("the client closes the connection in time"));
    }
}

/// Returns the head of a response that ends with the connection.
fn response_head(status: &str, content_type: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\nconnection: close\r\n\r\n")
}
