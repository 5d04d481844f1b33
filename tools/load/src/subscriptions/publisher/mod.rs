//! Publishes the events of a run on a thread of its own, so that their times do not depend on the load of the
//! receivers.
//!
//! Every event carries the time of its publishing in microseconds, and no two have the same time: results are
//! identified, ordered and timed by it.
//!
//! - `destination`: the URL of events. `broker`: a connection to it. `event`: the text of events.
//! - `nats`, `redis`, `kafka`, `http`: the protocols, only the part of each that publishing needs.
//! - `changes`: a destination that gets each event before the broker does.
//! - `gate`: the limit of a publisher without a pace of its own.

mod broker;
mod changes;
mod destination;
mod event;
mod gate;
mod http;
mod kafka;
mod nats;
mod redis;

use std::io::{self, BufReader};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use destination::Destination;
pub(super) use gate::Gate;

use broker::BrokerConnection;
use changes::ChangingPublisher;
use destination::DestinationKind;
use event::EventTemplate;
use http::HttpPublisher;
use kafka::KafkaPublisher;
use nats::NatsPublisher;
use redis::RedisPublisher;

use crate::clock::now_us;

/// The interval of flushes, which also respond to the broker's pings: NATS disconnects a client that is silent for
/// some minutes.
const FLUSH_EVERY: Duration = Duration::from_secs(20);

/// The maximum bytes written at a time without a pace: more would only wait in the socket.
const PIECE_BYTES_MAX: usize = 128 * 1024;

/// The events of a run.
#[derive(Debug, Clone)]
pub struct Events {
    /// The destination of the events.
    pub destination: Destination,
    /// The URL that each event is posted to before it is published, so that a subgraph has the change that the event
    /// names.
    pub changes: Option<Destination>,
    /// The text of an event, with `$T` (publishing time), `$K` (key), `$N` (number) and `$P` (padding).
    pub text: String,
    /// The length of the padding.
    pub padding_bytes: usize,
}

impl Events {
    /// Returns the length of an event with a current time, and with a key and a number of one digit.
    pub fn bytes(&self) -> usize {
        let mut event = Vec::new();
        EventTemplate::new(&self.text, self.padding_bytes).write(now_us(), "0", 0, &mut event);
        event.len()
    }
}

/// Consecutive events to publish. Event `n` has the key `n` modulo `keys`.
#[derive(Debug, Clone)]
pub(super) struct Batch {
    /// The number of the first event.
    pub(super) first: u64,
    pub(super) keys: u64,
    pub(super) pace: Pace,
}

/// The pace and the end of a batch.
#[derive(Debug, Clone)]
pub(super) enum Pace {
    /// This number of events, with this time between two of them.
    Steady { count: u64, gap: Duration },
    /// As fast as they are confirmed, until the gate is closed.
    Gated(Arc<Gate>),
}

/// The publishing thread, and the channels to it.
pub(super) struct Publisher {
    batches: Option<mpsc::Sender<Batch>>,
    published: mpsc::Receiver<Result<u64, String>>,
    thread: Option<JoinHandle<()>>,
}

impl Publisher {
    /// Connects to the destination and starts the thread.
    ///
    /// # Errors
    /// A message about the failed step.
    pub(super) fn start(events: &Events) -> Result<Self, String> {
        let address = events.destination.address;
        let wrong = move |error: io::Error| format!("cannot publish at {address}: {error}");
        let mut broker = connect(&events.destination).map_err(wrong)?;
        if let Some(changes) = &events.changes {
            let address = changes.address;
            let changing = ChangingPublisher::open(changes, broker);
            broker = Box::new(
                changing.map_err(|error| format!("cannot post changes to {address}: {error}"))?,
            );
        }
        let (batches, todo) = mpsc::channel::<Batch>();
        let (report, published) = mpsc::channel();
        let template = EventTemplate::new(&events.text, events.padding_bytes);
        let thread = std::thread::Builder::new().name("publisher".to_owned()).spawn(move || {
            let mut clock = PublishClock::default();
            while let Ok(batch) = todo.recv() {
                let done = publish(&mut *broker, &template, &batch, &mut clock);
                if report.send(done.map_err(wrong)).is_err() {
                    return;
                }
            }
        });
        let thread = thread.map_err(wrong)?;
        Ok(Self { batches: Some(batches), published, thread: Some(thread) })
    }

    /// Starts to publish a batch; [`Self::finished`] reports its end.
    pub(super) fn begin(&self, batch: Batch) {
        // The thread has ended only after a failure, which `finished` reports.
        let _ = self.batches.as_ref().map(|batches| batches.send(batch));
    }

    /// Returns the number of events of a batch, once all of them are published.
    pub(super) fn finished(&self) -> Result<Option<u64>, String> {
        match self.published.try_recv() {
            Ok(done) => done.map(Some),
            Err(mpsc::TryRecvError::Empty) => Ok(None),
            Err(mpsc::TryRecvError::Disconnected) => Err("the publisher has ended".to_owned()),
        }
    }

    /// Wakes the thread, so that it checks its gate.
    pub(super) fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by its own hook.
            let _ = thread.join();
        }
    }
}

/// Connects to a destination.
fn connect(destination: &Destination) -> io::Result<Box<dyn BrokerConnection>> {
    let Destination { kind, address } = destination.clone();
    let stream = || broker::connect(address).map(BufReader::new);
    Ok(match kind {
        DestinationKind::Nats { subject, user } => {
            Box::new(NatsPublisher::open(stream()?, subject, user)?)
        }
        DestinationKind::Redis { channel, user } => {
            Box::new(RedisPublisher::open(stream()?, channel, user)?)
        }
        DestinationKind::Kafka { topic } => Box::new(KafkaPublisher::open(stream()?, topic)?),
        DestinationKind::Http { authority, path, lines } => {
            Box::new(HttpPublisher::open(address, authority, path, lines)?)
        }
    })
}

/// A clock in microseconds since 1970 that never repeats and never goes back.
#[derive(Default)]
struct PublishClock {
    last: u64,
}

impl PublishClock {
    fn stamp(&mut self) -> u64 {
        self.last = now_us().max(self.last + 1);
        self.last
    }
}

/// Publishes a batch and returns the number of its events.
fn publish(
    broker: &mut dyn BrokerConnection,
    template: &EventTemplate,
    batch: &Batch,
    clock: &mut PublishClock,
) -> io::Result<u64> {
    let mut event = Vec::with_capacity(template.length() + 64);
    let mut add = |broker: &mut dyn BrokerConnection, place: u64| {
        let number = batch.first + place;
        let key = (number % batch.keys.max(1)).to_string();
        event.clear();
        template.write(clock.stamp(), &key, number, &mut event);
        broker.add(&key, &event)
    };
    let started = Instant::now();
    let mut flushed = started;
    let mut place = 0;
    match &batch.pace {
        Pace::Steady { count, gap } => {
            while place < *count {
                let due = started + gap.mul_f64(place as f64);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                add(broker, place)?;
                broker.send()?;
                place += 1;
                if flushed.elapsed() > FLUSH_EVERY {
                    broker.flush()?;
                    flushed = Instant::now();
                }
            }
        }
        Pace::Gated(gate) => {
            let piece = (PIECE_BYTES_MAX / template.length().max(1)).max(1) as u64;
            while let Some(room) = gate.pass(place) {
                for _ in 0..room.min(piece) {
                    add(broker, place)?;
                    place += 1;
                }
                broker.send()?;
                if flushed.elapsed() > FLUSH_EVERY {
                    broker.flush()?;
                    flushed = Instant::now();
                }
            }
        }
    }
    broker.flush()?;
    Ok(place)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn no_two_events_have_the_same_time() {
        let mut clock = PublishClock::default();
        let stamps: Vec<u64> = (0..1000).map(|_| clock.stamp()).collect();
        assert!(stamps.windows(2).all(|pair| pair[0] < pair[1]));
    }

    /// A broker that counts events.
    struct CountingBroker(Arc<AtomicU64>);

    impl BrokerConnection for CountingBroker {
        fn add(&mut self, _key: &str, _event: &[u8]) -> io::Result<()> {
            self.0.fetch_add(1, Ordering::AcqRel);
            Ok(())
        }

        fn send(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_gated_publisher_is_never_more_than_its_window_ahead() {
        let (gate, taken) = (Arc::new(Gate::new(10)), Arc::new(AtomicU64::new(0)));
        let batch = Batch { first: 0, keys: 1, pace: Pace::Gated(Arc::clone(&gate)) };
        let mut broker = CountingBroker(Arc::clone(&taken));
        let publisher = std::thread::spawn(move || {
            let template = EventTemplate::new("$T", 0);
            publish(&mut broker, &template, &batch, &mut PublishClock::default()).unwrap()
        });
        for confirmed in [0, 3, 7, 20] {
            gate.confirm(confirmed);
            publisher.thread().unpark();
            while taken.load(Ordering::Acquire) < confirmed + 10 {
                std::thread::yield_now();
            }
        }
        gate.close();
        // If the gate had let one more event through, it would have been published before the gate was closed.
        assert_eq!((publisher.join().unwrap(), taken.load(Ordering::Acquire)), (30, 30));
    }
}
