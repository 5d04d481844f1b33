//! Clients that come, subscribe, unsubscribe and go, so many a second; whether the server keeps anything of them.

use std::time::Duration;

use super::SubscriptionsError;
use super::course::Course;
use super::driver::State;
use super::watched::Moment;
use crate::report::subscriptions::{Churn, MemorySample};

/// How long the server may take to forget the last ones.
const AFTERMATH: Duration = Duration::from_secs(10);

/// How often its memory and descriptors are looked at.
pub(super) const SAMPLE: Duration = Duration::from_secs(1);

/// Of a long run, this much does not count: caches fill, the allocator finds its size.
const WARM_SECONDS: f64 = 60.0;

/// Of a run that is not so long, this share does not count.
const WARM_SHARE: f64 = 1.0 / 3.0;

/// Memory may grow by this share and still be called flat, or by [`GROWTH_MIB`].
const GROWTH_SHARE: f64 = 0.05;

/// See [`GROWTH_SHARE`]. Allocators keep and give back memory in such steps.
const GROWTH_MIB: f64 = 4.0;

/// Descriptors that may be open more than before, for reasons of the server's own.
const DESCRIPTORS_SPARE: u64 = 8;

/// Runs a churn to its end and then waits for the server to forget everybody.
pub(super) fn run(
    course: &mut Course<'_>,
    before: Option<Moment>,
) -> Result<Churn, SubscriptionsError> {
    let settings = course.settings;
    let gap = Duration::from_secs_f64(1.0 / settings.churn_rate);
    let began = course.driver.now();
    let end = began + settings.duration;
    let mut free: Vec<usize> = (0..settings.clients).rev().collect();
    // News of a client may come twice.
    let mut is_free = vec![true; settings.clients];
    let (mut due, mut next_sample) = (began, began);
    let mut churn = Churn { rate: settings.churn_rate, ..Churn::default() };
    loop {
        let now = course.driver.now();
        let is_over = now >= end;
        if is_over && (free.len() == settings.clients || now >= end + settings.timeout) {
            break;
        }
        if now >= next_sample {
            next_sample += SAMPLE;
            if let Some(moment) = course.watched.moment() {
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
                    course.driver.connect(index);
                }
                // Everybody is busy: the server does not keep up.
                None => churn.skipped += 1,
            }
        }
        let until = if is_over { Duration::MAX } else { due.min(next_sample) };
        course.driver.turn(until, course.progress)?;
        for index in course.driver.take_news() {
            match course.driver.state(index) {
                State::Live => course.driver.leave(index),
                State::Left => course.driver.close(index),
                State::Away if !is_free[index] => {
                    is_free[index] = true;
                    churn.cycles += u64::from(course.driver.has_left(index));
                    free.push(index);
                }
                State::Away | State::Between => {}
            }
        }
    }
    churn.unfinished = (settings.clients - free.len()) as u64;
    churn.seconds = (course.driver.now() - began).as_secs_f64();
    course.wait(AFTERMATH.min(settings.duration))?;
    if let (Some(before), Some(after)) = (before, course.watched.moment()) {
        churn.descriptors_before = before.descriptors.unwrap_or(0) as u64;
        churn.descriptors_after = after.descriptors.unwrap_or(0) as u64;
        churn.judge();
    }
    Ok(churn)
}

/// What memory did after the warm-up.
pub(super) struct Flatness {
    pub(super) warm_mib: f64,
    pub(super) end_mib: f64,
    /// Nothing where nobody looked.
    pub(super) is_flat: Option<bool>,
}

/// Compares the memory after the warm-up with that at the end.
pub(super) fn flatness(samples: &[MemorySample], seconds: f64) -> Flatness {
    let warm = WARM_SECONDS.min(seconds * WARM_SHARE);
    let window = ((seconds - warm) / 4.0).max(1.0);
    let median = |from: f64, to: f64| {
        let within = samples.iter().filter(|it| (from..=to).contains(&it.at_seconds));
        let mut values: Vec<f64> = within.map(|sample| sample.resident_mib).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let warm_mib = median(warm, warm + window);
    let end_mib = median(seconds - window, seconds);
    Flatness {
        warm_mib: warm_mib.unwrap_or(0.0),
        end_mib: end_mib.unwrap_or(0.0),
        is_flat: warm_mib
            .zip(end_mib)
            .map(|(warm, end)| end - warm <= (warm * GROWTH_SHARE).max(GROWTH_MIB)),
    }
}

impl Churn {
    /// Looks at memory after the warm-up, and compares descriptors before with those after.
    fn judge(&mut self) {
        let flatness = flatness(&self.samples, self.seconds);
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

    fn judged(seconds: u32, memory: impl Fn(f64) -> f64, descriptors_after: u64) -> Churn {
        let samples = (0..seconds).map(f64::from).map(|at_seconds| MemorySample {
            at_seconds,
            resident_mib: memory(at_seconds),
            descriptors: 0,
        });
        let mut churn = Churn {
            seconds: f64::from(seconds),
            samples: samples.collect(),
            descriptors_before: 20,
            descriptors_after,
            ..Churn::default()
        };
        churn.judge();
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
