//! The readiness of a router that refuses many requests or is short of memory ([`admission::Readiness`]), joined with
//! the counters of the process.

use std::fmt;
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
    is_memory_short: bool,
}

/// The reason for which a router should get no new clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnreadyReason {
    /// The memory is nearly used up.
    Memory,
    /// This percentage of requests was refused of late.
    Refused(u32),
}

impl fmt::Display for UnreadyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("the memory is nearly used up"),
            Self::Refused(percent) => write!(f, "{percent} % of the requests are refused"),
        }
    }
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
        let state = WatchState { readiness, admitted: 0, refused: 0, is_memory_short: false };
        let state = Mutex::new(state);
        Some(Self { state, unready: AtomicU64::new(0) })
    }

    /// Reads the numbers of all admitted and refused requests so far. A router whose memory is nearly used up is as one
    /// that refuses all requests: load balancers should send new clients elsewhere before it is.
    pub(super) fn update(
        &self,
        (admitted, refused): (u64, u64),
        is_memory_short: bool,
        now: Duration,
    ) {
        let mut state = self.lock();
        let more = (admitted - state.admitted, refused - state.refused);
        (state.admitted, state.refused) = (admitted, refused);
        state.is_memory_short = is_memory_short;
        let change = state.readiness.update(more, is_memory_short, now, fastrand::u64(..));
        let percent = percent(state.readiness.refused_share());
        let at_least = state.readiness.hold();
        drop(state);
        match change {
            None => {}
            Some(ReadinessChange::Unready) => {
                self.unready.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    refused_percent = percent,
                    is_memory_short,
                    ?at_least,
                    "the router is overloaded, and is not ready for new clients for now"
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

    /// Returns the reason if the router is not ready. It is the present state: a router that refused many requests for
    /// a while may refuse few now.
    pub(super) fn unready_reason(&self) -> Option<UnreadyReason> {
        let state = self.lock();
        (!state.readiness.is_ready()).then(|| match state.is_memory_short {
            true => UnreadyReason::Memory,
            false => UnreadyReason::Refused(percent(state.readiness.refused_share())),
        })
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
    fn a_router_whose_memory_is_nearly_used_up_is_not_ready_however_few_requests_it_gets() {
        let settings = AdmissionReadiness { enabled: true, ..AdmissionReadiness::default() };
        for (is_memory_short, per_second) in [(false, 1000), (true, 1000), (true, 1), (true, 0)] {
            let watch = ReadinessWatch::new(&settings).expect("it is turned on");
            for second in 1..=20 {
                let admitted = per_second * second;
                watch.update((admitted, 0), is_memory_short, Duration::from_secs(second));
            }
            let expected = is_memory_short.then_some(UnreadyReason::Memory);
            assert_eq!(watch.unready_reason(), expected, "{per_second}");
        }
    }
}
