//! Brokers that keep nothing, Redis Pub/Sub and NATS core, killed under a stream of numbered events: subscriptions stay,
//! nothing comes twice or out of order, and whoever misses something is told so by the next payload.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::Duration;

use e2e::nats::NatsServer;
use e2e::redis::RedisServer;
use serde_json::Value;

use crate::foreign::{NatsClient, RedisClient};
use crate::shop::Shop;
use crate::socket::Socket;
use crate::stream::Stream;

const SUBSCRIPTION: &str = "subscription { productChanged { id } }";

/// Events that both subscribers get before, between and after what happens to the broker.
const EVENTS_AT_LEAST: usize = 700;

/// So far the publisher goes ahead of a subscriber: more than twice as many would fill the queues on the way, and what they
/// drop is another matter.
const EVENTS_AHEAD_MAX: usize = 30;

/// So long it waits for one who hears nothing because the broker is away, and then goes on by one event.
const PACE: Duration = Duration::from_millis(100);

/// Says that nothing follows.
const THE_END: &str = "the end";

/// A broker that can be mistreated.
trait Broker: Sized {
    /// In the configuration.
    const PROVIDER: &'static str;

    fn configuration(&self) -> String;

    fn port(&self) -> u16;

    /// Killed, and started on the same port.
    fn restart(self) -> Self;

    /// Cuts the connection over which the router hears events. False: this broker cannot.
    fn cut(&self) -> bool;
}

/// Publishes what is told once, and knows whether that was done.
trait Publisher: Sized + 'static {
    fn connect(port: u16) -> std::io::Result<Self>;

    fn publish(&mut self, event: &str) -> std::io::Result<()>;
}

impl Broker for RedisServer {
    const PROVIDER: &'static str = "redis/default";

    fn configuration(&self) -> String {
        let url = self.url();
        format!("redis: [{{id: default, urls: [\"{url}\"], retry: {{initial: 20ms, max: 100ms}}}}]")
    }

    fn port(&self) -> u16 {
        self.port()
    }

    fn restart(self) -> Self {
        Self::start_again_on(self.kill(), &[]).unwrap()
    }

    fn cut(&self) -> bool {
        let mut client = RedisClient::connect(self.port()).unwrap();
        let killed = client.tell(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
        assert_eq!(killed, ":1", "one connection for all subscriptions");
        true
    }
}

impl Publisher for RedisClient {
    fn connect(port: u16) -> std::io::Result<Self> {
        RedisClient::connect(port)
    }

    fn publish(&mut self, event: &str) -> std::io::Result<()> {
        let answer = self.tell(&["PUBLISH", "products", event])?;
        // So many have got it.
        if answer.starts_with(':') { Ok(()) } else { Err(std::io::Error::other(answer)) }
    }
}

impl Broker for NatsServer {
    const PROVIDER: &'static str = "nats/default";

    fn configuration(&self) -> String {
        let url = self.url();
        format!("nats: [{{id: default, url: \"{url}\", retry: {{initial: 20ms, max: 100ms}}}}]")
    }

    fn port(&self) -> u16 {
        self.port()
    }

    fn restart(self) -> Self {
        Self::start_again_on(self.kill()).unwrap()
    }

    fn cut(&self) -> bool {
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

fn event(id: &str) -> String {
    format!(r#"{{"__typename":"Product","id":"{id}"}}"#)
}

/// What one subscriber has had.
#[derive(Default)]
struct Had {
    events: usize,
    latest: usize,
    /// Payloads that say that something may be missing before them,
    gaps: usize,
    /// and those before which something is.
    holes: usize,
}

impl Had {
    /// False: that was the last one.
    fn hear(&mut self, payload: &Value) -> bool {
        assert!(payload["errors"].is_null(), "{payload}");
        assert!(payload["extensions"]["lost"].is_null(), "nothing was dropped here: {payload}");
        let id = payload["data"]["productChanged"]["id"].as_str().unwrap();
        if id == THE_END {
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

/// Publishes each number at most once, until it is told to end, and then the end until everybody has heard it.
fn publish<P: Publisher>(port: u16, heard: &mpsc::Receiver<usize>, is_over: &AtomicBool) {
    let connect = || e2e::eventually("the broker to be there", || P::connect(port).ok());
    let mut publisher = connect();
    let mut latest = 0;
    for number in 1.. {
        if is_over.load(SeqCst) {
            break;
        }
        while number > latest + EVENTS_AHEAD_MAX {
            match heard.recv_timeout(PACE) {
                Ok(number) => latest = number,
                // Nobody may hear anything at present.
                Err(_) => break,
            }
        }
        if publisher.publish(&event(&number.to_string())).is_err() {
            // It may have been passed on or not: never the same again.
            publisher = connect();
        }
    }
    loop {
        if publisher.publish(&event(THE_END)).is_err() {
            publisher = connect();
        }
        match heard.recv_timeout(PACE) {
            Ok(_) | Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn survive<B: Broker, P: Publisher>(broker: B) {
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
    let (tell, heard) = mpsc::channel();
    let (had, outages, _broker) = std::thread::scope(|scope| {
        let is_over = &is_over;
        scope.spawn(move || publish::<P>(port, &heard, is_over));
        let of_socket = scope.spawn({
            let (tell, count) = (tell.clone(), &by_socket);
            move || {
                let mut had = Had::default();
                while had.hear(&socket.message()["payload"]) {
                    count.store(had.events, SeqCst);
                    let _ = tell.send(had.latest);
                }
                had
            }
        });
        let of_stream = scope.spawn({
            let count = &by_stream;
            move || {
                // The other one sets the pace.
                let _lives = tell;
                let mut had = Had::default();
                loop {
                    let event = stream.event().expect("the subscription stays");
                    let payload = event.strip_prefix("next ").expect("the subscription stays");
                    if !had.hear(&serde_json::from_str(payload).unwrap()) {
                        break had;
                    }
                    count.store(had.events, SeqCst);
                }
            }
        });
        let more = || {
            let counts = [&by_socket, &by_stream];
            let before = counts.map(|count| count.load(SeqCst));
            e2e::eventually("more events to come", || {
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
        outages += usize::from(broker.cut());
        more();
        let broker = broker.restart();
        outages += 1;
        more();
        is_over.store(true, SeqCst);
        ([of_socket.join().unwrap(), of_stream.join().unwrap()], outages, broker)
    });
    for Had { events, gaps, holes, .. } in had {
        assert!(events >= 4 * EVENTS_AT_LEAST, "{events}");
        assert_eq!(gaps, outages, "each is announced, and once; {holes} holes");
        assert!((1..=outages).contains(&holes), "{holes}");
    }
    let reconnects = shop.router.metric(&metric("reconnects_total"));
    assert!(reconnects >= Some(outages as u64), "{reconnects:?}");
    shop.assert_unharmed();
}

#[test]
fn redis_that_is_killed_or_cuts_the_connection_makes_holes_that_are_announced() {
    let Some(server) = RedisServer::start(&[]) else { return };
    survive::<_, RedisClient>(server);
}

#[test]
fn nats_that_is_killed_makes_holes_that_are_announced() {
    let Some(server) = NatsServer::start() else { return };
    survive::<_, NatsClient>(server);
}
