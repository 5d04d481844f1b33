//! The first turn of a connection, in which its first request begins.
//!
//! When a network or a load balancer has failed, thousands of clients connect, and then send their first requests at
//! about the same time. Reading all of them in one turn would keep a worker from everything else for hundreds of
//! milliseconds. So only a few connections have their first turn at a time ([`FIRST_TURNS_PER_CORE`]), and the requests
//! of all others come between them.
//!
//! A turn of a worker is long while many requests are in progress, so that alone would keep new clients waiting for ten
//! seconds and more. Responses therefore earn places for further connections, as they do in [`crate::accept_pace`].
//!
//! The handshake of a WebSocket is a GET, and most connections of a storm begin with a handshake. Connections that begin
//! with a GET therefore have their own places. A query on a new connection does not wait for the handshakes before it.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;
use telemetry::{GaugeGuard, Metric, read};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The number of connections that have their first turn at a time, for each worker on average. They take half a
/// millisecond.
pub const FIRST_TURNS_PER_CORE: usize = 8;

/// The number of responses that earn a place for one more connection: for one that begins with a GET, and for others.
/// A handshake is followed by a subscription. Other first requests take as much time as those of older connections, and
/// users of an overloaded router open new connections all the time: with too few places they would wait for seconds,
/// before the router could refuse them.
const RESPONSES_PER_GET: u64 = 4;
const RESPONSES_PER_REQUEST: u64 = 2;

/// The places of connections that have their first turn.
#[derive(Debug)]
pub struct FirstTurns {
    /// The places of connections that begin with a GET.
    gets: Places,
    /// The places of all other connections.
    requests: Places,
    /// The connections that begin with a handshake and are parked ([`crate::parked_handshakes`]).
    parked: Arc<AtomicU64>,
    /// The connections that workers have, and on which nothing has arrived yet.
    silent: AtomicU64,
}

/// The places of one kind of connections.
#[derive(Debug)]
pub(super) struct Places {
    places: Semaphore,
    /// The number of responses that earn a place.
    responses_per_place: u64,
    /// The connections that wait for a place.
    waiting: AtomicU64,
    /// The responses while connections waited.
    responses: AtomicU64,
    /// The places that responses have earned and no connection has used up.
    earned: AtomicU64,
}

/// The metrics of first turns.
pub const FIRST_TURN_METRICS: &[Metric<FirstTurns>] = &[Metric::gauge(
    "starling_http_connections_waiting",
    "Connections whose first request waits for its turn, and parked WebSocket handshakes",
    |it| read(&it.gets.waiting) + read(&it.requests.waiting) + read(&it.parked),
)];

impl FirstTurns {
    /// Creates the places for a number of workers.
    pub fn new(workers: usize) -> Self {
        let places = FIRST_TURNS_PER_CORE * workers;
        Self {
            gets: Places::new(places, RESPONSES_PER_GET),
            requests: Places::new(places, RESPONSES_PER_REQUEST),
            parked: Arc::default(),
            silent: AtomicU64::new(0),
        }
    }

    /// Returns the number of connections that begin with a GET and wait for a place.
    pub(super) fn waiting_gets(&self) -> u64 {
        read(&self.gets.waiting)
    }

    /// Counts a connection as one on which nothing has arrived yet, until the guard is dropped.
    pub(super) fn count_silent(&self) -> GaugeGuard<'_> {
        GaugeGuard::up(&self.silent)
    }

    /// Returns the number of connections on which nothing has arrived yet.
    pub(super) fn silent(&self) -> u64 {
        read(&self.silent)
    }

    /// Returns the number of parked handshakes.
    pub(super) fn parked(&self) -> &Arc<AtomicU64> {
        &self.parked
    }

    /// Returns the places for a connection. `is_get` is true if it begins with a GET of HTTP/1.1.
    pub(super) fn places(&self, is_get: bool) -> &Places {
        if is_get { &self.gets } else { &self.requests }
    }

    /// Notes a response, which may earn a place for a connection that waits, first for one with another request than a
    /// GET. Refusals earn none: a router that refuses ten times what it can do would begin the more connections the
    /// more it refuses.
    // hot path: two loads while no connection waits
    pub(super) fn note_response(&self, status: StatusCode) {
        if status != StatusCode::SERVICE_UNAVAILABLE && !self.requests.note_response() {
            self.gets.note_response();
        }
    }
}

impl Places {
    fn new(places: usize, responses_per_place: u64) -> Self {
        Self {
            places: Semaphore::new(places),
            responses_per_place,
            waiting: AtomicU64::new(0),
            responses: AtomicU64::new(0),
            earned: AtomicU64::new(0),
        }
    }

    /// Waits for a place.
    async fn take(&self) -> FirstTurn<'_> {
        let permit = match self.places.try_acquire() {
            Ok(permit) => Some(permit),
            Err(_) => {
                let _waiting = GaugeGuard::up(&self.waiting);
                // Never fails, because the semaphore is never closed.
                self.places.acquire().await.ok()
            }
        };
        FirstTurn { places: self, permit }
    }

    /// Notes a response. Returns false if no connection waits for a place.
    fn note_response(&self) -> bool {
        let waiting = read(&self.waiting);
        if waiting == 0 {
            return false;
        }
        let responses = self.responses.fetch_add(1, Ordering::Relaxed) + 1;
        if responses.is_multiple_of(self.responses_per_place) && read(&self.earned) < waiting {
            self.earned.fetch_add(1, Ordering::Relaxed);
            self.places.add_permits(1);
        }
        true
    }
}

/// The place of a connection that has its first turn. Dropping it gives the place to the next one, unless it was
/// earned for one connection.
struct FirstTurn<'a> {
    places: &'a Places,
    /// `None` while it is dropped only.
    permit: Option<SemaphorePermit<'a>>,
}

impl Drop for FirstTurn<'_> {
    fn drop(&mut self) {
        let use_up = |earned: u64| earned.checked_sub(1);
        let earned = &self.places.earned;
        if earned.fetch_update(Ordering::Relaxed, Ordering::Relaxed, use_up).is_ok()
            && let Some(permit) = self.permit.take()
        {
            permit.forget();
        }
    }
}

/// Serves a connection after its first bytes have arrived, once there is a place for its first turn.
pub(super) async fn serve_in_turn<F: Future>(
    places: &Places,
    mut serving: Pin<&mut F>,
) -> F::Output {
    let mut place = Some(places.take().await);
    // The turn ends when the worker has looked for input of other connections.
    let mut turn = pin!(tokio::task::yield_now());
    std::future::poll_fn(|context| {
        let polled = serving.as_mut().poll(context);
        if place.is_some() && turn.as_mut().poll(context).is_ready() {
            place = None;
        }
        polled
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;
    use std::rc::Rc;

    use futures_util::FutureExt;
    use tokio::task::yield_now;

    use super::*;

    /// Counts the connections that have begun.
    async fn connection(begun: &Cell<u32>) -> Infallible {
        begun.set(begun.get() + 1);
        std::future::pending().await
    }

    #[tokio::test]
    async fn connections_begin_a_few_at_a_time() {
        let (places, begun) = (Places::new(2, RESPONSES_PER_GET), Cell::new(0));
        let serve = || async { serve_in_turn(&places, pin!(connection(&begun))).await };
        let mut connections: Vec<_> = (0..5).map(|_| Box::pin(serve())).collect();
        // Both places are taken by connections that begin elsewhere.
        let elsewhere = (places.take().await, places.take().await);
        for connection in &mut connections {
            assert!(futures_util::poll!(connection).is_pending());
        }
        assert_eq!(begun.get(), 0);
        drop(elsewhere);
        let mut counts = Vec::new();
        // Each one is polled in its turn, and when the turn is over.
        for index in [0, 1, 2, 0, 1, 2, 3, 4] {
            assert!(futures_util::poll!(&mut connections[index]).is_pending());
            counts.push(begun.get());
        }
        assert_eq!(counts, [1, 2, 2, 2, 2, 3, 4, 4]);
    }

    #[tokio::test]
    async fn other_work_comes_between_first_turns() {
        const CONNECTIONS: u32 = 20;
        let work = async {
            let (places, begun) =
                (Rc::new(Places::new(1, RESPONSES_PER_GET)), Rc::new(Cell::new(0)));
            // Tasks of one worker, which are ready at the same time.
            for _ in 0..CONNECTIONS {
                let (places, begun) = (Rc::clone(&places), Rc::clone(&begun));
                tokio::task::spawn_local(async move {
                    serve_in_turn(&places, pin!(connection(&begun))).await
                });
            }
            let mut seen = 0;
            while seen < CONNECTIONS {
                yield_now().await;
                assert!(begun.get() <= seen + 2, "{} at once", begun.get() - seen);
                seen = begun.get();
            }
        };
        let tasks = tokio::task::LocalSet::new();
        let work = tasks.spawn_local(work);
        tasks.run_until(work).await.expect("the task has not panicked");
    }

    /// Creates this number of places for connections that begin with a GET, and for all others.
    fn first_turns(gets: usize, requests: usize) -> FirstTurns {
        FirstTurns {
            gets: Places::new(gets, RESPONSES_PER_GET),
            requests: Places::new(requests, RESPONSES_PER_REQUEST),
            ..FirstTurns::new(1)
        }
    }

    /// Takes up to 20 places without waiting.
    fn take_all(places: &Places) -> Vec<FirstTurn<'_>> {
        (0..20).map_while(|_| places.take().now_or_never()).collect()
    }

    #[tokio::test]
    async fn responses_earn_one_connection_each_while_some_wait() {
        let turns = first_turns(2, 0);
        let places = turns.places(true);
        let respond = |status: StatusCode, count: u32| {
            (0..count).for_each(|_| turns.note_response(status));
        };
        respond(StatusCode::OK, 100);
        let held = take_all(places);
        assert_eq!(held.len(), 2, "no connection waited for those responses");
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(places.take())).collect();
        for place in &mut waiting {
            assert!(futures_util::poll!(place).is_pending());
        }
        respond(StatusCode::SERVICE_UNAVAILABLE, 100);
        respond(StatusCode::OK, 3);
        assert!(futures_util::poll!(&mut waiting[0]).is_pending());
        respond(StatusCode::BAD_REQUEST, 1);
        assert!(futures_util::poll!(&mut waiting[0]).is_ready());
        // A place that was used up is not there for the next one.
        assert!(futures_util::poll!(&mut waiting[1]).is_pending());
        respond(StatusCode::OK, 1000);
        assert!(waiting.drain(1..).all(|it| it.now_or_never().is_some()));
        drop((held, waiting));
        assert_eq!((take_all(places).len(), read(&places.earned)), (2, 0));
    }

    #[tokio::test]
    async fn a_query_does_not_wait_for_the_handshakes_of_a_storm() {
        let turns = first_turns(1, 1);
        let _handshake = turns.places(true).take().await;
        let mut storm: Vec<_> = (0..100).map(|_| Box::pin(turns.places(true).take())).collect();
        for place in &mut storm {
            assert!(futures_util::poll!(place).is_pending());
        }
        assert_eq!(read(&turns.gets.waiting), 100);
        let _query = turns.places(false).take().now_or_never().expect("its own place");
        let mut next_query = Box::pin(turns.places(false).take());
        assert!(futures_util::poll!(&mut next_query).is_pending());
        (0..2).for_each(|_| turns.note_response(StatusCode::OK));
        assert!(futures_util::poll!(&mut storm[0]).is_pending(), "queries come first");
        let _next_query = next_query.now_or_never().expect("the place that was earned");
        (0..4).for_each(|_| turns.note_response(StatusCode::OK));
        assert!(futures_util::poll!(&mut storm[0]).is_ready());
    }
}
