//! Remarks about runs of `bench subscriptions`: problems, and limits of the validity of the figures.

use super::subscriptions::SubscriptionRun;
use super::summary::LatencySummary;
use crate::units::format_count;

/// The share of a core above which the load generator is likely to be the limit.
const GENERATOR_CORES_WARN: f64 = 0.9;

/// Returns the remarks about each run, compared with the floor if the first run is one.
pub(super) fn remarks(runs: &[SubscriptionRun]) -> Vec<Vec<String>> {
    let floor = runs.first().filter(|run| run.name == "floor");
    let each = runs.iter().map(|run| {
        let mut remarks = list_remarks(run);
        if let Some(floor) = floor.filter(|floor| !std::ptr::eq(*floor, run)) {
            remarks.extend(ratios(floor, run));
        }
        remarks
    });
    each.collect()
}

pub(super) fn list_remarks(run: &SubscriptionRun) -> Vec<String> {
    let mut remarks = Vec::new();
    for failure in &run.ends {
        remarks.push(format!("{} × {}", format_count(failure.count), failure.what));
    }
    for refusal in &run.returns {
        let (count, what) = (format_count(refusal.count), &refusal.what);
        remarks.push(format!("{count} × {what}, and the client returned"));
    }
    if let Some(slow) = &run.slow {
        for fate in &slow.fates {
            remarks.push(format!(
                "of the clients that never read, {}: {}",
                format_count(fate.count),
                fate.what
            ));
        }
    }
    if let Some(example) = &run.example {
        remarks.push(format!("the first problem: {example}"));
    }
    if run.missing > 0 {
        let share = run.missing as f64 / run.expected.max(1) as f64 * 100.0;
        remarks.push(format!("{share:.2} % of all results were lost without notice"));
    }
    if run.gaps > 0 {
        remarks.push(format!("{} × notified of a possible gap", format_count(run.gaps)));
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
                "the server did not keep up: {} could not start, {} did not finish",
                format_count(churn.skipped),
                format_count(churn.unfinished)
            ));
        }
    }
    if run.foreign > 0 {
        remarks.push(format!("{} × a result of another client", format_count(run.foreign)));
    }
    if let Some(resubscribed) = &run.resubscribed {
        remarks.extend(
            resubscribed
                .is_memory_flat
                .map(|is_flat| if is_flat { "memory is flat" } else { "memory grows" }.to_owned()),
        );
        if resubscribed.skipped + resubscribed.unfinished > 0 {
            remarks.push(format!(
                "the server did not keep up: {} could not start, {} did not finish",
                format_count(resubscribed.skipped),
                format_count(resubscribed.unfinished)
            ));
        }
    }
    let server_cpu = run.server.as_ref().and_then(|server| server.cpu_us_per_delivery);
    let is_heavier =
        run.generator.cpu_us_per_delivery.zip(server_cpu).is_some_and(|(own, server)| own > server);
    let is_full = run.generator.cores > GENERATOR_CORES_WARN;
    if is_heavier || is_full {
        remarks.push(
            "the load generator was as busy as the server: on an equal core, latencies include its own delays".to_owned(),
        );
    }
    remarks
}

/// Compares a run with the floor: 1 is the cost of the least possible work.
fn ratios(floor: &SubscriptionRun, run: &SubscriptionRun) -> Vec<String> {
    let cpu = |run: &SubscriptionRun| run.server.as_ref()?.cpu_us_per_delivery;
    let mut parts = Vec::new();
    if let (Some(floor), Some(own)) = (cpu(floor), cpu(run))
        && floor > 0.0
    {
        parts.push(format!("CPU per result {:.2}", own / floor));
    }
    for (name, value) in
        [("p50", (|it| it.p50_us) as fn(&LatencySummary) -> f64), ("p99", |it| it.p99_us)]
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
