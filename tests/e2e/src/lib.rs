//! What tests over real sockets share: the router as a program, brokers as programs, and the rule
//! for programs that are not there.
//!
//! Nothing here knows GraphQL, and nothing depends on our other crates, so that any of them can use
//! it in its tests. The suites with foreign clients are in `js/`.

mod children;
mod http;
pub mod nats;
pub mod programs;
pub mod redis;
pub mod router;
pub mod waiting;

pub use http::{Answer, exchange, request};
pub use waiting::eventually;
