//! Counts the events of the driver: in total for the requests of the measured time, and by intervals of it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::clients::UserRequest;
use super::outcome::{Outcome, Reason};
use crate::histogram::Histogram;
use crate::process::{Process, Usage};
use crate::report::{
    FailureCount, LatencySummary, SurgeClass, SurgeCounts, SurgeInterval, SurgeLatency,
    SurgeServerUsage, SurgeSubscribersInterval,
};

/// The maximum number of intervals; longer runs have longer intervals. An hour has one for each second.
const INTERVALS_MAX: u64 = 3600;

/// The maximum number of reasons that are counted apart; the others count together.
const REASONS_MAX: usize = 50;

/// The name of the reasons beyond [`REASONS_MAX`].
const OTHER_REASONS: &str = "other reasons";

/// The maximum number of bytes of a wrong response in a report.
const EXAMPLE_BYTES_MAX: usize = 300;

/// The delay of the load generator above which a send counts as late.
const LATE_SEND: Duration = Duration::from_millis(10);

/// The connections of the load generator at one time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Occupancy {
    pub(super) connections: usize,
    pub(super) waiting: usize,
    pub(super) subscribers: Option<SurgeSubscribersInterval>,
}

/// The counts of attempts by reason.
#[derive(Debug, Default)]
struct ReasonCounts(BTreeMap<String, u64>);

impl ReasonCounts {
    fn add(&mut self, label: String) {
        let is_known = self.0.contains_key(&label);
        let label = match is_known || self.0.len() < REASONS_MAX {
            true => label,
            false => OTHER_REASONS.to_owned(),
        };
        *self.0.entry(label).or_default() += 1;
    }

    /// Returns the counts, the largest first.
    fn list(&self) -> Vec<FailureCount> {
        let counts =
            self.0.iter().map(|(what, count)| FailureCount { what: what.clone(), count: *count });
        let mut list: Vec<FailureCount> = counts.collect();
        list.sort_by_key(|it| std::cmp::Reverse(it.count));
        list
    }
}

/// The results of one class.
struct ClassRecord {
    name: String,
    counts: SurgeCounts,
    latency: Histogram,
    until_served: Histogram,
    /// The latency in the current interval.
    interval: Histogram,
}

/// The counts of one run.
pub(super) struct SurgeRecorder {
    begin: Duration,
    end: Duration,
    in_time: Duration,
    interval_length: Duration,
    classes: Vec<ClassRecord>,
    /// The latency and the time until served, of all classes together.
    latency: Histogram,
    until_served: Histogram,
    refusals: ReasonCounts,
    failures: ReasonCounts,
    interval: SurgeCounts,
    interval_refusals: ReasonCounts,
    interval_late_sends: u64,
    interval_server: Option<Usage>,
    interval_own: Option<Usage>,
    observed_process: Option<u32>,
    begin_usage: Option<Usage>,
    end_usage: Option<Usage>,
    resident_peak_kib: u64,
    pub(super) intervals: Vec<SurgeInterval>,
    pub(super) example: Option<String>,
    pub(super) late_sends: u64,
    pub(super) late_max: Duration,
}

impl SurgeRecorder {
    pub(super) fn new(
        classes: Vec<String>,
        warmup: Duration,
        duration: Duration,
        in_time: Duration,
        observed_process: Option<u32>,
    ) -> Self {
        let seconds = duration.as_secs().div_ceil(INTERVALS_MAX).max(1);
        let classes = classes.into_iter().map(|name| ClassRecord {
            name,
            counts: SurgeCounts::default(),
            latency: Histogram::default(),
            until_served: Histogram::default(),
            interval: Histogram::default(),
        });
        Self {
            begin: warmup,
            end: warmup + duration,
            in_time,
            interval_length: Duration::from_secs(seconds),
            classes: classes.collect(),
            latency: Histogram::default(),
            until_served: Histogram::default(),
            refusals: ReasonCounts::default(),
            failures: ReasonCounts::default(),
            interval: SurgeCounts::default(),
            interval_refusals: ReasonCounts::default(),
            interval_late_sends: 0,
            interval_server: None,
            interval_own: None,
            observed_process,
            begin_usage: None,
            end_usage: None,
            resident_peak_kib: 0,
            intervals: Vec::new(),
            example: None,
            late_sends: 0,
            late_max: Duration::ZERO,
        }
    }

    /// Counts in the total of the request's class, if the request belongs to the measured time, and in the interval of
    /// `now`.
    fn count(
        &mut self,
        class: usize,
        request: &UserRequest,
        now: Duration,
        add: impl Fn(&mut SurgeCounts),
    ) {
        if self.is_measured(request) {
            add(&mut self.classes[class].counts);
        }
        if self.is_within(now) {
            add(&mut self.interval);
        }
    }

    fn is_measured(&self, request: &UserRequest) -> bool {
        self.is_within(request.wanted)
    }

    fn is_within(&self, time: Duration) -> bool {
        // The last request of a shape is at its end.
        time >= self.begin && time <= self.end
    }

    /// Counts a request that a user wants.
    pub(super) fn on_wanted(&mut self, class: usize, request: &UserRequest) {
        self.count(class, request, request.wanted, |counts| counts.offered += 1);
    }

    /// Counts a request that the client's cache serves.
    pub(super) fn on_cached(&mut self, class: usize, request: &UserRequest) {
        self.count(class, request, request.wanted, |counts| counts.from_cache += 1);
    }

    /// Notes when an attempt was handled that was planned for another time.
    pub(super) fn on_due(&mut self, planned: Duration, now: Duration) {
        let delay = now.saturating_sub(planned);
        if delay > LATE_SEND && self.is_within(planned) {
            self.late_sends += 1;
            self.interval_late_sends += 1;
            self.late_max = self.late_max.max(delay);
        }
    }

    /// Counts an attempt that is sent.
    pub(super) fn on_sent(&mut self, class: usize, request: &UserRequest, now: Duration) {
        self.count(class, request, now, |counts| {
            counts.sent += 1;
            counts.repeated += u64::from(request.repeated > 0);
        });
    }

    /// Counts an attempt that could not be sent.
    pub(super) fn on_unsent(&mut self, class: usize, request: &UserRequest, now: Duration) {
        self.count(class, request, now, |counts| counts.unsent += 1);
    }

    /// Counts a request that the client gives up.
    pub(super) fn on_given_up(&mut self, class: usize, request: &UserRequest, now: Duration) {
        self.count(class, request, now, |counts| counts.given_up += 1);
    }

    /// Counts the end of an attempt that was planned for this time.
    pub(super) fn on_end(
        &mut self,
        class: usize,
        request: &UserRequest,
        planned: Duration,
        now: Duration,
        outcome: &Outcome,
        body: &[u8],
    ) {
        match outcome {
            Outcome::Correct => self.on_correct(class, request, planned, now),
            Outcome::Refused(reason) => {
                self.count(class, request, now, |counts| counts.refused += 1);
                self.add_reason(request, now, reason);
            }
            Outcome::Wrong(reason) => {
                self.count(class, request, now, |counts| {
                    counts.admitted += 1;
                    counts.failed += 1;
                });
                self.add_failure(request, reason.label());
                self.example.get_or_insert_with(|| {
                    let shown = String::from_utf8_lossy(&body[..body.len().min(EXAMPLE_BYTES_MAX)]);
                    format!("{}: {shown}", reason.label())
                });
            }
            Outcome::NoResponse(lost) => {
                self.count(class, request, now, |counts| counts.failed += 1);
                self.add_failure(request, lost.label().to_owned());
            }
        }
    }

    fn on_correct(
        &mut self,
        class: usize,
        request: &UserRequest,
        planned: Duration,
        now: Duration,
    ) {
        let latency = now.saturating_sub(planned);
        let is_in_time = latency <= self.in_time;
        self.count(class, request, now, |counts| {
            counts.admitted += 1;
            counts.good += u64::from(is_in_time);
            counts.late += u64::from(!is_in_time);
        });
        let (is_measured, is_within) = (self.is_measured(request), self.is_within(now));
        let class = &mut self.classes[class];
        if is_measured {
            let until_served = now.saturating_sub(request.wanted);
            for histogram in [&mut class.latency, &mut self.latency] {
                histogram.record(nanos(latency));
            }
            for histogram in [&mut class.until_served, &mut self.until_served] {
                histogram.record(nanos(until_served));
            }
        }
        if is_within {
            class.interval.record(nanos(latency));
        }
    }

    fn add_reason(&mut self, request: &UserRequest, now: Duration, reason: &Reason) {
        if self.is_measured(request) {
            self.refusals.add(reason.label());
        }
        if self.is_within(now) {
            self.interval_refusals.add(reason.label());
        }
    }

    fn add_failure(&mut self, request: &UserRequest, label: String) {
        if self.is_measured(request) {
            self.failures.add(label);
        }
    }

    /// Closes an interval that has passed and returns it.
    pub(super) fn tick(&mut self, now: Duration, occupancy: Occupancy) -> Option<SurgeInterval> {
        if now < self.begin {
            return None;
        }
        if self.begin_usage.is_none() {
            self.begin_usage = self.usage();
            self.interval_server = self.begin_usage;
        }
        if self.interval_own.is_none() {
            self.interval_own = Process::Own.usage().ok();
        }
        if now >= self.end && self.end_usage.is_none() {
            self.end_usage = self.usage();
        }
        let start = self.begin + self.interval_length * self.intervals.len() as u32;
        let end = (start + self.interval_length).min(self.end);
        if start >= self.end || now < end {
            return None;
        }
        let seconds = (end - start).as_secs_f64();
        let cores = |before: Option<Usage>, after: Option<Usage>| {
            let (before, after) = before.zip(after)?;
            Some(after.cpu.saturating_sub(before.cpu).as_secs_f64() / seconds)
        };
        let (server, own) = (self.usage(), Process::Own.usage().ok());
        let latency = self.classes.iter_mut().map(|class| {
            let has_any = class.interval.count() > 0;
            let at = |share| has_any.then(|| class.interval.quantile(share) as f64 / 1e3);
            let latency = SurgeLatency { p50_us: at(0.5), p99_us: at(0.99) };
            class.interval.clear();
            latency
        });
        let interval = SurgeInterval {
            at_seconds: (end - self.begin).as_secs_f64(),
            seconds,
            counts: std::mem::take(&mut self.interval),
            latency: latency.collect(),
            refusals: std::mem::take(&mut self.interval_refusals).list(),
            connections: occupancy.connections,
            waiting: occupancy.waiting,
            subscribers: occupancy.subscribers,
            server_cores: cores(self.interval_server, server),
            server_resident_mib: server.map(|usage| mib(usage.resident_kib)),
            generator_cores: cores(self.interval_own, own).unwrap_or(0.0),
            late_sends: std::mem::take(&mut self.interval_late_sends),
        };
        (self.interval_server, self.interval_own) = (server, own);
        self.intervals.push(interval.clone());
        Some(interval)
    }

    /// Returns the results of the classes.
    pub(super) fn classes(&self) -> Vec<SurgeClass> {
        let classes = self.classes.iter().map(|class| SurgeClass {
            name: class.name.clone(),
            counts: class.counts,
            latency: LatencySummary::from_histogram(&class.latency),
            until_served: LatencySummary::from_histogram(&class.until_served),
        });
        classes.collect()
    }

    /// Returns the latency and the time until served, of all classes together.
    pub(super) fn latency(&self) -> (LatencySummary, LatencySummary) {
        let summary = LatencySummary::from_histogram;
        (summary(&self.latency), summary(&self.until_served))
    }

    /// Returns the refused attempts and the failed ones, by reason.
    pub(super) fn reasons(&self) -> (Vec<FailureCount>, Vec<FailureCount>) {
        (self.refusals.list(), self.failures.list())
    }

    /// Returns the resource usage of the server in the measured time.
    pub(super) fn server(&self) -> Option<SurgeServerUsage> {
        let (begin, end) = (self.begin_usage?, self.end_usage?);
        let cpu = end.cpu.saturating_sub(begin.cpu).as_secs_f64();
        Some(SurgeServerUsage {
            pid: self.observed_process?,
            cores: cpu / (self.end - self.begin).as_secs_f64(),
            resident_begin_mib: mib(begin.resident_kib),
            resident_end_mib: mib(end.resident_kib),
            resident_max_mib: mib(self.resident_peak_kib),
        })
    }

    fn usage(&mut self) -> Option<Usage> {
        let usage = Process::Id(self.observed_process?).usage().ok()?;
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
    use crate::surge::outcome::Lost;

    const MS: Duration = Duration::from_millis(1);

    fn recorder() -> SurgeRecorder {
        SurgeRecorder::new(vec!["a".into(), "b".into()], MS * 1000, MS * 2500, MS * 100, None)
    }

    fn request(wanted: u32) -> UserRequest {
        UserRequest { client: 0, kind: 0, wanted: MS * wanted, repeated: 0 }
    }

    fn refusal() -> Outcome {
        Outcome::Refused(Reason { status: 503, code: Some("OVERLOADED".into()) })
    }

    #[test]
    fn totals_count_what_was_wanted_in_the_measured_time_whenever_it_ends() {
        let mut recorder = recorder();
        for wanted in [500, 1500, 3400] {
            let request = request(wanted);
            recorder.on_wanted(0, &request);
            recorder.on_sent(0, &request, MS * wanted);
            // The last one ends after the measured time.
            recorder.on_end(0, &request, MS * wanted, MS * (wanted + 150), &Outcome::Correct, b"");
        }
        let counts = recorder.classes()[0].counts;
        let expected =
            SurgeCounts { offered: 2, sent: 2, admitted: 2, late: 2, ..SurgeCounts::default() };
        assert_eq!(counts, expected);
        assert_eq!(recorder.classes()[1].counts, SurgeCounts::default());
    }

    #[test]
    fn latency_counts_from_the_attempt_and_the_time_until_served_from_the_wish() {
        let mut recorder = recorder();
        let repeated = UserRequest { repeated: 1, ..request(1100) };
        recorder.on_sent(0, &repeated, MS * 2000);
        recorder.on_end(0, &repeated, MS * 2000, MS * 2050, &Outcome::Correct, b"");
        let class = &recorder.classes()[0];
        assert_eq!((class.counts.good, class.counts.repeated), (1, 1));
        assert!((class.latency.max_us - 50_000.0).abs() < 1.0, "{:?}", class.latency);
        assert!((class.until_served.max_us - 950_000.0).abs() < 1.0, "{:?}", class.until_served);
    }

    #[test]
    fn intervals_have_the_events_of_their_time_and_follow_without_gaps() {
        let mut recorder = recorder();
        let occupancy = Occupancy { connections: 3, waiting: 1, subscribers: None };
        let mut intervals = Vec::new();
        for now in (0..4500).step_by(100) {
            let request = request(now);
            recorder.on_wanted(1, &request);
            recorder.on_end(1, &request, MS * now, MS * (now + 1), &refusal(), b"");
            intervals.extend(recorder.tick(MS * now, occupancy));
        }
        let ends: Vec<f64> = intervals.iter().map(|interval| interval.at_seconds).collect();
        assert_eq!(ends, [1.0, 2.0, 2.5]);
        let offered: u64 = intervals.iter().map(|interval| interval.counts.offered).sum();
        assert_eq!(offered, recorder.classes()[1].counts.offered);
        assert_eq!(intervals[1].refusals[0].what, "503 OVERLOADED");
        assert_eq!((intervals[1].connections, intervals[1].waiting), (3, 1));
        assert_eq!(intervals[1].latency[1], SurgeLatency::default());
    }

    #[test]
    fn reasons_are_counted_apart_up_to_a_bound() {
        let mut recorder = recorder();
        let request = request(1500);
        for number in 0..REASONS_MAX + 20 {
            let outcome =
                Outcome::Wrong(Reason { status: 500, code: Some(format!("C{number}").into()) });
            recorder.on_end(0, &request, request.wanted, request.wanted, &outcome, b"{oops");
        }
        recorder.on_end(
            0,
            &request,
            request.wanted,
            request.wanted,
            &Outcome::NoResponse(Lost::Closed),
            b"",
        );
        recorder.on_end(0, &request, request.wanted, request.wanted, &refusal(), b"");
        let (refusals, failures) = recorder.reasons();
        assert_eq!(refusals, [FailureCount { what: "503 OVERLOADED".into(), count: 1 }]);
        assert_eq!(failures.len(), REASONS_MAX + 1);
        assert_eq!(failures[0], FailureCount { what: OTHER_REASONS.into(), count: 21 });
        assert_eq!(recorder.example.as_deref(), Some("500 C0: {oops"));
        let counts = recorder.classes()[0].counts;
        assert_eq!((counts.failed, counts.admitted), (71, 70));
    }

    #[test]
    fn sends_are_late_only_beyond_a_tolerance() {
        let mut recorder = recorder();
        for (planned, now) in [(1500, 1505), (1500, 1600), (100, 900)] {
            recorder.on_due(MS * planned, MS * now);
        }
        assert_eq!((recorder.late_sends, recorder.late_max), (1, MS * 100));
    }
}
