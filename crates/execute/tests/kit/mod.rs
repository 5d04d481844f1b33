//! Code that the tests share: plans from short notation, subgraphs in memory.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

pub mod notation;
pub mod subgraphs;
