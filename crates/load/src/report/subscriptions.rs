//! Runs of `bench subscriptions`: [`SubscriptionRun`] is the JSON form; its members are added to, never changed.

use serde::{Deserialize, Serialize};

use super::page::{document, percentiles};
use super::plot::{Axes, Line, svg};
use super::table::{Row, applying, side_by_side};
use super::{Failure, Latency, points};
use crate::histogram::Buckets;
use crate::units::{show_count, show_duration, show_number};

/// Above this share of a core the load generator is likely to be what limits.
const GENERATOR_CORES_WARN: f64 = 0.9;

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

/// The runs side by side, and below what needs saying about them. The first one is what the others are compared with,
/// where it is a floor.
pub fn text(runs: &[SubscriptionRun]) -> String {
    if let Some(points) = points::of(runs) {
        return points.text();
    }
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    side_by_side(&names, &rows(runs), &remarks(runs))
}

/// The same as a page with plots.
pub fn html(title: &str, runs: &[SubscriptionRun]) -> String {
    if let Some(points) = points::of(runs) {
        return points.html(title);
    }
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    document(title, &names, &rows(runs), &remarks(runs), &plots(runs))
}

fn rows(runs: &[SubscriptionRun]) -> Vec<Row> {
    let us = |value: f64| Some(show_duration(value / 1e6));
    let seconds = |value: f64| Some(show_duration(value));
    let mib = |value: f64| Some(format!("{value:.1} MiB"));
    let count = |value: u64| Some(show_count(value));
    let cores = |value: f64| Some(format!("{value:.2}"));
    let some = |value: u64| (value > 0).then(|| show_count(value));
    let of = |value: &dyn Fn(&SubscriptionRun) -> Option<String>| {
        runs.iter().map(value).collect::<Vec<_>>()
    };
    let server = |value: &dyn Fn(&Server) -> Option<String>| {
        runs.iter().map(|run| value(run.server.as_ref()?)).collect::<Vec<_>>()
    };
    let latency = |value: fn(&Latency) -> f64| {
        of(&|run| us(value((run.deliveries > 0).then_some(&run.latency)?)))
    };
    applying(vec![
        ("scenario", of(&|run| Some(run.scenario.clone()))),
        ("clients", of(&|run| count(run.clients))),
        ("subscribed", of(&|run| run.churn.is_none().then(|| show_count(run.subscribed)))),
        (
            "  all within",
            of(&|run| seconds((run.joining_seconds > 0.0).then_some(run.joining_seconds)?)),
        ),
        ("  each within, p50", of(&|run| us(run.joining.p50_us))),
        ("  each within, p99", of(&|run| us(run.joining.p99_us))),
        ("keys", of(&|run| (run.keys > 1).then(|| show_count(run.keys)))),
        ("own header, bytes", of(&|run| some(run.header_bytes))),
        ("came and went", of(&|run| count(run.churn.as_ref()?.cycles))),
        (
            "  1/s",
            of(&|run| {
                run.churn.as_ref().map(|it| show_number(it.cycles as f64 / it.seconds.max(1e-9)))
            }),
        ),
        ("unsubscribed and subscribed", of(&|run| count(run.resubscribed.as_ref()?.cycles))),
        ("  1/s", of(&|run| Some(show_number(run.resubscribed.as_ref()?.cycles_per_second)))),
        ("  each within, p50", of(&|run| us(run.resubscribed.as_ref()?.latency.p50_us))),
        ("  each within, p99", of(&|run| us(run.resubscribed.as_ref()?.latency.p99_us))),
        (
            "  server CPU for each",
            of(&|run| us(run.resubscribed.as_ref()?.server_cpu_us_per_cycle?)),
        ),
        ("  server cores", of(&|run| cores(run.resubscribed.as_ref()?.server_cores?))),
        ("events", of(&|run| some(run.events))),
        ("  event, bytes", of(&|run| count(run.throughput.as_ref()?.payload_bytes))),
        ("  on their way at most", of(&|run| count(run.throughput.as_ref()?.window))),
        (
            "  through, 1/s",
            of(&|run| Some(show_number(run.throughput.as_ref()?.events_per_second))),
        ),
        ("  server CPU for each", of(&|run| us(run.throughput.as_ref()?.server_cpu_us_per_event?))),
        (
            "  published, 1/s",
            of(&|run| {
                let has_pace = run.events > 0 && run.throughput.is_none();
                has_pace.then(|| show_number(run.rate))
            }),
        ),
        ("results, expected", of(&|run| some(run.expected))),
        ("  received", of(&|run| (run.expected > 0).then(|| show_count(run.received)))),
        ("  lost, and told", of(&|run| (run.expected > 0).then(|| show_count(run.lost)))),
        ("  missing", of(&|run| (run.expected > 0).then(|| show_count(run.missing)))),
        ("  out of order", of(&|run| some(run.disordered))),
        ("  with errors", of(&|run| some(run.errors))),
        ("  of other clients", of(&|run| some(run.foreign))),
        (
            "results, 1/s",
            of(&|run| (run.deliveries > 0).then(|| show_number(run.deliveries_per_second))),
        ),
        ("message, bytes", of(&|run| (run.deliveries > 0).then(|| show_number(run.message_bytes)))),
        ("latency p50", latency(|it| it.p50_us)),
        ("  p90", latency(|it| it.p90_us)),
        ("  p99", latency(|it| it.p99_us)),
        ("  p99.9", latency(|it| it.p999_us)),
        ("  max", latency(|it| it.max_us)),
        ("never read", of(&|run| count(run.slow.as_ref()?.clients))),
        ("  met their policy", of(&|run| count(run.slow.as_ref()?.met_policy))),
        ("all came back within", of(&|run| seconds(run.rejoined.as_ref()?.seconds))),
        ("all forgotten within", of(&|run| seconds(run.vanished.as_ref()?.seconds?))),
        ("  server CPU for each", of(&|run| us(run.vanished.as_ref()?.cpu_us_per_connection?))),
        ("server CPU per result", server(&|it| us(it.cpu_us_per_delivery?))),
        ("server CPU per joining", server(&|it| us(it.cpu_us_per_joining?))),
        ("server cores, busy", server(&|it| cores(it.busy_cores?))),
        ("server cores, idle", server(&|it| it.idle_cores.map(|cores| format!("{cores:.4}")))),
        ("server memory, before", server(&|it| mib(it.resident_before_mib))),
        ("  all subscribed", server(&|it| mib(it.resident_idle_mib))),
        ("  at the end", server(&|it| mib(it.resident_after_mib))),
        ("  at most", server(&|it| mib(it.resident_peak_mib))),
        ("  a subscription, bytes", server(&|it| Some(show_number(it.bytes_per_subscription)))),
        (
            "server threads",
            server(&|it| {
                Some(format!("{} → {} → {}", it.threads_before, it.threads_idle, it.threads_after))
            }),
        ),
        (
            "server descriptors",
            server(&|it| {
                let (before, idle) = (it.descriptors_before, it.descriptors_idle);
                (idle > 0).then(|| format!("{before} → {idle} → {}", it.descriptors_after))
            }),
        ),
        ("server memory, warm", of(&|run| mib(run.churn.as_ref()?.resident_warm_mib))),
        ("server memory, end", of(&|run| mib(run.churn.as_ref()?.resident_end_mib))),
        ("server memory, before", of(&|run| mib(run.resubscribed.as_ref()?.resident_before_mib))),
        ("  warm", of(&|run| mib(run.resubscribed.as_ref()?.resident_warm_mib))),
        ("  end", of(&|run| mib(run.resubscribed.as_ref()?.resident_end_mib))),
        ("generator CPU per result", of(&|run| us(run.generator.cpu_us_per_delivery?))),
        ("generator cores", of(&|run| Some(format!("{:.2}", run.generator.cores)))),
    ])
}

/// What a reader should know before believing the figures, run by run.
fn remarks(runs: &[SubscriptionRun]) -> Vec<Vec<String>> {
    let floor = runs.first().filter(|run| run.name == "floor");
    let each = runs.iter().map(|run| {
        let mut remarks = remarks_of(run);
        if let Some(floor) = floor.filter(|floor| !std::ptr::eq(*floor, run)) {
            remarks.extend(ratios(floor, run));
        }
        remarks
    });
    each.collect()
}

pub(super) fn remarks_of(run: &SubscriptionRun) -> Vec<String> {
    let mut remarks = Vec::new();
    for failure in &run.ends {
        remarks.push(format!("{} × {}", show_count(failure.count), failure.what));
    }
    if let Some(slow) = &run.slow {
        for fate in &slow.fates {
            remarks.push(format!(
                "of those that never read, {}: {}",
                show_count(fate.count),
                fate.what
            ));
        }
    }
    if let Some(example) = &run.example {
        remarks.push(format!("the first thing that went wrong: {example}"));
    }
    if run.missing > 0 {
        let share = run.missing as f64 / run.expected.max(1) as f64 * 100.0;
        remarks.push(format!("{share:.2} % of all results were lost without a word"));
    }
    if run.gaps > 0 {
        remarks.push(format!("{} × told of a possible gap", show_count(run.gaps)));
    }
    if run.vanished.as_ref().is_some_and(|it| it.seconds.is_none()) {
        remarks.push("the server had not closed all connections after a minute".to_owned());
    }
    if let Some(churn) = &run.churn {
        for (verdict, well, badly) in [
            (churn.is_memory_flat, "memory is flat", "memory grows"),
            (
                churn.are_descriptors_closed,
                "no descriptor was left open",
                "descriptors were left open",
            ),
        ] {
            remarks.extend(verdict.map(|is_well| if is_well { well } else { badly }.to_owned()));
        }
        if churn.skipped + churn.unfinished > 0 {
            remarks.push(format!(
                "the server did not keep up: {} could not begin, {} came to no end",
                show_count(churn.skipped),
                show_count(churn.unfinished)
            ));
        }
    }
    if run.foreign > 0 {
        remarks.push(format!("{} × a result of another client", show_count(run.foreign)));
    }
    if let Some(resubscribed) = &run.resubscribed {
        remarks.extend(
            resubscribed
                .is_memory_flat
                .map(|is_flat| if is_flat { "memory is flat" } else { "memory grows" }.to_owned()),
        );
        if resubscribed.skipped + resubscribed.unfinished > 0 {
            remarks.push(format!(
                "the server did not keep up: {} could not begin, {} came to no end",
                show_count(resubscribed.skipped),
                show_count(resubscribed.unfinished)
            ));
        }
    }
    let server_cpu = run.server.as_ref().and_then(|server| server.cpu_us_per_delivery);
    let is_heavier =
        run.generator.cpu_us_per_delivery.zip(server_cpu).is_some_and(|(own, server)| own > server);
    let is_full = run.generator.cores > GENERATOR_CORES_WARN;
    if is_heavier || is_full {
        remarks.push(
            "the load generator had as much to do as the server: on an equal core, latencies are its own too".to_owned(),
        );
    }
    remarks
}

/// How a run compares with the floor: 1 is as much as the least work there is.
fn ratios(floor: &SubscriptionRun, run: &SubscriptionRun) -> Vec<String> {
    let cpu = |run: &SubscriptionRun| run.server.as_ref()?.cpu_us_per_delivery;
    let mut parts = Vec::new();
    if let (Some(floor), Some(own)) = (cpu(floor), cpu(run))
        && floor > 0.0
    {
        parts.push(format!("CPU per result {:.2}", own / floor));
    }
    for (name, value) in [("p50", (|it| it.p50_us) as fn(&Latency) -> f64), ("p99", |it| it.p99_us)]
    {
        let (floor, own) = (value(&floor.latency), value(&run.latency));
        if floor > 0.0 && own > 0.0 {
            parts.push(format!("{name} {:.2}", own / floor));
        }
    }
    if parts.is_empty() {
        Vec::new()
    } else {
        vec![format!("times the floor: {}", parts.join(", "))]
    }
}

/// What a line shows of an interval.
type Value = fn(&Interval) -> Option<f64>;

fn plots(runs: &[SubscriptionRun]) -> String {
    let histograms: Vec<_> = runs.iter().map(|run| (run.name.as_str(), &run.histogram)).collect();
    let mut out = percentiles("results", &histograms);
    let mut over_time = |title: &str, y: &str, values: &[(bool, Value)]| {
        let mut lines = Vec::new();
        for (colour, run) in runs.iter().enumerate() {
            for (dashed, value) in values {
                let at = |it: &Interval| value(it).map(|value| (it.at_seconds, value));
                let points = run.intervals.iter().filter_map(at).collect();
                lines.push(Line { name: run.name.clone(), colour, dashed: *dashed, points });
            }
        }
        out.push_str(&svg(
            &Axes { title, x: "seconds", y, x_ticks: &[], y_logarithmic: false, is_sparse: false },
            &lines,
        ));
    };
    over_time("Subscribed clients", "clients", &[(false, |it| Some(it.subscribed as f64))]);
    over_time("Results a second", "1/s", &[(false, |it| Some(it.deliveries_per_second))]);
    over_time(
        "Latency over time: p50, and p99 dashed",
        "ms",
        &[
            (false, |it| (it.p50_us > 0.0).then_some(it.p50_us / 1e3)),
            (true, |it| (it.p99_us > 0.0).then_some(it.p99_us / 1e3)),
        ],
    );
    over_time("Server: cores in use", "cores", &[(false, |it| it.server_cores)]);
    over_time("Server: resident memory", "MiB", &[(false, |it| it.server_resident_mib)]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, cpu: f64, p99: f64) -> SubscriptionRun {
        SubscriptionRun {
            name: name.to_owned(),
            scenario: "fan-out".to_owned(),
            clients: 10,
            subscribed: 10,
            expected: 100,
            received: 100,
            deliveries: 100,
            latency: Latency { p50_us: 10.0, p99_us: p99, ..Latency::default() },
            server: Some(Server { cpu_us_per_delivery: Some(cpu), ..Server::default() }),
            intervals: vec![Interval { at_seconds: 1.0, ..Interval::default() }],
            ..SubscriptionRun::default()
        }
    }

    #[test]
    fn a_run_is_compared_with_the_floor_before_it() {
        let text = text(&[run("floor", 8.0, 100.0), run("router", 10.0, 150.0)]);
        let expected = "router: times the floor: CPU per result 1.25, p50 1.00, p99 1.50";
        assert!(text.lines().any(|line| line == expected), "{text}");
        let alone = super::text(&[run("router", 10.0, 150.0)]);
        assert!(!alone.contains("floor"), "{alone}");
    }

    #[test]
    fn whatever_is_missing_makes_a_run_unsound() {
        let sound = run("a", 1.0, 1.0);
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
        let told = SubscriptionRun { received: 90, lost: 10, ..sound };
        assert!(told.is_sound(), "what was told is not missing");
    }

    #[test]
    fn a_page_has_a_plot_for_everything_that_changes() {
        let page = html("t", &[run("a <b>", 1.0, 1.0)]);
        assert!(page.contains("a &lt;b&gt;") && !page.contains("<script"));
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert!(page.contains("Subscribed clients"));
    }
}
