//! Connections in a storm of WebSocket handshakes. While enough handshakes wait for their turn
//! ([`clients::handshake_pace`]), a listener looks at the first bytes of new connections and parks further handshakes
//! (`parked_handshakes`); other connections are served. Where it cannot know what a connection is for, it accepts
//! slowly.

use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::Pace;
use clients::handshake_pace::{HandshakePace, OperationLoad};
use telemetry::read;
use tokio::sync::Semaphore;

use super::http_server::{HttpServer, UNPARKED_PER_CORE};
use super::new_connection::{NewConnection, PLACE_WAIT_MAX, assign_to_worker, reject_handshake};
use super::parked_handshakes::{FirstBytes, ParkedHandshakes, Unparked};

/// The time between two looks at the handshakes that wait. Several connections are then served together, because each
/// run of the listener costs two switches between threads.
const HANDSHAKES_POLL: Duration = Duration::from_millis(20);

/// The number of connections that a listener accepts in a second for each core in a storm of handshakes, to look at
/// what they begin with. This has a higher priority than requests. But where it is slow, the kernel's queue overflows:
/// clients then try to connect again after one second, three and seven, while the router has nothing to do.
const PARKED_PER_CORE: u64 = 10_000;

/// The part of that pace (one in this number) while operations are slow.
const PRESSED_PARKING_PART: u32 = 2;

/// The number of connections that a listener looks at in the time of [`STORM_WINDOW`] above which they make operations
/// slow.
const STORM_CONNECTIONS: u32 = 50;
const STORM_WINDOW: Duration = Duration::from_millis(100);

/// The pause of a listener that has accepted as many in a storm as it may.
const PARKING_POLL: Duration = Duration::from_millis(5);

/// The pace of the connections of a storm at which a listener looks, and their number.
pub(super) struct Storm {
    parking: ClockedPace,
    /// The number since `counted_from`.
    count: u32,
    counted_from: Instant,
}

impl Storm {
    pub(super) fn new(cores: usize) -> Self {
        let parking = ClockedPace::new(PARKED_PER_CORE * cores as u64);
        Self { parking, count: 0, counted_from: Instant::now() }
    }

    /// Counts a connection, and gives way to operations that are slow.
    fn give_way(&mut self, operations: &dyn OperationLoad, now: Instant) {
        if self.has_many(now) {
            operations.note_storm();
        }
        if operations.is_pressed() {
            self.parking.skip(PRESSED_PARKING_PART - 1);
        }
    }

    /// Counts a connection. True once for each window with very many.
    fn has_many(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.counted_from) >= STORM_WINDOW {
            (self.count, self.counted_from) = (0, now);
        }
        self.count += 1;
        self.count == STORM_CONNECTIONS
    }
}

/// A pace with its clock.
struct ClockedPace {
    pace: Option<Pace>,
    started: Instant,
}

impl ClockedPace {
    /// Creates a pace of this number of turns in a second. A pace of 0 has no turns.
    fn new(per_second: u64) -> Self {
        Self { pace: Pace::new(per_second), started: Instant::now() }
    }

    /// Takes a turn, if one is due.
    fn take(&mut self) -> bool {
        let now = self.started.elapsed();
        self.pace.as_mut().is_some_and(|pace| pace.take(now, Duration::ZERO).is_some())
    }

    /// Leaves out the next turns.
    fn skip(&mut self, turns: u32) {
        if let Some(pace) = &mut self.pace {
            pace.skip(turns);
        }
    }
}

/// Parks a connection that begins with a handshake while enough others wait, or may do so in a moment. Returns any
/// other connection when it may be served.
pub(super) async fn park_in_storm(
    server: &Arc<HttpServer>,
    parked: &Arc<ParkedHandshakes<NewConnection>>,
    storm: &mut Storm,
    new: NewConnection,
) -> Option<NewConnection> {
    let Some(handshakes) = &server.limits.handshakes else { return Some(new) };
    // The clients of a storm connect first and send later, most of them when all have connected.
    let first_turns = &server.pipeline.first_turns;
    let beginning = first_turns.waiting_gets() + first_turns.silent();
    if parked.is_empty() && !handshakes.has_enough(beginning, &server.limits.memory) {
        return Some(new);
    }
    while !storm.parking.take() {
        tokio::time::sleep(PARKING_POLL).await;
    }
    if let Some(operations) = &server.operations {
        storm.give_way(&**operations, Instant::now());
    }
    match new.first_bytes() {
        FirstBytes::Handshake => {
            park(server, parked, new);
            None
        }
        FirstBytes::None => {
            tokio::spawn(serve_after_first_bytes(Arc::clone(server), Arc::clone(parked), new));
            None
        }
        FirstBytes::Undecided => {
            wait_for_undecided(handshakes).await;
            Some(new)
        }
        FirstBytes::Other => Some(new),
    }
}

/// Waits until a connection may be served that may turn out to be for a handshake.
async fn wait_for_undecided(handshakes: &HandshakePace) {
    while !handshakes.may_accept() {
        tokio::time::sleep(HANDSHAKES_POLL).await;
    }
}

/// Parks a handshake, unless it would have to wait for too long.
fn park(server: &HttpServer, parked: &ParkedHandshakes<NewConnection>, new: NewConnection) {
    let most = server.limits.handshakes.as_ref().map_or(0, HandshakePace::waiting_max);
    if read(server.pipeline.first_turns.parked()) < most {
        parked.push(new);
    } else {
        reject_handshake(server, new);
    }
}

/// Waits for the first bytes of a connection that was accepted in a storm of handshakes, and parks it or has it served.
async fn serve_after_first_bytes(
    server: Arc<HttpServer>,
    parked: Arc<ParkedHandshakes<NewConnection>>,
    new: NewConnection,
) {
    let mut shutdown = server.shutdown.signal();
    let first = tokio::time::timeout(server.settings.header_timeout, new.wait_for_first_bytes());
    let new = tokio::select! {
        first = first => match first {
            Ok(Ok(new)) => new,
            // It was silent for too long, or cannot be watched.
            Ok(Err(_)) | Err(_) => return,
        },
        _ = shutdown.wait_for(|stop| *stop) => return,
    };
    match (new.first_bytes(), &server.limits.handshakes) {
        (FirstBytes::Handshake, _) => return park(&server, &parked, new),
        (FirstBytes::Undecided, Some(handshakes)) => wait_for_undecided(handshakes).await,
        (FirstBytes::Undecided | FirstBytes::None | FirstBytes::Other, _) => {}
    }
    // It earns no place by responses: very many such connections may wait, and each would look for one every
    // millisecond.
    let place = Arc::clone(&server.accepting).acquire_owned();
    let place = tokio::time::timeout(PLACE_WAIT_MAX, place).await;
    assign_to_worker(&server, new, place.ok().and_then(Result::ok));
}

/// Has parked handshakes served, several together, while not enough others wait; never returns.
pub(super) async fn unpark_all(server: &Arc<HttpServer>, parked: &ParkedHandshakes<NewConnection>) {
    let cores = server.workers.count();
    let least = server.limits.handshakes.as_ref().map_or(0, HandshakePace::waiting_enough);
    let mut unparking = Unparking {
        places: Arc::new(Semaphore::new(UNPARKED_PER_CORE * cores)),
        least: ClockedPace::new(least),
    };
    loop {
        parked.arrived().await;
        while !parked.is_empty() {
            tokio::time::sleep(HANDSHAKES_POLL).await;
            unparking.unpark(server, parked);
        }
    }
}

/// The bounds of handshakes that are not parked any more.
struct Unparking {
    /// The places of connections that workers have and do not serve yet.
    places: Arc<Semaphore>,
    /// The least pace, while enough handshakes wait: as many in a second as are enough. Without it, those of other
    /// listeners could keep these out.
    least: ClockedPace,
}

impl Unparking {
    /// Has as many parked handshakes served as there is room for.
    fn unpark(&mut self, server: &Arc<HttpServer>, parked: &ParkedHandshakes<NewConnection>) {
        let waiting_gets = server.pipeline.first_turns.waiting_gets();
        let has_room = match &server.limits.handshakes {
            Some(handshakes) => !handshakes.has_enough(waiting_gets, &server.limits.memory),
            None => true,
        };
        loop {
            let place = Arc::clone(&self.places).try_acquire_owned().ok();
            match parked.pop(|| place.is_some() && (has_room || self.least.take())) {
                Some(Unparked::Begins(new)) if new.has_gone() => {}
                Some(Unparked::Begins(new)) => {
                    if !assign_to_worker(server, new, place) {
                        // The others wait for memory.
                        return;
                    }
                }
                Some(Unparked::IsLate(new)) => reject_handshake(server, new),
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Operations that are slow or not. Counts the notes.
    struct Operations {
        are_slow: bool,
        notes: Cell<usize>,
    }

    impl OperationLoad for Operations {
        fn is_pressed(&self) -> bool {
            self.are_slow
        }

        fn note_storm(&self) {
            self.notes.set(self.notes.get() + 1);
        }
    }

    #[test]
    fn a_storm_is_noted_once_for_each_window_with_very_many_connections() {
        let operations = Operations { are_slow: false, notes: Cell::new(0) };
        let (mut storm, began) = (Storm::new(1), Instant::now());
        let mut noted = |from: Instant, count: u32, gap: Duration| {
            (0..count).for_each(|number| storm.give_way(&operations, from + number * gap));
            operations.notes.take()
        };
        assert_eq!(noted(began, 1000, Duration::from_millis(3)), 0, "330 in a second");
        let later = began + Duration::from_secs(10);
        assert_eq!(noted(later, 1000, Duration::from_millis(1)), 10, "1,000 in a second");
    }

    #[test]
    fn while_operations_are_slow_half_as_many_connections_are_accepted() {
        let left_out = |are_slow| {
            let mut storm = Storm::new(1);
            assert!(storm.parking.take());
            let first = storm.parking.pace.as_ref().expect("a pace").until_next(Duration::ZERO);
            storm.give_way(&Operations { are_slow, notes: Cell::new(0) }, Instant::now());
            storm.parking.pace.as_ref().expect("a pace").until_next(Duration::ZERO) - first
        };
        assert_eq!(left_out(false), Duration::ZERO);
        assert_eq!(left_out(true), Duration::from_micros(100), "a turn is left out");
    }
}
