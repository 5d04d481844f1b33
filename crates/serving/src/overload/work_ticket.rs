//! The right to work on an admitted request.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use admission::{Class, Outcome, Request, UNITS};
use execute::GraphqlError;

use super::shared_admission::{HeldTicket, SharedAdmission};
use crate::busy_time;

/// The right to work on the operations of one request. When it is dropped, the work has ended and other work may begin.
///
/// It measures what the work costs: the time that workers spend on it. Waiting for subgraphs costs nothing.
#[derive(Debug)]
pub struct WorkTicket {
    held: HeldTicket,
    /// The nanoseconds that workers have spent.
    busy: AtomicU64,
    result: AtomicU8,
}

/// The result of the work, for the adaptive limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkResult {
    /// The work was given up, or has failed as a whole.
    Abandoned = 0,
    /// The operation was executed.
    Executed = 1,
    /// The work was done, but its time is no measure of load: the response was cached, or it has errors and a subgraph
    /// was slow.
    Unmeasured = 2,
    /// The operation has got the result of an equal one in flight.
    Shared = 3,
    /// The operation was executed, and its response has errors.
    Failed = 4,
    /// A subscription or a live query was opened.
    Opened = 5,
}

impl WorkTicket {
    pub(super) fn new(held: HeldTicket) -> Self {
        let (busy, result) = (AtomicU64::new(0), AtomicU8::new(WorkResult::Abandoned as u8));
        Self { held, busy, result }
    }

    /// Runs a part of the work, and adds the time that the worker spends on it to the cost, also if the work is dropped
    /// before its end.
    pub async fn measure<F: Future>(&self, work: F) -> F::Output {
        let work = pin!(work);
        let add_busy = |step| self.add_busy(step);
        busy_time::measure(work, Instant::now(), true, add_busy).await.output
    }

    /// Adds the time that the worker has spent on a part of the work to the cost.
    pub(crate) fn add_busy(&self, busy: Duration) {
        // 2^64 ns are 584 years.
        self.busy.fetch_add(busy.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Notes the result. Without one, the work counts as given up.
    pub fn set_result(&self, result: WorkResult) {
        self.result.store(result as u8, Ordering::Relaxed);
    }

    /// Returns the time at which the work could begin: that of the request's arrival if the request did not wait.
    pub(crate) fn began(&self) -> Instant {
        self.held.began
    }

    /// Gives the ticket back for work that has ended at `ended`, without another reading of the clock.
    pub(crate) fn end(mut self, ended: Instant) {
        self.held.ended = Some(ended);
    }

    /// Returns the request for another ticket. For work that cannot proceed for a reason of its client: the ticket is
    /// dropped, and another one is needed when the work can proceed.
    pub fn suspended(&self) -> Option<SuspendedWork> {
        let request = self.held.ticket()?.request();
        Some(SuspendedWork { admission: Arc::clone(self.held.admission()), request })
    }

    /// Returns the class of the request, and the weight of the work in units.
    pub(crate) fn class_and_weight(&self) -> (Class, u32) {
        self.held.ticket().map_or((Class::Normal, UNITS), |it| (it.request().class, it.weight()))
    }

    fn outcome(&self) -> Outcome {
        let cost = self.busy.load(Ordering::Relaxed) / 1000;
        match self.result.load(Ordering::Relaxed) {
            it if it == WorkResult::Executed as u8 => Outcome::Completed { cost },
            it if it == WorkResult::Unmeasured as u8 => Outcome::Unmeasured { cost },
            it if it == WorkResult::Shared as u8 => Outcome::Shared,
            it if it == WorkResult::Failed as u8 => Outcome::Failed { cost },
            it if it == WorkResult::Opened as u8 => Outcome::Opened { cost },
            _ => Outcome::Abandoned { cost },
        }
    }
}

/// Work that has given its ticket back.
#[derive(Debug)]
pub struct SuspendedWork {
    admission: Arc<SharedAdmission>,
    request: Request,
}

impl SuspendedWork {
    /// Admits the work again, as a new request would be.
    ///
    /// # Errors
    /// `OVERLOADED`: the work is refused.
    pub async fn resume(self, deadline: Instant) -> Result<WorkTicket, GraphqlError> {
        self.admission.admit(self.request, Instant::now(), deadline).await.map(WorkTicket::new)
    }
}

impl Drop for WorkTicket {
    fn drop(&mut self) {
        self.held.outcome = self.outcome();
    }
}
