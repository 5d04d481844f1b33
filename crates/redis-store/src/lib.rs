//! State that several routers share through Redis, Valkey or another compatible server: commands and their replies,
//! each within a time limit.
//!
//! A [`Store`] has one connection to each server, which all threads of the process share. [`Store::run`] sends commands
//! in one piece and returns the reply of each. A server that is absent or slow is an error within the time limit
//! ([`StoreSettings::timeout`]), and after a few of them an error at once: the circuit breaker opens, and a task waits
//! for the server to catch up, or tries to connect until one responds in time again. Callers never wait for a
//! connection.
//!
//! - `command`: commands and scripts, with their keys; `reply`: replies.
//! - `store`: the bounds, and the rounds of a run (redirections of clusters, unknown scripts).
//! - `server_link`: the connection to one server; `breaker`: when it counts as unusable.
//! - `blocking`: connections for commands that wait at the server.
//! - `cluster`: the servers of a cluster by slot.
//!
//! Invariant: this crate knows nothing of what is stored. Every key gets the namespace of the store here, in one place.
//!
//! # One connection, not one for each worker
//! With one connection for each CPU, a hundred routers of 64 CPUs would have 6,400 connections, and each would carry
//! few commands. With one, commands of all workers that arrive together are written together, a client's burst cannot
//! use more than the bound of the process, and all workers learn from the first failures that the server is away. The
//! price is a message to the task of the connection and one back, some microseconds each, which is little beside the
//! network. The task runs on the runtime that starts the store, so that a busy worker does not delay the others.

mod blocking;
mod breaker;
mod cluster;
mod command;
mod metrics;
mod reply;
mod server_link;
mod settings;
mod stats;
mod store;
mod stores;

pub use blocking::BlockingConnection;
pub use command::{Command, Script};
pub use metrics::STORE_METRICS;
pub use redis_connection::{RedisAuthentication, RedisSettingsError};
pub use reply::{ConnectionLoss, Reply, StoreError};
pub use settings::{StoreSentinel, StoreSettings};
pub use stats::{STORE_COUNTERS, StoreStats};
pub use store::Store;
pub use stores::{Stores, StoresError};
