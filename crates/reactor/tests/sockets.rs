//! The reactor over real sockets, with an application that echoes, broadcasts, and reports its calls to the test.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use net::{TlsClient, TlsServer, TlsServerFiles, TlsSession};
use reactor::{
    Application, ConnectionEnd, DiscardStats, Reactor, ReactorSettings, SendOutcome, Sockets,
    Stream, Token,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::Chunks;
use wire::connection::{Connection, Output, Protocol};
use wire::websocket::{self, CloseCode, Closed, FrameHeader, Opcode, WebSocket, WebSocketEvent};

/// A protocol that passes texts to the application and commands to the client.
#[derive(Default)]
struct Texts {
    events: VecDeque<Bytes>,
    outputs: VecDeque<Output>,
}

/// The number of binary messages received, which only one test sends.
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
    AdoptNull(u32),
    Broadcast(Bytes),
    DiscardStats,
    /// Keeps the reactor busy until the sender is dropped.
    Block(mpsc::Receiver<()>),
}

/// A call that the application reports to the test.
#[derive(Debug, PartialEq)]
enum Report {
    Adopted,
    Blocked,
    SendOutcome(Vec<(u32, SendOutcome)>),
    DiscardStats(DiscardStats),
    Writable(u32),
    Closed(u32, ConnectionEnd),
}

struct Repeater {
    websocket: Arc<websocket::WebSocketConfig>,
    reports: mpsc::Sender<Report>,
}

impl Repeater {
    fn report(&self, report: Report) {
        self.reports.send(report).expect("the test receives reports");
    }
}

type TextSockets = Sockets<Connection<Texts>, u32>;

/// A stall timeout that no test reaches by accident.
const SETTINGS: ReactorSettings = ReactorSettings { stall_time_max: Duration::from_secs(60) };

impl Application for Repeater {
    type Machine = Connection<Texts>;
    type Client = u32;
    type Message = Message;

    fn on_event(&mut self, sockets: &mut TextSockets, token: Token, text: Bytes) {
        assert_ne!(text, "panic", "as requested");
        let Some(machine) = sockets.machine_mut(token) else { return };
        machine.protocol.outputs.push_back(match &*text {
            b"close" => Output::Close(CloseCode(4000), "as requested".into()),
            b"binaries" => {
                let number = BINARIES.load(Ordering::Relaxed).to_string();
                Output::Text(Chunks::whole(number))
            }
            _ => Output::Text(Chunks::whole(text)),
        });
    }

    fn on_message(
        &mut self,
        sockets: &mut TextSockets,
        message: Message,
        _: &mut VecDeque<Message>,
    ) {
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
                self.report(Report::Adopted);
            }
            Message::AdoptNull(number) => {
                let websocket = Arc::clone(&self.websocket);
                let machine = Connection::server(websocket, Texts::default(), Instant::now());
                let adopted = sockets.adopt(Stream::null(), machine, b"", number);
                adopted.expect("there is no descriptor to watch");
                self.report(Report::Adopted);
            }
            Message::Block(released) => {
                self.report(Report::Blocked);
                let _ = released.recv();
            }
            Message::DiscardStats => self.report(Report::DiscardStats(sockets.discard_stats())),
            Message::Broadcast(body) => {
                let head = FrameHeader::new(Opcode::Text, body.len() + 1);
                let mut sent = Vec::new();
                for token in sockets.tokens() {
                    let became = sockets.send(token, &head, &body, b"!");
                    sent.push((*sockets.client(token).expect("the connection exists"), became));
                }
                self.report(Report::SendOutcome(sent));
            }
        }
    }

    fn on_writable(&mut self, sockets: &mut TextSockets, token: Token) {
        let number = *sockets.client(token).expect("the connection exists");
        self.report(Report::Writable(number));
    }

    fn on_closed(&mut self, _: Token, number: u32, end: ConnectionEnd) {
        // The last connections close with the reactor, when a test may be over.
        let _ = self.reports.send(Report::Closed(number, end));
    }
}

struct Fixture {
    reactor: Reactor<Repeater>,
    reports: mpsc::Receiver<Report>,
    listener: TcpListener,
    clients: u32,
}

/// The time limit of a test, long enough for the slowest machine: only a defect takes so long.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

impl Fixture {
    fn new(websocket: websocket::WebSocketConfig) -> Self {
        Self::with(websocket, SETTINGS)
    }

    fn with(websocket: websocket::WebSocketConfig, settings: ReactorSettings) -> Self {
        let (sender, reports) = mpsc::channel();
        // Compressed messages are received, but never sent.
        let websocket = websocket::WebSocketConfig { deflate_bytes_min: usize::MAX, ..websocket };
        let websocket = Arc::new(websocket);
        let reactor = Reactor::start("reactor".to_owned(), settings, |_| Repeater {
            websocket,
            reports: sender,
        });
        Self {
            reactor: reactor.expect("a thread"),
            reports,
            listener: TcpListener::bind(("127.0.0.1", 0)).expect("a free port"),
            clients: 0,
        }
    }

    /// Drops clients so that all ends arrive together, and has the reactor stand still after its first turn with them.
    /// Dropping the sender lets it go on.
    fn end_together(&mut self, clients: Vec<Client>) -> mpsc::Sender<()> {
        let (release, released) = mpsc::channel();
        let (release_again, released_again) = mpsc::channel();
        self.reactor.mailbox().send(Message::Block(released));
        assert_eq!(self.next_report(), Report::Blocked);
        drop(clients);
        self.reactor.mailbox().send(Message::Block(released_again));
        drop(release);
        release_again
    }

    fn next_report(&self) -> Report {
        self.reports.recv_timeout(TEST_TIMEOUT).expect("the application reports something")
    }

    fn sent(&self, body: impl Into<Bytes>) -> Vec<(u32, SendOutcome)> {
        self.reactor.mailbox().send(Message::Broadcast(body.into()));
        match self.next_report() {
            Report::SendOutcome(sent) => sent,
            other => panic!("{other:?}"),
        }
    }

    fn connect(&mut self, early: &'static [u8]) -> Client {
        let address = self.listener.local_addr().expect("bound");
        let socket = TcpStream::connect(address).expect("the listener is open");
        let (accepted, _) = self.listener.accept().expect("a client connects");
        self.reactor.mailbox().send(Message::Adopt(accepted, None, early, self.clients));
        assert_eq!(self.next_report(), Report::Adopted);
        self.clients += 1;
        socket.set_read_timeout(Some(TEST_TIMEOUT)).expect("a socket");
        let config =
            websocket::WebSocketConfig { message_bytes_max: 16 << 20, ..Default::default() };
        Client { socket, machine: WebSocket::client(Arc::new(config), Instant::now(), 7) }
    }
}

/// A client with a blocking socket.
struct Client {
    socket: TcpStream,
    machine: WebSocket,
}

impl Client {
    fn send_text(&mut self, text: &'static str) {
        self.machine.send_text(Chunks::whole(text));
        self.flush();
    }

    fn flush(&mut self) {
        while let Some(chunks) = self.machine.poll_transmit() {
            self.socket.write_all(&chunks.to_vec()).expect("the reactor reads");
        }
    }

    fn next_event(&mut self) -> WebSocketEvent {
        loop {
            if let Some(event) = self.machine.poll_event() {
                return event;
            }
            let mut buffer = [0; 65_536];
            let count = self.socket.read(&mut buffer).expect("the reactor sends something");
            match count {
                0 => self.machine.receive_eof(),
                _ => self.machine.receive(Instant::now(), &buffer[..count]),
            }
            self.flush();
        }
    }

    fn next_text(&mut self) -> Bytes {
        match self.next_event() {
            WebSocketEvent::Text(text) => text,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn input_that_came_with_the_handshake_is_received() {
    let mut fixture = Fixture::new(websocket::WebSocketConfig::default());
    // A masked frame "early", cut in two; its mask is 0.
    let mut client = fixture.connect(b"\x81\x85\0\0\0\0ear");
    client.socket.write_all(b"ly").expect("the reactor reads");
    client.send_text("late");
    assert_eq!((client.next_text(), client.next_text()), ("early".into(), "late".into()));
}

#[test]
fn a_broadcast_reaches_every_client() {
    let mut fixture = Fixture::new(websocket::WebSocketConfig::default());
    let mut clients: Vec<Client> = (0..300).map(|_| fixture.connect(b"")).collect();
    for body in ["small".to_owned(), "large".repeat(20_000)] {
        let sent = fixture.sent(body.clone());
        assert_eq!(sent.len(), 300);
        assert!(sent.iter().all(|(_, sent)| *sent == SendOutcome::Taken), "{sent:?}");
        for client in &mut clients {
            assert_eq!(client.next_text(), format!("{body}!"));
        }
    }
}

#[test]
fn connections_without_a_socket_take_everything_and_are_counted() {
    let mut fixture = Fixture::new(websocket::WebSocketConfig::default());
    let mut client = fixture.connect(b"");
    for number in [7, 8] {
        fixture.reactor.mailbox().send(Message::AdoptNull(number));
        assert_eq!(fixture.next_report(), Report::Adopted);
    }
    // More than any socket takes at once.
    let body = "large".repeat(2_000_000);
    let mut sent = fixture.sent(body.clone());
    sent.sort_by_key(|(number, _)| *number);
    assert_eq!(sent, [0, 7, 8].map(|number| (number, SendOutcome::Taken)));
    assert_eq!(client.next_text(), format!("{body}!"));
    fixture.reactor.mailbox().send(Message::DiscardStats);
    let report = loop {
        match fixture.next_report() {
            Report::Writable(0) => {}
            report => break report,
        }
    };
    let frame = FrameHeader::new(Opcode::Text, body.len() + 1).len() + body.len() + 1;
    assert_eq!(report, Report::DiscardStats(DiscardStats { messages: 2, bytes: 2 * frame as u64 }));
}

#[test]
fn a_client_that_does_not_read_blocks_itself_only_and_continues_later() {
    let mut fixture = Fixture::new(websocket::WebSocketConfig::default());
    let mut slow = fixture.connect(b"");
    let mut other = fixture.connect(b"");
    let body = Bytes::from("x".repeat(1 << 20));
    let mut taken = 0;
    loop {
        let sent = fixture.sent(body.clone());
        assert_eq!(other.next_text().len(), body.len() + 1);
        // The other socket may have been full meanwhile, which was reported.
        if !matches!(fixture.reports.try_recv(), Ok(Report::Writable(1)) | Err(_)) {
            panic!("unexpected report");
        }
        match sent[0] {
            (0, SendOutcome::Taken) => taken += 1,
            (0, SendOutcome::Blocked) => break,
            ref other => panic!("{other:?}"),
        }
        assert!(taken < 100, "the system buffers 100 MB for a client that does not read");
    }
    for _ in 0..taken {
        assert_eq!(slow.next_text().len(), body.len() + 1);
    }
    while fixture.next_report() != Report::Writable(0) {}
    let sent = fixture.sent("again");
    assert_eq!(sent[0], (0, SendOutcome::Taken));
    assert_eq!(slow.next_text(), "again!");
}

#[test]
fn a_client_that_sends_and_never_reads_is_not_read_without_limit() {
    let mut fixture = Fixture::new(websocket::WebSocketConfig::default());
    let mut flood = fixture.connect(b"");
    let mut other = fixture.connect(b"");
    flood.socket.set_nonblocking(true).expect("a socket");
    // A masked text of 16 KiB, mask 0, which is echoed. The echoes exceed the buffers on the way.
    let mut frame = b"\x81\xfe\x40\x00\0\0\0\0".to_vec();
    frame.extend_from_slice(&[b'x'; 16 << 10]);
    let mut written = 0;
    let mut refusals = 0;
    while refusals < 3 {
        // A socket that is nearly full takes a part of a frame.
        match flood.socket.write(&frame[written % frame.len()..]) {
            Ok(count) => (written, refusals) = (written + count, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                // The reactor has had its turn when it has responded to the other client.
                refusals += 1;
                other.send_text("still there?");
                assert_eq!(other.next_text(), "still there?");
            }
            Err(error) => panic!("{error}"),
        }
        assert!(written < 100 << 20, "the reactor reads without limit");
    }
}

#[test]
fn a_client_that_sends_after_its_end_is_disconnected() {
    let mut fixture = Fixture::new(websocket::WebSocketConfig::default());
    let mut flood = fixture.connect(b"");
    // An unmasked frame is a violation, which ends the connection.
    let unmasked = b"\x81\x01x".repeat(1 << 12);
    let mut written = 0;
    while flood.socket.write_all(&unmasked).is_ok() {
        written += unmasked.len();
        assert!(written < 100 << 20, "the reactor reads without limit");
    }
}

#[test]
fn a_close_frame_is_sent_before_the_socket_ends() {
    let mut fixture = Fixture::new(websocket::WebSocketConfig::default());
    let mut client = fixture.connect(b"");
    client.send_text("close");
    let WebSocketEvent::Closed(closed) = client.next_event() else { panic!("no close") };
    assert_eq!((closed.code, &*closed.reason), (CloseCode(4000), "as requested"));
    drop(client);
    assert_eq!(fixture.next_report(), Report::Closed(0, ConnectionEnd::Closed));
}

#[test]
fn a_silent_peer_is_pinged_and_disconnected() {
    let mut fixture = Fixture::new(websocket::WebSocketConfig {
        ping_interval: Some(Duration::from_millis(20)),
        pong_timeout: Duration::from_millis(20),
        ..websocket::WebSocketConfig::default()
    });
    let mut client = fixture.connect(b"");
    let mut ping = [0; 2];
    client.socket.read_exact(&mut ping).expect("a ping");
    assert_eq!(ping, [0x89, 0]);
    assert_eq!(fixture.next_report(), Report::Closed(0, ConnectionEnd::Closed));
}

#[test]
fn a_client_that_reads_a_large_message_slowly_survives_a_ping_queued_behind_it() {
    let mut fixture = Fixture::new(websocket::WebSocketConfig {
        ping_interval: Some(Duration::from_millis(500)),
        pong_timeout: Duration::from_millis(500),
        ..websocket::WebSocketConfig::default()
    });
    let mut slow = fixture.connect(b"");
    // More than the buffers on the way, and more than is read here.
    assert_eq!(fixture.sent("x".repeat(64 << 20)), [(0, SendOutcome::Taken)]);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        let mut buffer = [0; 256 << 10];
        slow.socket.read_exact(&mut buffer).expect("the reactor continues");
        let report = fixture.reports.recv_timeout(Duration::from_millis(10));
        assert_eq!(report, Err(mpsc::RecvTimeoutError::Timeout));
    }
    // The end of a connection would be reported within this time.
    assert_eq!(fixture.sent("more"), [(0, SendOutcome::Blocked)]);
}

#[test]
fn a_panic_of_the_application_ends_one_connection() {
    let mut fixture = Fixture::new(websocket::WebSocketConfig::default());
    let mut unlucky = fixture.connect(b"");
    let mut other = fixture.connect(b"");
    unlucky.send_text("panic");
    assert_eq!(fixture.next_report(), Report::Closed(0, ConnectionEnd::Closed));
    other.send_text("hello");
    assert_eq!(other.next_text(), "hello");
}

#[test]
fn clients_that_vanish_together_are_all_ended_and_the_rest_is_served_meanwhile() {
    // Nothing but their end wakes the reactor.
    let mut fixture = Fixture::new(websocket::WebSocketConfig::default());
    let mut last = fixture.connect(b"");
    let clients: Vec<Client> = (0..200).map(|_| fixture.connect(b"")).collect();
    drop(clients);
    last.send_text("hello");
    let mut gone = std::collections::HashSet::new();
    while gone.len() < 200 {
        match fixture.next_report() {
            Report::Closed(number, ConnectionEnd::Closed) => assert!(gone.insert(number)),
            other => panic!("{other:?}"),
        }
    }
    assert!(!gone.contains(&0));
    assert!(matches!(last.next_event(), WebSocketEvent::Text(text) if text == "hello"));
}

#[test]
fn a_broadcast_skips_clients_that_have_vanished_and_wait_for_their_end() {
    let mut fixture = Fixture::new(websocket::WebSocketConfig::default());
    let mut last = fixture.connect(b"");
    let clients: Vec<Client> = (0..200).map(|_| fixture.connect(b"")).collect();
    // All ends arrive together, and the broadcasts follow before most of these connections had their turn.
    let (release, released) = mpsc::channel();
    fixture.reactor.mailbox().send(Message::Block(released));
    assert_eq!(fixture.next_report(), Report::Blocked);
    drop(clients);
    for body in ["one", "two"] {
        fixture.reactor.mailbox().send(Message::Broadcast(body.into()));
    }
    drop(release);
    let (mut gone, mut broadcasts) = (std::collections::HashSet::new(), Vec::new());
    while gone.len() < 200 {
        match fixture.next_report() {
            Report::Closed(number, ConnectionEnd::Closed) => assert!(gone.insert(number)),
            Report::SendOutcome(sent) => broadcasts.push(sent),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(broadcasts.len(), 2);
    assert!(broadcasts[0].len() > 100, "{} connections", broadcasts[0].len());
    for sent in broadcasts {
        for (number, outcome) in sent {
            let expected = if number == 0 { SendOutcome::Taken } else { SendOutcome::Gone };
            assert_eq!(outcome, expected, "client {number}");
        }
    }
    assert_eq!((last.next_text(), last.next_text()), ("one!".into(), "two!".into()));
}

#[test]
fn clients_that_have_vanished_are_counted_until_their_end() {
    let mut fixture = Fixture::new(websocket::WebSocketConfig::default());
    let clients: Vec<Client> = (0..200).map(|_| fixture.connect(b"")).collect();
    assert_eq!(fixture.reactor.mailbox().leaving(), 0);
    // All ends arrive together, and the reactor stands still before most of these connections had their turn.
    let release = fixture.end_together(clients);
    let mut gone = 0;
    while fixture.next_report() != Report::Blocked {
        gone += 1;
    }
    assert_eq!(fixture.reactor.mailbox().leaving(), 200 - gone);
    assert!(gone < 100, "{gone} have ended");
    drop(release);
    while gone < 200 {
        assert!(matches!(fixture.next_report(), Report::Closed(_, ConnectionEnd::Closed)));
        gone += 1;
    }
    let begun = Instant::now();
    while fixture.reactor.mailbox().leaving() > 0 {
        assert!(begun.elapsed() < TEST_TIMEOUT, "the count does not fall to zero");
        std::thread::yield_now();
    }
}

#[test]
fn the_ends_of_many_connections_give_way_to_new_ones_until_others_need_the_room() {
    const CLIENTS: usize = 1100;
    let mut fixture = Fixture::new(websocket::WebSocketConfig::default());
    // They have come within the last second or two, as clients that return do.
    let clients: Vec<Client> = (0..CLIENTS).map(|_| fixture.connect(b"")).collect();
    let release = fixture.end_together(clients);
    // A turn that ended some would report them first.
    assert_eq!(fixture.next_report(), Report::Blocked);
    assert_eq!(fixture.reactor.mailbox().leaving(), CLIENTS);
    drop(release);
    for _ in 0..CLIENTS {
        fixture.reactor.mailbox().hurry_leaving();
        assert!(matches!(fixture.next_report(), Report::Closed(_, ConnectionEnd::Closed)));
    }
}

#[test]
fn closed_connections_are_removed_and_the_rest_ends_with_the_reactor() {
    let mut fixture = Fixture::new(websocket::WebSocketConfig::default());
    let clients: Vec<Client> = (0..3).map(|_| fixture.connect(b"")).collect();
    let mut last = fixture.connect(b"");
    drop(clients);
    let mut gone: Vec<Report> = (0..3).map(|_| fixture.next_report()).collect();
    gone.sort_by_key(|report| format!("{report:?}"));
    assert_eq!(
        gone,
        [
            Report::Closed(0, ConnectionEnd::Closed),
            Report::Closed(1, ConnectionEnd::Closed),
            Report::Closed(2, ConnectionEnd::Closed)
        ]
    );
    let Fixture { reactor, reports, .. } = fixture;
    drop(reactor);
    assert_eq!(reports.try_recv(), Ok(Report::Closed(3, ConnectionEnd::Closed)));
    assert_eq!(last.socket.read(&mut [0; 1]).map_err(|error| error.kind()), Ok(0), "an end");
}

#[test]
fn clients_that_flood_trickle_or_never_read_delay_no_other_client() {
    let mut fixture = Fixture::new(websocket::WebSocketConfig::default());
    let mut other = fixture.connect(b"");
    let mut trickling = fixture.connect(b"");
    let mut halves: Vec<Client> = (0..50).map(|_| fixture.connect(b"")).collect();
    let silent: Vec<Client> = (0..50).map(|_| fixture.connect(b"")).collect();
    let flooding = fixture.connect(b"");
    for half in &mut halves {
        // The beginning of a frame of 64 KiB.
        half.socket
            .write_all(b"\x81\xff\0\0\0\0\0\x01\0\0\0\0\0\0half")
            .expect("the reactor reads");
    }
    let stop = Arc::new(AtomicBool::new(false));
    let flood = std::thread::spawn({
        let stop = Arc::clone(&stop);
        let mut socket = flooding.socket;
        move || {
            // Empty pongs, which need no response.
            let frames = b"\x8a\x80\0\0\0\0".repeat(10_000);
            let mut sent = 0_u64;
            while !stop.load(Ordering::Relaxed) && socket.write_all(&frames).is_ok() {
                sent += 10_000;
            }
            sent
        }
    });
    // Each client gets its echo while the flood continues and other clients do not read.
    for turn in 0..200 {
        other.send_text("still there?");
        assert_eq!(other.next_text(), "still there?");
        let byte = b"\x81\x84\0\0\0\0slow"[turn % 10];
        trickling.socket.write_all(&[byte]).expect("the reactor reads");
        if turn % 10 == 9 {
            assert_eq!(trickling.next_text(), "slow");
        }
        if turn % 20 == 0 {
            let sent = fixture.sent("x".repeat(4096));
            assert_eq!(sent.len(), 103);
            assert_eq!(other.next_text().len(), 4097);
            assert_eq!(trickling.next_text().len(), 4097);
        }
    }
    assert!(!flood.is_finished(), "the flood was disconnected");
    stop.store(true, Ordering::Relaxed);
    assert!(flood.join().expect("no panic") > 0);
    drop(silent);
}

#[test]
fn messages_that_expand_a_thousandfold_delay_no_other_client() {
    let mut fixture = Fixture::new(websocket::WebSocketConfig::default());
    let mut other = fixture.connect(b"");
    let mut flooding = fixture.connect(b"").socket;
    // As large as a message may be, in a frame with a mask that changes nothing.
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
    // The first read may be a long one.
    while BINARIES.load(Ordering::Relaxed) == 0 {
        other.send_text("still there?");
        assert_eq!(other.next_text(), "still there?");
    }
    for _ in 0..20 {
        // The text has arrived before the turn begins, so that only the turn decides what comes before its response.
        let (release, released) = mpsc::channel();
        fixture.reactor.mailbox().send(Message::Block(released));
        assert_eq!(fixture.next_report(), Report::Blocked);
        let before = BINARIES.load(Ordering::Relaxed);
        other.send_text("binaries");
        drop(release);
        let at_response = String::from_utf8(other.next_text().to_vec()).expect("ASCII");
        let at_response: u64 = at_response.parse().expect("a number");
        // A single read could take sixty of them. In a millisecond no machine expands twenty.
        let heard = at_response - before;
        assert!(heard < 50, "{heard} in a turn");
    }
    stop.store(true, Ordering::Relaxed);
    drop((other, fixture));
    let _ = flood.join();
}

#[test]
fn a_client_that_reads_nothing_is_disconnected_after_the_stall_timeout() {
    let settings = ReactorSettings { stall_time_max: Duration::from_millis(800) };
    let mut fixture = Fixture::with(websocket::WebSocketConfig::default(), settings);
    let _silent = fixture.connect(b"");
    let mut slow = fixture.connect(b"");
    let body = Bytes::from("x".repeat(16 << 20));
    assert_eq!(fixture.sent(body.clone()), [(0, SendOutcome::Taken), (1, SendOutcome::Taken)]);
    // A client that reads continuously survives, although the whole message takes seconds at this pace.
    let mut taken = 0;
    loop {
        let mut buffer = [0; 65_536];
        taken += slow.socket.read(&mut buffer).expect("the reactor continues");
        match fixture.reports.recv_timeout(Duration::from_millis(10)) {
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            report => break assert_eq!(report, Ok(Report::Closed(0, ConnectionEnd::Stalled))),
        }
    }
    let mut rest = body.len() + 11 - taken;
    while rest > 0 {
        let mut buffer = [0; 65_536];
        rest -= slow.socket.read(&mut buffer[..rest.min(65_536)]).expect("the reactor continues");
    }
    assert_eq!(fixture.next_report(), Report::Writable(1));
}

/// A client that speaks TLS, on a runtime of its own.
struct TlsClientSide {
    runtime: tokio::runtime::Runtime,
    stream: net::Stream,
    machine: WebSocket,
}

impl Fixture {
    /// Connects a client as [`Fixture::connect`] does, over TLS. The client sends `first` in the record behind its
    /// handshake.
    fn connect_tls(&mut self, first: &'static [u8]) -> TlsClientSide {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../net/tests/certificates/");
        let file = |name: &str| std::path::PathBuf::from(format!("{folder}{name}"));
        let files = TlsServerFiles {
            certificates: file("localhost.pem"),
            key: file("localhost.key"),
            client_authorities: None,
            accepts_anonymous: false,
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
                let connected = net::connect("localhost", port, Some(&client), TEST_TIMEOUT);
                let mut stream = connected.await.expect("the listener is open");
                stream.write_all(first).await.expect("there is room");
                stream.flush().await.expect("there is room");
                stream
            };
            let serving = async {
                let (socket, _) = listener.accept().await.expect("a client connects");
                server.handshake(socket).await.expect("the handshake succeeds")
            };
            let (stream, served) = tokio::join!(connecting, serving);
            let (socket, session) = TlsSession::from_stream(served);
            (stream, socket.into_std().expect("a socket"), session)
        });
        self.reactor.mailbox().send(Message::Adopt(socket, Some(session), b"", self.clients));
        assert_eq!(self.next_report(), Report::Adopted);
        self.clients += 1;
        let config =
            websocket::WebSocketConfig { message_bytes_max: 32 << 20, ..Default::default() };
        let machine = WebSocket::client(Arc::new(config), Instant::now(), 7);
        TlsClientSide { runtime, stream, machine }
    }
}

impl TlsClientSide {
    fn send_text(&mut self, text: impl Into<Bytes>) {
        self.machine.send_text(Chunks::whole(text));
        let chunks = self.machine.poll_transmit().expect("a frame");
        self.runtime.block_on(async {
            self.stream.write_all(&chunks.to_vec()).await.expect("the reactor reads");
            self.stream.flush().await.expect("the reactor reads");
        });
    }

    fn next_event(&mut self) -> WebSocketEvent {
        loop {
            if let Some(event) = self.machine.poll_event() {
                return event;
            }
            let mut buffer = vec![0; 65_536];
            let read = self.stream.read(&mut buffer);
            let read =
                self.runtime.block_on(async { tokio::time::timeout(TEST_TIMEOUT, read).await });
            match read.expect("the reactor sends something").expect("a clean end") {
                0 => self.machine.receive_eof(),
                count => self.machine.receive(Instant::now(), &buffer[..count]),
            }
        }
    }

    fn next_text(&mut self) -> Bytes {
        match self.next_event() {
            WebSocketEvent::Text(text) => text,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_tls_connection_receives_sends_and_ends_like_a_plain_one() {
    let mut fixture = Fixture::new(websocket::WebSocketConfig::default());
    let mut client = fixture.connect_tls(b"\x81\x85\0\0\0\0early");
    let mut plain = fixture.connect(b"");
    assert_eq!(client.next_text(), "early");
    let large = "a record and more ".repeat(5_000);
    client.send_text(large.clone());
    assert_eq!(client.next_text(), large);
    for body in ["small".to_owned(), "large".repeat(50_000)] {
        let sent = fixture.sent(body.clone());
        assert_eq!(sent, [(0, SendOutcome::Taken), (1, SendOutcome::Taken)]);
        assert_eq!(client.next_text(), format!("{body}!"));
        assert_eq!(plain.next_text(), format!("{body}!"));
        // Sockets may have been full meanwhile, which was reported.
        while fixture.reports.try_recv().is_ok_and(|report| matches!(report, Report::Writable(_))) {
        }
    }
    client.send_text("close");
    let WebSocketEvent::Closed(closed) = client.next_event() else { panic!("no close") };
    assert_eq!((closed.code, &*closed.reason), (CloseCode(4000), "as requested"));
    // TLS announces the end as well: without it the client's library would report an error.
    let mut rest = Vec::new();
    let ended = client.stream.read_to_end(&mut rest);
    let ended = client.runtime.block_on(async { tokio::time::timeout(TEST_TIMEOUT, ended).await });
    assert_eq!(ended.expect("an end").map_err(|error| error.kind()), Ok(0));
    drop(client);
    while fixture.next_report() != Report::Closed(0, ConnectionEnd::Closed) {}
}

#[test]
fn a_tls_client_that_does_not_read_blocks_itself_only_and_continues_later() {
    let mut fixture = Fixture::new(websocket::WebSocketConfig::default());
    let mut slow = fixture.connect_tls(b"");
    let body = Bytes::from("x".repeat(1 << 20));
    let mut taken = 0;
    while fixture.sent(body.clone()) == [(0, SendOutcome::Taken)] {
        taken += 1;
        assert!(taken < 100, "the system buffers 100 MB for a client that does not read");
    }
    for _ in 0..taken {
        assert_eq!(slow.next_text().len(), body.len() + 1);
    }
    assert_eq!(fixture.next_report(), Report::Writable(0));
    assert_eq!(fixture.sent("again"), [(0, SendOutcome::Taken)]);
    assert_eq!(slow.next_text(), "again!");
}
