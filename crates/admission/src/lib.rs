//! Overload protection: decides which work begins now, which waits for a moment, and which is refused.
//!
//! [`AdmissionControl`] is the whole of it, a state machine without clocks, threads and random numbers: the caller
//! passes the time, and gets decisions and events. Its parts, each in a module of its own:
//!
//! - [`adaptive_limit`]: how much work may be in flight. The limit follows the latency: it shrinks while operations
//!   take longer than they do without load, and grows while they do not.
//! - `operations`: what each operation costs and how long it takes without load, learnt from recent executions. The
//!   limit counts work, so that a cheap operation takes a small part of it. `baseline` is the time without load, and
//!   `unknown_operations` what is assumed of operations that are executed too rarely.
//! - `clients`: the work in flight of each client, for fair shares.
//! - `other_work`: what storms of connections change about the limit, and when operations leave handshakes no room.
//! - `spare_share`: the part of the limit that greedy clients may fill while others have work, and sheddable requests.
//! - `busy_bound`: the bound for greedy clients while the processors are busy.
//! - `lane`: how new streams come after other requests, with a limit and a queue of their own.
//! - `room`: whether a request of a lane fits beside the work in flight.
//! - `waiting_queue`: a short queue in front. Clients take turns; a long queue serves its newest request first.
//! - [`Bulkhead`], beside the control: the share of one subgraph in the work in flight.
//! - [`Readiness`], beside the control: whether load balancers should send this router new clients.
//! - [`Pace`], beside the control: the turns of WebSocket handshakes.
//! - [`Ramp`]: the share of the limit that a router takes after its start.
//! - [`memory`], beside the control: the memory that work takes, within a budget.
//! - `pressure`: how much is refused, and with it the time after which clients should return.
//!
//! Invariant: every call takes at most logarithmic time, apart from work that is paid for by earlier calls, and all
//! tables are bounded. The crate knows nothing of GraphQL and HTTP.

pub mod adaptive_limit;
mod baseline;
mod bulkhead;
mod busy_bound;
mod class;
mod clients;
mod control;
mod decision;
mod lane;
pub mod memory;
mod operations;
mod other_work;
mod pace;
mod pressure;
mod ramp;
mod readiness;
mod request;
mod room;
mod spare_share;
mod unknown_operations;
mod waiting_queue;

pub use adaptive_limit::LimitBounds;
pub use bulkhead::{Bulkhead, BulkheadPlace, RouterWork};
pub use class::Class;
pub use control::{AdmissionControl, AdmissionSettings, Load, ProcessorLoad};
pub use decision::{Decision, Event, Outcome, Refusal, RefusalReason, Ticket};
pub use pace::Pace;
pub use ramp::Ramp;
pub use readiness::{Readiness, ReadinessChange, ReadinessSettings};
pub use request::Request;
pub use waiting_queue::{QueueSettings, WaiterId};

/// The number of units that make up the weight of an average operation. Weights are whole numbers of these units, so
/// that sums are exact.
pub const UNITS: u32 = 1000;
