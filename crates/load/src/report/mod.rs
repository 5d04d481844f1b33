//! What a run of the load generator found: as JSON, as a table, as a page.
//!
//! [`Run`] is the JSON form. Its members are added to, never changed, so that a report can be compared with an older
//! one.

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

/// One run. Times are in the unit that a name ends with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// What a report calls it.
    pub name: String,
    /// Where requests went.
    pub url: String,
    /// Connections at a time.
    pub connections: usize,
    /// Time before anything counted.
    pub warmup_seconds: f64,
    /// The measured time.
    pub duration_seconds: f64,
    /// Open loop: requests a second.
    pub rate: Option<Rate>,
    /// Open loop: how they were spread.
    pub arrivals: Option<Arrivals>,
    /// The header that had another value in every request.
    pub unique_header: Option<String>,
    /// Length of the first answer's body.
    pub answer_bytes: usize,
    /// Requests of the measured time.
    pub requests: u64,
    /// Those without a right answer, for whatever reason.
    pub failed: u64,
    /// Open loop: those of them that were never sent, because no connection was free for them.
    pub unsent: u64,
    /// The other failures, by reason.
    pub failures: Vec<Failure>,
    /// The first wrong answer.
    pub example: Option<String>,
    /// Right answers a second.
    pub answers_per_second: f64,
    /// Bytes of their bodies a second.
    pub bytes_per_second: f64,
    /// Of right answers. In the open loop from when a request was to start; requests that were never sent count with
    /// the time they waited.
    pub latency: Latency,
    /// What the server used, if its process was named.
    pub server: Option<Server>,
    /// What the load generator used.
    pub generator: Generator,
    /// The run over time.
    pub intervals: Vec<Interval>,
    /// All latencies: upper ends in microseconds, and counts.
    pub histogram: Buckets,
}

/// Latencies in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// The shortest.
    pub min_us: f64,
    /// The mean.
    pub mean_us: f64,
    /// The median.
    pub p50_us: f64,
    /// Three quarters are not longer.
    pub p75_us: f64,
    /// Nine of ten are not longer.
    pub p90_us: f64,
    /// 95 % are not longer.
    pub p95_us: f64,
    /// 99 % are not longer.
    pub p99_us: f64,
    /// 99.9 % are not longer.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// Requests that failed for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The reason.
    pub what: String,
    /// How many.
    pub count: u64,
}

/// What the server's process used in the measured time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// Its id.
    pub pid: u32,
    /// CPU time of all its threads for each right answer.
    pub cpu_us_per_request: Option<f64>,
    /// Cores it kept busy.
    pub cores: f64,
    /// Resident memory when the measured time began.
    pub resident_begin_mib: f64,
    /// Resident memory when it ended.
    pub resident_end_mib: f64,
    /// The most that was seen in between.
    pub resident_max_mib: f64,
}

/// What the load generator used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// Cores it kept busy. Near 1 it is the load generator that is measured.
    pub cores: f64,
}

/// A second of a run, or some.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Its end, from the beginning of the measured time.
    pub at_seconds: f64,
    /// Right answers a second.
    pub answers_per_second: f64,
    /// Failures a second.
    pub failures_per_second: f64,
    /// The median latency in microseconds.
    pub p50_us: f64,
    /// 99 % were not longer.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
    /// Cores that the server kept busy.
    pub server_cores: Option<f64>,
    /// The server's resident memory at its end.
    pub server_resident_mib: Option<f64>,
}

impl Latency {
    /// The summary of a histogram.
    pub fn of(histogram: &Histogram) -> Self {
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

/// Runs of one kind: those of different kinds have nothing to compare.
#[derive(Debug, Clone, PartialEq)]
pub enum Runs {
    /// Of `bench query`.
    Query(Vec<Run>),
    /// Of `bench subscriptions`.
    Subscriptions(Vec<SubscriptionRun>),
}

impl Runs {
    /// Reads a report of either kind, or several in one list.
    ///
    /// # Errors
    /// What is wrong with the JSON.
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

    /// As a table in plain text.
    pub fn text(&self) -> String {
        match self {
            Self::Query(runs) => text(runs),
            Self::Subscriptions(runs) => subscription_report::text(runs),
        }
    }

    /// As a page.
    pub fn html(&self, title: &str) -> String {
        match self {
            Self::Query(runs) => html(title, runs),
            Self::Subscriptions(runs) => subscription_report::html(title, runs),
        }
    }

    /// Adds runs of the same kind.
    ///
    /// # Errors
    /// Where they are of another.
    pub fn append(&mut self, other: Self) -> Result<(), &'static str> {
        match (self, other) {
            (Self::Query(runs), Self::Query(more)) => runs.extend(more),
            (Self::Subscriptions(runs), Self::Subscriptions(more)) => runs.extend(more),
            _ => return Err("runs of `bench query` and of `bench subscriptions` do not compare"),
        }
        Ok(())
    }
}

impl Run {
    /// The latency that this share of all did not exceed, in microseconds.
    pub fn quantile_us(&self, share: f64) -> f64 {
        let cumulative = self.histogram.cumulative();
        let reached = cumulative.iter().find(|(seen, _)| *seen >= share - 1e-12);
        reached.or(cumulative.last()).map_or(0.0, |(_, upper)| *upper)
    }
}
