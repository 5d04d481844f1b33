//! Overload protection: each operation that a client sends is admitted before anything is done for it, or waits for a
//! moment, or is refused.
//!
//! The shares of subgraphs in the admitted work are in [`bulkheads`], and the readiness of a router that refuses much
//! in `readiness`. The pace of WebSocket handshakes is in [`clients::handshake_pace`], because listeners follow it.
//!
//! The decisions are those of [`admission::AdmissionControl`]. One control serves all workers behind one lock, which is
//! held for less than a microsecond: `shared_admission`, with the clock and the tasks that wait. `protection` adds the
//! classes of requests (`request_classes`) and the readiness. The right to work ends when it is dropped
//! ([`work_ticket`]).

mod arriving_request;
pub mod bulkheads;
pub mod metrics;
mod protection;
mod readiness;
mod request_classes;
mod shared_admission;
mod stats;
pub mod work_ticket;

pub(crate) use arriving_request::ArrivingRequest;
pub use protection::OverloadProtection;
pub use readiness::UnreadyReason;
pub(crate) use shared_admission::overloaded;
