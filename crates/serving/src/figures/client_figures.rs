//! The counters of one application, and their metrics.

use telemetry::Metric;
use telemetry::name_table::NamedCounters;

use super::error_counts::ErrorCounts;
use super::work_counters::{EndedRequest, WorkCounters, WorkReading};

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
    work: WorkCounters,
    errors: ErrorCounts,
}

impl ClientFigures {
    pub(super) fn errors(&self) -> Vec<(&'static str, u64)> {
        self.errors.read()
    }

    pub(super) fn work(&self) -> WorkReading {
        self.work.read()
    }

    /// Counts an operation of the application.
    pub(super) fn count(&self, ended: &EndedRequest<'_>) {
        self.work.count(ended, |()| {});
        if let Some(code) = ended.error {
            self.errors.count(code);
        }
    }
}

impl NamedCounters for ClientFigures {
    fn uses(&self) -> u64 {
        self.work.requests()
    }

    fn add_all(&self, other: &Self) {
        self.work.add_all(&other.work, |(), ()| {});
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
        "Operations of clients that failed or have errors in their response, by the code of the first one; up to 10 codes of each client",
        |it, samples| it.errors.write(samples),
    ),
    Metric::histogram(
        "starling_client_duration_seconds",
        "Time from the arrival of an operation to its printed response, or to the open subscription, by client",
        |it| it.work.durations(),
    ),
    Metric::counters(
        "starling_client_cpu_seconds",
        "Time that workers spent on preparing and executing, by client",
        |it, samples| samples.add(it.work.busy()),
    ),
    Metric::counter(
        "starling_client_subgraph_requests",
        "Requests to subgraphs, by client; a request that several operations share counts for each of them",
        |it| it.work.subgraph_requests(),
    ),
    Metric::counters(
        "starling_client_cost",
        "The sum of the costs of responses, by client (cost.mode)",
        |it, samples| it.work.cost().map_or(Ok(()), |(_, sum)| samples.add(sum)),
    ),
    Metric::counter(
        "starling_client_response_bytes",
        "Bytes of responses before compression, by client",
        |it| it.work.response_bytes(),
    ),
];
