//! A Kafka broker (KRaft, one node).
//!
//! - `command_line`: its settings and the arguments of the Java virtual machine.
//! - `broker`: runs it for tests.
//! - [`download`]: fetches its jars.
//!
//! The settings are files in `tools/test-kit/kafka`, which the suites in JavaScript also use
//! (`tests/e2e/js/kafka.mjs`).

mod broker;
mod command_line;
pub mod download;

pub use broker::{KafkaBroker, PASSWORD, USER};
pub use command_line::{broker_arguments, format_arguments, settings};
