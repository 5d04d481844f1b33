//! The order of steps in a run, by scenario.
//!
//! All scenarios begin alike: all clients connect and subscribe, and the idle server is measured. Scenarios with
//! events continue with a warm-up, in which each client receives one; from there on each client must receive every
//! event of its key, or a notice that it was lost. If results are missing at the end, more events are published, since
//! servers announce a loss with the next result.

use super::recorder::list_ends;
use super::run_error::SubscriptionRunError;
use super::scenario::Scenario;
use super::server_usage::{ObservedServer, ServerSample};
use super::settings::SubscriptionSettings;
use super::stages::RunStages;
use super::{churn, resubscribe, throughput};
use crate::process::Process;
use crate::report::LatencySummary;
use crate::report::subscriptions::{ReconnectReport, SubscriptionInterval, SubscriptionRun};

/// The default number of concurrent handshakes: fewer than any server's backlog of connections.
const JOINING_MAX: usize = 256;

/// Runs the scenario and measures it.
pub(super) fn run(
    settings: &SubscriptionSettings,
    progress: &mut dyn FnMut(&SubscriptionInterval),
) -> Result<SubscriptionRun, SubscriptionRunError> {
    let observed_server = ObservedServer(settings.pid);
    let before = observed_server.first_sample()?;
    let mut stages = RunStages::start(settings, observed_server, progress)?;
    let mut run = SubscriptionRun {
        name: stages.settings.name.clone(),
        url: stages.settings.target.url().to_owned(),
        scenario: stages.settings.scenario.name().to_owned(),
        clients: stages.settings.clients as u64,
        keys: stages.settings.subscription.keys.max(1) as u64,
        header_bytes: stages.settings.subscription.header_bytes as u64,
        rate: stages.settings.rate,
        ..SubscriptionRun::default()
    };
    let own_before = Process::Own.usage()?;
    if stages.settings.scenario == Scenario::Churn {
        run.churn = Some(churn::run(&mut stages, before)?);
    } else {
        let joining_max = match stages.settings.scenario {
            Scenario::ConnectStorm => stages.settings.clients,
            _ => JOINING_MAX,
        };
        run.joining_seconds = stages.join_all(joining_max)?.as_secs_f64();
        run.subscribed = stages.driver.live() as u64;
        let joined = stages.observed_server.sample();
        stages.wait_until_idle()?;
        let idle = stages.observed_server.sample();
        run.server = before.zip(idle).map(|(before, idle)| stages.server(&before, joined, &idle));
        after_joining(&mut stages, before, idle, &mut run)?;
    }
    run.joining = LatencySummary::from_histogram(&stages.driver.joining_times);
    let after = stages.observed_server.sample();
    let elapsed = stages.driver.now().as_secs_f64();
    let own = Process::Own.usage()?.cpu.saturating_sub(own_before.cpu);
    run.generator.cores = own.as_secs_f64() / elapsed;
    let recorder = &stages.driver.recorder;
    if let (Some(server), Some(after)) = (&mut run.server, after) {
        server.resident_after_mib = after.resident_mib();
        server.resident_peak_mib = recorder.resident_peak_kib as f64 / 1024.0;
        server.threads_after = after.usage.threads;
        server.descriptors_after = after.descriptors.unwrap_or(0) as u64;
    }
    run.ends = list_ends(&recorder.ends);
    run.returns = list_ends(&recorder.returns);
    run.example = recorder.problem.clone();
    run.message = recorder.message.clone();
    run.intervals = recorder.intervals.clone();
    Ok(run)
}

/// Runs the part of a scenario after all clients have subscribed.
fn after_joining(
    stages: &mut RunStages<'_>,
    before: Option<ServerSample>,
    idle: Option<ServerSample>,
    run: &mut SubscriptionRun,
) -> Result<(), SubscriptionRunError> {
    match stages.settings.scenario {
        Scenario::Idle => {
            stages.wait(stages.settings.hold)?;
            let held = idle.zip(stages.observed_server.sample());
            run.hold_seconds = Some(stages.settings.hold.as_secs_f64());
            if let (Some((idle, held)), Some(server)) = (held, &mut run.server) {
                let seconds = stages.settings.hold.as_secs_f64();
                server.idle_cores = Some(held.cpu_since(&idle).as_secs_f64() / seconds);
                // Until now the allocator may have returned memory that only joining needed.
                if let Some(before) = before {
                    stages.set_idle_memory(server, &before, &held);
                }
            }
            Ok(())
        }
        Scenario::MassDisconnect => {
            run.vanished = Some(stages.measure_disconnect(before, idle)?);
            Ok(())
        }
        Scenario::ReconnectStorm => {
            stages.driver.drop_all();
            let began = stages.driver.now();
            stages.join_all(stages.settings.clients)?;
            stages.wait_until_idle()?;
            let subscribed = stages.measure(run)?;
            let seconds = stages.driver.last_joined().saturating_sub(began).as_secs_f64();
            run.rejoined = Some(ReconnectReport { subscribed, seconds });
            Ok(())
        }
        Scenario::Resubscribe => {
            run.resubscribed = Some(resubscribe::run(stages)?);
            stages.wait_until_idle()?;
            stages.measure(run)?;
            Ok(())
        }
        Scenario::Throughput => throughput::run(stages, run),
        _ => {
            run.subscribed = stages.measure(run)?;
            Ok(())
        }
    }
}
