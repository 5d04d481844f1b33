//! Clients that stay connected, unsubscribe and subscribe again, so many a second. Half of them are subscribed at a time,
//! and each stays so, or without, until it is its turn again: what nobody wants any more is really given up in between.
//! At the end everybody has to be subscribed, and to get the events of its key.

use std::collections::VecDeque;
use std::time::Duration;

use super::SubscriptionsError;
use super::churn::{SAMPLE, flatness};
use super::course::Course;
use super::driver::State;
use crate::histogram::Histogram;
use crate::report::Latency;
use crate::report::subscriptions::{MemorySample, Resubscribed};

/// Runs for the given time and then lets everybody come to rest.
pub(super) fn run(course: &mut Course<'_>) -> Result<Resubscribed, SubscriptionsError> {
    let settings = course.settings;
    let gap = Duration::from_secs_f64(1.0 / settings.churn_rate);
    let mut resting: VecDeque<usize> =
        (0..settings.clients).filter(|it| course.driver.reads(*it)).collect();
    let clients = resting.len();
    let mut away: VecDeque<usize> = VecDeque::new();
    // Since when a client is on its way to another state, if it is.
    let mut began_at: Vec<Option<Duration>> = vec![None; settings.clients];
    let mut latency = Histogram::default();
    let mut report = Resubscribed { rate: settings.churn_rate, ..Resubscribed::default() };
    // Of the time when everybody subscribed first.
    course.driver.take_news();
    let before = course.watched.moment();
    let began = course.driver.now();
    let end = began + settings.duration;
    let (mut due, mut next_sample, mut gone) = (began, began, 0);
    loop {
        let now = course.driver.now();
        let is_over = now >= end;
        if is_over && (resting.len() + gone == clients || now >= end + settings.timeout) {
            break;
        }
        if now >= next_sample {
            next_sample += SAMPLE;
            if let Some(moment) = course.watched.moment() {
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
                    course.driver.leave(index);
                }
                // Everybody is on the way: the server does not keep up.
                None => report.skipped += 1,
            }
            if away.len() > clients / 2 {
                again(course, &mut away, &mut began_at, now);
            }
        }
        while is_over && !away.is_empty() {
            again(course, &mut away, &mut began_at, now);
        }
        let until = if is_over { Duration::MAX } else { due.min(next_sample) };
        course.driver.turn(until, course.progress)?;
        let now = course.driver.now();
        for index in course.driver.take_news() {
            match course.driver.state(index) {
                State::Left => {
                    if began_at[index].take().is_some() {
                        away.push_back(index);
                    }
                }
                // News of a client may come twice.
                State::Live => {
                    if let Some(began) = began_at[index].take() {
                        let took = now.saturating_sub(began).as_nanos();
                        latency.record(u64::try_from(took).unwrap_or(u64::MAX));
                        report.cycles += 1;
                        resting.push_back(index);
                    }
                }
                // Counted among the connections that ended.
                State::Away => gone += usize::from(began_at[index].take().is_some()),
                State::Between => {}
            }
        }
    }
    report.seconds = (course.driver.now() - began).as_secs_f64();
    report.cycles_per_second = report.cycles as f64 / report.seconds.max(1e-9);
    report.unfinished = (clients - resting.len()) as u64;
    report.latency = Latency::of(&latency);
    if let (Some(before), Some(after)) = (before, course.watched.moment()) {
        let cpu = after.cpu_since(&before).as_secs_f64();
        report.server_cpu_us_per_cycle =
            (report.cycles > 0).then(|| cpu * 1e6 / report.cycles as f64);
        report.server_cores = Some(cpu / report.seconds.max(1e-9));
        let flatness = flatness(&report.samples, report.seconds);
        report.resident_before_mib = before.resident_mib();
        report.resident_warm_mib = flatness.warm_mib;
        report.resident_end_mib = flatness.end_mib;
        report.is_memory_flat = flatness.is_flat;
    }
    Ok(report)
}

/// Lets the client that has been away for longest subscribe again.
fn again(
    course: &mut Course<'_>,
    away: &mut VecDeque<usize>,
    began_at: &mut [Option<Duration>],
    now: Duration,
) {
    if let Some(index) = away.pop_front() {
        began_at[index] = Some(now);
        course.driver.subscribe_again(index);
    }
}
