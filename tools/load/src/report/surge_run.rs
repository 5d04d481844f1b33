//! [`SurgeRun`], the JSON form of `bench surge`. Members are only added, never changed, so that a report can be
//! compared with an older one.

use serde::{Deserialize, Serialize};

use super::summary::{FailureCount, LatencySummary};
use crate::surge::ShapePoint;

/// One run. Names end with the unit of the value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SurgeRun {
    /// The name in reports.
    pub name: String,
    /// The destination of requests.
    pub url: String,
    /// The name of the shape.
    pub shape: String,
    /// The points of the shape.
    pub points: Vec<ShapePoint>,
    /// The time before the measured time.
    pub warmup_seconds: f64,
    /// The measured time.
    pub duration_seconds: f64,
    /// The number of clients.
    pub clients: usize,
    /// True if clients used their caches.
    pub caches: bool,
    /// The number of times that a client repeats a refused request.
    pub retries: u32,
    /// The time after which a user gives up.
    pub patience_seconds: f64,
    /// The time within which a response is of use.
    pub in_time_ms: f64,
    /// The maximum number of connections.
    pub connections_max: usize,
    /// The largest number of connections that were open.
    pub connections_peak: usize,
    /// The requests that users wanted in the measured time, with all that became of them.
    pub totals: SurgeCounts,
    /// The latency of correct responses of all classes, from the planned time of the attempt.
    pub latency: LatencySummary,
    /// The time from a user's wish to the correct response, with all repetitions.
    pub until_served: LatencySummary,
    /// The same for each class of operations.
    pub classes: Vec<SurgeClass>,
    /// The refused attempts (status 429 and 503), by status and code.
    pub refusals: Vec<FailureCount>,
    /// The failed attempts, by reason.
    pub failures: Vec<FailureCount>,
    /// The beginning of the first wrong response.
    pub example: Option<String>,
    /// The resource usage of the server in the measured time, if its process was given.
    pub server: Option<SurgeServerUsage>,
    /// The subscribers that were connected meanwhile, if there were any.
    pub subscribers: Option<SurgeSubscribers>,
    /// The resource usage of the load generator.
    pub generator: SurgeGeneratorUsage,
    /// The run over time.
    pub intervals: Vec<SurgeInterval>,
    /// The correct responses in a second that the server can give, if somebody has measured them. A comparison of
    /// servers draws the goodput as a part of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<f64>,
}

/// Counts of requests and of attempts to send them. A user's request has one attempt, and one more for each repetition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SurgeCounts {
    /// Requests of users.
    pub offered: u64,
    /// Requests that a client's cache served.
    pub from_cache: u64,
    /// Attempts that were sent.
    pub sent: u64,
    /// Attempts that were sent and repeat an earlier one.
    pub repeated: u64,
    /// Attempts with a response other than a refusal.
    pub admitted: u64,
    /// Attempts with a correct response in time.
    pub good: u64,
    /// Attempts with a correct response that was too late.
    pub late: u64,
    /// Attempts that the server refused (status 429 and 503).
    pub refused: u64,
    /// Attempts with a wrong response, or with none.
    pub failed: u64,
    /// Requests that the client gave up: refused too often, or no patience left.
    pub given_up: u64,
    /// Attempts that the load generator could not send within its bounds.
    pub unsent: u64,
}

/// The results of one class: the operations with one name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SurgeClass {
    /// The name.
    pub name: String,
    /// The counts.
    pub counts: SurgeCounts,
    /// The latency of correct responses, from the planned time of the attempt.
    pub latency: LatencySummary,
    /// The time from a user's wish to the correct response, with all repetitions.
    pub until_served: LatencySummary,
}

/// The resource usage of the server's process in the measured time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SurgeServerUsage {
    /// The process id.
    pub pid: u32,
    /// The number of cores that it kept busy.
    pub cores: f64,
    /// Resident memory at the beginning of the measured time.
    pub resident_begin_mib: f64,
    /// Resident memory at the end of the measured time.
    pub resident_end_mib: f64,
    /// The observed maximum in between.
    pub resident_max_mib: f64,
}

/// The resource usage of the load generator, and whether it kept up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SurgeGeneratorUsage {
    /// The number of cores that it kept busy.
    pub cores: f64,
    /// The same in its busiest interval. Near 1, the load generator is the limit.
    pub cores_max: f64,
    /// The attempts that were handled more than 10 ms after their planned time.
    pub late_sends: u64,
    /// The longest such delay.
    pub late_max_ms: f64,
    /// True if the figures show the limits of the load generator: it was busy, late, or at one of its bounds.
    pub is_bottleneck: bool,
}

/// The subscribers that were connected during a surge.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SurgeSubscribers {
    /// The number of subscribers.
    pub wanted: u64,
    /// The number that was subscribed before the surge.
    pub subscribed: u64,
    /// The connections that ended before the surge did, by reason.
    pub ended: Vec<FailureCount>,
    /// The first problem.
    pub example: Option<String>,
}

/// The results of one interval of a run: a second or more. Requests count when users want them, attempts when they end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SurgeInterval {
    /// The end of the interval, counted from the beginning of the measured time.
    pub at_seconds: f64,
    /// The length of the interval.
    pub seconds: f64,
    /// The counts of the interval.
    pub counts: SurgeCounts,
    /// The refused attempts, by status and code.
    pub refusals: Vec<FailureCount>,
    /// The latency of each class, in the order of [`SurgeRun::classes`].
    pub latency: Vec<SurgeLatency>,
    /// The open connections at the end of the interval.
    pub connections: usize,
    /// The attempts that wait for a connection at the end of the interval.
    pub waiting: usize,
    /// The subscribers, if there are any.
    pub subscribers: Option<SurgeSubscribersInterval>,
    /// The number of cores that the server kept busy.
    pub server_cores: Option<f64>,
    /// The server's resident memory at the end of the interval.
    pub server_resident_mib: Option<f64>,
    /// The number of cores that the load generator kept busy.
    pub generator_cores: f64,
    /// The attempts that the load generator handled too late.
    pub late_sends: u64,
}

/// The latency of the correct responses of one class in one interval; nothing if there were none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SurgeLatency {
    /// The median.
    pub p50_us: Option<f64>,
    /// The 99th percentile.
    pub p99_us: Option<f64>,
}

/// The subscribers in the latest second of an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SurgeSubscribersInterval {
    /// The number of connected subscribers.
    pub subscribed: u64,
    /// The results that all of them received in a second.
    pub results_per_second: f64,
}

impl SurgeRun {
    /// Returns the sum of one count over the intervals: what happened in the measured time, whenever it was wanted.
    pub fn sum(&self, count: impl Fn(&SurgeCounts) -> u64) -> u64 {
        self.intervals.iter().map(|interval| count(&interval.counts)).sum()
    }
}

impl SurgeInterval {
    /// Returns a count as a rate for one second.
    pub fn per_second(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }
}
