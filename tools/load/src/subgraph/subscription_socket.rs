//! One WebSocket of a subgraph, over `graphql-transport-ws` or `graphql-ws`: starts operations and sends results.
//!
//! The protocols are those of the crate `wire`. A socket that the client does not read stops taking events, and misses
//! those that no longer fit the queue of `subscriptions`.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use wire::connection::Connection;
use wire::graphql_transport_ws::{ProtocolConfig, ServerEvent};
use wire::subprotocol::{SUPPORTED, Subprotocol};
use wire::websocket::WebSocketConfig;
use wire::websocket::handshake::{Accept, HandshakeRejection, accept};

use super::fault::Controls;
use super::service::{PreparedSubscription, StartedOperation, Subgraph};
use super::subscriptions::{ConnectedSocket, SocketMessage, SubscriptionEvent};

/// The number of bytes read at a time.
const READ_BYTES: usize = 16 * 1024;

/// The number of unsent bytes from which on a socket takes no more events. The results of one event may exceed it.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;

/// The maximum number of operations of one socket, above what a router may put on one.
const OPERATIONS_MAX: usize = 100_000;

/// The maximum length of a client's message: a query with a hundred thousand representations fits.
const MESSAGE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Checks a request for a WebSocket. `None` if it is an ordinary request.
pub(super) fn check_upgrade<B>(
    request: &Request<B>,
) -> Option<Result<Accept<'static>, HandshakeRejection>> {
    request.headers().get(http::header::UPGRADE)?;
    let headers = request.headers().iter();
    let headers = headers.map(|(name, value)| (name.as_str(), value.as_bytes()));
    let accepted = accept(request.method().as_str(), headers, &SUPPORTED);
    // Results are short, and compressing them would load the core that the load generator needs.
    Some(accepted.map(|accepted| Accept { deflate: None, ..accepted }))
}

/// Serves an upgraded connection until its end. `headers` are those of the upgrade request.
pub(super) async fn serve_socket(
    stream: impl AsyncRead + AsyncWrite,
    subprotocol: Option<&str>,
    headers: &HeaderMap,
    subgraph: &Subgraph,
    controls: &Controls,
) {
    let now = Instant::now();
    let protocol = ProtocolConfig {
        subscriptions_max: OPERATIONS_MAX,
        init_timeout: Duration::from_secs(10),
        ..ProtocolConfig::default()
    };
    let websocket =
        WebSocketConfig { message_bytes_max: MESSAGE_BYTES_MAX, ..WebSocketConfig::default() };
    let protocol = Subprotocol::new(Arc::new(protocol), subprotocol, now);
    let session = SocketSession {
        connection: Connection::server(Arc::new(websocket), protocol, now),
        socket: controls.subscriptions().connect(),
        subscriptions: BTreeMap::new(),
        output: BytesMut::new(),
        headers,
        subgraph,
        controls,
    };
    // An error means that the client disconnected.
    let _ = session.run(stream).await;
}

/// The state of one socket.
struct SocketSession<'a> {
    connection: Connection<Subprotocol>,
    socket: ConnectedSocket<'a>,
    /// The subscriptions in progress, by their ids.
    subscriptions: BTreeMap<Box<str>, PreparedSubscription>,
    output: BytesMut,
    headers: &'a HeaderMap,
    subgraph: &'a Subgraph,
    controls: &'a Controls,
}

impl SocketSession<'_> {
    async fn run(mut self, stream: impl AsyncRead + AsyncWrite) -> io::Result<()> {
        let (reader, writer) = tokio::io::split(stream);
        let (mut reader, mut writer) = (std::pin::pin!(reader), std::pin::pin!(writer));
        let mut buffer = vec![0; READ_BYTES];
        loop {
            self.collect_output();
            if self.connection.is_closed() && self.output.is_empty() {
                return writer.shutdown().await;
            }
            let timeout = self.connection.poll_timeout();
            let timeout = async {
                match timeout {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                count = reader.read(&mut buffer) => {
                    let count = count?;
                    if count == 0 {
                        return Ok(());
                    }
                    self.connection.receive(Instant::now(), &buffer[..count]);
                    self.handle_client_messages();
                }
                written = writer.write_buf(&mut self.output), if !self.output.is_empty() => {
                    written?;
                }
                message = self.socket.receive(), if self.output.len() < OUTPUT_BYTES_MAX => {
                    match message {
                        SocketMessage::Event(event) => self.send_event(&event),
                        SocketMessage::Disconnect => return Ok(()),
                    }
                }
                () = timeout => self.connection.handle_timeout(Instant::now()),
            }
        }
    }

    fn collect_output(&mut self) {
        while let Some(chunks) = self.connection.poll_transmit(Instant::now()) {
            chunks.parts().into_iter().for_each(|part| self.output.extend_from_slice(part));
        }
    }

    fn handle_client_messages(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                ServerEvent::Init { .. } => self.connection.protocol.accept_init(None),
                ServerEvent::Subscribe { id, request, .. } => {
                    let body = request_body(&request);
                    self.controls.record_request(self.headers, &body);
                    self.start_operation(id, &body);
                }
                ServerEvent::Complete { id, .. } => {
                    if self.subscriptions.remove(&id).is_some() {
                        self.socket.end_operation();
                    }
                }
                // The protocol sends the pong.
                ServerEvent::Ping { .. } => {}
                // Without bounds of the client's work no message is for another thread; after the end the loop leaves.
                ServerEvent::Large(_) | ServerEvent::Ended(_) => {}
            }
        }
    }

    fn start_operation(&mut self, id: Box<str>, body: &[u8]) {
        let protocol = &mut self.connection.protocol;
        match self.subgraph.start_operation(body) {
            Ok(StartedOperation::Response(response)) => {
                protocol.next(&id, response.into());
                protocol.complete(&id);
            }
            Ok(StartedOperation::Subscription(subscription)) => {
                self.subscriptions.insert(id, subscription);
                self.socket.start_operation();
            }
            Err(message) => {
                let errors = json!([{ "message": message }]).to_string();
                protocol.error(&id, errors.into());
            }
        }
    }

    fn send_event(&mut self, event: &SubscriptionEvent) {
        for (id, subscription) in &self.subscriptions {
            let result = subscription.resolve(self.subgraph, event);
            self.connection.protocol.next(id, result.into());
        }
        self.socket.count_results(self.subscriptions.len() as u64);
    }
}

/// Returns an operation as the body of a POST.
fn request_body(request: &wire::graphql_transport_ws::Request) -> Bytes {
    let parse = |text: &Option<Bytes>| {
        // The protocol's machine has checked that both are JSON objects.
        text.as_deref().and_then(|text| serde_json::from_slice::<Value>(text).ok())
    };
    let members = [
        ("query", request.query.as_deref().map(Value::from)),
        ("operationName", request.operation_name.as_deref().map(Value::from)),
        ("variables", parse(&request.variables)),
        ("extensions", parse(&request.extensions)),
    ];
    let members = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(Map::from_iter(members)).to_string().into()
}
