//! The client of subscriptions that subgraphs serve: one [`SubgraphSubscriptions`] for each subgraph. It opens
//! connections, shares them, reconnects and subscribes again, and passes results to the hub as events.
//!
//! Invariant: the protocols themselves are machines without I/O in `wire::upstream`, and results are passed on as text.
//! Nothing here knows plans, groups and clients.
//!
//! | module | holds |
//! |---|---|
//! | `client` | the subgraph, and the choice of the transport |
//! | `websocket` | connections with many operations, one for each partition |
//! | `settings`, `stats` | the limits, the counters |

mod client;
mod settings;
mod stats;
mod websocket;

pub use client::SubgraphSubscriptions;
pub use settings::{ReconnectSettings, SubscriptionProtocol, SubscriptionSettings};
pub use stats::{SUBSCRIPTION_COUNTERS, SubscriptionStats};
pub use upstream::TargetError;
pub use websocket::ProbeError;
