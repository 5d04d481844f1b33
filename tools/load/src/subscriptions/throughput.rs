//! The maximum rate of events: a closed loop with a bounded number of events in flight. An event is complete when
//! every client has it. Nothing is ever dropped for lack of space, so everything that is missing is a loss.

use std::sync::Arc;
use std::time::Duration;

use super::confirmed::ConfirmedEvents;
use super::publisher::{Batch, Gate, Pace};
use super::run_error::SubscriptionRunError;
use super::stages::RunStages;
use crate::clock::now_us;
use crate::process::Process;
use crate::report::LatencySummary;
use crate::report::subscriptions::{SubscriptionRun, ThroughputReport};

/// The warm-up before the measurement: caches fill, connections find their windows.
const WARM_UP_TIME: Duration = Duration::from_secs(1);

/// The result of one flood of events.
struct FloodResult {
    /// The number of its first event.
    first: u64,
    events: u64,
    /// The time from the first event to the last result.
    time: Duration,
}

/// Floods the server twice; only the second flood is measured.
pub(super) fn run(
    stages: &mut RunStages<'_>,
    run: &mut SubscriptionRun,
) -> Result<(), SubscriptionRunError> {
    stages.warm_up()?;
    stages.count_from_here();
    run_flood(stages, WARM_UP_TIME.min(stages.settings.duration))?;

    stages.count_from_here();
    let before = stages.observed_server.sample();
    let own_before = Process::Own.usage()?;
    stages.driver.recorder.timed_from = Some(now_us());
    let flood = run_flood(stages, stages.settings.duration)?;
    let own = Process::Own.usage()?.cpu.saturating_sub(own_before.cpu);
    let after = stages.observed_server.sample();
    let recorder = &mut stages.driver.recorder;
    recorder.timed_from = None;
    let seconds = flood.time.as_secs_f64().max(1e-3);
    let (events, deliveries) = (flood.events, recorder.deliveries);
    let each = |cpu: Duration, of: u64| (of > 0).then(|| cpu.as_secs_f64() * 1e6 / of as f64);
    (run.events, run.deliveries) = (events, deliveries);
    run.deliveries_per_second = deliveries as f64 / seconds;
    run.rate = events as f64 / seconds;
    run.message_bytes = recorder.bytes as f64 / deliveries.max(1) as f64;
    run.latency = LatencySummary::from_histogram(&recorder.latency);
    run.histogram = recorder.latency.buckets();
    run.generator.cpu_us_per_delivery = each(own, deliveries);
    let mut throughput = ThroughputReport {
        window: stages.settings.window,
        payload_bytes: stages.settings.events.as_ref().map_or(0, |events| events.bytes() as u64),
        seconds,
        events_per_second: events as f64 / seconds,
        generator_cores: own.as_secs_f64() / seconds,
        ..ThroughputReport::default()
    };
    if let (Some(before), Some(after)) = (before, after) {
        let cpu = after.cpu_since(&before);
        throughput.server_cpu_us_per_event = each(cpu, events);
        throughput.server_cores = Some(cpu.as_secs_f64() / seconds);
        if let Some(server) = &mut run.server {
            server.cpu_us_per_delivery = each(cpu, deliveries);
            server.busy_cores = throughput.server_cores;
        }
    }
    run.throughput = Some(throughput);
    stages.publish_until_announced(flood.first)?;
    stages.count_results(flood.first, run);
    Ok(())
}

/// Publishes for some time, never more than a window ahead of the slowest client, and waits for the results.
fn run_flood(
    stages: &mut RunStages<'_>,
    time: Duration,
) -> Result<FloodResult, SubscriptionRunError> {
    let quiet = stages.settings.quiet;
    let gate = Arc::new(Gate::new(stages.settings.window));
    let first = stages.next_event;
    stages.driver.recorder.confirmed = Some(ConfirmedEvents::by(stages.counted.len()));
    let began = stages.driver.now();
    stages.publish_batch(Batch { first, keys: 1, pace: Pace::Gated(Arc::clone(&gate)) });
    let mut is_open = true;
    let events = loop {
        stages.driver.poll_events(began + time, stages.progress)?;
        let recorder = &stages.driver.recorder;
        if let Some(confirmed) = &recorder.confirmed {
            gate.confirm(confirmed.count());
        }
        let now = stages.driver.now();
        // If an event was lost, the window never opens again.
        let last = recorder.last_received.unwrap_or(began).max(began);
        if is_open && (now >= began + time || now.saturating_sub(last) >= quiet) {
            gate.close();
            is_open = false;
        }
        stages.wake_publisher();
        if let Some(events) = stages.finished()? {
            break events;
        }
    };
    stages.driver.recorder.confirmed = None;
    stages.next_event = first + events;
    let expected = stages.expected(first);
    stages.until_quiet(|driver| driver.recorder.received + driver.recorder.lost >= expected)?;
    let last = stages.driver.recorder.last_received.unwrap_or(began).max(began);
    Ok(FloodResult { first, events, time: last - began })
}
