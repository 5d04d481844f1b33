//! Clients that connect, subscribe, unsubscribe and disconnect at a fixed rate. The report shows what the server keeps
//! of them.

use std::time::Duration;

use super::driver::ClientState;
use super::run_error::SubscriptionRunError;
use super::server_usage::ServerSample;
use super::stages::RunStages;
use crate::report::subscriptions::{ChurnReport, MemorySample};

/// The time in which the server must release the last clients.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// The interval between two samples of memory and descriptors.
pub(super) const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// The seconds at the beginning of a long run that are ignored: caches fill, the allocator finds its size.
const WARM_UP_SECONDS: f64 = 60.0;

/// The share at the beginning of a shorter run that is ignored.
const WARM_UP_SHARE: f64 = 1.0 / 3.0;

/// The share by which memory may grow and still count as flat; at least [`GROWTH_MIB`].
const GROWTH_SHARE: f64 = 0.05;

/// The growth in MiB that always counts as flat. Allocators keep and return memory in such steps.
const GROWTH_MIB: f64 = 4.0;

/// The number of additional descriptors that a server may have open at the end for other reasons.
const DESCRIPTORS_SPARE: u64 = 8;

/// Runs a churn to its end, then waits until the server has released all clients.
pub(super) fn run(
    stages: &mut RunStages<'_>,
    before: Option<ServerSample>,
) -> Result<ChurnReport, SubscriptionRunError> {
    let settings = stages.settings;
    let gap = Duration::from_secs_f64(1.0 / settings.churn_rate);
    let began = stages.driver.now();
    let end = began + settings.duration;
    let mut free: Vec<usize> = (0..settings.clients).rev().collect();
    // The driver may report a client twice.
    let mut is_free = vec![true; settings.clients];
    let (mut due, mut next_sample) = (began, began);
    let mut churn = ChurnReport { rate: settings.churn_rate, ..ChurnReport::default() };
    loop {
        let now = stages.driver.now();
        let is_over = now >= end;
        if is_over && (free.len() == settings.clients || now >= end + settings.timeout) {
            break;
        }
        if now >= next_sample {
            next_sample += SAMPLE_INTERVAL;
            if let Some(moment) = stages.observed_server.sample() {
                churn.samples.push(MemorySample {
                    at_seconds: (now - began).as_secs_f64(),
                    resident_mib: moment.resident_mib(),
                    descriptors: moment.descriptors.unwrap_or(0) as u64,
                });
            }
        }
        while !is_over && due <= now {
            due += gap;
            match free.pop() {
                Some(index) => {
                    is_free[index] = false;
                    stages.driver.connect(index);
                }
                // All clients are busy: the server does not keep up.
                None => churn.skipped += 1,
            }
        }
        let until = if is_over { Duration::MAX } else { due.min(next_sample) };
        stages.driver.poll_events(until, stages.progress)?;
        for index in stages.driver.take_changed() {
            match stages.driver.state(index) {
                ClientState::Live => stages.driver.unsubscribe(index),
                ClientState::Left => stages.driver.close(index),
                ClientState::Away if !is_free[index] => {
                    is_free[index] = true;
                    churn.cycles += u64::from(stages.driver.has_unsubscribed(index));
                    free.push(index);
                }
                ClientState::Away | ClientState::Between => {}
            }
        }
    }
    churn.unfinished = (settings.clients - free.len()) as u64;
    churn.seconds = (stages.driver.now() - began).as_secs_f64();
    stages.wait(RELEASE_TIMEOUT.min(settings.duration))?;
    if let (Some(before), Some(after)) = (before, stages.observed_server.sample()) {
        churn.descriptors_before = before.descriptors.unwrap_or(0) as u64;
        churn.descriptors_after = after.descriptors.unwrap_or(0) as u64;
        churn.evaluate();
    }
    Ok(churn)
}

/// The development of memory after the warm-up.
pub(super) struct MemoryTrend {
    pub(super) warm_mib: f64,
    pub(super) end_mib: f64,
    /// `None` without samples.
    pub(super) is_flat: Option<bool>,
}

/// Compares the memory after the warm-up with that at the end.
pub(super) fn measure_memory_trend(samples: &[MemorySample], seconds: f64) -> MemoryTrend {
    let warm = WARM_UP_SECONDS.min(seconds * WARM_UP_SHARE);
    let window = ((seconds - warm) / 4.0).max(1.0);
    let median = |from: f64, to: f64| {
        let within = samples.iter().filter(|it| (from..=to).contains(&it.at_seconds));
        let mut values: Vec<f64> = within.map(|sample| sample.resident_mib).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let warm_mib = median(warm, warm + window);
    let end_mib = median(seconds - window, seconds);
    MemoryTrend {
        warm_mib: warm_mib.unwrap_or(0.0),
        end_mib: end_mib.unwrap_or(0.0),
        is_flat: warm_mib
            .zip(end_mib)
            .map(|(warm, end)| end - warm <= (warm * GROWTH_SHARE).max(GROWTH_MIB)),
    }
}

impl ChurnReport {
    /// Evaluates memory after the warm-up, and compares descriptors before and after.
    fn evaluate(&mut self) {
        let flatness = measure_memory_trend(&self.samples, self.seconds);
        self.resident_warm_mib = flatness.warm_mib;
        self.resident_end_mib = flatness.end_mib;
        self.is_memory_flat = flatness.is_flat;
        self.are_descriptors_closed =
            Some(self.descriptors_after <= self.descriptors_before + DESCRIPTORS_SPARE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(seconds: u32, memory: impl Fn(f64) -> f64, descriptors_after: u64) -> ChurnReport {
        let samples = (0..seconds).map(f64::from).map(|at_seconds| MemorySample {
            at_seconds,
            resident_mib: memory(at_seconds),
            descriptors: 0,
        });
        let mut churn = ChurnReport {
            seconds: f64::from(seconds),
            samples: samples.collect(),
            descriptors_before: 20,
            descriptors_after,
            ..ChurnReport::default()
        };
        churn.evaluate();
        churn
    }

    #[test]
    fn memory_may_rise_at_first_and_must_then_be_flat() {
        let rising_at_first = |at: f64| 50.0 + at.min(50.0);
        let leaking = |at: f64| 50.0 + at / 20.0;
        let noisy = |at: f64| 100.0 + (at * 7.0).sin() * 8.0;
        for (seconds, memory, expected) in [
            (600, &rising_at_first as &dyn Fn(f64) -> f64, true),
            (600, &leaking, false),
            (600, &noisy, true),
            (9, &|_| 10.0, true),
        ] {
            assert_eq!(judged(seconds, memory, 20).is_memory_flat, Some(expected), "{seconds}");
        }
    }

    #[test]
    fn descriptors_that_stay_open_are_a_leak() {
        assert_eq!(judged(60, |_| 1.0, 25).are_descriptors_closed, Some(true));
        assert_eq!(judged(60, |_| 1.0, 200).are_descriptors_closed, Some(false));
    }
}
