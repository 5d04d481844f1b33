//! The shared parts of tests over real sockets: the router and brokers as child processes, and the rule for programs
//! that are not installed.
//!
//! The crate knows nothing of GraphQL and depends on no other crate of the workspace, so that all of them can use it
//! in their tests. The suites with third-party clients are in `js/`.

mod children;
mod http;
pub mod nats;
pub mod programs;
pub mod redis;
pub mod router;
pub mod waiting;

pub use http::{HttpResponse, exchange, request};
pub use waiting::eventually;
