//! The order of events in a run, by scenario.
//!
//! All scenarios begin alike: all clients connect and subscribe, and the idle server is measured. Those with events go
//! on with a warm-up, in which each client gets one; from there on each has to get every event of its key, or a message
//! that it was lost. Where something is missing at the end, more events are published, since servers announce a loss
//! with the next result.

use super::course::Course;
use super::recorder::failures;
use super::scenario::Scenario;
use super::watched::{Moment, Watched};
use super::{Settings, SubscriptionsError, churn, resubscribe, throughput};
use crate::process::Process;
use crate::report::Latency;
use crate::report::subscriptions::{Interval, Rejoined, SubscriptionRun};

/// The default number of handshakes at a time: fewer than any server's backlog of connections.
const JOINING_MAX: usize = 256;

/// Plays the scenario and measures it.
pub(super) fn run(
    settings: &Settings,
    progress: &mut dyn FnMut(&Interval),
) -> Result<SubscriptionRun, SubscriptionsError> {
    let watched = Watched(settings.pid);
    let before = watched.first()?;
    let mut course = Course::start(settings, watched, progress)?;
    let mut run = SubscriptionRun {
        name: course.settings.name.clone(),
        url: course.settings.target.url().to_owned(),
        scenario: course.settings.scenario.name().to_owned(),
        clients: course.settings.clients as u64,
        keys: course.settings.subscription.keys.max(1) as u64,
        header_bytes: course.settings.subscription.header_bytes as u64,
        rate: course.settings.rate,
        ..SubscriptionRun::default()
    };
    let own_before = Process::Own.usage()?;
    if course.settings.scenario == Scenario::Churn {
        run.churn = Some(churn::run(&mut course, before)?);
    } else {
        let joining_max = match course.settings.scenario {
            Scenario::ConnectStorm => course.settings.clients,
            _ => JOINING_MAX,
        };
        run.joining_seconds = course.join_all(joining_max)?.as_secs_f64();
        run.subscribed = course.driver.live() as u64;
        let joined = course.watched.moment();
        course.settle()?;
        let idle = course.watched.moment();
        run.server = before.zip(idle).map(|(before, idle)| course.server(&before, joined, &idle));
        after_joining(&mut course, before, idle, &mut run)?;
    }
    run.joining = Latency::of(&course.driver.joining);
    let after = course.watched.moment();
    let elapsed = course.driver.now().as_secs_f64();
    let own = Process::Own.usage()?.cpu.saturating_sub(own_before.cpu);
    run.generator.cores = own.as_secs_f64() / elapsed;
    let recorder = &course.driver.recorder;
    if let (Some(server), Some(after)) = (&mut run.server, after) {
        server.resident_after_mib = after.resident_mib();
        server.resident_peak_mib = recorder.resident_peak_kib as f64 / 1024.0;
        server.threads_after = after.usage.threads;
        server.descriptors_after = after.descriptors.unwrap_or(0) as u64;
    }
    run.ends = failures(&recorder.ends);
    run.example = recorder.complaint.clone();
    run.message = recorder.message.clone();
    run.intervals = recorder.intervals.clone();
    Ok(run)
}

/// Plays the part of a scenario after all clients have joined.
fn after_joining(
    course: &mut Course<'_>,
    before: Option<Moment>,
    idle: Option<Moment>,
    run: &mut SubscriptionRun,
) -> Result<(), SubscriptionsError> {
    match course.settings.scenario {
        Scenario::Idle => {
            course.wait(course.settings.hold)?;
            let held = idle.zip(course.watched.moment());
            run.hold_seconds = Some(course.settings.hold.as_secs_f64());
            if let (Some((idle, held)), Some(server)) = (held, &mut run.server) {
                let seconds = course.settings.hold.as_secs_f64();
                server.idle_cores = Some(held.cpu_since(&idle).as_secs_f64() / seconds);
            }
            Ok(())
        }
        Scenario::MassDisconnect => {
            run.vanished = Some(course.vanish(before, idle)?);
            Ok(())
        }
        Scenario::ReconnectStorm => {
            course.driver.drop_all();
            let seconds = course.join_all(course.settings.clients)?.as_secs_f64();
            run.rejoined = Some(Rejoined { subscribed: course.driver.live() as u64, seconds });
            course.settle()?;
            course.measure(run)
        }
        Scenario::Resubscribe => {
            run.resubscribed = Some(resubscribe::run(course)?);
            course.settle()?;
            course.measure(run)
        }
        Scenario::Throughput => throughput::run(course, run),
        _ => course.measure(run),
    }
}
