//! `cargo xtask bench events`: the rate of events through one trigger, by provider, event size and number of selected
//! fields.
//!
//! The load generator publishes as fast as the router consumes: a bounded window of events is in flight, so that no
//! queue is ever full and every loss is a defect. An event counts when all subscribers, one or a hundred, have
//! received it.

use crate::brokers::Broker;
use crate::reports::{check_run, number};
use crate::server_process::ServerProcess;
use crate::setup::{Bench, Defaults};
use crate::statistics::Samples;
use serde_json::{Value, json};
use test_kit::commands::Failure;

/// The defaults of `bench events`. A pair is one measurement of each point.
pub(crate) const DEFAULTS: Defaults = Defaults { seconds: 2, pairs: 3 };

/// The event sizes to measure, in bytes.
const SIZES: [usize; 5] = [100, 1_000, 4_000, 16_000, 64_000];

/// The numbers of fields to select in addition to the event's id.
const FIELDS: [usize; 3] = [1, 10, 50];

/// The number of fields of each kind in the graph.
const FIELDS_MAX: usize = 50;

/// The numbers of subscribers to which each event is sent.
const SUBSCRIBERS: [u32; 2] = [1, 100];

/// The maximum number of events in flight: the capacity of the hub's queue for one group.
const WINDOW_MAX: usize = 64;

/// The maximum bytes of events in flight: half of a client's queue (`subscriptions.queue_bytes`).
const WINDOW_BYTES: usize = 512 * 1024;

/// The silence after which missing events count as lost.
const QUIET_TIME: &str = "10s";

/// A placeholder with the length of the timestamp that each event carries.
const TIMESTAMP: &str = "1790000000000001";

/// One configuration to measure.
struct Point {
    /// The name that `--filter` matches.
    name: String,
    /// The name of the varied quantity in the report, and its value.
    by: &'static str,
    at: usize,
    query: String,
    event: String,
    padding: usize,
}

impl Point {
    /// Returns all points, in the order of the plots.
    fn all() -> Vec<Self> {
        let mut points: Vec<Self> = SIZES.into_iter().map(Self::with_size).collect();
        points.push(Self::with_fields("payload-fields", "p", 0));
        for (by, letter) in [("payload-fields", "p"), ("joined-fields", "j")] {
            points.extend(FIELDS.map(|fields| Self::with_fields(by, letter, fields)));
        }
        points
    }

    /// Creates the point for an event of `bytes` bytes with all content selected.
    fn with_size(bytes: usize) -> Self {
        let event = r#"{"__typename":"Event","id":"$T","note":"$P"}"#;
        let fixed = event.replace("$T", TIMESTAMP).replace("$P", "").len();
        Self {
            name: format!("payload-bytes-{bytes}"),
            by: "payload-bytes",
            at: bytes,
            query: "subscription { event { id note } }".to_owned(),
            event: event.to_owned(),
            padding: bytes.saturating_sub(fixed),
        }
    }

    /// Creates the point for a fixed event of which `fields` fields are selected, or to which `fields` fields are
    /// joined.
    fn with_fields(by: &'static str, letter: &str, fields: usize) -> Self {
        let carried: String =
            (1..=FIELDS_MAX).map(|field| format!(r#","p{field}":"value {field}""#)).collect();
        let selected: String = (1..=fields).map(|field| format!(" {letter}{field}")).collect();
        Self {
            name: format!("{by}-{fields}"),
            by,
            at: fields,
            query: format!("subscription {{ event {{ id{selected} }} }}"),
            event: format!(r#"{{"__typename":"Event","id":"$T"{carried}}}"#),
            padding: 0,
        }
    }

    fn bytes(&self) -> usize {
        self.event.replace("$T", TIMESTAMP).replace("$P", "").len() + self.padding
    }

    /// Returns the number of events that may be in flight.
    fn window(&self) -> usize {
        (WINDOW_BYTES / self.bytes()).clamp(1, WINDOW_MAX)
    }
}

/// Measures every point with `filter` in its name, with each provider.
pub(crate) fn run(bench: &Bench, filter: Option<&str>) -> Result<(), Failure> {
    let mut points = Point::all();
    points.retain(|point| filter.is_none_or(|filter| point.name.contains(filter)));
    if points.is_empty() {
        let names: Vec<String> = Point::all().into_iter().map(|point| point.name).collect();
        return Err(format!("no point has that in its name; the points are {}", names.join(", ")));
    }
    let supergraph = bench.file("benches/events/supergraph.graphql");
    let mock = bench.start_mock(&supergraph)?;
    let mut runs = Vec::new();
    println!(
        "\n| provider | what | event, bytes | subscribers | events/s | CPU per event, µs | router cores | generator cores | p50, ms |\n|---|---|---|---|---|---|---|---|---|"
    );
    for &provider in &bench.providers {
        let broker = Broker::start(bench, provider)?;
        for point in &points {
            for subscribers in SUBSCRIBERS {
                runs.extend(measure_point(bench, &broker, point, subscribers, &mock)?);
            }
        }
    }
    let name = match bench.providers[..] {
        [provider] => format!("events-{}", provider.key()),
        _ => "events".to_owned(),
    };
    bench.write_report(&name, &runs)
}

/// Measures one point `bench.pairs` times, each time with a fresh router.
fn measure_point(
    bench: &Bench,
    broker: &Broker,
    point: &Point,
    subscribers: u32,
    mock: &ServerProcess,
) -> Result<Vec<Value>, Failure> {
    let [mut rate, mut cpu, mut cores, mut generator, mut p50] =
        [(); 5].map(|()| Samples::default());
    let mut runs = Vec::new();
    let provider = broker.provider;
    for _ in 0..bench.pairs {
        let router = broker.start_router(bench, mock)?;
        let name = format!("{} {}, {subscribers} subscribers", provider.name(), point.name);
        let mut words: Vec<String> = Vec::new();
        for (flag, value) in [
            ("--scenario", "throughput".to_owned()),
            ("--name", name),
            ("--query", point.query.clone()),
            ("--event", point.event.clone()),
            ("--padding", point.padding.to_string()),
            ("--window", point.window().to_string()),
            ("--clients", subscribers.to_string()),
            ("--duration", format!("{}s", bench.seconds)),
            ("--quiet-time", QUIET_TIME.to_owned()),
            ("--publish", broker.destination(&router, "bench")?),
        ] {
            words.extend([flag.to_owned(), value]);
        }
        let mut run = bench.run_subscription_load(&router, words)?;
        check_run(&run)?;
        let throughput = &run["throughput"];
        if number(&run["lost"]) > 0.0 || number(&throughput["events_per_second"]) == 0.0 {
            return Err(format!(
                "{}: {} results lost, of {}",
                run["name"], run["lost"], run["expected"]
            ));
        }
        if number(&throughput["payload_bytes"]) != point.bytes() as f64 {
            return Err(format!(
                "{}: events had {} bytes",
                run["name"], throughput["payload_bytes"]
            ));
        }
        rate.push(number(&throughput["events_per_second"]));
        cpu.push(number(&throughput["server_cpu_us_per_event"]));
        cores.push(number(&throughput["server_cores"]));
        generator.push(number(&throughput["generator_cores"]));
        p50.push(number(&run["latency"]["p50_us"]) / 1e3);
        run["point"] = json!({ "by": point.by, "at": point.at, "provider": provider.name() });
        runs.push(run);
    }
    println!(
        "| {} | {} | {} | {subscribers} | {} | {:.1} | {:.2} | {:.2} | {:.2} |",
        provider.name(),
        point.name,
        point.bytes(),
        rate.format_with_range(0),
        cpu.median(),
        cores.median(),
        generator.median(),
        p50.median(),
    );
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_the_requested_size_and_windows_fit_into_queues() {
        for (point, (size, window)) in Point::all().iter().zip([
            (100, 64),
            (1_000, 64),
            (4_000, 64),
            (16_000, 32),
            (64_000, 8),
        ]) {
            assert_eq!((point.bytes(), point.window()), (size, window), "{}", point.name);
        }
    }

    #[test]
    fn selections_differ_but_their_event_is_the_same() {
        let points = Point::all();
        let selections = &points[SIZES.len()..];
        assert_eq!(selections.len(), 7);
        assert!(selections.iter().all(|point| point.event == selections[0].event));
        assert_eq!(selections[0].query, "subscription { event { id } }");
        assert_eq!(selections[4].query, "subscription { event { id j1 } }");
        assert!(
            selections[3].query.ends_with(" p50 } }") && selections[6].query.ends_with(" j50 } }")
        );
    }
}
