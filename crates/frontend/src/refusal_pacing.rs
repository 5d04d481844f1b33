//! The pace of refusals. A refusal takes some 25 µs of CPU time, most of it in the kernel, so that refusing ten times
//! what a router can do would leave nothing for what it could do. Up to a rate, refusals are sent at once, and a load
//! balancer can ask another router. Each further one is held for two seconds or more: a client has one request in
//! flight on each connection of HTTP/1.1, and a bounded number on one of HTTP/2, so that it cannot send the next one
//! before. Of the requests that one connection may have in flight, half are left for those that are not refused: a
//! refusal beyond them is held for a moment only. The more are held, the longer each is, so that few are sent at a time
//! however many clients there are.
//!
//! The rate is that of GCRA. Held refusals do not count in it: otherwise the held ones of a short burst would make
//! later ones wait for as long as the rate is used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use admission::memory::MemoryAccount;
use clients::client_deadline::ClientDeadline;
use clients::shutdown::Shutdown;
use execute::ErrorCode;
use telemetry::{GaugeGuard, Metric, read};
use tokio::time::Instant;

use super::client_connection::ClientConnection;
use super::response::{Response, ResponseErrors};

/// The refusals that are sent at once after a pause, as the time in which they become due.
const BURST: Duration = Duration::from_millis(250);

/// The least and the most time for which a refusal is held, before it is made longer by up to a half, so that the
/// clients of a burst do not return together. A client that keeps to `retry-after` would wait for as long.
const HELD_MIN: Duration = Duration::from_secs(2);
const HELD_MAX: Duration = Duration::from_secs(6);

/// The time for which a refusal is held whose connection has no place for it: half of the requests that it may have in
/// flight are held refusals, and this one must not keep others waiting for long.
const HELD_WITHOUT_PLACE: Duration = Duration::from_millis(250);

/// The number of held refusals that are sent each second for each core. The time between the least and the most
/// follows from it. So refusals are held for longer only if a thousand connections and more have one: a load balancer
/// that keeps fewer does not run out of connections for longer.
const SENT_PER_CORE: u64 = 400;

/// The maximum number of held refusals for each core: each keeps the buffers of its connection, which an idle one has
/// as well, and its task. Further ones are sent at once, as are all while the memory is short.
const HELD_PER_CORE_MAX: u64 = 16_384;

/// The steps of the spread, and what takes consecutive numbers to steps far from each other: the two have no common
/// divisor.
const SPREAD_STEPS: u64 = 1000;
const SPREAD_STRIDE: u64 = 619;

/// Holds refusals that are sent faster than their rate.
#[derive(Debug)]
pub struct RefusalPacer {
    /// The time between two refusals; `None` if none is held.
    interval: Option<Duration>,
    started: Instant,
    /// The time from which the next refusal may be sent at once, in nanoseconds since `started`.
    next: AtomicU64,
    held: AtomicU64,
    cores: u64,
    /// The maximum number of requests that a connection may have in flight.
    streams_max: u32,
    memory: Arc<MemoryAccount>,
    shutdown: Arc<Shutdown>,
    held_total: AtomicU64,
    unheld_total: AtomicU64,
}

/// The metrics of held refusals.
pub const REFUSAL_METRICS: &[Metric<RefusalPacer>] = &[
    Metric::gauge("starling_http_held_refusals", "Refusals that are held now", |it| read(&it.held)),
    Metric::counter(
        "starling_http_refusals_held",
        "Refusals that were held, because more were due than the router sends at once",
        |it| read(&it.held_total),
    ),
    Metric::counter(
        "starling_http_refusals_unheld",
        "Refusals above the rate that were sent at once, because as many were held as may be, or \
         because the memory was short",
        |it| read(&it.unheld_total),
    ),
];

impl RefusalPacer {
    /// Creates a pacer that lets this number of refusals pass each second on each core. With 0 it holds none. A
    /// connection has at most `streams_max` requests in flight.
    pub fn new(
        per_second_and_core: u32,
        cores: usize,
        streams_max: u32,
        memory: &Arc<MemoryAccount>,
        shutdown: &Arc<Shutdown>,
    ) -> Self {
        let cores = cores.max(1);
        let per_second = f64::from(per_second_and_core) * cores as f64;
        Self {
            interval: (per_second > 0.0).then(|| Duration::from_secs_f64(1.0 / per_second)),
            started: Instant::now(),
            next: AtomicU64::new(0),
            held: AtomicU64::new(0),
            cores: cores as u64,
            streams_max,
            memory: Arc::clone(memory),
            shutdown: Arc::clone(shutdown),
            held_total: AtomicU64::new(0),
            unheld_total: AtomicU64::new(0),
        }
    }

    /// Waits until a response may be sent: at once, unless it is the refusal of an overloaded router. A client that
    /// says how long it waits gets the response after half of the time that is left, and a router that ends sends at
    /// once.
    pub(super) async fn hold(
        &self,
        response: &Response,
        deadline: Option<ClientDeadline>,
        connection: &ClientConnection,
    ) {
        let errors = response.extensions().get::<ResponseErrors>();
        if errors.and_then(|it| it.code) != Some(ErrorCode::Overloaded) {
            return;
        }
        let place = connection.hold_refusal(self.streams_max);
        let pause = self.pause(self.started.elapsed(), place.is_some());
        let Some(mut pause) = pause else { return };
        if let Some(ClientDeadline(deadline)) = deadline {
            pause = pause.min(deadline.saturating_duration_since(Instant::now().into_std()) / 2);
        }
        let _held = GaugeGuard::up(&self.held);
        let mut shutdown = self.shutdown.signal();
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = shutdown.wait_for(|stop| *stop) => {}
        }
    }

    /// Returns the time for which a refusal is held that is due now; `None` if it is sent at once.
    fn pause(&self, now: Duration, has_place: bool) -> Option<Duration> {
        let interval = self.interval?;
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (now, earliest) = (nanos(now), nanos(now.saturating_sub(BURST)));
        let plan = |next: u64| (next <= now).then(|| next.max(earliest) + nanos(interval));
        let is_due = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, plan).is_ok();
        let held = read(&self.held) / self.cores;
        if is_due {
            return None;
        }
        if held >= HELD_PER_CORE_MAX || self.memory.is_short() {
            self.unheld_total.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        if !has_place {
            return Some(HELD_WITHOUT_PLACE);
        }
        let number = self.held_total.fetch_add(1, Ordering::Relaxed);
        let least = Duration::from_secs(held / SENT_PER_CORE).clamp(HELD_MIN, HELD_MAX);
        let step = number.wrapping_mul(SPREAD_STRIDE) % SPREAD_STEPS;
        Some(least + least.mul_f64(step as f64 / SPREAD_STEPS as f64 / 2.0))
    }
}

#[cfg(test)]
mod tests {
    use admission::memory::{MemoryCharge, MemoryKind};
    use execute::GraphqlError;
    use http::StatusCode;

    use super::super::media::ResponseFormat;
    use super::super::response;
    use super::*;

    fn pacer(per_second_and_core: u32, cores: usize) -> RefusalPacer {
        let (memory, (shutdown, _)) = (MemoryAccount::unlimited(), Shutdown::new());
        RefusalPacer::new(per_second_and_core, cores, 100, &memory, &Arc::new(shutdown))
    }

    /// Returns how many of `count` refusals that are due at `now` are held.
    fn held(pacer: &RefusalPacer, now: f64, count: u32) -> usize {
        let pauses = (0..count).filter_map(|_| pacer.pause(Duration::from_secs_f64(now), true));
        pauses.inspect(|it| assert!(HELD_MIN <= *it && *it < HELD_MAX + HELD_MAX / 2)).count()
    }

    #[test]
    fn refusals_up_to_the_rate_are_sent_at_once() {
        let pacer = pacer(100, 2);
        for hundredth in 100..600 {
            assert_eq!(held(&pacer, f64::from(hundredth) / 100.0, 2), 0);
        }
    }

    #[test]
    fn further_ones_are_held_and_do_not_make_later_ones_wait() {
        let pacer = pacer(8, 1);
        // After a pause, those that became due in a quarter of a second are sent at once, and the next one.
        assert_eq!(held(&pacer, 100.0, 10), 7);
        assert_eq!(held(&pacer, 100.0, 1000), 1000);
        assert_eq!(held(&pacer, 100.125, 2), 1);
        assert_eq!(held(&pacer, 110.0, 3), 0);
        let spread: std::collections::HashSet<_> =
            (0..100).filter_map(|_| pacer.pause(Duration::from_secs(110), true)).collect();
        assert_eq!(spread.len(), 100, "no two return at the same time");
    }

    #[test]
    fn without_a_rate_none_is_held() {
        assert_eq!(held(&pacer(0, 4), 5.0, 100), 0);
    }

    #[test]
    fn no_more_are_held_than_may_wait() {
        let pacer = pacer(1, 2);
        pacer.held.store(2 * HELD_PER_CORE_MAX, Ordering::Relaxed);
        assert_eq!(held(&pacer, 5.0, 100), 0);
        pacer.held.store(2 * HELD_PER_CORE_MAX - 1, Ordering::Relaxed);
        assert_eq!(held(&pacer, 5.0, 100), 100);
    }

    #[test]
    fn none_is_held_while_the_memory_is_short() {
        let (memory, (shutdown, _)) = (MemoryAccount::new(1 << 20), Shutdown::new());
        let pacer = RefusalPacer::new(1, 1, 100, &memory, &Arc::new(shutdown));
        assert_eq!(held(&pacer, 5.0, 3), 2, "one is sent at once");
        let _work = MemoryCharge::new(&memory, MemoryKind::Responses, 1 << 20);
        assert!(memory.is_short());
        assert_eq!(held(&pacer, 5.0, 3), 0);
    }

    #[test]
    fn the_more_are_held_the_longer_each_is() {
        let pacer = pacer(1, 2);
        let now = Duration::from_secs(5);
        // The next one is sent at once.
        assert_eq!(pacer.pause(now, true), None);
        for (per_core, seconds) in [(0, 2), (1199, 2), (1200, 3), (1600, 4), (2800, 6), (16_000, 6)]
        {
            pacer.held.store(2 * per_core, Ordering::Relaxed);
            let least = (0..SPREAD_STEPS).filter_map(|_| pacer.pause(now, true)).min();
            assert_eq!(least, Some(Duration::from_secs(seconds)), "{per_core}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_refusals_of_an_overloaded_router_are_held() {
        let (shutdown, begin) = Shutdown::new();
        let pacer = RefusalPacer::new(1, 1, 100, &MemoryAccount::unlimited(), &Arc::new(shutdown));
        let refused = |code| {
            let error = GraphqlError::new(code, "no");
            response::request_errors(&[error], ResponseFormat::Json, false)
        };
        let connection = ClientConnection::unlimited();
        let began = Instant::now();
        for _ in 0..10 {
            pacer.hold(&refused(ErrorCode::RateLimited), None, &connection).await;
            pacer.hold(&response::empty(StatusCode::SERVICE_UNAVAILABLE), None, &connection).await;
        }
        let refusal = refused(ErrorCode::Overloaded);
        pacer.hold(&refusal, None, &connection).await;
        assert_eq!((began.elapsed(), read(&pacer.held_total)), (Duration::ZERO, 0));
        pacer.hold(&refusal, None, &connection).await;
        assert_eq!((began.elapsed(), read(&pacer.held_total)), (HELD_MIN, 1));

        // The client that has gone is forgotten.
        pacer.hold(&refusal, None, &connection).await;
        let mut given_up = Box::pin(pacer.hold(&refusal, None, &connection));
        assert!(futures_util::poll!(&mut given_up).is_pending());
        assert_eq!(read(&pacer.held), 1);
        drop(given_up);
        assert_eq!(read(&pacer.held), 0);

        // The client that waits for a second gets the refusal in time.
        let before = Instant::now();
        let deadline = ClientDeadline((before + Duration::from_secs(1)).into_std());
        pacer.hold(&refusal, Some(deadline), &connection).await;
        assert_eq!(before.elapsed(), Duration::from_millis(500));

        // Half of the requests that a connection may have in flight are left for others.
        let mut held: Vec<_> =
            (0..4).map(|_| Box::pin(pacer.hold(&refusal, None, &connection))).collect();
        for held in &mut held {
            assert!(futures_util::poll!(held).is_pending());
        }
        let before = Instant::now();
        pacer.hold(&refusal, None, &connection).await;
        assert_eq!((before.elapsed(), read(&pacer.held)), (HELD_WITHOUT_PLACE, 4));
        drop(held);

        // A router that ends holds none.
        begin.send(true).expect("the pacer listens");
        let before = Instant::now();
        pacer.hold(&refusal, None, &connection).await;
        assert_eq!(before.elapsed(), Duration::ZERO);
    }
}
