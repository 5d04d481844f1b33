//! `starling bench subscriptions`: holds any number of subscriptions open over graphql-transport-ws, publishes events,
//! and reports what each client received, when, and the cost for the server.
//!
//! ```text
//! SubscriptionSettings ──run──► sequence ──► driver (epoll, one thread) ──► client, message ──► recorder ──► report
//!                                  └──────► publisher (a thread of its own) ──► broker
//! ```
//!
//! - `target`: the endpoint and the subscription. `frame`, `client`, `message`: the protocol, without sockets.
//! - `driver`: the sockets. `publisher`: the events. `recorder`: the counts.
//! - `scenario`: the scenarios. `sequence`: the order of steps in each. `stages`: the steps.
//! - `churn`: clients that connect and disconnect. `resubscribe`: clients that stay and subscribe again. `throughput`,
//!   `confirmed`: the maximum rate of events.
//! - `server_usage`: the resource usage of the server's process.
//!
//! The generator is lighter than any server, so that one core can drive a server on another: no allocation and no task
//! for a message, one `recv` and its share of a wait. It runs on Linux only, because it uses epoll and `/proc`.

mod churn;
mod client;
mod confirmed;
mod driver;
pub(crate) mod frame;
pub(crate) mod message;
mod publisher;
mod recorder;
mod resubscribe;
mod scenario;
mod sequence;
mod server_usage;
mod stages;
mod target;
mod throughput;

use std::io;
use std::time::Duration;

pub(crate) use client::{SUBPROTOCOL, WEBSOCKET_ACCEPT};
pub use publisher::{Destination, Events};
pub use scenario::Scenario;
pub use target::{HEADER_BYTES_MAX, Subscription, SubscriptionTarget};

use crate::report::subscriptions::{SubscriptionInterval, SubscriptionRun};

/// The maximum number of clients of one run: as many as the ports and descriptors of a machine can suffice for.
pub const CLIENTS_MAX: usize = 1_000_000;

/// The maximum number of events in flight, more than the length of any server's queue.
pub const WINDOW_MAX: u64 = 65_536;

/// The reason for which a run did not take place or was aborted.
#[derive(Debug, thiserror::Error)]
pub enum SubscriptionRunError {
    /// The settings are invalid, or the broker does not work.
    #[error("{0}")]
    Settings(String),
    /// No client could subscribe.
    #[error("no client of {url} could subscribe: {what}")]
    NoSubscriber {
        /// The URL as given.
        url: String,
        /// The first reasons.
        what: String,
    },
    /// There is no such process.
    #[error("cannot observe process {pid}: {error}")]
    Process {
        /// The process id as given.
        pid: u32,
        /// The error of reading `/proc`.
        error: io::Error,
    },
    /// A system call failed.
    #[error("the load generator failed: {0}")]
    Io(#[from] io::Error),
}

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct SubscriptionSettings {
    /// The name of the run in reports.
    pub name: String,
    /// The endpoint that clients connect to.
    pub target: SubscriptionTarget,
    /// The subscription of the clients.
    pub subscription: Subscription,
    /// The number of clients, from 1 to [`CLIENTS_MAX`].
    pub clients: usize,
    /// The behaviour of the clients.
    pub scenario: Scenario,
    /// The events to publish, if any.
    pub events: Option<Events>,
    /// The number of measured events.
    pub event_count: u64,
    /// The number of events a second.
    pub rate: f64,
    /// The time for which clients stay idle: [`Scenario::Idle`].
    pub hold: Duration,
    /// The share of clients that never read: [`Scenario::SlowConsumers`].
    pub slow_share: f64,
    /// The number of clients that connect or subscribe again a second: [`Scenario::Churn`], [`Scenario::Resubscribe`].
    pub churn_rate: f64,
    /// The duration of those two scenarios and of [`Scenario::Throughput`].
    pub duration: Duration,
    /// The maximum number of events in flight: [`Scenario::Throughput`].
    pub window: u64,
    /// The number of loopback addresses to connect from; `None` for as many as ports require.
    pub sources: Option<usize>,
    /// The time after which a client that is not subscribed is given up.
    pub timeout: Duration,
    /// The silence after which missing results count as lost.
    pub quiet: Duration,
    /// The id of the server's process, to read its resource usage.
    pub pid: Option<u32>,
}

impl SubscriptionSettings {
    /// Checks the settings.
    fn check(&self) -> Result<(), String> {
        if self.clients == 0 || self.clients > CLIENTS_MAX {
            return Err(format!("the number of clients must be from 1 to {CLIENTS_MAX}"));
        }
        if self.subscription.header_bytes > HEADER_BYTES_MAX {
            return Err(format!("the header of a client has at most {HEADER_BYTES_MAX} bytes"));
        }
        if self.subscription.header_bytes > 0 && !self.subscription.tokens.is_empty() {
            return Err(
                "a client has one header `authorization`: give it a length or a token, not both"
                    .to_owned(),
            );
        }
        if self.subscription.tokens.iter().any(|token| token.len() > HEADER_BYTES_MAX) {
            return Err(format!("a token has at most {HEADER_BYTES_MAX} bytes"));
        }
        if self.subscription.keys > self.clients {
            return Err(
                "there are more keys than clients: some keys would have no client".to_owned()
            );
        }
        if self.subscription.distinct > self.clients {
            return Err("there are more different operations than clients".to_owned());
        }
        if !(self.rate > 0.0 && self.churn_rate > 0.0) {
            return Err("rates must be greater than 0".to_owned());
        }
        if self.window == 0 || self.window > WINDOW_MAX {
            return Err(format!("the number of events in flight must be from 1 to {WINDOW_MAX}"));
        }
        if self.scenario == Scenario::Throughput && self.subscription.keys > 1 {
            return Err("throughput is measured for one trigger: every client receives every event, so keys are not possible".to_owned());
        }
        if self.scenario.needs_events() && self.events.is_none() {
            return Err(format!(
                "{} needs events; give their destination, as in --publish nats://127.0.0.1:4222/SUBJECT",
                self.scenario
            ));
        }
        if let Some(events) = &self.events
            && !events.text.contains("$T")
        {
            return Err(
                "the event does not contain the time of its publishing: add $T to it, in quotes"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

/// Runs a scenario and measures it. `progress` is called for every second that has passed.
///
/// # Errors
/// [`SubscriptionRunError`] if the run cannot begin, or its events cannot be published; other failures are counted in
/// the report.
pub fn run(
    settings: &SubscriptionSettings,
    mut progress: impl FnMut(&SubscriptionInterval),
) -> Result<SubscriptionRun, SubscriptionRunError> {
    settings.check().map_err(SubscriptionRunError::Settings)?;
    raise_descriptors(settings.clients)?;
    sequence::run(settings, &mut progress)
}

/// Replaces the time in a message of a server by `$T`, for a floor that repeats the message.
pub(crate) fn with_time_placeholder(message: &str) -> Option<String> {
    let (at, stamp) = message::find_stamp(message.as_bytes())?;
    let end = at + stamp.to_string().len();
    Some(format!("{}$T{}", &message[..at], &message[end..]))
}

/// Restricts process `other` to the cores of process `pid`.
///
/// # Errors
/// One of them does not exist, or belongs to another user.
pub fn share_cores(pid: u32, other: u32) -> io::Result<()> {
    use rustix::process::Pid;
    use rustix::thread::{sched_getaffinity, sched_setaffinity};
    let pid_of = |id: u32| i32::try_from(id).ok().and_then(Pid::from_raw);
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let cores = sched_getaffinity(Some(pid_of(pid).ok_or_else(invalid)?))?;
    sched_setaffinity(Some(pid_of(other).ok_or_else(invalid)?), &cores)?;
    Ok(())
}

/// The number of descriptors in addition to those of the clients.
const OTHER_DESCRIPTORS: u64 = 64;

/// Raises the descriptor limit of this process as far as permitted.
fn raise_descriptors(clients: usize) -> Result<(), SubscriptionRunError> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = clients as u64 + OTHER_DESCRIPTORS;
    let most = limit.maximum.unwrap_or(u64::MAX);
    if wanted > most {
        return Err(SubscriptionRunError::Settings(format!(
            "{clients} clients need {wanted} descriptors, and this process may have {most}; raise the hard limit (`ulimit -Hn`, LimitNOFILE=), see docs/scaling.md"
        )));
    }
    if limit.current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
            .map_err(io::Error::from)?;
    }
    Ok(())
}
