//! The reactor over real sockets: an application that repeats, broadcasts, and tells what happens to it.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use net::{TlsClient, TlsServer, TlsServerFiles, TlsSession};
use reactor::{Application, End, Reactor, Sent, Settings, Sockets, Stream, Sunk, Token};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::Chunks;
use wire::connection::{Connection, Output, Protocol};
use wire::websocket::{self, CloseCode, Closed, Event, FrameHeader, Opcode, WebSocket};

/// Texts go up, commands come down.
#[derive(Default)]
struct Texts {
    events: VecDeque<Bytes>,
    outputs: VecDeque<Output>,
}

/// Binary messages that were heard, which only one test sends.
static BINARIES: AtomicU64 = AtomicU64::new(0);

impl Protocol for Texts {
    type Event = Bytes;

    fn receive_text(&mut self, text: Bytes) {
        self.events.push_back(text);
    }

    fn receive_binary(&mut self, _: Bytes) {
        BINARIES.fetch_add(1, Ordering::Relaxed);
    }

    fn ended(&mut self, _: Closed) {}

    fn poll_event(&mut self) -> Option<Bytes> {
        self.events.pop_front()
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant) {}
}

enum Message {
    Adopt(TcpStream, Option<TlsSession>, &'static [u8], u32),
    AdoptNowhere(u32),
    Broadcast(Bytes),
    Sunk,
}

/// What the application tells the test.
#[derive(Debug, PartialEq)]
enum Told {
    Adopted,
    Sent(Vec<(u32, Sent)>),
    Sunk(Sunk),
    Writable(u32),
    Closed(u32, End),
}

struct Repeater {
    websocket: Arc<websocket::Config>,
    told: mpsc::Sender<Told>,
}

impl Repeater {
    fn tell(&self, told: Told) {
        self.told.send(told).expect("the test listens");
    }
}

type TextSockets = Sockets<Connection<Texts>, u32>;

/// Long enough for nobody to meet it by accident.
const SETTINGS: Settings = Settings { stall_time_max: Duration::from_secs(60) };

impl Application for Repeater {
    type Machine = Connection<Texts>;
    type Client = u32;
    type Message = Message;

    fn event(&mut self, sockets: &mut TextSockets, token: Token, text: Bytes) {
        assert_ne!(text, "panic", "as asked");
        let Some(machine) = sockets.machine_mut(token) else { return };
        machine.protocol.outputs.push_back(match &*text {
            b"close" => Output::Close(CloseCode(4000), "as asked".into()),
            _ => Output::Text(Chunks::whole(text)),
        });
    }

    fn message(&mut self, sockets: &mut TextSockets, message: Message) {
        match message {
            Message::Adopt(socket, session, early, number) => {
                socket.set_nonblocking(true).expect("a socket");
                let machine = Connection::server(
                    Arc::clone(&self.websocket),
                    Texts::default(),
                    Instant::now(),
                )
                .with_deflate(true);
                let stream = Stream::new(socket.into(), session);
                sockets.adopt(stream, machine, early, number).expect("it can be watched");
                self.tell(Told::Adopted);
            }
            Message::AdoptNowhere(number) => {
                let websocket = Arc::clone(&self.websocket);
                let machine = Connection::server(websocket, Texts::default(), Instant::now());
                let adopted = sockets.adopt(Stream::nowhere(), machine, b"", number);
                adopted.expect("nothing has to be watched");
                self.tell(Told::Adopted);
            }
            Message::Sunk => self.tell(Told::Sunk(sockets.sunk())),
            Message::Broadcast(body) => {
                let head = FrameHeader::new(Opcode::Text, body.len() + 1);
                let mut sent = Vec::new();
                for token in sockets.tokens() {
                    let became = sockets.send(token, &head, &body, b"!");
                    sent.push((*sockets.client(token).expect("it is there"), became));
                }
                self.tell(Told::Sent(sent));
            }
        }
    }

    fn writable(&mut self, sockets: &mut TextSockets, token: Token) {
        let number = *sockets.client(token).expect("it is there");
        self.tell(Told::Writable(number));
    }

    fn closed(&mut self, _: Token, number: u32, end: End) {
        // The last ones close with the reactor, when a test may be over.
        let _ = self.told.send(Told::Closed(number, end));
    }
}

struct Fixture {
    reactor: Reactor<Repeater>,
    told: mpsc::Receiver<Told>,
    listener: TcpListener,
    clients: u32,
}

/// Long enough for the slowest machine; only a defect waits so long.
const PATIENCE: Duration = Duration::from_secs(30);

impl Fixture {
    fn new(websocket: websocket::Config) -> Self {
        Self::with(websocket, SETTINGS)
    }

    fn with(websocket: websocket::Config, settings: Settings) -> Self {
        let (sender, told) = mpsc::channel();
        // Compressed messages are heard, and none is said.
        let websocket = websocket::Config { deflate_bytes_min: usize::MAX, ..websocket };
        let websocket = Arc::new(websocket);
        let reactor = Reactor::start("reactor".to_owned(), settings, |_| Repeater {
            websocket,
            told: sender,
        });
        Self {
            reactor: reactor.expect("a thread"),
            told,
            listener: TcpListener::bind(("127.0.0.1", 0)).expect("a free port"),
            clients: 0,
        }
    }

    fn told(&self) -> Told {
        self.told.recv_timeout(PATIENCE).expect("the application tells something")
    }

    fn sent(&self, body: impl Into<Bytes>) -> Vec<(u32, Sent)> {
        self.reactor.mailbox().send(Message::Broadcast(body.into()));
        match self.told() {
            Told::Sent(sent) => sent,
            other => panic!("{other:?}"),
        }
    }

    fn connect(&mut self, early: &'static [u8]) -> Client {
        let address = self.listener.local_addr().expect("bound");
        let socket = TcpStream::connect(address).expect("it listens");
        let (accepted, _) = self.listener.accept().expect("somebody connects");
        self.reactor.mailbox().send(Message::Adopt(accepted, None, early, self.clients));
        assert_eq!(self.told(), Told::Adopted);
        self.clients += 1;
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let config = websocket::Config { message_bytes_max: 16 << 20, ..Default::default() };
        Client { socket, machine: WebSocket::client(Arc::new(config), Instant::now(), 7) }
    }
}

/// A client that blocks.
struct Client {
    socket: TcpStream,
    machine: WebSocket,
}

impl Client {
    fn say(&mut self, text: &'static str) {
        self.machine.send_text(Chunks::whole(text));
        self.flush();
    }

    fn flush(&mut self) {
        while let Some(chunks) = self.machine.poll_transmit() {
            self.socket.write_all(&chunks.to_vec()).expect("the reactor reads");
        }
    }

    fn hear(&mut self) -> Event {
        loop {
            if let Some(event) = self.machine.poll_event() {
                return event;
            }
            let mut buffer = [0; 65_536];
            let count = self.socket.read(&mut buffer).expect("the reactor says something");
            match count {
                0 => self.machine.receive_eof(),
                _ => self.machine.receive(Instant::now(), &buffer[..count]),
            }
            self.flush();
        }
    }

    fn hear_text(&mut self) -> Bytes {
        match self.hear() {
            Event::Text(text) => text,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_a_peer_says_is_heard_also_when_it_came_with_the_handshake() {
    let mut fixture = Fixture::new(websocket::Config::default());
    // A masked frame "early", cut in two: the mask is 0.
    let mut client = fixture.connect(b"\x81\x85\0\0\0\0ear");
    client.socket.write_all(b"ly").expect("it reads");
    client.say("late");
    assert_eq!((client.hear_text(), client.hear_text()), ("early".into(), "late".into()));
}

#[test]
fn a_broadcast_reaches_everybody() {
    let mut fixture = Fixture::new(websocket::Config::default());
    let mut clients: Vec<Client> = (0..300).map(|_| fixture.connect(b"")).collect();
    for body in ["small".to_owned(), "large".repeat(20_000)] {
        let sent = fixture.sent(body.clone());
        assert_eq!(sent.len(), 300);
        assert!(sent.iter().all(|(_, sent)| *sent == Sent::Taken), "{sent:?}");
        for client in &mut clients {
            assert_eq!(client.hear_text(), format!("{body}!"));
        }
    }
}

#[test]
fn connections_that_lead_nowhere_take_everything_and_are_counted() {
    let mut fixture = Fixture::new(websocket::Config::default());
    let mut client = fixture.connect(b"");
    for number in [7, 8] {
        fixture.reactor.mailbox().send(Message::AdoptNowhere(number));
        assert_eq!(fixture.told(), Told::Adopted);
    }
    // More than any socket takes at once.
    let body = "large".repeat(2_000_000);
    let mut sent = fixture.sent(body.clone());
    sent.sort_by_key(|(number, _)| *number);
    assert_eq!(sent, [0, 7, 8].map(|number| (number, Sent::Taken)));
    assert_eq!(client.hear_text(), format!("{body}!"));
    fixture.reactor.mailbox().send(Message::Sunk);
    let told = loop {
        match fixture.told() {
            Told::Writable(0) => {}
            told => break told,
        }
    };
    let frame = FrameHeader::new(Opcode::Text, body.len() + 1).len() + body.len() + 1;
    assert_eq!(told, Told::Sunk(Sunk { messages: 2, bytes: 2 * frame as u64 }));
}

#[test]
fn a_client_that_does_not_read_blocks_itself_only_and_goes_on_later() {
    let mut fixture = Fixture::new(websocket::Config::default());
    let mut slow = fixture.connect(b"");
    let mut other = fixture.connect(b"");
    let body = Bytes::from("x".repeat(1 << 20));
    let mut taken = 0;
    loop {
        let sent = fixture.sent(body.clone());
        assert_eq!(other.hear_text().len(), body.len() + 1);
        // The other's socket may have been full meanwhile, and it was told so.
        if !matches!(fixture.told.try_recv(), Ok(Told::Writable(1)) | Err(_)) {
            panic!("something else happened");
        }
        match sent[0] {
            (0, Sent::Taken) => taken += 1,
            (0, Sent::Blocked) => break,
            ref other => panic!("{other:?}"),
        }
        assert!(taken < 100, "the system keeps 100 MB for a client that does not read");
    }
    for _ in 0..taken {
        assert_eq!(slow.hear_text().len(), body.len() + 1);
    }
    while fixture.told() != Told::Writable(0) {}
    let sent = fixture.sent("again");
    assert_eq!(sent[0], (0, Sent::Taken));
    assert_eq!(slow.hear_text(), "again!");
}

#[test]
fn a_client_that_pings_and_never_reads_is_not_read_for_ever() {
    let mut fixture = Fixture::new(websocket::Config::default());
    let mut flood = fixture.connect(b"");
    let mut other = fixture.connect(b"");
    flood.socket.set_nonblocking(true).expect("a socket");
    // Masked text of 16 KiB, mask 0, which comes back: more than the systems on the way keep.
    let mut frame = b"\x81\xfe\x40\x00\0\0\0\0".to_vec();
    frame.extend_from_slice(&[b'x'; 16 << 10]);
    let mut written = 0;
    let mut refusals = 0;
    while refusals < 3 {
        // A socket that is nearly full takes a part of a frame.
        match flood.socket.write(&frame[written % frame.len()..]) {
            Ok(count) => (written, refusals) = (written + count, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                // The reactor has had its turn when it has answered somebody else.
                refusals += 1;
                other.say("still there?");
                assert_eq!(other.hear_text(), "still there?");
            }
            Err(error) => panic!("{error}"),
        }
        assert!(written < 100 << 20, "the reactor takes whatever comes");
    }
}

#[test]
fn a_client_that_goes_on_after_its_end_is_hung_up_on() {
    let mut fixture = Fixture::new(websocket::Config::default());
    let mut flood = fixture.connect(b"");
    // Not masked: a violation, which ends the connection.
    let unmasked = b"\x81\x01x".repeat(1 << 12);
    let mut written = 0;
    while flood.socket.write_all(&unmasked).is_ok() {
        written += unmasked.len();
        assert!(written < 100 << 20, "the reactor takes whatever comes");
    }
}

#[test]
fn a_close_is_said_before_the_socket_ends() {
    let mut fixture = Fixture::new(websocket::Config::default());
    let mut client = fixture.connect(b"");
    client.say("close");
    let Event::Closed(closed) = client.hear() else { panic!("no close") };
    assert_eq!((closed.code, &*closed.reason), (CloseCode(4000), "as asked"));
    drop(client);
    assert_eq!(fixture.told(), Told::Closed(0, End::Closed));
}

#[test]
fn a_silent_peer_is_pinged_and_given_up() {
    let mut fixture = Fixture::new(websocket::Config {
        ping_interval: Some(Duration::from_millis(20)),
        pong_timeout: Duration::from_millis(20),
        ..websocket::Config::default()
    });
    let mut client = fixture.connect(b"");
    let mut ping = [0; 2];
    client.socket.read_exact(&mut ping).expect("a ping");
    assert_eq!(ping, [0x89, 0]);
    assert_eq!(fixture.told(), Told::Closed(0, End::Closed));
}

#[test]
fn who_takes_a_large_message_slowly_is_not_given_up_for_a_ping_that_stands_behind_it() {
    let mut fixture = Fixture::new(websocket::Config {
        ping_interval: Some(Duration::from_millis(500)),
        pong_timeout: Duration::from_millis(500),
        ..websocket::Config::default()
    });
    let mut slow = fixture.connect(b"");
    // More than the systems on the way keep, and more than is read here.
    assert_eq!(fixture.sent("x".repeat(64 << 20)), [(0, Sent::Taken)]);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        let mut buffer = [0; 256 << 10];
        slow.socket.read_exact(&mut buffer).expect("the reactor goes on");
        let told = fixture.told.recv_timeout(Duration::from_millis(10));
        assert_eq!(told, Err(mpsc::RecvTimeoutError::Timeout));
    }
    // A connection that was given up would take its time to say so.
    assert_eq!(fixture.sent("more"), [(0, Sent::Blocked)]);
}

#[test]
fn a_panic_of_the_application_costs_one_connection() {
    let mut fixture = Fixture::new(websocket::Config::default());
    let mut unlucky = fixture.connect(b"");
    let mut other = fixture.connect(b"");
    unlucky.say("panic");
    assert_eq!(fixture.told(), Told::Closed(0, End::Closed));
    other.say("hello");
    assert_eq!(other.hear_text(), "hello");
}

#[test]
fn peers_that_leave_are_forgotten_and_the_rest_ends_with_the_reactor() {
    let mut fixture = Fixture::new(websocket::Config::default());
    let clients: Vec<Client> = (0..3).map(|_| fixture.connect(b"")).collect();
    let mut last = fixture.connect(b"");
    drop(clients);
    let mut gone: Vec<Told> = (0..3).map(|_| fixture.told()).collect();
    gone.sort_by_key(|told| format!("{told:?}"));
    assert_eq!(
        gone,
        [Told::Closed(0, End::Closed), Told::Closed(1, End::Closed), Told::Closed(2, End::Closed)]
    );
    let Fixture { reactor, told, .. } = fixture;
    drop(reactor);
    assert_eq!(told.try_recv(), Ok(Told::Closed(3, End::Closed)));
    assert_eq!(last.socket.read(&mut [0; 1]).map_err(|error| error.kind()), Ok(0), "an end");
}

#[test]
fn who_floods_trickles_begins_frames_or_never_reads_takes_no_turn_of_others() {
    let mut fixture = Fixture::new(websocket::Config::default());
    let mut other = fixture.connect(b"");
    let mut trickling = fixture.connect(b"");
    let mut halves: Vec<Client> = (0..50).map(|_| fixture.connect(b"")).collect();
    let silent: Vec<Client> = (0..50).map(|_| fixture.connect(b"")).collect();
    let flooding = fixture.connect(b"");
    for half in &mut halves {
        // The beginning of a frame of 64 KiB.
        half.socket.write_all(b"\x81\xff\0\0\0\0\0\x01\0\0\0\0\0\0half").expect("it reads");
    }
    let stop = Arc::new(AtomicBool::new(false));
    let flood = std::thread::spawn({
        let stop = Arc::clone(&stop);
        let mut socket = flooding.socket;
        move || {
            // Empty pongs, which nobody answers.
            let frames = b"\x8a\x80\0\0\0\0".repeat(10_000);
            let mut sent = 0_u64;
            while !stop.load(Ordering::Relaxed) && socket.write_all(&frames).is_ok() {
                sent += 10_000;
            }
            sent
        }
    });
    // Every one hears its answer while the flood goes on and nobody else reads.
    for turn in 0..200 {
        other.say("still there?");
        assert_eq!(other.hear_text(), "still there?");
        let byte = b"\x81\x84\0\0\0\0slow"[turn % 10];
        trickling.socket.write_all(&[byte]).expect("it reads");
        if turn % 10 == 9 {
            assert_eq!(trickling.hear_text(), "slow");
        }
        if turn % 20 == 0 {
            let sent = fixture.sent("x".repeat(4096));
            assert_eq!(sent.len(), 103);
            assert_eq!(other.hear_text().len(), 4097);
            assert_eq!(trickling.hear_text().len(), 4097);
        }
    }
    assert!(!flood.is_finished(), "the flood was cut off");
    stop.store(true, Ordering::Relaxed);
    assert!(flood.join().expect("no panic") > 0);
    drop(silent);
}

#[test]
fn messages_that_expand_a_thousandfold_take_no_turn_of_others() {
    let mut fixture = Fixture::new(websocket::Config::default());
    let mut other = fixture.connect(b"");
    let mut flooding = fixture.connect(b"").socket;
    // As large as a message may be; a frame with a mask that changes nothing.
    let blocks = websocket::deflate_shared(&Bytes::from(vec![0; 1 << 20]), b"").expect("zeros");
    let mut frame = b"\xc2\xfe".to_vec();
    frame.extend_from_slice(&u16::try_from(blocks.len()).expect("zeros").to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(&blocks);
    assert!(frame.len() < 2048, "{}", frame.len());
    let stop = Arc::new(AtomicBool::new(false));
    let flood = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let frames = frame.repeat(100);
            while !stop.load(Ordering::Relaxed) && flooding.write_all(&frames).is_ok() {}
        }
    });
    for _ in 0..20 {
        other.say("still there?");
        assert_eq!(other.hear_text(), "still there?");
    }
    let heard = BINARIES.load(Ordering::Relaxed);
    stop.store(true, Ordering::Relaxed);
    // A turn could take more than thirty of them.
    assert!(heard < 20 * 10, "{heard} in twenty turns");
    drop((other, fixture));
    let _ = flood.join();
}

#[test]
fn a_client_that_takes_nothing_of_what_waits_is_given_up() {
    let settings = Settings { stall_time_max: Duration::from_millis(800) };
    let mut fixture = Fixture::with(websocket::Config::default(), settings);
    let _silent = fixture.connect(b"");
    let mut slow = fixture.connect(b"");
    let body = Bytes::from("x".repeat(16 << 20));
    assert_eq!(fixture.sent(body.clone()), [(0, Sent::Taken), (1, Sent::Taken)]);
    // One that takes something now and then lives: at this pace it would take seconds.
    let mut taken = 0;
    loop {
        let mut buffer = [0; 65_536];
        taken += slow.socket.read(&mut buffer).expect("the reactor goes on");
        match fixture.told.recv_timeout(Duration::from_millis(10)) {
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            told => break assert_eq!(told, Ok(Told::Closed(0, End::Stalled))),
        }
    }
    let mut rest = body.len() + 11 - taken;
    while rest > 0 {
        let mut buffer = [0; 65_536];
        rest -= slow.socket.read(&mut buffer[..rest.min(65_536)]).expect("the reactor goes on");
    }
    assert_eq!(fixture.told(), Told::Writable(1));
}

/// A client of TLS on a runtime of its own.
struct TlsClientSide {
    runtime: tokio::runtime::Runtime,
    stream: net::Stream,
    machine: WebSocket,
}

impl Fixture {
    /// As [`Fixture::connect`], over TLS. The client says `first` in the record behind its handshake.
    fn connect_tls(&mut self, first: &'static [u8]) -> TlsClientSide {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../net/tests/certificates/");
        let file = |name: &str| std::path::PathBuf::from(format!("{folder}{name}"));
        let files = TlsServerFiles {
            certificates: file("localhost.pem"),
            key: file("localhost.key"),
            client_authorities: None,
        };
        let server = TlsServer::load(files, &[]).expect("a certificate");
        let authority = std::fs::read(file("ca.pem")).expect("a file");
        let client = TlsClient::with_roots(&authority, &[]).expect("an authority");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let port = self.listener.local_addr().expect("bound").port();
        let listener = self.listener.try_clone().expect("a descriptor");
        listener.set_nonblocking(true).expect("a socket");
        let (stream, socket, session) = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
            let connecting = async {
                let connected = net::connect("localhost", port, Some(&client), PATIENCE);
                let mut stream = connected.await.expect("it listens");
                stream.write_all(first).await.expect("room");
                stream.flush().await.expect("room");
                stream
            };
            let serving = async {
                let (socket, _) = listener.accept().await.expect("somebody connects");
                server.handshake(socket).await.expect("it shakes hands")
            };
            let (stream, served) = tokio::join!(connecting, serving);
            let (socket, session) = TlsSession::part(served);
            (stream, socket.into_std().expect("a socket"), session)
        });
        self.reactor.mailbox().send(Message::Adopt(socket, Some(session), b"", self.clients));
        assert_eq!(self.told(), Told::Adopted);
        self.clients += 1;
        let config = websocket::Config { message_bytes_max: 32 << 20, ..Default::default() };
        let machine = WebSocket::client(Arc::new(config), Instant::now(), 7);
        TlsClientSide { runtime, stream, machine }
    }
}

impl TlsClientSide {
    fn say(&mut self, text: impl Into<Bytes>) {
        self.machine.send_text(Chunks::whole(text));
        let chunks = self.machine.poll_transmit().expect("a frame");
        self.runtime.block_on(async {
            self.stream.write_all(&chunks.to_vec()).await.expect("the reactor reads");
            self.stream.flush().await.expect("the reactor reads");
        });
    }

    fn hear(&mut self) -> Event {
        loop {
            if let Some(event) = self.machine.poll_event() {
                return event;
            }
            let mut buffer = vec![0; 65_536];
            let read = self.stream.read(&mut buffer);
            let read = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, read).await });
            match read.expect("the reactor says something").expect("a clean end") {
                0 => self.machine.receive_eof(),
                count => self.machine.receive(Instant::now(), &buffer[..count]),
            }
        }
    }

    fn hear_text(&mut self) -> Bytes {
        match self.hear() {
            Event::Text(text) => text,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_connection_of_tls_hears_says_and_ends_as_others_do() {
    let mut fixture = Fixture::new(websocket::Config::default());
    let mut client = fixture.connect_tls(b"\x81\x85\0\0\0\0early");
    let mut plain = fixture.connect(b"");
    assert_eq!(client.hear_text(), "early");
    let large = "a record and more ".repeat(5_000);
    client.say(large.clone());
    assert_eq!(client.hear_text(), large);
    for body in ["small".to_owned(), "large".repeat(50_000)] {
        let sent = fixture.sent(body.clone());
        assert_eq!(sent, [(0, Sent::Taken), (1, Sent::Taken)]);
        assert_eq!(client.hear_text(), format!("{body}!"));
        assert_eq!(plain.hear_text(), format!("{body}!"));
        // Sockets may have been full meanwhile, and the application told so.
        while fixture.told.try_recv().is_ok_and(|told| matches!(told, Told::Writable(_))) {}
    }
    client.say("close");
    let Event::Closed(closed) = client.hear() else { panic!("no close") };
    assert_eq!((closed.code, &*closed.reason), (CloseCode(4000), "as asked"));
    // The end is said by TLS as well: without it the client's library would call it an error.
    let mut rest = Vec::new();
    let ended = client.stream.read_to_end(&mut rest);
    let ended = client.runtime.block_on(async { tokio::time::timeout(PATIENCE, ended).await });
    assert_eq!(ended.expect("an end").map_err(|error| error.kind()), Ok(0));
    drop(client);
    while fixture.told() != Told::Closed(0, End::Closed) {}
}

#[test]
fn a_client_of_tls_that_does_not_read_blocks_itself_only_and_goes_on_later() {
    let mut fixture = Fixture::new(websocket::Config::default());
    let mut slow = fixture.connect_tls(b"");
    let body = Bytes::from("x".repeat(1 << 20));
    let mut taken = 0;
    while fixture.sent(body.clone()) == [(0, Sent::Taken)] {
        taken += 1;
        assert!(taken < 100, "the system keeps 100 MB for a client that does not read");
    }
    for _ in 0..taken {
        assert_eq!(slow.hear_text().len(), body.len() + 1);
    }
    assert_eq!(fixture.told(), Told::Writable(0));
    assert_eq!(fixture.sent("again"), [(0, Sent::Taken)]);
    assert_eq!(slow.hear_text(), "again!");
}
