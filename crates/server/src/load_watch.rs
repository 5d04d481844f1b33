//! The load of this router, measured once a second: for its readiness, for the adaptive limit, and for the load report
//! in responses.

use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::ProcessorLoad;
use clients::workers;
use frontend::http_server::HttpServer;
use frontend::load_report::LoadFigures;
use serving::overload::OverloadProtection;
use tokio::sync::watch;

use crate::warming::Warming;

/// The time between two measurements.
const INTERVAL: Duration = Duration::from_secs(1);

/// The share of a measurement in the reported figures: they follow a change within about three seconds.
const STEP: f64 = 0.4;

/// The processors have time to spare below this part of their time, of which threads used or waited for the rest, for
/// this number of measurements. They are busy at once.
const SPARE_BELOW: f64 = 0.6;
const SPARE_AFTER: u32 = 5;

/// Measures the load until the router ends. Returns at once if nothing needs it.
pub(crate) async fn watch_load(
    http: Arc<HttpServer>,
    overload: Option<Arc<OverloadProtection>>,
    warming: Arc<Warming>,
    mut stop: watch::Receiver<bool>,
) {
    if http.pipeline.load_reports.is_none() && overload.is_none() {
        return;
    }
    let processors = workers::available() as f64;
    // Without them, workers cannot use more.
    let worker_processors = processors.min(http.workers.count() as f64);
    let mut processor_watch = ProcessorWatch::default();
    let mut meter = LoadMeter::default();
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut measured = Instant::now();
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        let cpu_seconds = profile::usage().map(|it| it.cpu_seconds);
        if let Some(overload) = &overload {
            let used = cpu_seconds.map(|it| it / worker_processors);
            let waited = || profile::processor_wait_seconds() / worker_processors;
            let waited = overload.has_work().then_some(waited);
            let load = processor_watch.measure(used, waited, Instant::now());
            overload.update(&http.limits.memory, load);
        }
        let Some(reports) = &http.pipeline.load_reports else { continue };
        let now = Instant::now();
        let (responses, errors) = http.pipeline.metrics.response_totals();
        let counters = LoadCounters {
            cpu_seconds: cpu_seconds.unwrap_or_default() / processors,
            responses,
            errors,
        };
        let utilization = overload.as_ref().map(|it| it.utilization());
        let elapsed = now.duration_since(measured);
        measured = now;
        if let Some(figures) = meter.measure(counters, utilization, elapsed) {
            reports.set(&with_ramp(figures, warming.share()));
        }
    }
}

/// Returns the figures to report while the router takes this share of the load. Load balancers divide the requests per
/// second of a router by its utilization, so one that seems busier gets less. Overload protection reports the part of a
/// limit that grows with the share, so only the processors remain to be corrected.
fn with_ramp(figures: LoadFigures, share: f64) -> LoadFigures {
    if share >= 1.0 {
        return figures;
    }
    let utilization = figures.cpu_utilization / share;
    let reported = figures.application_utilization.unwrap_or_default();
    LoadFigures { application_utilization: Some(reported.max(utilization)), ..figures }
}

/// Knows how busy the processors are, and whether they have time to spare.
#[derive(Default, Debug)]
struct ProcessorWatch {
    /// The last measurements: of the time for which processors were used, and with work of that for which threads
    /// waited for one, in seconds.
    used: Option<(f64, Instant)>,
    waited: Option<(f64, Instant)>,
    /// The number of measurements since they were busy.
    spare_for: u32,
    was_busy: bool,
}

impl ProcessorWatch {
    /// Notes a measurement: the seconds since the start for which each processor was used, and for which threads waited
    /// for it. The latter is a function, which is not called if the processors are busy by their use alone, because it
    /// takes some system calls for each thread. It is `None` while no operation is in flight: events may use the
    /// processors then, but nothing waits that the limit is for.
    fn measure(
        &mut self,
        used: Option<f64>,
        waited: Option<impl FnOnce() -> f64>,
        now: Instant,
    ) -> ProcessorLoad {
        let busy_part = self.measure_busy_part(used, waited, now);
        match busy_part {
            Some(part) if part >= SPARE_BELOW => (self.spare_for, self.was_busy) = (0, true),
            Some(_) => self.spare_for = self.spare_for.saturating_add(1),
            // The first measurement with work has none before it, and without `/proc` nothing is known.
            None => {}
        }
        let has_spare = self.spare_for >= SPARE_AFTER || (self.spare_for > 0 && !self.was_busy);
        ProcessorLoad { has_spare, busy_part }
    }

    /// Returns the part of their time for which the processors were used or waited for since the last measurement;
    /// `None` if that is not known.
    fn measure_busy_part(
        &mut self,
        used: Option<f64>,
        waited: Option<impl FnOnce() -> f64>,
        now: Instant,
    ) -> Option<f64> {
        let used = used.map(|it| (it, now));
        let used_before = std::mem::replace(&mut self.used, used);
        let used_part = used_before.zip(used).map(|(before, used)| rate_between(before, used));
        if used_part.is_some_and(|it| it >= SPARE_BELOW) {
            return used_part;
        }
        let Some(waited) = waited else {
            self.waited = None;
            return used_part;
        };
        // The last one may be older, from before the processors were busy.
        let waited = (waited(), now);
        let waited_before = self.waited.replace(waited);
        Some(used_part? + rate_between(waited_before?, waited))
    }
}

/// Returns the growth of a total per second; zero if it has fallen, as the waits of all threads do when one ends.
fn rate_between((before, then): (f64, Instant), (total, now): (f64, Instant)) -> f64 {
    let seconds = now.duration_since(then).as_secs_f64();
    ((total - before) / seconds.max(f64::MIN_POSITIVE)).max(0.0)
}

/// Counters since the start.
#[derive(Clone, Copy, Debug)]
struct LoadCounters {
    /// The time that the router has used each processor, in seconds.
    cpu_seconds: f64,
    responses: u64,
    errors: u64,
}

/// Computes the figures of load reports from counters.
#[derive(Default, Debug)]
struct LoadMeter {
    last: Option<LoadCounters>,
    figures: Option<LoadFigures>,
}

impl LoadMeter {
    /// Measures the load since the last call. `utilization` is the part of the limit of overload protection that is in
    /// use. Returns `None` for the first call.
    fn measure(
        &mut self,
        counters: LoadCounters,
        utilization: Option<f64>,
        elapsed: Duration,
    ) -> Option<LoadFigures> {
        let last = self.last.replace(counters)?;
        let seconds = elapsed.as_secs_f64();
        if seconds <= 0.0 {
            return self.figures;
        }
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let cpu_utilization = ((counters.cpu_seconds - last.cpu_seconds) / seconds).clamp(0.0, 1.0);
        let measured = LoadFigures {
            cpu_utilization,
            // Load balancers look at this figure alone. Far below the limit it says little about the processors.
            application_utilization: utilization.map(|it| it.max(cpu_utilization)),
            requests_per_second: rate(counters.responses, last.responses),
            errors_per_second: rate(counters.errors, last.errors),
        };
        let smooth = |before: f64, now: f64| before + (now - before) * STEP;
        let figures = match self.figures {
            None => measured,
            Some(before) => LoadFigures {
                cpu_utilization: smooth(before.cpu_utilization, measured.cpu_utilization),
                application_utilization: before
                    .application_utilization
                    .zip(measured.application_utilization)
                    .map(|(before, now)| smooth(before, now)),
                requests_per_second: smooth(
                    before.requests_per_second,
                    measured.requests_per_second,
                ),
                errors_per_second: smooth(before.errors_per_second, measured.errors_per_second),
            },
        };
        self.figures = Some(figures);
        self.figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(cpu_seconds: f64, responses: u64, errors: u64) -> LoadCounters {
        LoadCounters { cpu_seconds, responses, errors }
    }

    #[test]
    fn a_router_seems_busier_while_it_takes_a_share_of_the_load() {
        let figures = LoadFigures { cpu_utilization: 0.2, ..LoadFigures::default() };
        let reported = |application, share| {
            let figures = LoadFigures { application_utilization: application, ..figures };
            with_ramp(figures, share).application_utilization
        };
        assert_eq!(reported(None, 1.0), None);
        assert_eq!(reported(None, 0.5), Some(0.4));
        assert_eq!(reported(Some(0.7), 0.5), Some(0.7));
        assert_eq!(reported(Some(0.3), 0.1), Some(2.0));
    }

    #[test]
    fn processors_are_busy_at_once_and_have_time_to_spare_after_a_while() {
        let mut watch = ProcessorWatch::default();
        let (start, mut second, mut used, mut waited) = (Instant::now(), 0, 0.0, 0.0);
        let mut after = |has_work: bool, used_part: f64, waited_part: f64| {
            second += 1;
            used += used_part;
            waited += waited_part;
            let waits = || {
                assert!(used_part < SPARE_BELOW, "the use alone says enough");
                waited
            };
            let now = start + Duration::from_secs(second);
            watch.measure(Some(used), has_work.then_some(waits), now).has_spare
        };
        assert!(!after(true, 0.1, 0.0), "nothing is known yet");
        assert!(after(true, 0.1, 0.0));
        assert!(!after(true, 0.7, 0.1));
        assert_eq!([0; 6].map(|_| after(true, 0.4, 0.1)), [false, false, false, false, true, true]);
        assert!(!after(true, 0.5, 1.0), "threads wait for a processor");
        assert!(!after(true, 0.5, -1.5), "a thread has ended");
        assert!(!after(true, 0.5, 1.0), "the other threads still wait");
        assert_eq!([0; 5].map(|_| after(false, 0.0, 0.0)), [false, false, false, false, true]);
        assert!(!after(false, 0.9, 0.0), "events use the processors");
    }

    #[test]
    fn processors_are_busy_while_they_are_used_and_while_threads_wait_for_them() {
        let (mut watch, start) = (ProcessorWatch::default(), Instant::now());
        let mut after = |seconds: u64, used: f64, waited: f64| {
            let now = start + Duration::from_secs(seconds);
            watch.measure(Some(used), Some(|| waited), now).busy_part
        };
        assert_eq!(after(0, 10.0, 5.0), None, "nothing is known yet");
        assert_eq!(after(2, 11.5, 5.0), Some(0.75));
        assert_eq!(after(4, 12.0, 6.0), Some(0.5), "a quarter of each");
        assert_eq!(after(8, 12.0, 6.0), Some(0.0));
    }

    #[test]
    fn a_system_that_does_not_tell_has_no_time_to_spare() {
        let mut watch = ProcessorWatch::default();
        for _ in 0..10 {
            let load = watch.measure(None, Some(|| 0.0), Instant::now());
            assert_eq!(load, ProcessorLoad { has_spare: false, busy_part: None });
        }
    }

    #[test]
    fn figures_are_rates_that_follow_changes_smoothly() {
        let mut meter = LoadMeter::default();
        let two_seconds = Duration::from_secs(2);
        assert_eq!(meter.measure(counters(10.0, 1000, 10), Some(0.1), two_seconds), None);
        let first = meter.measure(counters(11.0, 3000, 30), Some(0.1), two_seconds);
        let expected = LoadFigures {
            cpu_utilization: 0.5,
            application_utilization: Some(0.5),
            requests_per_second: 1000.0,
            errors_per_second: 10.0,
        };
        assert_eq!(first, Some(expected));
        let second = meter.measure(counters(11.0, 3000, 30), Some(1.5), two_seconds);
        let Some(LoadFigures { cpu_utilization, application_utilization, .. }) = second else {
            panic!("it was measured")
        };
        assert!((cpu_utilization - 0.3).abs() < 1e-9, "{cpu_utilization}");
        assert!(
            application_utilization.is_some_and(|it| (it - 0.9).abs() < 1e-9),
            "overload shows"
        );
        for _ in 0..50 {
            meter.measure(counters(11.0, 3000, 30), Some(0.0), two_seconds);
        }
        let idle = meter.measure(counters(11.0, 3000, 30), Some(0.0), two_seconds);
        assert!(idle.is_some_and(|it| it.requests_per_second < 1e-6), "{idle:?}");
    }
}
