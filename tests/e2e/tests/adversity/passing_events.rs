//! Redis Pub/Sub and NATS core store nothing. They are killed during a stream of numbered events: the subscriptions
//! stay open, no event arrives twice or out of order, and the next payload reports that events may be missing.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::Duration;

use e2e::nats::NatsServer;
use e2e::redis::RedisServer;
use serde_json::Value;

use crate::broker_clients::{NatsClient, RedisClient};
use crate::shop::{Shop, product_event};
use crate::socket::Socket;
use crate::stream::Stream;

const SUBSCRIPTION: &str = "subscription { productChanged { id } }";

/// Events that both subscribers receive before, between and after the faults of the broker.
const EVENTS_AT_LEAST: usize = 700;

/// How far the publisher may be ahead of a subscriber. More than twice as many events would fill the queues and be
/// dropped there, which is another test.
const EVENTS_AHEAD_MAX: usize = 30;

/// How long the publisher waits for a subscriber that receives nothing because the broker is down, before it publishes
/// the next event.
const PACE: Duration = Duration::from_millis(100);

/// Marks the last event.
const LAST_EVENT: &str = "the end";

/// A broker with faults that the test causes.
trait PubSubBroker: Sized {
    /// Provider in the configuration.
    const PROVIDER: &'static str;

    fn configuration(&self) -> String;

    fn port(&self) -> u16;

    /// Kills the broker and starts it on the same port.
    fn restart(self) -> Self;

    /// Closes the connection over which the router receives events. Returns false if this broker cannot do that.
    fn close_subscriptions(&self) -> bool;
}

/// Publishes an event once and returns whether the broker accepted it.
trait Publisher: Sized + 'static {
    fn connect(port: u16) -> std::io::Result<Self>;

    fn publish(&mut self, event: &str) -> std::io::Result<()>;
}

impl PubSubBroker for RedisServer {
    const PROVIDER: &'static str = "redis/default";

    fn configuration(&self) -> String {
        let url = self.url();
        format!("redis: [{{id: default, urls: [\"{url}\"], retry: {{initial: 20ms, max: 100ms}}}}]")
    }

    fn port(&self) -> u16 {
        self.port()
    }

    fn restart(self) -> Self {
        Self::restart_on(self.kill(), &[]).unwrap()
    }

    fn close_subscriptions(&self) -> bool {
        let mut client = RedisClient::connect(self.port()).unwrap();
        let killed = client.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
        assert_eq!(killed, ":1", "one connection for all subscriptions");
        true
    }
}

impl Publisher for RedisClient {
    fn connect(port: u16) -> std::io::Result<Self> {
        RedisClient::connect(port)
    }

    fn publish(&mut self, event: &str) -> std::io::Result<()> {
        let response = self.command(&["PUBLISH", "products", event])?;
        // The reply is the number of subscribers.
        if response.starts_with(':') { Ok(()) } else { Err(std::io::Error::other(response)) }
    }
}

impl PubSubBroker for NatsServer {
    const PROVIDER: &'static str = "nats/default";

    fn configuration(&self) -> String {
        let url = self.url();
        format!("nats: [{{id: default, url: \"{url}\", retry: {{initial: 20ms, max: 100ms}}}}]")
    }

    fn port(&self) -> u16 {
        self.port()
    }

    fn restart(self) -> Self {
        Self::restart_on(self.kill()).unwrap()
    }

    fn close_subscriptions(&self) -> bool {
        false
    }
}

impl Publisher for NatsClient {
    fn connect(port: u16) -> std::io::Result<Self> {
        NatsClient::connect(port)
    }

    fn publish(&mut self, event: &str) -> std::io::Result<()> {
        NatsClient::publish(self, "products", event)
    }
}

/// What one subscriber has received.
#[derive(Default)]
struct ReceivedEvents {
    events: usize,
    latest: usize,
    /// Payloads that report that events may be missing before them.
    gaps: usize,
    /// Payloads before which events are missing.
    holes: usize,
}

impl ReceivedEvents {
    /// Returns false after the last event.
    fn receive(&mut self, payload: &Value) -> bool {
        assert!(payload["errors"].is_null(), "{payload}");
        assert!(payload["extensions"]["lost"].is_null(), "nothing was dropped here: {payload}");
        let id = payload["data"]["productChanged"]["id"].as_str().unwrap();
        if id == LAST_EVENT {
            return false;
        }
        let (number, latest) = (id.parse::<usize>().unwrap(), self.latest);
        assert!(number > latest, "{number} after {latest}");
        let says_gap = payload["extensions"]["gap"] == Value::Bool(true);
        let is_hole = number > latest + 1;
        assert!(says_gap || !is_hole, "{latest} is followed by {payload}");
        self.gaps += usize::from(says_gap);
        self.holes += usize::from(is_hole);
        self.events += 1;
        self.latest = number;
        true
    }
}

/// Publishes each number at most once until the test stops it, and then the end marker until all subscribers have
/// received it.
fn publish<P: Publisher>(port: u16, received: &mpsc::Receiver<usize>, is_over: &AtomicBool) {
    let connect = || e2e::eventually("the broker to start", || P::connect(port).ok());
    let mut publisher = connect();
    let mut latest = 0;
    for number in 1.. {
        if is_over.load(SeqCst) {
            break;
        }
        while number > latest + EVENTS_AHEAD_MAX {
            match received.recv_timeout(PACE) {
                Ok(number) => latest = number,
                // The subscribers may receive nothing at present.
                Err(_) => break,
            }
        }
        if publisher.publish(&product_event(number.to_string())).is_err() {
            // The broker may have forwarded the event or not, so the number is not used again.
            publisher = connect();
        }
    }
    loop {
        if publisher.publish(&product_event(LAST_EVENT)).is_err() {
            publisher = connect();
        }
        match received.recv_timeout(PACE) {
            Ok(_) | Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn run_with_faults<B: PubSubBroker, P: Publisher>(broker: B) {
    let configuration = format!("events: {{providers: {{{}}}}}", broker.configuration());
    let shop = Shop::with_provider(B::PROVIDER, &configuration);
    let metric = |name: &str| format!("starling_events_{name}{{provider=\"{}\"}}", B::PROVIDER);
    shop.wait_for_metric(&metric("provider_connected"), 1);
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", SUBSCRIPTION);
    let mut stream = Stream::open(shop.address(), SUBSCRIPTION);
    shop.wait_for_subscribers(2);

    let port = broker.port();
    let (is_over, [by_socket, by_stream]) =
        (AtomicBool::new(false), [(); 2].map(|()| AtomicUsize::new(0)));
    let (sender, received) = mpsc::channel();
    let (had, outages, _broker) = std::thread::scope(|scope| {
        let is_over = &is_over;
        scope.spawn(move || publish::<P>(port, &received, is_over));
        let of_socket = scope.spawn({
            let (sender, count) = (sender.clone(), &by_socket);
            move || {
                let mut had = ReceivedEvents::default();
                while had.receive(&socket.message()["payload"]) {
                    count.store(had.events, SeqCst);
                    let _ = sender.send(had.latest);
                }
                had
            }
        });
        let of_stream = scope.spawn({
            let count = &by_stream;
            move || {
                // The other subscriber determines the speed.
                let _lives = sender;
                let mut had = ReceivedEvents::default();
                loop {
                    let event = stream.event().expect("the subscription stays");
                    let payload = event.strip_prefix("next ").expect("the subscription stays");
                    if !had.receive(&serde_json::from_str(payload).unwrap()) {
                        break had;
                    }
                    count.store(had.events, SeqCst);
                }
            }
        });
        let more = || {
            let counts = [&by_socket, &by_stream];
            let before = counts.map(|count| count.load(SeqCst));
            e2e::eventually("more events", || {
                let mut now = counts.iter().zip(before);
                now.all(|(count, before)| count.load(SeqCst) >= before + EVENTS_AT_LEAST)
                    .then_some(())
            });
        };
        let mut outages = 0;
        more();
        let broker = broker.restart();
        outages += 1;
        more();
        outages += usize::from(broker.close_subscriptions());
        more();
        let broker = broker.restart();
        outages += 1;
        more();
        is_over.store(true, SeqCst);
        ([of_socket.join().unwrap(), of_stream.join().unwrap()], outages, broker)
    });
    for ReceivedEvents { events, gaps, holes, .. } in had {
        assert!(events >= 4 * EVENTS_AT_LEAST, "{events}");
        assert_eq!(gaps, outages, "each is announced, and once; {holes} holes");
        assert!((1..=outages).contains(&holes), "{holes}");
    }
    let reconnects = shop.router.metric(&metric("reconnects_total"));
    assert!(reconnects >= Some(outages as u64), "{reconnects:?}");
    shop.assert_unaffected();
}

#[test]
fn a_killed_redis_or_a_closed_connection_causes_announced_gaps() {
    let Some(server) = RedisServer::start(&[]) else { return };
    run_with_faults::<_, RedisClient>(server);
}

#[test]
fn a_killed_nats_server_causes_announced_gaps() {
    let Some(server) = NatsServer::start() else { return };
    run_with_faults::<_, NatsClient>(server);
}
