//! GraphQL over server-sent events, single connection mode: a client reserves a stream (PUT), opens it (GET), and
//! starts (POST) and stops (DELETE) operations by requests of their own, whose results all come over that stream.
//!
//! These requests arrive on any worker, and share the stream with the reactor or the task that writes it.

pub(super) mod open_stream;
pub mod requests;
mod stream;
pub(super) mod stream_table;
