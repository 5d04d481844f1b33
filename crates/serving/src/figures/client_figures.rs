//! The counters of one application, and their metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use execute::ErrorCode;
use telemetry::name_table::NamedCounters;
use telemetry::{Metric, Striped, read};

use super::error_counts::ErrorCounts;

/// The labels of an application.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ClientLabel {
    /// The name that it states.
    pub name: Box<str>,
    /// The version that it states; empty if it states none.
    pub version: Box<str>,
}

impl ClientLabel {
    pub(super) fn new((name, version): (&str, &str)) -> Self {
        Self { name: name.into(), version: version.into() }
    }
}

/// The counters of an application.
#[derive(Debug, Default)]
pub struct ClientFigures {
    requests: Striped<AtomicU64>,
    errors: ErrorCounts,
}

impl ClientFigures {
    pub(super) fn errors(&self) -> impl Iterator<Item = (ErrorCode, u64)> {
        self.errors.iter()
    }

    /// Counts an operation of the application.
    pub(super) fn count(&self, error: Option<ErrorCode>) {
        self.requests.local().fetch_add(1, Ordering::Relaxed);
        if let Some(code) = error {
            self.errors.count(code);
        }
    }
}

impl NamedCounters for ClientFigures {
    fn uses(&self) -> u64 {
        self.requests.iter().map(read).sum()
    }

    fn add_all(&self, other: &Self) {
        self.requests.local().fetch_add(other.uses(), Ordering::Relaxed);
        self.errors.add_all(&other.errors);
    }
}

/// The metrics of one application. The labels that name it are added by the caller.
pub const CLIENT_FIGURE_METRICS: &[Metric<ClientFigures>] = &[
    Metric::counter(
        "starling_client_requests",
        "Operations of clients, by the name and version that they state",
        NamedCounters::uses,
    ),
    Metric::counters(
        "starling_client_errors",
        "Operations of clients that failed or have errors in their response, by the code of the first one",
        |it, samples| {
            let mut errors = it.errors.iter();
            errors
                .try_for_each(|(code, count)| samples.add_labelled(("code", code.as_str()), count))
        },
    ),
];
