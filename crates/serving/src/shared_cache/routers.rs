//! The positions of all routers in the log, as the last report showed them, and invalidations that wait for them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cache::{Sequence, SharedStart};
use tokio::sync::{Notify, watch};
use tokio::time::timeout_at;

use super::confirmation::Confirmation;
use super::scripts::{RouterPosition, RouterPositions};

/// The time for which a router is still waited for after it is missing in the reports. Redis may have lost them, and
/// each router reports again within [`super::log_follower::REPORT_INTERVAL`].
const ABSENCE_MAX: Duration = Duration::from_secs(2);

/// The maximum number of routers that are known. Further ones are not waited for.
const ROUTERS_MAX: usize = 10_000;

/// The known routers.
#[derive(Debug)]
pub(super) struct Routers {
    known: Mutex<HashMap<Box<str>, KnownRouter>>,
    /// The number of reports that were begun.
    begun: AtomicU64,
    /// The number of the last report that has come.
    reports: watch::Sender<u64>,
    /// The number of invalidations that wait.
    waiting: AtomicUsize,
    /// Notified when a report is needed at once.
    report_needed: Notify,
}

#[derive(Debug)]
struct KnownRouter {
    /// `None` if it is in another epoch than the log.
    at: Option<SharedStart>,
    absent_since: Option<Instant>,
}

impl Default for Routers {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            begun: AtomicU64::new(0),
            reports: watch::Sender::new(0),
            waiting: AtomicUsize::new(0),
            report_needed: Notify::new(),
        }
    }
}

/// Counts an invalidation that waits, until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Routers {
    /// The number of known routers.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// True if an invalidation waits, so that reports are needed in quick succession.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }

    /// Has the position of this router reported at once.
    pub(super) fn request_report(&self) {
        self.report_needed.notify_one();
    }

    /// Waits until a report is needed at once.
    pub(super) async fn report_requested(&self) {
        self.report_needed.notified().await;
    }

    /// Returns the number of a report that begins now.
    pub(super) fn begin_report(&self) -> u64 {
        self.begun.fetch_add(1, SeqCst) + 1
    }

    /// Notes the positions of all routers from a report.
    pub(super) fn update(&self, report: u64, positions: &RouterPositions, now: Instant) {
        let mut known = self.lock();
        for (name, position) in &positions.routers {
            let at = match position {
                RouterPosition::At(number) => {
                    Some(SharedStart { epoch: positions.epoch, sequence: Sequence(*number) })
                }
                RouterPosition::OtherEpoch => None,
                RouterPosition::Gone => {
                    known.remove(name);
                    continue;
                }
            };
            if known.len() < ROUTERS_MAX || known.contains_key(name) {
                known.insert(name.clone(), KnownRouter { at, absent_since: None });
            }
        }
        known.retain(|name, router| {
            if positions.routers.iter().any(|(present, _)| present == name) {
                return true;
            }
            let since = *router.absent_since.get_or_insert(now);
            now.duration_since(since) < ABSENCE_MAX
        });
        drop(known);
        self.reports.send_replace(report);
    }

    /// Waits until all routers have applied the log up to this place, or until the deadline.
    pub(super) async fn wait_applied(
        &self,
        at: SharedStart,
        deadline: tokio::time::Instant,
    ) -> Confirmation {
        self.waiting.fetch_add(1, SeqCst);
        let _waiting = Waiting(&self.waiting);
        let mut reports = self.reports.subscribe();
        // An earlier report may miss a router that has joined since.
        let mut last = self.begun.load(SeqCst);
        self.request_report();
        loop {
            let next = reports.wait_for(|report| *report > last);
            let is_late = match timeout_at(deadline, next).await {
                Ok(Ok(report)) => {
                    last = *report;
                    false
                }
                Ok(Err(_)) | Err(_) => true,
            };
            let confirmation = self.confirmation(at);
            if is_late || confirmation.unconfirmed == 0 {
                return confirmation;
            }
        }
    }

    fn confirmation(&self, at: SharedStart) -> Confirmation {
        let known = self.lock();
        // A router in a later epoch has begun anew, and has nothing from before.
        let has_applied = |router: &&KnownRouter| {
            router.at.is_some_and(|it| it.epoch != at.epoch || it.sequence >= at.sequence)
        };
        let confirmed = known.values().filter(has_applied).count();
        Confirmation {
            routers: known.len(),
            unconfirmed: known.len() - confirmed,
            is_pending: false,
        }
    }

    /// Locks the routers. They are consistent at any time, so those behind a poisoned lock are sound.
    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, KnownRouter>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use cache::LogEpoch;

    use super::*;

    const FIRST: LogEpoch = LogEpoch([1; 16]);
    const SECOND: LogEpoch = LogEpoch([2; 16]);

    fn positions(epoch: LogEpoch, routers: &[(&str, Option<u64>)]) -> RouterPositions {
        let position = |at: Option<u64>| at.map_or(RouterPosition::OtherEpoch, RouterPosition::At);
        let routers = routers.iter().map(|(name, at)| ((*name).into(), position(*at))).collect();
        RouterPositions { epoch, last: 9, routers }
    }

    fn unconfirmed(routers: &Routers, epoch: LogEpoch, number: u64) -> (usize, usize) {
        let at = SharedStart { epoch, sequence: Sequence(number) };
        let confirmation = routers.confirmation(at);
        (confirmation.unconfirmed, confirmation.routers)
    }

    #[test]
    fn a_router_confirms_by_its_number_or_by_beginning_anew() {
        let routers = Routers::default();
        let now = Instant::now();
        routers.update(
            routers.begin_report(),
            &positions(FIRST, &[("a", Some(5)), ("b", Some(4)), ("c", None)]),
            now,
        );
        assert_eq!(unconfirmed(&routers, FIRST, 5), (2, 3));
        assert_eq!(unconfirmed(&routers, FIRST, 4), (1, 3));
        routers.update(
            routers.begin_report(),
            &positions(SECOND, &[("a", Some(0)), ("b", Some(0)), ("c", Some(0))]),
            now,
        );
        assert_eq!(unconfirmed(&routers, FIRST, 5), (0, 3));
    }

    #[test]
    fn a_router_that_has_left_is_not_waited_for() {
        let routers = Routers::default();
        let now = Instant::now();
        let mut both = positions(FIRST, &[("a", Some(5)), ("b", Some(4))]);
        routers.update(routers.begin_report(), &both, now);
        assert_eq!(unconfirmed(&routers, FIRST, 5), (1, 2));
        both.routers[1].1 = RouterPosition::Gone;
        routers.update(routers.begin_report(), &both, now);
        assert_eq!(unconfirmed(&routers, FIRST, 5), (0, 1));
    }

    #[test]
    fn a_router_that_is_missing_is_waited_for_until_it_counts_as_gone() {
        let routers = Routers::default();
        let now = Instant::now();
        routers.update(
            routers.begin_report(),
            &positions(FIRST, &[("a", Some(5)), ("b", Some(4))]),
            now,
        );
        let later = now + ABSENCE_MAX * 10;
        // The first report in which it is missing comes late, because Redis was away.
        routers.update(routers.begin_report(), &positions(FIRST, &[("a", Some(5))]), later);
        assert_eq!(unconfirmed(&routers, FIRST, 5), (1, 2));
        routers.update(
            routers.begin_report(),
            &positions(FIRST, &[("a", Some(5))]),
            later + ABSENCE_MAX,
        );
        assert_eq!(unconfirmed(&routers, FIRST, 5), (0, 1));
    }

    #[tokio::test]
    async fn an_invalidation_waits_for_a_report_in_which_all_have_applied_it() {
        let routers = Routers::default();
        routers.update(
            routers.begin_report(),
            &positions(FIRST, &[("a", Some(5))]),
            Instant::now(),
        );
        let at = SharedStart { epoch: FIRST, sequence: Sequence(5) };
        let far = tokio::time::Instant::now() + Duration::from_secs(3600);
        let reports = async {
            while !routers.has_waiting() {
                tokio::task::yield_now().await;
            }
            routers.report_requested().await;
            routers.update(
                routers.begin_report(),
                &positions(FIRST, &[("a", Some(5)), ("b", Some(4))]),
                Instant::now(),
            );
            tokio::task::yield_now().await;
            assert!(routers.has_waiting());
            routers.update(
                routers.begin_report(),
                &positions(FIRST, &[("a", Some(5)), ("b", Some(5))]),
                Instant::now(),
            );
        };
        let (confirmation, ()) = tokio::join!(routers.wait_applied(at, far), reports);
        assert_eq!(confirmation, Confirmation { routers: 2, unconfirmed: 0, is_pending: false });
        assert!(!routers.has_waiting());
        let now = tokio::time::Instant::now();
        let late = routers.wait_applied(SharedStart { sequence: Sequence(6), ..at }, now).await;
        assert_eq!(late.unconfirmed, 2);
    }
}
