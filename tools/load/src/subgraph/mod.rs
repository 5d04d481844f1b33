//! A subgraph that serves a schema over HTTP from data in memory.
//!
//! ```text
//! SDL, records, resolvers ──SubgraphBuilder──► Subgraph ──Server──► http://127.0.0.1:port/
//! ```
//!
//! - `service`: the subgraph and its builder.
//! - `model`: the schema in the form that the executor needs: types, fields, keys, all numbered.
//! - `store`: records of those types, linked and printed once, at start.
//! - `resolvers`: functions that replace records.
//! - `source`: the data of an object, from records, run-time values or invention.
//! - `operation`: an operation text compiled to numbers, once per text.
//! - `input`: variables and arguments.
//! - `execution`: compiled operation and records to response bytes.
//! - `invention`: data that is made up for missing records. `changes`: changes of it at run time.
//! - `weather`: simulated latency and failures.
//! - `fault`: faults that tests inject, and requests that tests observe.
//! - `server`: sockets. `response`: HTTP responses. `subscription_socket`: WebSockets.
//! - `subscriptions`: events, and counts of the operations that get them.
//! - `errors`: a subgraph that cannot be built, a field that has no value.
//!
//! The executor and its store are separate from those of `federations`, which are oracles: this one must cost less than
//! the router that it loads, so it compiles operations and copies JSON text that was printed at start, where an oracle
//! interprets documents over `serde_json` values.
//!
//! It executes operations as specified by GraphQL (sections 6.2 to 6.4), with the two root fields of the Federation
//! subgraph specification, `_entities` and `_service`. Subscriptions are served over WebSocket only; their events are
//! published by a test, over HTTP or at a fixed rate. It does not serve introspection (`_service { sdl }` returns the
//! schema), and it does not enforce authorization.

mod changes;
mod errors;
mod execution;
mod fault;
mod input;
mod invention;
mod model;
mod operation;
mod resolvers;
mod response;
mod server;
mod service;
mod source;
mod store;
mod subscription_socket;
mod subscriptions;
mod weather;

pub use errors::{FieldError, SubgraphError};
pub use fault::{Controls, Fault, RecordedRequest};
pub use invention::Invention;
pub use resolvers::Call;
pub use server::{Server, ServerBuilder};
pub use service::{Subgraph, SubgraphBuilder, SubgraphResponse};
pub use subscriptions::{SubscriptionCounts, Subscriptions};
pub use weather::Latency;
