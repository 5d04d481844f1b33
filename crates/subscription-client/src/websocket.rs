//! Subscriptions over WebSocket. All operations of one partition share a connection, which is opened once however many
//! ask for it at the same time, and closed a while after its last operation.

mod command;
mod connection;
mod connection_table;
mod handshake;
mod operations;
mod ping_losses;
mod pool;
mod probe;

pub(crate) use pool::WebSocketPool;
