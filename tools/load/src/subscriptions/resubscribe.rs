//! Clients that stay connected, unsubscribe and subscribe again at a fixed rate. Half of them are subscribed at a
//! time, and each stays in its state until it is its turn again, so that the server really releases topics without
//! subscribers. At the end all clients must be subscribed and receive the events of their keys.

use std::collections::VecDeque;
use std::time::Duration;

use super::churn::{SAMPLE_INTERVAL, measure_memory_trend};
use super::driver::ClientState;
use super::run_error::SubscriptionRunError;
use super::stages::RunStages;
use crate::histogram::Histogram;
use crate::report::LatencySummary;
use crate::report::subscriptions::{MemorySample, ResubscribeReport};

/// Runs for the given time, then until all clients are subscribed.
pub(super) fn run(stages: &mut RunStages<'_>) -> Result<ResubscribeReport, SubscriptionRunError> {
    let settings = stages.settings;
    let gap = Duration::from_secs_f64(1.0 / settings.churn_rate);
    let mut resting: VecDeque<usize> =
        (0..settings.clients).filter(|it| stages.driver.reads(*it)).collect();
    let clients = resting.len();
    let mut away: VecDeque<usize> = VecDeque::new();
    // The time since which a client is in transition to another state.
    let mut began_at: Vec<Option<Duration>> = vec![None; settings.clients];
    let mut latency = Histogram::default();
    let mut report =
        ResubscribeReport { rate: settings.churn_rate, ..ResubscribeReport::default() };
    // These changes belong to the first subscriptions.
    stages.driver.take_changed();
    let before = stages.observed_server.sample();
    let began = stages.driver.now();
    let end = began + settings.duration;
    let (mut due, mut next_sample, mut gone) = (began, began, 0);
    loop {
        let now = stages.driver.now();
        let is_over = now >= end;
        if is_over && (resting.len() + gone == clients || now >= end + settings.timeout) {
            break;
        }
        if now >= next_sample {
            next_sample += SAMPLE_INTERVAL;
            if let Some(moment) = stages.observed_server.sample() {
                report.samples.push(MemorySample {
                    at_seconds: (now - began).as_secs_f64(),
                    resident_mib: moment.resident_mib(),
                    descriptors: moment.descriptors.unwrap_or(0) as u64,
                });
            }
        }
        while !is_over && due <= now {
            due += gap;
            match resting.pop_front() {
                Some(index) => {
                    began_at[index] = Some(now);
                    stages.driver.unsubscribe(index);
                }
                // All clients are in transition: the server does not keep up.
                None => report.skipped += 1,
            }
            if away.len() > clients / 2 {
                resubscribe_next(stages, &mut away, &mut began_at, now);
            }
        }
        while is_over && !away.is_empty() {
            resubscribe_next(stages, &mut away, &mut began_at, now);
        }
        let until = if is_over { Duration::MAX } else { due.min(next_sample) };
        stages.driver.poll_events(until, stages.progress)?;
        let now = stages.driver.now();
        for index in stages.driver.take_changed() {
            match stages.driver.state(index) {
                ClientState::Left => {
                    if began_at[index].take().is_some() {
                        away.push_back(index);
                    }
                }
                // The driver may report a client twice.
                ClientState::Live => {
                    if let Some(began) = began_at[index].take() {
                        let took = now.saturating_sub(began).as_nanos();
                        latency.record(u64::try_from(took).unwrap_or(u64::MAX));
                        report.cycles += 1;
                        resting.push_back(index);
                    }
                }
                // The end is counted among the connections that ended.
                ClientState::Away => gone += usize::from(began_at[index].take().is_some()),
                ClientState::Between => {}
            }
        }
    }
    report.seconds = (stages.driver.now() - began).as_secs_f64();
    report.cycles_per_second = report.cycles as f64 / report.seconds.max(1e-9);
    report.unfinished = (clients - resting.len()) as u64;
    report.latency = LatencySummary::from_histogram(&latency);
    if let (Some(before), Some(after)) = (before, stages.observed_server.sample()) {
        let cpu = after.cpu_since(&before).as_secs_f64();
        report.server_cpu_us_per_cycle =
            (report.cycles > 0).then(|| cpu * 1e6 / report.cycles as f64);
        report.server_cores = Some(cpu / report.seconds.max(1e-9));
        let flatness = measure_memory_trend(&report.samples, report.seconds);
        report.resident_before_mib = before.resident_mib();
        report.resident_warm_mib = flatness.warm_mib;
        report.resident_end_mib = flatness.end_mib;
        report.is_memory_flat = flatness.is_flat;
    }
    Ok(report)
}

/// Subscribes the client again that has been unsubscribed for longest.
fn resubscribe_next(
    stages: &mut RunStages<'_>,
    away: &mut VecDeque<usize>,
    began_at: &mut [Option<Duration>],
    now: Duration,
) {
    if let Some(index) = away.pop_front() {
        began_at[index] = Some(now);
        stages.driver.resubscribe(index);
    }
}
