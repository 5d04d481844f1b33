//! Counts the events of the driver, in the measured time and by intervals of it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::check::RequestOutcome;
use crate::histogram::Histogram;
use crate::process::{Process, Usage};
use crate::report::{LatencySummary, QueryInterval, QueryServerUsage};

/// The maximum number of points of a plot over time; longer runs have longer intervals.
const INTERVALS_MAX: u64 = 240;

/// The maximum number of bytes of a wrong response in a report.
const EXAMPLE_BYTES_MAX: usize = 300;

/// The end of a request. Times are counted from the beginning of the warm-up.
pub(super) struct RequestEnd {
    /// The scheduled start.
    pub(super) intended: Duration,
    /// The time at which the response was complete or the request was abandoned.
    pub(super) ended: Duration,
    pub(super) outcome: RequestOutcome,
    pub(super) body_bytes: usize,
}

/// The counts of one run.
pub(super) struct QueryRecorder {
    begin: Duration,
    end: Duration,
    /// True if a request counts by its scheduled start and not by its end: open loop.
    counts_by_start: bool,
    interval_length: Duration,
    interval: Histogram,
    interval_ok: u64,
    interval_failed: u64,
    interval_usage: Option<Usage>,
    observed_process: Option<Process>,
    begin_usage: Option<Usage>,
    end_usage: Option<Usage>,
    resident_peak_kib: u64,
    pub(super) intervals: Vec<QueryInterval>,
    pub(super) latency: Histogram,
    pub(super) completed_in_window: u64,
    pub(super) failed: u64,
    pub(super) unsent: u64,
    pub(super) failures: BTreeMap<RequestOutcome, u64>,
    pub(super) example: Option<String>,
    pub(super) body_bytes: u64,
}

impl QueryRecorder {
    pub(super) fn new(
        warmup: Duration,
        duration: Duration,
        counts_by_start: bool,
        observed_process: Option<Process>,
    ) -> Self {
        let seconds = duration.as_secs().div_ceil(INTERVALS_MAX).max(1);
        Self {
            begin: warmup,
            end: warmup + duration,
            counts_by_start,
            interval_length: Duration::from_secs(seconds),
            interval: Histogram::default(),
            interval_ok: 0,
            interval_failed: 0,
            interval_usage: None,
            observed_process,
            begin_usage: None,
            end_usage: None,
            resident_peak_kib: 0,
            intervals: Vec::new(),
            latency: Histogram::default(),
            completed_in_window: 0,
            failed: 0,
            unsent: 0,
            failures: BTreeMap::new(),
            example: None,
            body_bytes: 0,
        }
    }

    /// Counts a request that ended.
    pub(super) fn record(&mut self, event: &RequestEnd, differing_bytes: &[u8]) {
        let right = event.outcome == RequestOutcome::Correct;
        if !right && self.example.is_none() {
            let shown = &differing_bytes[..differing_bytes.len().min(EXAMPLE_BYTES_MAX)];
            let text = String::from_utf8_lossy(shown);
            self.example = Some(match text.is_empty() {
                true => event.outcome.label(),
                false => format!("{}: {text}", event.outcome.label()),
            });
        }
        let ended_within = event.ended >= self.begin && event.ended < self.end;
        let time = if self.counts_by_start { event.intended } else { event.ended };
        if time >= self.begin && time < self.end {
            if right {
                self.latency.record(nanos(event.ended.saturating_sub(event.intended)));
            } else {
                self.failed += 1;
                *self.failures.entry(event.outcome).or_default() += 1;
            }
        }
        if !ended_within {
            return;
        }
        if right {
            self.completed_in_window += 1;
            self.body_bytes += event.body_bytes as u64;
            self.interval_ok += 1;
            self.interval.record(nanos(event.ended.saturating_sub(event.intended)));
        } else {
            self.interval_failed += 1;
        }
    }

    /// Counts a request that was due but not sent before the end, because no connection was free. Its latency is at
    /// least the time that it has waited.
    pub(super) fn record_unsent(&mut self, intended: Duration) {
        if intended >= self.begin && intended < self.end {
            self.unsent += 1;
            self.latency.record(nanos(self.end.saturating_sub(intended)));
        }
    }

    /// Closes an interval that has passed and returns it.
    pub(super) fn tick(&mut self, now: Duration) -> Option<QueryInterval> {
        if now < self.begin {
            return None;
        }
        if self.begin_usage.is_none() {
            self.begin_usage = self.usage();
            self.interval_usage = self.begin_usage;
        }
        if now >= self.end && self.end_usage.is_none() {
            self.end_usage = self.usage();
        }
        let start = self.begin + self.interval_length * self.intervals.len() as u32;
        let end = (start + self.interval_length).min(self.end);
        if start >= self.end || now < end {
            return None;
        }
        let usage = self.usage();
        let seconds = (end - start).as_secs_f64();
        let cpu = self
            .interval_usage
            .zip(usage)
            .map(|(before, after)| after.cpu.saturating_sub(before.cpu).as_secs_f64() / seconds);
        let interval = QueryInterval {
            at_seconds: (end - self.begin).as_secs_f64(),
            answers_per_second: self.interval_ok as f64 / seconds,
            failures_per_second: self.interval_failed as f64 / seconds,
            p50_us: self.interval.quantile(0.5) as f64 / 1e3,
            p99_us: self.interval.quantile(0.99) as f64 / 1e3,
            max_us: self.interval.max() as f64 / 1e3,
            server_cores: cpu,
            server_resident_mib: usage.map(|usage| mib(usage.resident_kib)),
        };
        self.interval.clear();
        (self.interval_ok, self.interval_failed, self.interval_usage) = (0, 0, usage);
        self.intervals.push(interval.clone());
        Some(interval)
    }

    /// Returns the resource usage of the server in the measured time.
    pub(super) fn server(&self, id: u32) -> Option<QueryServerUsage> {
        let (begin, end) = (self.begin_usage?, self.end_usage?);
        let cpu = end.cpu.saturating_sub(begin.cpu).as_secs_f64();
        Some(QueryServerUsage {
            pid: id,
            cpu_us_per_request: (self.completed_in_window > 0)
                .then(|| cpu * 1e6 / self.completed_in_window as f64),
            cores: cpu / (self.end - self.begin).as_secs_f64(),
            resident_begin_mib: mib(begin.resident_kib),
            resident_end_mib: mib(end.resident_kib),
            resident_max_mib: mib(self.resident_peak_kib),
        })
    }

    pub(super) fn summary(&self) -> LatencySummary {
        LatencySummary::from_histogram(&self.latency)
    }

    fn usage(&mut self) -> Option<Usage> {
        let usage = self.observed_process?.usage().ok()?;
        self.resident_peak_kib = self.resident_peak_kib.max(usage.resident_kib);
        Some(usage)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn event(intended: u32, ended: u32, outcome: RequestOutcome) -> RequestEnd {
        RequestEnd { intended: MS * intended, ended: MS * ended, outcome, body_bytes: 10 }
    }

    #[test]
    fn only_the_measured_time_counts() {
        for (counts_by_start, latencies) in [(false, 2), (true, 2)] {
            let mut recorder = QueryRecorder::new(MS * 1000, MS * 2000, counts_by_start, None);
            for (intended, ended) in [(100, 200), (900, 1100), (1500, 1600), (2900, 3100)] {
                recorder.record(&event(intended, ended, RequestOutcome::Correct), b"");
            }
            assert_eq!(recorder.completed_in_window, 2, "{counts_by_start}");
            assert_eq!(recorder.latency.count(), latencies, "{counts_by_start}");
            assert_eq!(recorder.body_bytes, 20, "{counts_by_start}");
        }
    }

    #[test]
    fn failures_are_counted_by_kind_and_the_first_is_shown() {
        let mut recorder = QueryRecorder::new(Duration::ZERO, MS * 1000, false, None);
        recorder.record(&event(1, 2, RequestOutcome::Status(503)), b"busy");
        recorder.record(&event(1, 3, RequestOutcome::Timeout), b"");
        recorder.record(&event(1, 3, RequestOutcome::Timeout), b"");
        assert_eq!(recorder.failed, 3);
        assert_eq!(recorder.failures[&RequestOutcome::Timeout], 2);
        assert_eq!(recorder.example.as_deref(), Some("status 503: busy"));
        assert_eq!(recorder.latency.count(), 0);
    }

    #[test]
    fn an_unsent_request_counts_with_the_time_it_waited() {
        let mut recorder = QueryRecorder::new(Duration::ZERO, MS * 1000, true, None);
        recorder.record_unsent(MS * 400);
        recorder.record_unsent(MS * 1000);
        assert_eq!(recorder.unsent, 1);
        assert!(recorder.latency.max() >= 600_000_000);
    }

    #[test]
    fn intervals_follow_each_other_without_gaps() {
        let mut recorder = QueryRecorder::new(MS * 500, MS * 2500, false, None);
        let mut ends = Vec::new();
        for now in (0..4000).step_by(100) {
            recorder.record(&event(now, now + 1, RequestOutcome::Correct), b"");
            ends.extend(recorder.tick(MS * now).map(|interval| interval.at_seconds));
        }
        assert_eq!(ends, [1.0, 2.0, 2.5]);
        let responses: f64 = recorder.intervals.iter().map(|i| i.answers_per_second).sum();
        assert!(responses > 28.0 && responses < 32.0, "{responses}");
    }
}
