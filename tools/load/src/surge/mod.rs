//! `starling bench surge`: sends a load that changes over time, from clients that behave like real ones, and reports
//! what was admitted, in time, refused and given up.
//!
//! ```text
//! SurgeSettings ──run──► shape ──► driver (epoll, one thread) ──► outcome ──► recorder ──► report::SurgeRun
//!                                    └──► clients (caches, repetitions, patience)
//! ```
//!
//! - `shape`: the offered load over time, and the planned start of each request.
//! - `clients`: what a client does, in virtual time. `outcome`: what a response means.
//! - `subscribers`: subscribers that stay connected meanwhile.
//! - `driver`: the sockets. `repetitions`: the queue of requests to repeat. `recorder`: the counts.
//! - `run`: one run, from its settings to its report.
//!
//! Requests are those of [`crate::query`]. The generator is one thread; it says when it was the limit.

#[cfg(target_os = "linux")]
mod clients;
#[cfg(target_os = "linux")]
mod driver;
#[cfg(target_os = "linux")]
mod outcome;
#[cfg(target_os = "linux")]
mod recorder;
#[cfg(target_os = "linux")]
mod repetitions;
#[cfg(target_os = "linux")]
mod run;
mod shape;
#[cfg(target_os = "linux")]
mod subscribers;

#[cfg(target_os = "linux")]
pub use clients::{ClientBehaviour, SURGE_CLIENTS_MAX};
#[cfg(target_os = "linux")]
pub use run::{SurgeOperation, SurgeSettings, WAITING_MAX, run};
pub use shape::{
    LoadShape, POINTS_MAX, SHAPE_SECONDS_MAX, SPIKE_FACTOR, ShapePoint, SurgeSchedule,
};
#[cfg(target_os = "linux")]
pub use subscribers::{SUBSCRIBERS_MAX, SurgeSubscriptions};
