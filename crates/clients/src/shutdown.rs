//! The shutdown of the router as its parts see it: announced, begun, and the turn in which each connection closes.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use tokio::sync::watch;

use crate::drain::DrainSchedule;

/// The state of the shutdown. There is one for the whole process.
#[derive(Debug)]
pub struct Shutdown {
    /// True when the router is about to end and is not ready any more, though it serves as before.
    is_announced: AtomicBool,
    /// Becomes true once, when the router ends.
    begun: watch::Receiver<bool>,
    /// The schedule by which connections are then closed.
    schedule: DrainSchedule,
}

impl Shutdown {
    /// Creates the state, and the sender that begins the shutdown.
    pub fn new() -> (Self, watch::Sender<bool>) {
        let (begin, begun) = watch::channel(false);
        let schedule = DrainSchedule::default();
        (Self { is_announced: AtomicBool::new(false), begun, schedule }, begin)
    }

    /// Fails the readiness check from now on.
    pub fn announce(&self) {
        self.is_announced.store(true, SeqCst);
    }

    /// True if the shutdown is announced or has begun.
    pub fn is_leaving(&self) -> bool {
        self.is_announced.load(SeqCst) || *self.begun.borrow()
    }

    /// Returns a receiver that gets the value true when the shutdown begins.
    pub fn signal(&self) -> watch::Receiver<bool> {
        self.begun.clone()
    }

    /// Computes the time over which `connections` are closed; see [`DrainSchedule::plan`].
    pub fn plan_drain(&self, connections: usize, drain_period: Duration) -> Duration {
        self.schedule.plan(connections, drain_period)
    }

    /// Waits until the drain schedule closes one connection.
    pub async fn wait_for_drain(&self) {
        self.schedule.turn(self.begun.clone()).await;
    }
}
