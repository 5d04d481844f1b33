//! The reactor over real sockets: an application that repeats, broadcasts, and tells what happens to it.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use reactor::{Application, Reactor, Sent, Sockets, Token};
use wire::Chunks;
use wire::connection::{Connection, Output, Protocol};
use wire::websocket::{self, CloseCode, Closed, Event, FrameHeader, Opcode, WebSocket};

/// Texts go up, commands come down.
#[derive(Default)]
struct Texts {
    events: VecDeque<Bytes>,
    outputs: VecDeque<Output>,
}

impl Protocol for Texts {
    type Event = Bytes;

    fn receive_text(&mut self, text: Bytes) {
        self.events.push_back(text);
    }

    fn receive_binary(&mut self, _: Bytes) {}

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
    Adopt(TcpStream, &'static [u8], u32),
    Broadcast(Bytes),
}

/// What the application tells the test.
#[derive(Debug, PartialEq)]
enum Told {
    Adopted,
    Sent(Vec<(u32, Sent)>),
    Writable(u32),
    Closed(u32),
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

impl Application for Repeater {
    type Protocol = Texts;
    type Client = u32;
    type Message = Message;

    fn event(&mut self, sockets: &mut Sockets<Texts, u32>, token: Token, text: Bytes) {
        assert_ne!(text, "panic", "as asked");
        let Some(protocol) = sockets.protocol_mut(token) else { return };
        protocol.outputs.push_back(match &*text {
            b"close" => Output::Close(CloseCode(4000), "as asked".into()),
            _ => Output::Text(Chunks::whole(text)),
        });
    }

    fn message(&mut self, sockets: &mut Sockets<Texts, u32>, message: Message) {
        match message {
            Message::Adopt(socket, early, number) => {
                socket.set_nonblocking(true).expect("a socket");
                let machine = Connection::server(
                    Arc::clone(&self.websocket),
                    Texts::default(),
                    Instant::now(),
                );
                sockets.adopt(socket.into(), machine, early, number).expect("it can be watched");
                self.tell(Told::Adopted);
            }
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

    fn writable(&mut self, sockets: &mut Sockets<Texts, u32>, token: Token) {
        let number = *sockets.client(token).expect("it is there");
        self.tell(Told::Writable(number));
    }

    fn closed(&mut self, _: Token, number: u32) {
        // The last ones close with the reactor, when a test may be over.
        let _ = self.told.send(Told::Closed(number));
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
        let (sender, told) = mpsc::channel();
        let websocket = Arc::new(websocket);
        let reactor =
            Reactor::start("reactor".to_owned(), |_| Repeater { websocket, told: sender });
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
        self.reactor.mailbox().send(Message::Adopt(accepted, early, self.clients));
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
    assert_eq!(fixture.told(), Told::Closed(0));
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
    assert_eq!(fixture.told(), Told::Closed(0));
}

#[test]
fn a_panic_of_the_application_costs_one_connection() {
    let mut fixture = Fixture::new(websocket::Config::default());
    let mut unlucky = fixture.connect(b"");
    let mut other = fixture.connect(b"");
    unlucky.say("panic");
    assert_eq!(fixture.told(), Told::Closed(0));
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
    assert_eq!(gone, [Told::Closed(0), Told::Closed(1), Told::Closed(2)]);
    let Fixture { reactor, told, .. } = fixture;
    drop(reactor);
    assert_eq!(told.try_recv(), Ok(Told::Closed(3)));
    assert_eq!(last.socket.read(&mut [0; 1]).map_err(|error| error.kind()), Ok(0), "an end");
}
