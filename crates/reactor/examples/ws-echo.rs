//! An echo server for WebSocket protocol suites: it returns every message unchanged, and accepts permessage-deflate.
//!
//! `cargo run -p reactor --example ws-echo -- --listen 127.0.0.1:9001`

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use reactor::{Application, ConnectionEnd, Reactor, ReactorSettings, Sockets, Stream, Token};
use wire::Chunks;
use wire::connection::{Connection, Output, Protocol};
use wire::websocket::{self, Closed, handshake};

/// A protocol that returns every message.
#[derive(Default)]
struct Echo {
    outputs: VecDeque<Output>,
}

impl Protocol for Echo {
    type Event = Infallible;

    fn receive_text(&mut self, text: Bytes) {
        self.outputs.push_back(Output::Text(Chunks::whole(text)));
    }

    fn receive_binary(&mut self, bytes: Bytes) {
        self.outputs.push_back(Output::Binary(Chunks::whole(bytes)));
    }

    fn ended(&mut self, _: Closed) {}

    fn poll_event(&mut self) -> Option<Infallible> {
        None
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant) {}
}

/// A connection after its handshake.
struct Opened {
    socket: TcpStream,
    /// The input that followed the handshake.
    early: Vec<u8>,
    deflates: bool,
}

struct EchoServer {
    websocket: Arc<websocket::WebSocketConfig>,
}

type EchoSockets = Sockets<Connection<Echo>, ()>;

impl Application for EchoServer {
    type Machine = Connection<Echo>;
    type Client = ();
    type Message = Opened;

    fn on_event(&mut self, _: &mut EchoSockets, _: Token, event: Infallible) {
        match event {}
    }

    fn on_message(&mut self, sockets: &mut EchoSockets, opened: Opened, _: &mut VecDeque<Opened>) {
        let Opened { socket, early, deflates } = opened;
        let machine =
            Connection::server(Arc::clone(&self.websocket), Echo::default(), Instant::now())
                .with_deflate(deflates);
        // A socket that cannot be watched is closed, which its client sees.
        let _ = sockets.adopt(Stream::new(socket.into(), None), machine, &early, ());
    }

    fn on_writable(&mut self, _: &mut EchoSockets, _: Token) {}

    fn on_closed(&mut self, _: Token, (): (), _: ConnectionEnd) {}
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = match (arguments.next().as_deref(), arguments.next()) {
        (Some("--listen"), Some(address)) => address,
        _ => "127.0.0.1:9001".to_owned(),
    };
    // Suites send messages of 16 MiB, and slow fragments.
    let websocket = websocket::WebSocketConfig {
        message_bytes_max: 64 << 20,
        ping_interval: None,
        deflate_bytes_min: 0,
        ..websocket::WebSocketConfig::default()
    };
    let websocket = Arc::new(websocket);
    let settings = ReactorSettings { stall_time_max: Duration::from_secs(60) };
    let reactor = Reactor::start("echo".to_owned(), settings, |_| EchoServer { websocket })?;
    let listener = TcpListener::bind(address)?;
    writeln!(io::stdout(), "listening on {}", listener.local_addr()?)?;
    for socket in listener.incoming() {
        match shake_hands(socket?) {
            Ok(opened) => reactor.mailbox().send(opened),
            Err(error) => writeln!(io::stderr(), "a handshake failed: {error}")?,
        }
    }
    Ok(())
}

/// Does the opening handshake, one connection at a time: enough for a suite.
fn shake_hands(mut socket: TcpStream) -> io::Result<Opened> {
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut head = Vec::new();
    let end = loop {
        if let Some(at) = head.windows(4).position(|it| it == b"\r\n\r\n") {
            break at + 4;
        }
        let mut buffer = [0; 1024];
        let count = socket.read(&mut buffer)?;
        if count == 0 || head.len() > 16 << 10 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&buffer[..count]);
    };
    let early = head.split_off(end);
    let text = String::from_utf8_lossy(&head);
    let mut lines = text.split("\r\n");
    let method = lines.next().and_then(|it| it.split(' ').next()).unwrap_or_default();
    let headers = lines.filter_map(|it| it.split_once(':'));
    let headers = headers.map(|(name, value)| (name, value.trim().as_bytes()));
    let accept = handshake::accept(method, headers, &[])
        .map_err(|rejection| io::Error::other(rejection.to_string()))?;
    let mut response = "HTTP/1.1 101 Switching Protocols\r\n".to_owned();
    for (name, value) in accept.headers() {
        response += &format!("{name}: {value}\r\n");
    }
    response += "\r\n";
    socket.write_all(response.as_bytes())?;
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    Ok(Opened { socket, early, deflates: accept.deflate.is_some() })
}
