//! The scenarios of a run.

use std::fmt;

/// The behaviour of the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scenario {
    /// Every client receives every event.
    #[default]
    FanOut,
    /// All clients connect at the same time.
    ConnectStorm,
    /// No events are sent for a while.
    Idle,
    /// Every client has a key of its own, and receives the events of that key.
    Filters,
    /// Some clients never read.
    SlowConsumers,
    /// All connections are dropped at the same time.
    MassDisconnect,
    /// All connections are dropped at the same time, and all clients reconnect at the same time.
    ReconnectStorm,
    /// Clients connect, subscribe, unsubscribe and disconnect repeatedly.
    Churn,
    /// Clients stay connected, unsubscribe and subscribe again.
    Resubscribe,
    /// Events are published as fast as all clients receive them.
    Throughput,
}

impl Scenario {
    /// True if it requires events.
    pub(super) fn needs_events(self) -> bool {
        matches!(self, Self::FanOut | Self::Filters | Self::SlowConsumers | Self::Throughput)
    }

    /// True if clients are controlled one by one once they are subscribed.
    pub(super) fn moves_clients(self) -> bool {
        matches!(self, Self::Churn | Self::Resubscribe)
    }

    /// Returns its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::FanOut => "fan-out",
            Self::ConnectStorm => "connect-storm",
            Self::Idle => "idle",
            Self::Filters => "filters",
            Self::SlowConsumers => "slow-consumers",
            Self::MassDisconnect => "mass-disconnect",
            Self::ReconnectStorm => "reconnect-storm",
            Self::Churn => "churn",
            Self::Resubscribe => "resubscribe",
            Self::Throughput => "throughput",
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
