//! Tests of files (`files`) and of servers (`servers`).

mod files;
mod servers;
