//! The scenarios: what can happen to the clients of a run.

use std::fmt;

/// What happens to the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scenario {
    /// Everybody gets every event.
    #[default]
    FanOut,
    /// All connect at once.
    ConnectStorm,
    /// Nothing happens for a while.
    Idle,
    /// Every client has a key of its own, and gets the events of that key.
    Filters,
    /// Some never read.
    SlowConsumers,
    /// All connections vanish at once.
    MassDisconnect,
    /// All connections vanish at once, and all clients come back at once.
    ReconnectStorm,
    /// Clients come, subscribe, unsubscribe and go, again and again.
    Churn,
    /// Clients stay connected, unsubscribe and subscribe again.
    Resubscribe,
    /// Events are published as fast as everybody gets them.
    Throughput,
}

impl Scenario {
    /// Whether it is nothing without events.
    pub(super) fn needs_events(self) -> bool {
        matches!(self, Self::FanOut | Self::Filters | Self::SlowConsumers | Self::Throughput)
    }

    /// Whether clients are moved on one by one once they are subscribed.
    pub(super) fn moves_clients(self) -> bool {
        matches!(self, Self::Churn | Self::Resubscribe)
    }

    /// Its name on the command line and in reports.
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
