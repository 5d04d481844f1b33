//! The readiness of a router that refuses many requests ([`admission::Readiness`]), joined with the counters of the
//! process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use admission::{Readiness, ReadinessChange, ReadinessSettings};
use config::AdmissionReadiness;

/// The readiness, and the counters up to which it has counted.
#[derive(Debug)]
pub(super) struct ReadinessWatch {
    state: Mutex<WatchState>,
    /// The number of times that the router has become unready.
    unready: AtomicU64,
}

#[derive(Debug)]
struct WatchState {
    readiness: Readiness,
    admitted: u64,
    refused: u64,
}

impl ReadinessWatch {
    /// Creates the readiness of a configuration; `None` if it does not depend on refused requests.
    pub(super) fn new(settings: &AdmissionReadiness) -> Option<Self> {
        if !settings.enabled {
            return None;
        }
        let readiness = Readiness::new(ReadinessSettings {
            unready_share: f64::from(settings.refused_percent) / 100.0,
            unready_after: settings.unready_after,
            ready_after: settings.ready_after,
        });
        let state = Mutex::new(WatchState { readiness, admitted: 0, refused: 0 });
        Some(Self { state, unready: AtomicU64::new(0) })
    }

    /// Reads the numbers of all admitted and refused requests so far. While the memory is nearly used up, all requests
    /// count as refused: load balancers should send new clients elsewhere before it is.
    pub(super) fn update(
        &self,
        (admitted, refused): (u64, u64),
        is_memory_short: bool,
        now: Duration,
    ) {
        let mut state = self.lock();
        let mut more = (admitted - state.admitted, refused - state.refused);
        if is_memory_short {
            more = (0, more.0 + more.1);
        }
        (state.admitted, state.refused) = (admitted, refused);
        let change = state.readiness.update(more.0, more.1, now, fastrand::u64(..));
        let percent = percent(state.readiness.refused_share());
        let at_least = state.readiness.hold();
        drop(state);
        match change {
            None => {}
            Some(ReadinessChange::Unready) => {
                self.unready.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    refused_percent = percent,
                    ?at_least,
                    "the router refuses many requests, and is not ready for new clients for now"
                );
            }
            Some(ReadinessChange::Ready) => {
                tracing::info!(
                    refused_percent = percent,
                    "the router is ready for new clients again"
                );
            }
        }
    }

    /// Returns the percentage of refused requests if the router is not ready.
    pub(super) fn unready_percent(&self) -> Option<u32> {
        let state = self.lock();
        (!state.readiness.is_ready()).then(|| percent(state.readiness.refused_share()))
    }

    /// The number of times that the router has become unready.
    pub(super) fn unready_count(&self) -> u64 {
        self.unready.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, WatchState> {
        // The state machine makes no calls that could panic half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn percent(share: f64) -> u32 {
    (share * 100.0).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_count_as_refused_while_the_memory_is_nearly_used_up() {
        let settings = AdmissionReadiness { enabled: true, ..AdmissionReadiness::default() };
        for is_memory_short in [false, true] {
            let watch = ReadinessWatch::new(&settings).expect("it is turned on");
            for second in 1..=20 {
                watch.update((1000 * second, 0), is_memory_short, Duration::from_secs(second));
            }
            assert_eq!(watch.unready_percent(), is_memory_short.then_some(100));
        }
    }
}
