//! `starling bench subscriptions`: holds any number of subscriptions open over graphql-transport-ws, publishes events,
//! and says what each client got, when, and what that cost the server.
//!
//! ```text
//! Settings ──run──► sequence ──► driver (epoll, one thread) ──► client, message ──► recorder ──► report
//!                      └──────► publisher (a thread of its own) ──► broker
//! ```
//!
//! - `target`: whom clients connect to and what they say. `frame`, `client`, `message`: the protocol, without sockets.
//! - `driver`: the sockets. `publisher`: the events. `recorder`: the counts.
//! - `scenario`: the scenarios. `sequence`: what happens in which order. `course`: the stages of a run.
//! - `churn`: clients that come and go. `resubscribe`: clients that stay and subscribe anew. `throughput`, `confirmed`:
//!   as many events as the server takes.
//!
//! It is to be lighter than any server, so that one core can drive the server on another: no allocation and no task for
//! a message, one `recv` and its share of a wait. Linux only: it stands on epoll and `/proc`.

mod churn;
mod client;
mod confirmed;
mod course;
mod driver;
pub(crate) mod frame;
pub(crate) mod message;
mod publisher;
mod recorder;
mod resubscribe;
mod scenario;
mod sequence;
mod target;
mod throughput;
mod watched;

use std::io;
use std::time::Duration;

pub(crate) use client::{SUBPROTOCOL, WEBSOCKET_ACCEPT};
pub use publisher::{Destination, Events};
pub use scenario::Scenario;
pub use target::{HEADER_BYTES_MAX, Subscription, Target};

use crate::report::subscriptions::{Interval, SubscriptionRun};

/// Clients of one run: as many as a machine's ports and descriptors can be made to suffice for.
pub const CLIENTS_MAX: usize = 1_000_000;

/// Events of one run that may be on their way: more than any queue of a server is long.
pub const WINDOW_MAX: u64 = 65_536;

/// Why a run did not take place, or could not go on.
#[derive(Debug, thiserror::Error)]
pub enum SubscriptionsError {
    /// The settings make no sense, or the broker does not work.
    #[error("{0}")]
    Settings(String),
    /// Nobody could subscribe.
    #[error("no client of {url} could subscribe: {what}")]
    Nobody {
        /// The URL as it was given.
        url: String,
        /// How the first ones ended.
        what: String,
    },
    /// There is no such process.
    #[error("cannot watch process {pid}: {error}")]
    Process {
        /// Its id as it was given.
        pid: u32,
        /// Why not.
        error: io::Error,
    },
    /// The machine does not let us.
    #[error("the load generator failed: {0}")]
    Io(#[from] io::Error),
}

/// What to run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What the report calls the run.
    pub name: String,
    /// Whom clients connect to.
    pub target: Target,
    /// What they subscribe to.
    pub subscription: Subscription,
    /// How many they are, from 1 to [`CLIENTS_MAX`].
    pub clients: usize,
    /// What happens to them.
    pub scenario: Scenario,
    /// What is published, if anything.
    pub events: Option<Events>,
    /// How many events are measured.
    pub event_count: u64,
    /// How many are published a second.
    pub rate: f64,
    /// How long clients are held without events: [`Scenario::Idle`].
    pub hold: Duration,
    /// The share of clients that never read: [`Scenario::SlowConsumers`].
    pub slow_share: f64,
    /// How many clients come and go a second, or subscribe anew: [`Scenario::Churn`], [`Scenario::Resubscribe`].
    pub churn_rate: f64,
    /// For how long that goes on, and [`Scenario::Throughput`].
    pub duration: Duration,
    /// Events that may be on their way: [`Scenario::Throughput`].
    pub window: u64,
    /// From how many loopback addresses to connect; as many as ports need if nothing is said.
    pub sources: Option<usize>,
    /// When a client that is not subscribed is given up.
    pub timeout: Duration,
    /// How long nothing may come until what is missing is taken for lost.
    pub quiet: Duration,
    /// The server's process, to read what it uses.
    pub pid: Option<u32>,
}

impl Settings {
    /// What is wrong with them.
    fn check(&self) -> Result<(), String> {
        if self.clients == 0 || self.clients > CLIENTS_MAX {
            return Err(format!("from 1 to {CLIENTS_MAX} clients are possible"));
        }
        if self.subscription.header_bytes > HEADER_BYTES_MAX {
            return Err(format!("a header of its own has at most {HEADER_BYTES_MAX} bytes"));
        }
        if self.subscription.keys > self.clients {
            return Err("there are more keys than clients: some would be nobody's".to_owned());
        }
        if !(self.rate > 0.0 && self.churn_rate > 0.0) {
            return Err("a rate is more than 0".to_owned());
        }
        if self.window == 0 || self.window > WINDOW_MAX {
            return Err(format!("from 1 to {WINDOW_MAX} events can be on their way"));
        }
        if self.scenario == Scenario::Throughput && self.subscription.keys > 1 {
            return Err("throughput is that of one trigger: everybody gets every event, so there are no keys".to_owned());
        }
        if self.scenario.needs_events() && self.events.is_none() {
            return Err(format!(
                "{} needs events; say where they are published, as in --publish nats://127.0.0.1:4222/SUBJECT",
                self.scenario
            ));
        }
        if let Some(events) = &self.events
            && !events.text.contains("$T")
        {
            return Err(
                "the event does not carry the time of its publishing: put $T into it, in quotes"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

/// Runs a scenario and measures it. `progress` is called for every second that has passed.
///
/// # Errors
/// [`SubscriptionsError`] where the run does not begin, or its events cannot be published; what else fails is counted
/// in the report.
pub fn run(
    settings: &Settings,
    mut progress: impl FnMut(&Interval),
) -> Result<SubscriptionRun, SubscriptionsError> {
    settings.check().map_err(SubscriptionsError::Settings)?;
    raise_descriptors(settings.clients)?;
    sequence::run(settings, &mut progress)
}

/// A message of a server with `$T` in place of the time, for a floor that repeats it.
pub(crate) fn with_time_placeholder(message: &str) -> Option<String> {
    let (at, stamp) = message::find_stamp(message.as_bytes())?;
    let end = at + stamp.to_string().len();
    Some(format!("{}$T{}", &message[..at], &message[end..]))
}

/// Lets process `other` run where process `pid` does.
///
/// # Errors
/// Where one of them does not exist, or belongs to somebody else.
pub fn share_cores(pid: u32, other: u32) -> io::Result<()> {
    use rustix::process::Pid;
    use rustix::thread::{sched_getaffinity, sched_setaffinity};
    let pid_of = |id: u32| i32::try_from(id).ok().and_then(Pid::from_raw);
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let cores = sched_getaffinity(Some(pid_of(pid).ok_or_else(invalid)?))?;
    sched_setaffinity(Some(pid_of(other).ok_or_else(invalid)?), &cores)?;
    Ok(())
}

/// Descriptors beside those of the clients.
const OTHER_DESCRIPTORS: u64 = 64;

/// Lets this process have as many sockets as it may.
fn raise_descriptors(clients: usize) -> Result<(), SubscriptionsError> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = clients as u64 + OTHER_DESCRIPTORS;
    let most = limit.maximum.unwrap_or(u64::MAX);
    if wanted > most {
        return Err(SubscriptionsError::Settings(format!(
            "{clients} clients need {wanted} descriptors, and this process may have {most}; raise the hard limit (`ulimit -Hn`, LimitNOFILE=), see docs/scaling.md"
        )));
    }
    if limit.current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
            .map_err(io::Error::from)?;
    }
    Ok(())
}
