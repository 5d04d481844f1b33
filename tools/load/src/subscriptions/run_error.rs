//! The reasons for which a run does not take place or is aborted.

use std::io;

/// The reason for which a run did not take place or was aborted.
#[derive(Debug, thiserror::Error)]
pub enum SubscriptionRunError {
    /// The settings are invalid, or the broker does not work.
    #[error("{0}")]
    Settings(String),
    /// No client could subscribe.
    #[error("no client of {url} could subscribe: {what}")]
    NoSubscriber {
        /// The URL as given.
        url: String,
        /// The first reasons.
        what: String,
    },
    /// There is no such process.
    #[error("cannot observe process {pid}: {error}")]
    Process {
        /// The process id as given.
        pid: u32,
        /// The error of reading `/proc`.
        error: io::Error,
    },
    /// A system call failed.
    #[error("the load generator failed: {0}")]
    Io(#[from] io::Error),
}
