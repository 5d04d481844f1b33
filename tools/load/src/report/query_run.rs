//! [`Run`], the JSON form of `bench query`. Members are only added, never changed, so that a report can be compared
//! with an older one.

use serde::{Deserialize, Serialize};

use super::summary::{FailureCount, LatencySummary};
use crate::histogram::Buckets;
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

impl Run {
    /// Returns the latency that `share` of all requests did not exceed, in microseconds.
    pub fn quantile_us(&self, share: f64) -> f64 {
        let cumulative = self.histogram.cumulative();
        let reached = cumulative.iter().find(|(seen, _)| *seen >= share - 1e-12);
        reached.or(cumulative.last()).map_or(0.0, |(_, upper)| *upper)
    }
}
