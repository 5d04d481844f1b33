//! What the command line of the router is made of, beside what other crates hold.

pub mod demo;
