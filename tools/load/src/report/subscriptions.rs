//! The JSON form of `bench subscriptions`: [`SubscriptionRun`]. Members are only added, never changed.

use serde::{Deserialize, Serialize};

use super::summary::{FailureCount, LatencySummary};
use crate::histogram::Buckets;

/// One run. Names end with the unit of the value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SubscriptionRun {
    /// The name in reports.
    pub name: String,
    /// The URL that clients connected to.
    pub url: String,
    /// The scenario.
    pub scenario: String,
    /// The requested number of clients.
    pub clients: u64,
    /// The number of keys: each event is for the clients of one key.
    pub keys: u64,
    /// The length of the unique header of each client.
    pub header_bytes: u64,
    /// The number of clients that could subscribe. With events, those that were subscribed when the counts began.
    pub subscribed: u64,
    /// The time until the last client was subscribed.
    pub joining_seconds: f64,
    /// The time from the beginning of a connection until the server had read the subscription.
    pub joining: LatencySummary,
    /// The number of measured events.
    pub events: u64,
    /// The requested number of events a second.
    pub rate: f64,
    /// The number of expected results: for each client the events of its key. This and the next five members include
    /// events that were published at the end to learn what was lost.
    pub expected: u64,
    /// The number of received results.
    pub received: u64,
    /// The number of results that were not received and that the server announced as lost.
    pub lost: u64,
    /// The number of results that were not received and not announced as lost.
    pub missing: u64,
    /// The number of received results that were not expected.
    pub surplus: u64,
    /// The number of results received out of order, or twice.
    pub disordered: u64,
    /// The number of announcements of a server that it may have missed events.
    pub gaps: u64,
    /// The number of results with errors.
    pub errors: u64,
    /// The number of results that were meant for another client.
    pub foreign: u64,
    /// The number of results of the measured events.
    pub deliveries: u64,
    /// Results a second, from the first event to the last result.
    pub deliveries_per_second: f64,
    /// The mean length of the messages of results.
    pub message_bytes: f64,
    /// The first message.
    pub message: Option<String>,
    /// The time from publishing to receiving.
    pub latency: LatencySummary,
    /// The connections that ended unexpectedly, by reason.
    pub ends: Vec<FailureCount>,
    /// The refusals after which clients returned, by reason.
    pub returns: Vec<FailureCount>,
    /// The first problem.
    pub example: Option<String>,
    /// Scenario `slow-consumers`: the outcome for clients that never read.
    pub slow: Option<SlowConsumerReport>,
    /// Scenario `mass-disconnect`.
    pub vanished: Option<DisconnectReport>,
    /// Scenario `reconnect-storm`.
    pub rejoined: Option<ReconnectReport>,
    /// Scenario `churn`.
    pub churn: Option<ChurnReport>,
    /// Scenario `resubscribe`.
    pub resubscribed: Option<ResubscribeReport>,
    /// Scenario `throughput`.
    pub throughput: Option<ThroughputReport>,
    /// The position of this run in plots of several runs, if it is a point of one.
    pub point: Option<PlotPoint>,
    /// Scenario `idle`: its duration.
    pub hold_seconds: Option<f64>,
    /// The resource usage of the server, if its process was given.
    pub server: Option<SubscriptionServerUsage>,
    /// The resource usage of the load generator.
    pub generator: SubscriptionGeneratorUsage,
    /// The run over time.
    pub intervals: Vec<SubscriptionInterval>,
    /// All latencies: upper ends of buckets in microseconds, and counts.
    pub histogram: Buckets,
}

/// The outcome for clients that never read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlowConsumerReport {
    /// The number of these clients.
    pub clients: u64,
    /// The number of these clients that were disconnected, or received a notice of their losses.
    pub met_policy: u64,
    /// The outcomes, with their numbers.
    pub fates: Vec<FailureCount>,
}

/// The server's reaction when all connections are dropped at the same time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DisconnectReport {
    /// The number of connections.
    pub connections: u64,
    /// The time until the server had closed their descriptors; `None` if it took more than a minute, or is not known.
    pub seconds: Option<f64>,
    /// The CPU time of the server for releasing one connection.
    pub cpu_us_per_connection: Option<f64>,
}

/// The reconnection of all clients at the same time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReconnectReport {
    /// The number of clients that could subscribe again.
    pub subscribed: u64,
    /// The time until the last of them was subscribed.
    pub seconds: f64,
}

/// Clients that connect, subscribe, unsubscribe and disconnect.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChurnReport {
    /// The requested number of clients a second.
    pub rate: f64,
    /// The duration.
    pub seconds: f64,
    /// The number of clients that connected, subscribed, unsubscribed and disconnected regularly.
    pub cycles: u64,
    /// The number of clients that could not start, because all clients were busy.
    pub skipped: u64,
    /// The number of clients that had not finished at the end.
    pub unfinished: u64,
    /// The server's open descriptors before the first client.
    pub descriptors_before: u64,
    /// The server's open descriptors after the last client.
    pub descriptors_after: u64,
    /// The server's resident memory after the first minute, or the first third.
    pub resident_warm_mib: f64,
    /// The server's resident memory at the end.
    pub resident_end_mib: f64,
    /// True if memory had not grown in between.
    pub is_memory_flat: Option<bool>,
    /// True if no descriptor was left open.
    pub are_descriptors_closed: Option<bool>,
    /// Memory over time.
    pub samples: Vec<MemorySample>,
}

/// Clients that stay connected, unsubscribe and subscribe again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResubscribeReport {
    /// The requested number of cycles a second.
    pub rate: f64,
    /// The duration.
    pub seconds: f64,
    /// The number of cycles: unsubscribed and subscribed again.
    pub cycles: u64,
    /// Cycles a second.
    pub cycles_per_second: f64,
    /// The number of cycles that could not start, because all clients were in transition.
    pub skipped: u64,
    /// The number of clients that were still in transition at the end, or whose connection ended.
    pub unfinished: u64,
    /// The time from subscribing again until the server had read the message.
    pub latency: LatencySummary,
    /// CPU time of the server for one cycle.
    pub server_cpu_us_per_cycle: Option<f64>,
    /// The number of cores that the server kept busy.
    pub server_cores: Option<f64>,
    /// The server's resident memory before the first cycle.
    pub resident_before_mib: f64,
    /// The server's resident memory after the first minute, or the first third.
    pub resident_warm_mib: f64,
    /// The server's resident memory at the end.
    pub resident_end_mib: f64,
    /// True if memory had not grown in between.
    pub is_memory_flat: Option<bool>,
    /// Memory over time.
    pub samples: Vec<MemorySample>,
}

/// The maximum rate of events, measured in a closed loop.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThroughputReport {
    /// The maximum number of events in flight.
    pub window: u64,
    /// The length of an event.
    pub payload_bytes: u64,
    /// The time from the first event to the last result.
    pub seconds: f64,
    /// The number of events a second that every client received.
    pub events_per_second: f64,
    /// CPU time of all threads of the server for each event, for any number of clients.
    pub server_cpu_us_per_event: Option<f64>,
    /// The number of cores that the server kept busy. If it is less than the server may use, something else was the
    /// limit.
    pub server_cores: Option<f64>,
    /// The number of cores that the load generator kept busy, including the publisher.
    pub generator_cores: f64,
}

/// The position of a run in plots that compare providers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlotPoint {
    /// The quantity along the x axis.
    pub by: PlotAxis,
    /// Its value: bytes, or fields.
    pub at: u64,
    /// The provider of events; each has a line of its own.
    pub provider: String,
}

/// The quantity that differs between the points of a plot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlotAxis {
    /// The bytes of an event that is selected completely.
    PayloadBytes,
    /// The number of selected fields of an event, in addition to one.
    PayloadFields,
    /// The number of fields joined from a subgraph, in addition to one field of the event.
    JoinedFields,
}

/// One observation of the server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemorySample {
    /// The time of the observation.
    pub at_seconds: f64,
    /// Resident memory.
    pub resident_mib: f64,
    /// The number of open descriptors.
    pub descriptors: u64,
}

/// The resource usage of the server's process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SubscriptionServerUsage {
    /// The process id.
    pub pid: u32,
    /// CPU time of all its threads for each result of the measured events.
    pub cpu_us_per_delivery: Option<f64>,
    /// The number of cores that it kept busy from the first event to the last result.
    pub busy_cores: Option<f64>,
    /// The number of cores that it kept busy without events.
    pub idle_cores: Option<f64>,
    /// CPU time for each client that connected and subscribed.
    pub cpu_us_per_joining: Option<f64>,
    /// Resident memory before the first client.
    pub resident_before_mib: f64,
    /// Resident memory when all clients were subscribed and nothing had been published.
    pub resident_idle_mib: f64,
    /// Resident memory at the end.
    pub resident_after_mib: f64,
    /// The observed maximum of resident memory.
    pub resident_peak_mib: f64,
    /// The growth of memory from before to idle, for each subscription.
    pub bytes_per_subscription: f64,
    /// Threads before the first client.
    pub threads_before: u64,
    /// Threads when all clients were subscribed.
    pub threads_idle: u64,
    /// Threads at the end.
    pub threads_after: u64,
    /// Open descriptors before the first client.
    pub descriptors_before: u64,
    /// Open descriptors when all clients were subscribed.
    pub descriptors_idle: u64,
    /// Open descriptors at the end.
    pub descriptors_after: u64,
}

/// The resource usage of the load generator.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SubscriptionGeneratorUsage {
    /// The number of cores that it kept busy during the run.
    pub cores: f64,
    /// CPU time for each result of the measured events. If it exceeds the server's, the load generator is the limit.
    pub cpu_us_per_delivery: Option<f64>,
}

/// The results of one interval of a run: a second or more.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SubscriptionInterval {
    /// The end of the interval, counted from the beginning of the run.
    pub at_seconds: f64,
    /// The number of subscribed clients at that time.
    pub subscribed: u64,
    /// Results a second.
    pub deliveries_per_second: f64,
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

impl SubscriptionRun {
    /// True if all clients received all their results, or a notice of the missing ones, and nothing else went wrong.
    pub fn is_sound(&self) -> bool {
        let all_joined = self.subscribed == self.clients || self.churn.is_some();
        let all_met = self.slow.as_ref().is_none_or(|slow| slow.met_policy == slow.clients);
        let all_back = self.rejoined.as_ref().is_none_or(|it| it.subscribed == self.clients);
        let all_gone = self.vanished.as_ref().is_none_or(|it| it.seconds.is_some());
        let churned = self.churn.as_ref().is_none_or(|churn| {
            churn.is_memory_flat != Some(false)
                && churn.are_descriptors_closed != Some(false)
                && churn.unfinished == 0
        });
        let resubscribed = self
            .resubscribed
            .as_ref()
            .is_none_or(|it| it.is_memory_flat != Some(false) && it.skipped + it.unfinished == 0);
        // A closed loop never sends more than clients can take, so nothing may be lost.
        let all_through = self.throughput.is_none() || (self.events > 0 && self.lost == 0);
        let wrong = self.missing + self.surplus + self.disordered + self.errors + self.foreign;
        all_joined
            && all_met
            && all_back
            && all_gone
            && churned
            && resubscribed
            && all_through
            && wrong == 0
            && self.ends.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_missing_result_makes_a_run_unsound() {
        let sound = SubscriptionRun {
            clients: 10,
            subscribed: 10,
            expected: 100,
            received: 100,
            ..SubscriptionRun::default()
        };
        assert!(sound.is_sound());
        let changes: [fn(&mut SubscriptionRun); 10] = [
            |run| run.missing = 1,
            |run| run.disordered = 1,
            |run| run.errors = 1,
            |run| run.subscribed = 9,
            |run| run.ends.push(FailureCount { what: "x".to_owned(), count: 1 }),
            |run| {
                run.slow =
                    Some(SlowConsumerReport { clients: 2, met_policy: 1, fates: Vec::new() });
            },
            |run| {
                run.churn =
                    Some(ChurnReport { is_memory_flat: Some(false), ..ChurnReport::default() });
            },
            |run| run.foreign = 1,
            |run| {
                run.resubscribed =
                    Some(ResubscribeReport { skipped: 1, ..ResubscribeReport::default() });
            },
            |run| {
                (run.lost, run.received) = (1, 99);
                run.throughput = Some(ThroughputReport::default());
            },
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut run = sound.clone();
            change(&mut run);
            assert!(!run.is_sound(), "change {number}");
        }
        let announced = SubscriptionRun { received: 90, lost: 10, ..sound };
        assert!(announced.is_sound(), "an announced loss is not missing");
    }
}
