//! JetStream and Redis Streams with real routers: a client that resumes with a cursor misses no event, whichever
//! process was killed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use e2e::nats::NatsServer;
use e2e::redis::RedisServer;
use e2e::router::Router;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::broker_clients::{NatsClient, RedisClient};
use crate::shop::{SUPERGRAPH, assert_no_defects, product_event};
use crate::socket::{Received, Socket};

const SUBSCRIPTION: &str = "subscription { productChanged { id } }";

/// Thousands, so that every queue has been full when a fault occurs.
const EVENTS: usize = 3000;

/// A broker with faults that the test causes.
trait StoredEventsBroker: Send {
    /// The provider, and the metric or log text that shows that the stored events are read.
    fn provider(&self) -> (&'static str, &'static str);

    /// The part of the configuration that contains the provider.
    fn configuration(&self) -> String;

    fn port(&self) -> u16;

    fn id(&self) -> u32;

    /// Kills the broker and starts it on the same port with the data that it had stored.
    fn restart(self: Box<Self>) -> Box<dyn StoredEventsBroker>;

    /// Removes the consumers and connections of the routers at the broker.
    fn disconnect_routers(&self);

    /// Returns a function that publishes event `number` and makes sure that it is stored exactly once.
    fn publisher(&self) -> fn(u16, usize) -> std::io::Result<()>;
}

struct JetStream {
    server: NatsServer,
    store: TempDir,
    /// Argument `stream` of the directive.
    stream: &'static str,
}

const STREAM: &str = r#"stream: {name: "SHOP"}"#;

/// Each router has a consumer at the broker, and all routers on one machine have the same one.
const STREAM_WITH_CONSUMER: &str = r#"stream: {name: "SHOP", consumer: "shop"}"#;

impl JetStream {
    fn start(argument: &'static str) -> Option<Self> {
        let store = tempfile::tempdir().unwrap();
        let server = NatsServer::start_with(-1, &["-js", "-sd", store.path().to_str().unwrap()])?;
        let stream = r#"{"name":"SHOP","subjects":["products","products.>"],"storage":"file"}"#;
        let mut client = NatsClient::connect(server.port()).unwrap();
        let response = client.request("$JS.API.STREAM.CREATE.SHOP", None, stream).unwrap();
        assert!(response.contains("\"config\""), "{response}");
        Some(Self { server, store, stream: argument })
    }

    fn ask(&self, subject: &str, question: &str) -> String {
        let mut client = NatsClient::connect(self.server.port()).unwrap();
        client.request(&format!("$JS.API.{subject}"), None, question).unwrap()
    }
}

impl StoredEventsBroker for JetStream {
    fn provider(&self) -> (&'static str, &'static str) {
        ("nats/default", self.stream)
    }

    fn configuration(&self) -> String {
        let url = self.server.url();
        format!("nats: [{{id: default, url: \"{url}\", retry: {{initial: 20ms, max: 100ms}}}}]")
    }

    fn port(&self) -> u16 {
        self.server.port()
    }

    fn id(&self) -> u32 {
        self.server.id()
    }

    fn restart(self: Box<Self>) -> Box<dyn StoredEventsBroker> {
        let Self { server, store, stream } = *self;
        let port = server.kill();
        let arguments = ["-js", "-sd", store.path().to_str().unwrap()];
        let server = NatsServer::start_with(port.into(), &arguments).unwrap();
        Box::new(Self { server, store, stream })
    }

    fn disconnect_routers(&self) {
        // A router that has just lost its consumer creates a new one first.
        let consumers = e2e::eventually("a consumer of the stream", || {
            let names: Value =
                serde_json::from_str(self.ask("CONSUMER.NAMES.SHOP", "").trim()).ok()?;
            names["consumers"].as_array().filter(|it| !it.is_empty()).cloned()
        });
        for consumer in &consumers {
            self.ask(&format!("CONSUMER.DELETE.SHOP.{}", consumer.as_str().unwrap()), "");
        }
    }

    fn publisher(&self) -> fn(u16, usize) -> std::io::Result<()> {
        |port, number| {
            let id = number.to_string();
            let response = NatsClient::connect(port)?.request(
                "products",
                Some(&id),
                &product_event(number),
            )?;
            // While a server starts, no leader responds for the stream.
            if response.contains("\"seq\"") { Ok(()) } else { Err(std::io::Error::other(response)) }
        }
    }
}

struct RedisStreams {
    server: RedisServer,
    store: TempDir,
}

impl RedisStreams {
    fn arguments(store: &TempDir) -> [String; 6] {
        // Everything that was acknowledged is stored after a kill.
        let folder = store.path().to_str().unwrap();
        ["--appendonly", "yes", "--appendfsync", "always", "--dir", folder].map(str::to_owned)
    }

    fn start() -> Option<Self> {
        let store = tempfile::tempdir().unwrap();
        let arguments = Self::arguments(&store);
        let server = RedisServer::start(&arguments.each_ref().map(|it| &**it))?;
        Some(Self { server, store })
    }
}

impl StoredEventsBroker for RedisStreams {
    fn provider(&self) -> (&'static str, &'static str) {
        ("redis/default", "stream: {}")
    }

    fn configuration(&self) -> String {
        let url = self.server.url();
        format!("redis: [{{id: default, urls: [\"{url}\"], retry: {{initial: 20ms, max: 100ms}}}}]")
    }

    fn port(&self) -> u16 {
        self.server.port()
    }

    fn id(&self) -> u32 {
        self.server.id()
    }

    fn restart(self: Box<Self>) -> Box<dyn StoredEventsBroker> {
        let Self { server, store } = *self;
        let arguments = Self::arguments(&store);
        let port = server.kill();
        let arguments = arguments.each_ref().map(|it| &**it);
        let server = RedisServer::restart_on(port, &arguments).unwrap();
        Box::new(Self { server, store })
    }

    fn disconnect_routers(&self) {
        let mut client = RedisClient::connect(self.server.port()).unwrap();
        let killed =
            client.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
        assert_ne!(killed, ":0", "a router reads");
    }

    fn publisher(&self) -> fn(u16, usize) -> std::io::Result<()> {
        |port, number| {
            let (id, event) = (format!("{number}-1"), product_event(number));
            let response =
                RedisClient::connect(port)?.command(&["XADD", "products", &id, "data", &event])?;
            // A repeated publish is stored once, because the number already exists.
            let is_stored = response == id || response.contains("equal or smaller");
            if is_stored { Ok(()) } else { Err(std::io::Error::other(response)) }
        }
    }
}

/// The files that all routers of one broker are started with.
struct RouterFiles {
    folder: TempDir,
}

impl RouterFiles {
    fn new(broker: &dyn StoredEventsBroker) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (provider, stored) = broker.provider();
        let binding = r#"args: { topics: ["products"], providerId: "$PROVIDER" }"#;
        assert!(SUPERGRAPH.contains(binding));
        let supergraph = SUPERGRAPH
            .replace(binding, &binding.replace(" }", &format!(", {stored} }}")))
            .replace("$SERVER", "http://127.0.0.1:1")
            .replace("$PROVIDER", provider);
        std::fs::write(folder.path().join("supergraph.graphql"), supergraph).unwrap();
        let configuration = format!(
            "cursor: {{keys: [a key of more than 16 bytes], ring_events: 100}}\nevents: {{providers: {{{}}}}}\n",
            broker.configuration()
        );
        let files = Self { folder };
        std::fs::write(files.configuration(), configuration).unwrap();
        files
    }

    fn configuration(&self) -> PathBuf {
        self.folder.path().join("starling.yaml")
    }

    fn router(&self) -> Router {
        Router::start([Path::new("serve"), Path::new("--config"), &self.configuration()])
    }
}

/// A subscriber that reconnects to whichever router currently serves its address, until it has received all events
/// once and in order.
struct Subscriber<'a> {
    router: &'a Mutex<SocketAddr>,
    had: &'a AtomicUsize,
}

impl Subscriber<'_> {
    fn connect(&self, cursor: Option<&str>) -> Socket {
        let mut socket = e2e::eventually("a router that serves", || {
            let address = *self.router.lock().unwrap();
            Socket::try_ready(address)
        });
        let mut payload = json!({ "query": SUBSCRIPTION });
        if let Some(cursor) = cursor {
            payload["extensions"] = json!({ "cursor": cursor });
        }
        socket.send(&json!({ "id": "1", "type": "subscribe", "payload": payload }).to_string());
        socket
    }

    /// Returns the socket, still subscribed: without a subscriber the router would remove its consumer.
    fn read_all(&self, mut socket: Socket) -> Socket {
        let mut cursor: Option<String> = None;
        let mut had = 0;
        while had < EVENTS {
            let message: Value = match socket.receive() {
                Received::Text(text) => serde_json::from_str(&text).unwrap(),
                Received::Closed(_) => {
                    socket = self.connect(cursor.as_deref());
                    continue;
                }
            };
            if message["payload"][0]["extensions"]["code"] == "PROVIDER_UNAVAILABLE" {
                // The connection was made while the broker was down; a client would retry a little later.
                socket = self.connect(cursor.as_deref());
                continue;
            }
            let payload = &message["payload"];
            assert!(payload["extensions"]["lost"].is_null(), "nothing is dropped: {message}");
            let id = payload["data"]["productChanged"]["id"].as_str();
            let id = id.unwrap_or_else(|| panic!("after {had}: {message}"));
            assert_eq!(id, (had + 1).to_string(), "{message}");
            assert!(payload["extensions"]["gap"].is_null(), "nothing is missing: {message}");
            cursor = payload["extensions"]["cursor"].as_str().map(str::to_owned);
            assert!(cursor.is_some(), "{message}");
            had += 1;
            self.had.store(had, SeqCst);
        }
        socket
    }
}

fn signal(process: u32, signal: &str) {
    let status = Command::new("kill").args([signal, &process.to_string()]).status().unwrap();
    assert!(status.success());
}

/// Runs two routers with one client each; the broker and the routers are killed, stopped and disconnected while
/// thousands of events pass.
fn run_with_faults(broker: impl StoredEventsBroker + 'static) {
    let broker: Box<dyn StoredEventsBroker> = Box::new(broker);
    let files = RouterFiles::new(&*broker);
    let mut routers = [files.router(), files.router()];
    let addresses = routers.each_ref().map(|router| Mutex::new(router.address()));
    let had = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let (port, publish) = (broker.port(), broker.publisher());
    // The subscriptions stay open, because the router drops the metrics of a topic without subscribers.
    let (broker, _sockets) = std::thread::scope(|scope| {
        let mut broker = broker;
        let subscribers = [0, 1].map(|at| {
            let subscriber = Subscriber { router: &addresses[at], had: &had[at] };
            let socket = subscriber.connect(None);
            scope.spawn(move || subscriber.read_all(socket))
        });
        for router in &routers {
            e2e::eventually("the subscription to be live", || {
                let streams = router.metric(&format!(
                    r#"starling_events_streams{{provider="{}"}}"#,
                    broker.provider().0
                ));
                (streams == Some(1)).then_some(())
            });
        }
        scope.spawn(move || {
            for number in 1..=EVENTS {
                e2e::eventually(&format!("event {number} to be stored"), || {
                    publish(port, number).ok()
                });
            }
        });
        let both_have = |count: usize| {
            e2e::eventually(&format!("both to have {count} events"), || {
                had.iter().all(|had| had.load(SeqCst) >= count).then_some(())
            });
        };
        both_have(300);
        broker = broker.restart();
        both_have(800);
        for (router, address) in routers.iter_mut().zip(&addresses) {
            // Its client has a cursor and connects to another router at the same address.
            let successor = files.router();
            *address.lock().unwrap() = successor.address();
            assert_no_defects(&router.output());
            signal(router.id(), "-KILL");
            *router = successor;
        }
        both_have(1300);
        broker.disconnect_routers();
        both_have(1800);
        signal(broker.id(), "-STOP");
        // The duration for which the broker hangs; no condition marks its end.
        std::thread::sleep(Duration::from_millis(500));
        signal(broker.id(), "-CONT");
        both_have(2200);
        broker = broker.restart();
        both_have(2600);
        broker.disconnect_routers();
        both_have(EVENTS);
        (broker, subscribers.map(|subscriber| subscriber.join().unwrap()))
    });
    let topic = format!(
        r#"starling_events_topic_received_total{{provider="{}",topic="products"}}"#,
        broker.provider().0
    );
    // The metric counts events of the live stream. On a busy machine one router may read all of them to catch up.
    let counted: u64 = routers.iter().filter_map(|router| router.metric(&topic)).sum();
    assert!(counted > 0, "counted by topic");
    for router in &routers {
        assert_no_defects(&router.output());
    }
}

#[test]
fn jetstream_events_are_not_lost_while_broker_and_routers_are_killed_stopped_and_replaced() {
    let Some(broker) = JetStream::start(STREAM) else { return };
    run_with_faults(broker);
}

#[test]
fn a_durable_consumer_neither_repeats_nor_loses_events_for_subscribers_with_cursors() {
    let Some(broker) = JetStream::start(STREAM_WITH_CONSUMER) else { return };
    run_with_faults(broker);
}

#[test]
fn redis_stream_events_are_not_lost_while_broker_and_routers_are_killed_stopped_and_replaced() {
    let Some(broker) = RedisStreams::start() else { return };
    run_with_faults(broker);
}

#[test]
fn deleting_a_jetstream_stream_ends_its_subscriptions() {
    let Some(broker) = JetStream::start(STREAM) else { return };
    let router = RouterFiles::new(&broker).router();
    let address = Mutex::new(router.address());
    let mut socket = Subscriber { router: &address, had: &AtomicUsize::new(0) }.connect(None);
    e2e::eventually("the subscription to be live", || {
        let streams = router.metric(r#"starling_events_streams{provider="nats/default"}"#);
        (streams == Some(1)).then_some(())
    });
    let deleted = broker.ask("STREAM.DELETE.SHOP", "");
    assert!(deleted.contains("\"success\":true"), "{deleted}");
    let message = socket.message();
    assert_eq!(message["payload"][0]["extensions"]["code"], "SOURCE_GONE", "{message}");
    assert_no_defects(&router.output());
}
