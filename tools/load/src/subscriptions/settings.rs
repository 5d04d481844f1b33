//! The settings of a run.

use std::time::Duration;

use super::publisher::Events;
use super::scenario::Scenario;
use super::target::{HEADER_BYTES_MAX, Subscription, SubscriptionTarget};

/// The maximum number of clients of one run: as many as the ports and descriptors of a machine can suffice for.
pub const CLIENTS_MAX: usize = 1_000_000;

/// The maximum number of events in flight, more than the length of any server's queue.
pub const WINDOW_MAX: u64 = 65_536;

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
    /// The number of times that a client returns that was refused for now. Those that wait count as subscribing, so
    /// `timeout` bounds this as well.
    pub retries: u32,
    /// The silence after which missing results count as lost.
    pub quiet: Duration,
    /// The id of the server's process, to read its resource usage.
    pub pid: Option<u32>,
    /// Looks for input all the time instead of sleeping until there is some.
    pub never_sleeps: bool,
}

impl SubscriptionSettings {
    /// Checks the settings.
    pub(super) fn check(&self) -> Result<(), String> {
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
        if self.retries > 0 && self.scenario.moves_clients() {
            return Err(format!(
                "{} counts each attempt of a client, so clients do not return after a refusal there: leave out --retries",
                self.scenario
            ));
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
