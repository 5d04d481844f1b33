//! The shared parts of tests over real sockets: HTTP requests, the router as a child process, and the brokers of
//! [`test_kit`].
//!
//! The crate knows nothing of GraphQL. The suites with third-party clients are in `js/`.

mod http;
pub mod router;

pub use http::{HttpResponse, exchange, request};
pub use test_kit::{eventually, nats, programs, redis};
