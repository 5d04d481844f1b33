//! Triggers, groups and subscribers: one resolution per group and event, shared bytes to all.
//!
//! Invariant: knows nothing of sockets. Events come in through `events::Provider`, payloads go out
//! through [`Outlet`].

mod outlet;

pub use outlet::{EndReason, GroupId, Member, Outlet, OutletCommand};
