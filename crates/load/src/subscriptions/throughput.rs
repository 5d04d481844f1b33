//! As many events as the server takes: a closed loop, in which a few events at a time are on their way. An event is
//! through when every client has it; nothing is ever dropped for want of room, so whatever is missing is a loss.

use std::sync::Arc;
use std::time::Duration;

use super::SubscriptionsError;
use super::confirmed::Confirmed;
use super::course::Course;
use super::publisher::{Batch, Gate, Pace, now_us};
use crate::process::Process;
use crate::report::Latency;
use crate::report::subscriptions::{SubscriptionRun, Throughput};

/// Before anything counts: caches fill, connections find their windows.
const WARM: Duration = Duration::from_secs(1);

/// What one flood of events came to.
struct Flood {
    /// The number of its first event.
    first: u64,
    events: u64,
    /// From the first event to the last result.
    time: Duration,
}

/// Floods the server twice; the second one counts.
pub(super) fn run(
    course: &mut Course<'_>,
    run: &mut SubscriptionRun,
) -> Result<(), SubscriptionsError> {
    course.warm_up()?;
    course.count_from_here();
    flood(course, WARM.min(course.settings.duration))?;

    course.count_from_here();
    let before = course.watched.moment();
    let own_before = Process::Own.usage()?;
    course.driver.recorder.timed_from = Some(now_us());
    let flood = flood(course, course.settings.duration)?;
    let own = Process::Own.usage()?.cpu.saturating_sub(own_before.cpu);
    let after = course.watched.moment();
    let recorder = &mut course.driver.recorder;
    recorder.timed_from = None;
    let seconds = flood.time.as_secs_f64().max(1e-3);
    let (events, deliveries) = (flood.events, recorder.deliveries);
    let each = |cpu: Duration, of: u64| (of > 0).then(|| cpu.as_secs_f64() * 1e6 / of as f64);
    (run.events, run.deliveries) = (events, deliveries);
    run.deliveries_per_second = deliveries as f64 / seconds;
    run.rate = events as f64 / seconds;
    run.message_bytes = recorder.bytes as f64 / deliveries.max(1) as f64;
    run.latency = Latency::of(&recorder.latency);
    run.histogram = recorder.latency.buckets();
    run.generator.cpu_us_per_delivery = each(own, deliveries);
    let mut throughput = Throughput {
        window: course.settings.window,
        payload_bytes: course.settings.events.as_ref().map_or(0, |events| events.bytes() as u64),
        seconds,
        events_per_second: events as f64 / seconds,
        generator_cores: own.as_secs_f64() / seconds,
        ..Throughput::default()
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
    course.epilogue(flood.first)?;
    course.account(flood.first, run);
    Ok(())
}

/// Publishes for some time, never more than a window ahead of the slowest client, and waits for what comes of it.
fn flood(course: &mut Course<'_>, time: Duration) -> Result<Flood, SubscriptionsError> {
    let quiet = course.settings.quiet;
    let gate = Arc::new(Gate::new(course.settings.window));
    let first = course.next_event;
    course.driver.recorder.confirmed = Some(Confirmed::by(course.counted.len()));
    let began = course.driver.now();
    course.publish_batch(Batch { first, keys: 1, pace: Pace::Gated(Arc::clone(&gate)) });
    let mut is_open = true;
    let events = loop {
        course.driver.turn(began + time, course.progress)?;
        let recorder = &course.driver.recorder;
        if let Some(confirmed) = &recorder.confirmed {
            gate.confirm(confirmed.count());
        }
        let now = course.driver.now();
        // Where something was lost, the window never opens again.
        let last = recorder.last_received.unwrap_or(began).max(began);
        if is_open && (now >= began + time || now.saturating_sub(last) >= quiet) {
            gate.close();
            is_open = false;
        }
        course.wake_publisher();
        if let Some(events) = course.finished()? {
            break events;
        }
    };
    course.driver.recorder.confirmed = None;
    course.next_event = first + events;
    let expected = course.expected(first);
    course.until_quiet(|driver| driver.recorder.received + driver.recorder.lost >= expected)?;
    let last = course.driver.recorder.last_received.unwrap_or(began).max(began);
    Ok(Flood { first, events, time: last - began })
}
