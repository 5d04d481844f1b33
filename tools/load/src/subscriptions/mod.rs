//! `starling bench subscriptions`: holds any number of subscriptions open over graphql-transport-ws, publishes events,
//! and reports what each client received, when, and the cost for the server.
//!
//! ```text
//! SubscriptionSettings ──run──► sequence ──► driver (epoll, one thread) ──► client, message ──► recorder ──► report
//!                                  └──────► publisher (a thread of its own) ──► broker
//! ```
//!
//! - `settings`: the settings of a run. `target`: the endpoint and the subscription. `frame`, `client`, `message`: the
//!   protocol, without sockets.
//! - `driver`: the sockets. `publisher`: the events. `recorder`: the counts.
//! - `scenario`: the scenarios. `sequence`: the order of steps in each. `stages`: the steps.
//! - `returns`: clients that were refused and return.
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
mod returns;
mod run_error;
mod scenario;
mod sequence;
mod server_usage;
mod settings;
mod stages;
mod target;
mod throughput;

use std::io;

pub(crate) use client::{SUBPROTOCOL, WEBSOCKET_ACCEPT};
pub use publisher::{Destination, Events};
pub use run_error::SubscriptionRunError;
pub use scenario::Scenario;
pub use settings::{CLIENTS_MAX, SubscriptionSettings, WINDOW_MAX};
pub use target::{HEADER_BYTES_MAX, Subscription, SubscriptionTarget};

use crate::descriptors::raise_descriptors;
use crate::report::subscriptions::{SubscriptionInterval, SubscriptionRun};

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
    raise_descriptors(settings.clients, "clients").map_err(SubscriptionRunError::Settings)?;
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
