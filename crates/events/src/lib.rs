//! Brokers behind `Source` and `Sink`: memory and NATS.
//!
//! Invariant: topics, payloads and positions are all this crate knows; nothing of GraphQL execution.

mod provider;

pub use provider::{
    Event, EventFuture, EventStream, Position, Provider, PublishError, SourceError, SourceMessage,
    StreamEnd,
};
