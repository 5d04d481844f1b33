//! Runs of `bench subscriptions`: [`SubscriptionRun`] is the JSON form; its members are added to, never changed.

use serde::{Deserialize, Serialize};

use super::{Failure, Latency};
use crate::histogram::Buckets;

/// One run. Times are in the unit that a name ends with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SubscriptionRun {
    /// What a report calls it.
    pub name: String,
    /// Whom clients connected to.
    pub url: String,
    /// What happened to them.
    pub scenario: String,
    /// How many there were to be.
    pub clients: u64,
    /// Keys among them: each event is for the clients of one.
    pub keys: u64,
    /// Bytes of the header that each had of its own.
    pub header_bytes: u64,
    /// How many could subscribe.
    pub subscribed: u64,
    /// Until the last of them was.
    pub joining_seconds: f64,
    /// From the beginning of a connection until the server had read the subscription.
    pub joining: Latency,
    /// Events that were measured.
    pub events: u64,
    /// Events that were to be published a second.
    pub rate: f64,
    /// Results that were to come: for each client the events of its key. Here and in the next five, events that were
    /// published at the end to learn what was lost are included.
    pub expected: u64,
    /// Results that came.
    pub received: u64,
    /// Results that did not come, and that the server said so of.
    pub lost: u64,
    /// Results that did not come, without a word.
    pub missing: u64,
    /// Results that came although nobody expected them.
    pub surplus: u64,
    /// Results that came out of order, or twice.
    pub disordered: u64,
    /// How often a server said that it may have missed events.
    pub gaps: u64,
    /// Results with errors.
    pub errors: u64,
    /// Results that were meant for another client.
    pub foreign: u64,
    /// Results of the measured events.
    pub deliveries: u64,
    /// From the first event to the last result.
    pub deliveries_per_second: f64,
    /// Mean length of their messages.
    pub message_bytes: f64,
    /// The first message.
    pub message: Option<String>,
    /// From publishing to receiving.
    pub latency: Latency,
    /// Connections that ended though nobody meant them to, by reason.
    pub ends: Vec<Failure>,
    /// The first thing that went wrong.
    pub example: Option<String>,
    /// Scenario `slow-consumers`: what became of those that never read.
    pub slow: Option<Slow>,
    /// Scenario `mass-disconnect`.
    pub vanished: Option<Vanished>,
    /// Scenario `reconnect-storm`.
    pub rejoined: Option<Rejoined>,
    /// Scenario `churn`.
    pub churn: Option<Churn>,
    /// Scenario `resubscribe`.
    pub resubscribed: Option<Resubscribed>,
    /// Scenario `throughput`.
    pub throughput: Option<Throughput>,
    /// Where this run stands in plots of several, if it is a point there.
    pub point: Option<Point>,
    /// Scenario `idle`: for how long.
    pub hold_seconds: Option<f64>,
    /// What the server used, if its process was named.
    pub server: Option<Server>,
    /// What the load generator used.
    pub generator: Generator,
    /// The run over time.
    pub intervals: Vec<Interval>,
    /// All latencies: upper ends in microseconds, and counts.
    pub histogram: Buckets,
}

/// What became of the clients that never read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Slow {
    /// How many they were.
    pub clients: u64,
    /// How many were disconnected, or told what they lost.
    pub met_policy: u64,
    /// What became of them.
    pub fates: Vec<Failure>,
}

/// All connections were gone at once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Vanished {
    /// How many they were.
    pub connections: u64,
    /// Until the server had closed their descriptors; nothing where it had not after a minute, or nobody knows.
    pub seconds: Option<f64>,
    /// What forgetting one of them cost the server.
    pub cpu_us_per_connection: Option<f64>,
}

/// All clients came back at once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rejoined {
    /// How many could subscribe again.
    pub subscribed: u64,
    /// Until the last of them was.
    pub seconds: f64,
}

/// Clients came and went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Churn {
    /// How many were to come a second.
    pub rate: f64,
    /// For how long.
    pub seconds: f64,
    /// How many connected, subscribed, unsubscribed and disconnected in good order.
    pub cycles: u64,
    /// How many could not begin, because all clients were busy.
    pub skipped: u64,
    /// How many had not come to their end.
    pub unfinished: u64,
    /// The server's descriptors before anybody came.
    pub descriptors_before: u64,
    /// And after everybody had gone.
    pub descriptors_after: u64,
    /// Its resident memory after the first minute, or the first third.
    pub resident_warm_mib: f64,
    /// Its resident memory at the end.
    pub resident_end_mib: f64,
    /// Whether memory had not grown in between.
    pub is_memory_flat: Option<bool>,
    /// Whether no descriptor was left open.
    pub are_descriptors_closed: Option<bool>,
    /// Memory over time.
    pub samples: Vec<MemorySample>,
}

/// Clients stayed connected, unsubscribed and subscribed again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Resubscribed {
    /// How many were to do so a second.
    pub rate: f64,
    /// For how long.
    pub seconds: f64,
    /// How many unsubscribed and subscribed again.
    pub cycles: u64,
    /// The same for each second.
    pub cycles_per_second: f64,
    /// How many could not begin, because all clients were on the way.
    pub skipped: u64,
    /// How many had not come to rest, those included whose connection ended.
    pub unfinished: u64,
    /// From subscribing again until the server had read that.
    pub latency: Latency,
    /// CPU time of the server for unsubscribing and subscribing once.
    pub server_cpu_us_per_cycle: Option<f64>,
    /// Cores that the server kept busy.
    pub server_cores: Option<f64>,
    /// Its resident memory before.
    pub resident_before_mib: f64,
    /// After the first minute, or the first third.
    pub resident_warm_mib: f64,
    /// At the end.
    pub resident_end_mib: f64,
    /// Whether memory had not grown in between.
    pub is_memory_flat: Option<bool>,
    /// Memory over time.
    pub samples: Vec<MemorySample>,
}

/// As many events as the server takes, in a closed loop.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Throughput {
    /// Events that were on their way at most.
    pub window: u64,
    /// Length of an event.
    pub payload_bytes: u64,
    /// From the first event to the last result.
    pub seconds: f64,
    /// Events that every client got, for each second of that.
    pub events_per_second: f64,
    /// CPU time of all threads of the server for each event, whatever the number of clients.
    pub server_cpu_us_per_event: Option<f64>,
    /// Cores that the server kept busy. Less than it may have: something else was the limit.
    pub server_cores: Option<f64>,
    /// Cores that the load generator kept busy, publisher included.
    pub generator_cores: f64,
}

/// Where a run stands in plots that compare providers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// What differs along the plot.
    pub by: By,
    /// How much of it: bytes, or fields.
    pub at: u64,
    /// Where events came from; a line of its own.
    pub provider: String,
}

/// What differs between the points of a plot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// Bytes of an event, all of which is selected.
    PayloadBytes,
    /// Fields that are selected of an event, beside one.
    PayloadFields,
    /// Fields that are joined from a subgraph, beside one of the event.
    JoinedFields,
}

/// A look at the server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemorySample {
    /// When.
    pub at_seconds: f64,
    /// Its resident memory.
    pub resident_mib: f64,
    /// Its open descriptors.
    pub descriptors: u64,
}

/// What the server's process used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Server {
    /// Its id.
    pub pid: u32,
    /// CPU time of all its threads for each result of the measured events.
    pub cpu_us_per_delivery: Option<f64>,
    /// Cores it kept busy from the first event to the last result.
    pub busy_cores: Option<f64>,
    /// Cores it kept busy while nothing happened.
    pub idle_cores: Option<f64>,
    /// CPU time for each client that connected and subscribed.
    pub cpu_us_per_joining: Option<f64>,
    /// Resident memory before anybody came.
    pub resident_before_mib: f64,
    /// When all were subscribed and nothing had been published.
    pub resident_idle_mib: f64,
    /// At the end.
    pub resident_after_mib: f64,
    /// The most that was seen.
    pub resident_peak_mib: f64,
    /// Growth from before to idle, for each subscription.
    pub bytes_per_subscription: f64,
    /// Threads before anybody came.
    pub threads_before: u64,
    /// When all were subscribed.
    pub threads_idle: u64,
    /// At the end.
    pub threads_after: u64,
    /// Open descriptors before anybody came.
    pub descriptors_before: u64,
    /// When all were subscribed.
    pub descriptors_idle: u64,
    /// At the end.
    pub descriptors_after: u64,
}

/// What the load generator used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Generator {
    /// Cores it kept busy in all.
    pub cores: f64,
    /// CPU time for each result of the measured events. Where it is more than the server's, it is the load generator
    /// that is measured.
    pub cpu_us_per_delivery: Option<f64>,
}

/// A second of a run, or some.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interval {
    /// Its end, from the beginning of the run.
    pub at_seconds: f64,
    /// How many were subscribed then.
    pub subscribed: u64,
    /// Results a second.
    pub deliveries_per_second: f64,
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

impl SubscriptionRun {
    /// Whether everybody got what they were to get, or was told of what they did not.
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
        // Nothing is lost where nobody is sent more than it takes.
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
    fn whatever_is_missing_makes_a_run_unsound() {
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
            |run| run.ends.push(Failure { what: "x".to_owned(), count: 1 }),
            |run| run.slow = Some(Slow { clients: 2, met_policy: 1, fates: Vec::new() }),
            |run| {
                run.churn = Some(Churn { is_memory_flat: Some(false), ..Churn::default() });
            },
            |run| run.foreign = 1,
            |run| run.resubscribed = Some(Resubscribed { skipped: 1, ..Resubscribed::default() }),
            |run| {
                (run.lost, run.received) = (1, 99);
                run.throughput = Some(Throughput::default());
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
