//! The results of the load generators: as JSON, as a table, as a page.
//!
//! [`Run`] is the JSON form of `bench query`. Members are only added, never changed, so that a report can be compared
//! with an older one.

mod page;
mod plot;
mod points;
mod subscription_remarks;
pub mod subscription_report;
pub mod subscriptions;
mod table;

use serde::{Deserialize, Serialize};

use subscriptions::SubscriptionRun;

pub use page::html;
pub use table::text;

use crate::histogram::{Buckets, Histogram};
use crate::rate::{Arrivals, Rate};

/// One run. Names end with the unit of the value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// The name in reports.
    pub name: String,
    /// The destination of requests.
    pub url: String,
    /// The number of concurrent connections.
    pub connections: usize,
    /// The time before the measured time.
    pub warmup_seconds: f64,
    /// The measured time.
    pub duration_seconds: f64,
    /// Open loop: requests a second.
    pub rate: Option<Rate>,
    /// Open loop: the distribution of the gaps.
    pub arrivals: Option<Arrivals>,
    /// The header that had a different value in every request.
    pub unique_header: Option<String>,
    /// The length of the first response's body.
    pub answer_bytes: usize,
    /// The number of requests in the measured time.
    pub requests: u64,
    /// The number of requests without a correct response, for any reason.
    pub failed: u64,
    /// Open loop: the number of failed requests that were never sent, because no connection was free.
    pub unsent: u64,
    /// The other failures, by reason.
    pub failures: Vec<FailureCount>,
    /// The first wrong response.
    pub example: Option<String>,
    /// Correct responses a second.
    pub answers_per_second: f64,
    /// Bytes of their bodies a second.
    pub bytes_per_second: f64,
    /// The latency of correct responses. In the open loop it counts from the scheduled start; requests that were never
    /// sent count with the time they waited.
    pub latency: LatencySummary,
    /// The resource usage of the server, if its process was given.
    pub server: Option<QueryServerUsage>,
    /// The resource usage of the load generator.
    pub generator: QueryGeneratorUsage,
    /// The run over time.
    pub intervals: Vec<QueryInterval>,
    /// All latencies: upper ends of buckets in microseconds, and counts.
    pub histogram: Buckets,
}

/// A summary of latencies, in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencySummary {
    /// The shortest latency.
    pub min_us: f64,
    /// The mean.
    pub mean_us: f64,
    /// The median.
    pub p50_us: f64,
    /// The 75th percentile.
    pub p75_us: f64,
    /// The 90th percentile.
    pub p90_us: f64,
    /// The 95th percentile.
    pub p95_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The 99.9th percentile.
    pub p999_us: f64,
    /// The longest latency.
    pub max_us: f64,
}

/// The number of failures with one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureCount {
    /// The reason.
    pub what: String,
    /// The number of failures.
    pub count: u64,
}

/// The resource usage of the server's process in the measured time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueryServerUsage {
    /// The process id.
    pub pid: u32,
    /// CPU time of all its threads for each correct response.
    pub cpu_us_per_request: Option<f64>,
    /// The number of cores that it kept busy.
    pub cores: f64,
    /// Resident memory at the beginning of the measured time.
    pub resident_begin_mib: f64,
    /// Resident memory at the end of the measured time.
    pub resident_end_mib: f64,
    /// The observed maximum in between.
    pub resident_max_mib: f64,
}

/// The resource usage of the load generator.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct QueryGeneratorUsage {
    /// The number of cores that it kept busy. Near 1, the load generator is the limit.
    pub cores: f64,
}

/// The results of one interval of a run: a second or more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueryInterval {
    /// The end of the interval, counted from the beginning of the measured time.
    pub at_seconds: f64,
    /// Correct responses a second.
    pub answers_per_second: f64,
    /// Failures a second.
    pub failures_per_second: f64,
    /// The median latency in microseconds.
    pub p50_us: f64,
    /// The 99th percentile of the latency.
    pub p99_us: f64,
    /// The longest latency.
    pub max_us: f64,
    /// The number of cores that the server kept busy.
    pub server_cores: Option<f64>,
    /// The server's resident memory at the end of the interval.
    pub server_resident_mib: Option<f64>,
}

impl LatencySummary {
    /// Summarises a histogram.
    pub fn from_histogram(histogram: &Histogram) -> Self {
        let at = |share: f64| histogram.quantile(share) as f64 / 1e3;
        Self {
            min_us: histogram.min() as f64 / 1e3,
            mean_us: histogram.mean() / 1e3,
            p50_us: at(0.5),
            p75_us: at(0.75),
            p90_us: at(0.9),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: histogram.max() as f64 / 1e3,
        }
    }
}

/// Runs of one kind; runs of different kinds cannot be compared.
#[derive(Debug, Clone, PartialEq)]
pub enum Runs {
    /// Runs of `bench query`.
    Query(Vec<Run>),
    /// Runs of `bench subscriptions`.
    Subscriptions(Vec<SubscriptionRun>),
}

impl Runs {
    /// Parses a report of either kind, or a list of several.
    ///
    /// # Errors
    /// The error of the JSON parser.
    pub fn read(text: &str) -> Result<Self, serde_json::Error> {
        let value: serde_json::Value = serde_json::from_str(text)?;
        let list = match value {
            serde_json::Value::Array(list) => list,
            one => vec![one],
        };
        let list_value = serde_json::Value::from(list);
        // Only runs of `bench subscriptions` have a scenario.
        if list_value.get(0).is_some_and(|run| run.get("scenario").is_some()) {
            serde_json::from_value(list_value).map(Self::Subscriptions)
        } else {
            serde_json::from_value(list_value).map(Self::Query)
        }
    }

    /// Formats the runs as a table in plain text.
    pub fn text(&self) -> String {
        match self {
            Self::Query(runs) => text(runs),
            Self::Subscriptions(runs) => subscription_report::text(runs),
        }
    }

    /// Formats the runs as an HTML page.
    pub fn html(&self, title: &str) -> String {
        match self {
            Self::Query(runs) => html(title, runs),
            Self::Subscriptions(runs) => subscription_report::html(title, runs),
        }
    }

    /// Appends runs of the same kind.
    ///
    /// # Errors
    /// The runs are of different kinds.
    pub fn append(&mut self, other: Self) -> Result<(), &'static str> {
        match (self, other) {
            (Self::Query(runs), Self::Query(more)) => runs.extend(more),
            (Self::Subscriptions(runs), Self::Subscriptions(more)) => runs.extend(more),
            _ => {
                return Err(
                    "runs of `bench query` and of `bench subscriptions` cannot be compared",
                );
            }
        }
        Ok(())
    }
}

impl Run {
    /// Returns the latency that `share` of all requests did not exceed, in microseconds.
    pub fn quantile_us(&self, share: f64) -> f64 {
        let cumulative = self.histogram.cumulative();
        let reached = cumulative.iter().find(|(seen, _)| *seen >= share - 1e-12);
        reached.or(cumulative.last()).map_or(0.0, |(_, upper)| *upper)
    }
}
