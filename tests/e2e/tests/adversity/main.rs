//! Everything that can go wrong, on a real router: whatever comes in, whoever asked for it is told
//! what is wrong, everybody else notices nothing, and nothing panics.
//!
//! Each test ends with [`shop::Shop::assert_unharmed`], which asks the neighbours. Expected answers
//! stand in the tests in full, since their wording is what a user reads at three in the morning;
//! `UPDATE_EXPECT=1` rewrites them, and the diff is to be read.

#![allow(clippy::unwrap_used)] // a test that cannot get its answer has failed

mod answers;
mod foreign;
mod shop;
mod socket;
mod stream;

mod batching;
mod command_line;
mod connections;
mod cursors;
mod events;
mod greedy_clients;
mod headers;
mod initial_state;
mod logging;
mod nats;
mod online;
mod operations;
mod passing_events;
mod reloads;
mod requests;
mod sharing;
mod shutdown;
mod slow_subscribers;
mod stored_events;
mod subgraphs;
mod websockets;
