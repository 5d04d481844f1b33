//! Failure scenarios on a real router: the requesting client receives an error that explains the problem, other
//! clients are not affected, and nothing panics.
//!
//! Each test ends with [`shop::Shop::assert_unaffected`], which checks the other clients. The tests contain expected
//! responses in full, since operators read their wording in emergencies; `UPDATE_EXPECT=1` rewrites them, and the
//! difference must be reviewed.

#![allow(clippy::unwrap_used)] // a missing response fails the test

mod broker_clients;
mod responses;
mod shop;
mod socket;
mod stream;

mod admission;
mod batching;
mod command_line;
mod compositions;
mod connections;
mod costs;
mod cursors;
mod events;
mod greedy_clients;
mod headers;
mod initial_state;
mod known_operations;
mod logging;
mod nats;
mod online;
mod operations;
mod passing_events;
mod reloads;
mod requests;
mod shared_state;
mod sharing;
mod shutdown;
mod slow_subscribers;
mod stored_events;
mod subgraphs;
mod websockets;
