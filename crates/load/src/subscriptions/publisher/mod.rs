//! Publishes the events of a run, on a thread of its own, so that the clock of the events does not depend on how busy
//! those are who receive them.
//!
//! Every event carries the time of its publishing in microseconds, and no two have the same: that is how a result is
//! told from another, put in order, and timed.
//!
//! - `destination`: where events go. `broker`: a connection to it. `event`: the text of events.
//! - `nats`, `redis`, `kafka`, `http`: the protocols, only the part of each that publishing needs.
//! - `gate`: what keeps a publisher from running away where it has no pace of its own.

mod broker;
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
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use destination::Destination;
pub(super) use gate::Gate;

use broker::Broker;
use destination::Kind;
use event::Template;
use http::Http;
use kafka::Kafka;
use nats::Nats;
use redis::Redis;

/// How often a broker is asked whether it has everything, which also answers what it asks: NATS gives up a client that
/// is silent for some minutes.
const FLUSH_EVERY: Duration = Duration::from_secs(20);

/// Bytes that are written at a time where events have no pace: more would only wait in the socket.
const PIECE_BYTES_MAX: usize = 128 * 1024;

/// The events of a run.
#[derive(Debug, Clone)]
pub struct Events {
    /// Where they go.
    pub destination: Destination,
    /// Their text, with `$T` (when it is published), `$K` (its key), `$N` (its number) and `$P` (padding).
    pub text: String,
    /// How long the padding is.
    pub padding_bytes: usize,
}

impl Events {
    /// How long one of them is, with a time as it is now and a key and a number of one digit.
    pub fn bytes(&self) -> usize {
        let mut event = Vec::new();
        Template::new(&self.text, self.padding_bytes).write(now_us(), "0", 0, &mut event);
        event.len()
    }
}

/// Events to publish in a row. Event `n` has the key `n` modulo `keys`.
#[derive(Debug, Clone)]
pub(super) struct Batch {
    /// The number of the first.
    pub(super) first: u64,
    pub(super) keys: u64,
    pub(super) pace: Pace,
}

/// How fast, and for how long.
#[derive(Debug, Clone)]
pub(super) enum Pace {
    /// So many, with so much time between two of them.
    Steady { count: u64, gap: Duration },
    /// As fast as they are confirmed, until the gate is closed.
    Gated(Arc<Gate>),
}

/// The thread, and how to speak to it.
pub(super) struct Publisher {
    batches: Option<mpsc::Sender<Batch>>,
    published: mpsc::Receiver<Result<u64, String>>,
    thread: Option<JoinHandle<()>>,
}

impl Publisher {
    /// Connects.
    ///
    /// # Errors
    /// A sentence that says what does not work.
    pub(super) fn start(events: &Events) -> Result<Self, String> {
        let address = events.destination.address;
        let wrong = move |error: io::Error| format!("cannot publish at {address}: {error}");
        let mut broker = connect(&events.destination).map_err(wrong)?;
        let (batches, todo) = mpsc::channel::<Batch>();
        let (report, published) = mpsc::channel();
        let template = Template::new(&events.text, events.padding_bytes);
        let thread = std::thread::Builder::new().name("publisher".to_owned()).spawn(move || {
            let mut clock = Clock::default();
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

    /// Begins to publish; [`Self::finished`] says when it is done.
    pub(super) fn begin(&self, batch: Batch) {
        // The thread has ended only if it has failed, which `finished` tells.
        let _ = self.batches.as_ref().map(|batches| batches.send(batch));
    }

    /// How many events of a batch there were, once all of them are published.
    pub(super) fn finished(&self) -> Result<Option<u64>, String> {
        match self.published.try_recv() {
            Ok(done) => done.map(Some),
            Err(mpsc::TryRecvError::Empty) => Ok(None),
            Err(mpsc::TryRecvError::Disconnected) => Err("the publisher has ended".to_owned()),
        }
    }

    /// Lets the thread look at its gate.
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
            // A panic there was reported by its own hook.
            let _ = thread.join();
        }
    }
}

/// Connects to a destination.
fn connect(destination: &Destination) -> io::Result<Box<dyn Broker>> {
    let Destination { kind, address } = destination.clone();
    let stream = || broker::connect(address).map(BufReader::new);
    Ok(match kind {
        Kind::Nats { subject, user } => Box::new(Nats::open(stream()?, subject, user)?),
        Kind::Redis { channel, user } => Box::new(Redis::open(stream()?, channel, user)?),
        Kind::Kafka { topic } => Box::new(Kafka::open(stream()?, topic)?),
        Kind::Http { authority, path, lines } => {
            Box::new(Http::open(address, authority, path, lines)?)
        }
    })
}

/// Microseconds since 1970 that never repeat and never go back.
#[derive(Default)]
struct Clock {
    last: u64,
}

impl Clock {
    fn stamp(&mut self) -> u64 {
        self.last = now_us().max(self.last + 1);
        self.last
    }
}

/// Microseconds since 1970.
pub(super) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Publishes a batch and says how many events that were.
fn publish(
    broker: &mut dyn Broker,
    template: &Template,
    batch: &Batch,
    clock: &mut Clock,
) -> io::Result<u64> {
    let mut event = Vec::with_capacity(template.length() + 64);
    let mut add = |broker: &mut dyn Broker, place: u64| {
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
        let mut clock = Clock::default();
        let stamps: Vec<u64> = (0..1000).map(|_| clock.stamp()).collect();
        assert!(stamps.windows(2).all(|pair| pair[0] < pair[1]));
    }

    /// Takes events and says how many there were.
    struct Counting(Arc<AtomicU64>);

    impl Broker for Counting {
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
        let mut broker = Counting(Arc::clone(&taken));
        let publisher = std::thread::spawn(move || {
            let template = Template::new("$T", 0);
            publish(&mut broker, &template, &batch, &mut Clock::default()).unwrap()
        });
        for confirmed in [0, 3, 7, 20] {
            gate.confirm(confirmed);
            publisher.thread().unpark();
            while taken.load(Ordering::Acquire) < confirmed + 10 {
                std::thread::yield_now();
            }
        }
        gate.close();
        // One more would have been published before the gate was closed, if it had let one through.
        assert_eq!((publisher.join().unwrap(), taken.load(Ordering::Acquire)), (30, 30));
    }
}
