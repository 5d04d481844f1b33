//! The library part of the command line: the demo, which tests use too.

pub mod demo;
