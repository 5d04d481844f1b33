//! Connections to Redis and compatible servers: addresses and credentials, the handshake, and the server that a
//! connection is for (one of a list, the master that sentinels name, the node of a cluster that has a slot).
//!
//! Invariant: this crate makes single attempts and knows neither the purpose of a connection nor when to try again.
//! `events` uses it for Pub/Sub and streams, `redis-store` for shared state.

mod address;
mod connection;
mod discovery;

pub use address::{RedisAddress, RedisAuthentication, RedisSettingsError};
pub use connection::{NO_PUSHES, RESPONSE_TIMEOUT, RedisConnection, error_text, is_refusal};
pub use discovery::{Cluster, Sentinel, ServerSource, SlotRange, read_slot_map, slot_of};
