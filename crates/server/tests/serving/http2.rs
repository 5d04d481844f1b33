//! Tests of HTTP/2 with well-behaved and misbehaving clients.

use std::io::{Read, Write};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream};
use http::{Method, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::http::connect;
use crate::router::Router;

const QUERY: &str = "/graphql?query=%7B__typename%7D";
const TICKS: &str = "/graphql?query=subscription%7Btick%7Bid%7D%7D";
const RESPONSE: &str = r#"{"data":{"__typename":"Query"}}"#;
const EVENT: &str = r#"{"__typename":"Tick","id":"1"}"#;
const STREAM: (&str, &str) = ("accept", "text/event-stream");

/// A client on one connection.
pub(crate) struct Client {
    requests: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

/// A response.
pub(crate) struct Http2Response(pub(crate) Response<RecvStream>);

impl Client {
    pub(crate) async fn new(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        Self::with(h2::client::Builder::new(), stream).await
    }

    async fn with(
        builder: h2::client::Builder,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Self {
        let (requests, connection) = builder.handshake(stream).await.unwrap();
        Self { requests, connection: tokio::spawn(connection) }
    }

    async fn connect(router: &Router) -> Self {
        Self::new(TcpStream::connect(router.address).await.unwrap()).await
    }

    async fn send(&mut self, request: Request<()>) -> ResponseFuture {
        std::future::poll_fn(|context| self.requests.poll_ready(context)).await.unwrap();
        self.requests.send_request(request, true).unwrap().0
    }

    async fn begin(&mut self, target: &str, headers: &[(&str, &str)]) -> ResponseFuture {
        let mut request =
            Request::builder().method(Method::GET).uri(format!("http://localhost{target}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(()).unwrap()).await
    }

    pub(crate) async fn get(&mut self, target: &str, headers: &[(&str, &str)]) -> Http2Response {
        Http2Response(self.begin(target, headers).await.await.unwrap())
    }
}

impl Http2Response {
    /// Reads the next piece of the body.
    async fn piece(&mut self) -> Option<Result<Bytes, h2::Error>> {
        let piece = self.0.body_mut().data().await?;
        if let Ok(piece) = &piece {
            self.0.body_mut().flow_control().release_capacity(piece.len()).unwrap();
        }
        Some(piece)
    }

    /// Reads the rest of the body.
    pub(crate) async fn text(mut self) -> String {
        let mut text = Vec::new();
        while let Some(piece) = self.piece().await {
            text.extend_from_slice(&piece.unwrap());
        }
        String::from_utf8(text).unwrap()
    }

    /// Reads until this text has arrived.
    async fn hear(&mut self, expected: &str) {
        let mut text = String::new();
        while !text.contains(expected) {
            let piece = self.piece().await.unwrap().unwrap();
            text.push_str(std::str::from_utf8(&piece).unwrap());
        }
    }
}

#[test]
fn many_requests_share_a_connection_without_tls() {
    let router = Router::start("");
    let _client = router.block_on(async {
        let mut client = Client::connect(&router).await;
        // With the first response the client knows how many requests may be open at once.
        assert_eq!(client.get(QUERY, &[]).await.text().await, RESPONSE);
        let mut waiting = Vec::new();
        for _ in 0..300 {
            waiting.push(client.begin(QUERY, &[]).await);
        }
        for response in waiting {
            assert_eq!(Http2Response(response.await.unwrap()).text().await, RESPONSE);
        }
        client
    });
    router.wait_for("starling_http_connections", 1);
}

#[test]
fn an_event_stream_is_one_stream_among_others() {
    let router = Router::start("");
    let (mut client, mut ticks) = router.block_on(async {
        let mut client = Client::connect(&router).await;
        let mut ticks = client.get(TICKS, &[STREAM]).await;
        assert_eq!(ticks.0.headers()["content-type"], "text/event-stream; charset=utf-8");
        ticks.hear(":\n\n").await;
        (client, ticks)
    });
    // The stream has begun, and the subscription may follow.
    router.wait_for("starling_hub_subscribers", 1);
    router.publish(EVENT);
    router.block_on(async {
        ticks.hear(r#"data: {"data":{"tick":{"id":"1"}}}"#).await;
        assert_eq!(client.get(QUERY, &[]).await.text().await, RESPONSE);
    });
    // A client that closes a stream ends its subscription.
    drop(ticks);
    router.wait_for("starling_hub_subscribers", 0);
}

#[test]
fn a_router_that_shuts_down_notifies_its_streams_and_its_clients() {
    let router = Router::start("");
    let (client, mut ticks) = router.block_on(async {
        let mut client = Client::connect(&router).await;
        let mut ticks = client.get(TICKS, &[STREAM]).await;
        ticks.hear(":\n\n").await;
        (client, ticks)
    });
    let stopping = router.stop();
    stopping.block_on(async {
        ticks.hear("SHUTTING_DOWN").await;
        client.connection.await.unwrap().unwrap();
    });
    stopping.wait();
}

#[test]
fn websockets_are_not_opened_inside_http2() {
    let router = Router::start("");
    router.block_on(async {
        let mut client = Client::connect(&router).await;
        let headers = [("sec-websocket-version", "13"), ("sec-websocket-key", "x")];
        let response = client.get("/graphql", &headers).await;
        assert_eq!(response.0.status(), 400);
        let text = response.text().await;
        assert!(text.contains("open them over HTTP/1.1"), "{text}");
    });
}

#[test]
fn too_many_headers_and_two_hosts_fail_only_one_request() {
    let router = Router::start("http: {max_headers: 20}");
    router.block_on(async {
        let mut client = Client::connect(&router).await;
        let headers: Vec<_> = (0..21).map(|number| format!("x-{number}")).collect();
        let headers: Vec<_> = headers.iter().map(|name| (name.as_str(), "y")).collect();
        assert_eq!(client.get(QUERY, &headers).await.0.status(), 431);
        assert_eq!(client.get(QUERY, &[("host", "elsewhere")]).await.0.status(), 400);
        assert_eq!(client.get(QUERY, &[("host", "localhost")]).await.0.status(), 200);
    });
}

#[test]
fn a_stream_whose_client_reads_nothing_is_reset_and_other_streams_continue() {
    let router = Router::start("http: {stall_timeout: 1s}");
    router.block_on(async {
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(10);
        let socket = TcpStream::connect(router.address).await.unwrap();
        let mut client = Client::with(builder, socket).await;
        // Larger than the amount that the HTTP library buffers.
        let fields: String = (0..90).map(|n| format!("a{n}:description%20")).collect();
        let large = format!("/graphql?query=%7B__schema%7Btypes%7B{fields}%7D%7D%7D");
        let mut greedy = client.get(&large, &[]).await;
        // The window of ten bytes is filled and never opened again.
        assert_eq!(greedy.0.body_mut().data().await.unwrap().unwrap().len(), 10);
        let error = greedy.0.body_mut().data().await.unwrap().unwrap_err();
        assert_eq!(error.reason(), Some(Reason::CANCEL));
        assert_eq!(client.get(QUERY, &[]).await.text().await, RESPONSE);
    });
    router.wait_for(r#"starling_http_timeouts_total{phase="stall"}"#, 1);
}

#[test]
fn a_client_that_opens_and_cancels_many_streams_loses_its_connection() {
    let router = Router::start("");
    let _neighbour = router.block_on(async {
        let mut neighbour = Client::connect(&router).await;
        let mut client = Client::connect(&router).await;
        for _ in 0..100_000 {
            let ready = std::future::poll_fn(|context| client.requests.poll_ready(context)).await;
            let request = || Request::get(format!("http://localhost{TICKS}")).body(()).unwrap();
            let Ok((response, mut stream)) =
                ready.and_then(|()| client.requests.send_request(request(), true))
            else {
                break;
            };
            stream.send_reset(Reason::CANCEL);
            drop(response);
            tokio::task::yield_now().await;
        }
        client.connection.await.unwrap().unwrap_err();
        assert_eq!(neighbour.get(QUERY, &[]).await.text().await, RESPONSE);
        neighbour
    });
    router.wait_for("starling_http_connections", 1);
}

#[test]
fn an_idle_connection_is_closed() {
    let router = Router::start("http: {header_timeout: 1s}");
    router.block_on(async {
        let mut busy = Client::connect(&router).await;
        let mut ticks = busy.get(TICKS, &[STREAM]).await;
        ticks.hear(":\n\n").await;
        let mut idle = Client::connect(&router).await;
        assert_eq!(idle.get(QUERY, &[]).await.text().await, RESPONSE);
        idle.connection.await.unwrap().unwrap();
        // The connection with an open stream is not idle.
        tokio::time::timeout(Duration::from_millis(100), busy.connection).await.unwrap_err();
    });
}

#[test]
fn a_connection_that_does_not_end_in_time_is_closed() {
    let router = Router::start("http: {header_timeout: 1s, stall_timeout: 1s}");
    router.block_on(async {
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(10);
        let socket = TcpStream::connect(router.address).await.unwrap();
        let mut client = Client::with(builder, socket).await;
        // A small response is left to the HTTP library, which waits for a window without a limit.
        let response = client.get(QUERY, &[]).await;
        let ended = client.connection.await.unwrap();
        drop((ended, response));
    });
    router.wait_for("starling_http_connections", 0);
}

#[test]
fn http2_can_be_turned_off() {
    let router = Router::start("http: {http2: {enabled: false}}");
    router.block_on(async {
        let socket = TcpStream::connect(router.address).await.unwrap();
        let (mut requests, connection) = h2::client::handshake(socket).await.unwrap();
        let request = Request::get(format!("http://localhost{QUERY}")).body(()).unwrap();
        let (response, _) = requests.send_request(request, true).unwrap();
        let _ = connection.await;
        response.await.unwrap_err();
    });
}

#[test]
fn an_invalid_preface_closes_the_connection_without_a_response() {
    let router = Router::start("");
    let mut socket = connect(router.address);
    socket.write_all(b"INVALID CONNECTION PREFACE\r\n\r\n").unwrap();
    let mut heard = Vec::new();
    // An orderly end, not a reset: that would be an error here.
    socket.read_to_end(&mut heard).unwrap();
    assert_eq!(heard, b"");
}

#[test]
fn a_client_that_reads_nothing_has_few_responses_in_memory_for_any_number_of_requests() {
    const LARGE: &str = "/graphql?query=%7B__schema%7Btypes%7Bname%20kind%20description%20fields%7Bname%7D%7D%7D%7D";
    const AT_ONCE: u64 = 8;
    let router = Router::start("");
    let (size, client, waiting) = router.block_on(async {
        let mut reader = Client::connect(&router).await;
        let size = reader.get(LARGE, &[]).await.text().await.len() as u64;
        assert!(size > 1 << 10, "{size}");
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(0);
        let socket = TcpStream::connect(router.address).await.unwrap();
        let mut client = Client::with(builder, socket).await;
        let mut waiting = Vec::new();
        for _ in 0..50 {
            waiting.push(client.begin(LARGE, &[]).await);
        }
        (size, client, waiting)
    });
    router.wait_for("starling_http_response_queue_bytes", AT_ONCE * size);
    // Other clients of the router are served meanwhile.
    router.block_on(async {
        let mut other = Client::connect(&router).await;
        assert_eq!(other.get(QUERY, &[]).await.text().await, RESPONSE);
    });
    drop((client, waiting));
    router.wait_for("starling_http_response_queue_bytes", 0);
}
