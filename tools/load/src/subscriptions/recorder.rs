//! Counts the messages that clients receive, for each client and over time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::client::ConnectionEnd;
use super::confirmed::ConfirmedEvents;
use super::message::ResultInfo;
use crate::histogram::Histogram;
use crate::process::{Process, Usage};
use crate::report::FailureCount;
use crate::report::subscriptions::SubscriptionInterval;

/// The maximum number of points of a plot over time; beyond it, every second point is removed.
const INTERVALS_MAX: usize = 480;

/// The maximum number of bytes of a message in a report.
const EXAMPLE_BYTES_MAX: usize = 4096;

/// The results of one client since the counts began.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ClientTally {
    pub(super) received: u64,
    /// The number of results that the server announced as lost.
    pub(super) lost: u64,
    /// The publishing time of its latest event.
    last_stamp: u64,
}

/// The counts of one run.
pub(super) struct SubscriptionRecorder {
    /// The counts of each client.
    pub(super) tallies: Vec<ClientTally>,
    /// The number of clients that read; they are the first ones, and only they are counted below.
    readers: usize,
    /// The time of the last result, counted from the beginning of the run.
    pub(super) last_received: Option<Duration>,
    /// The sums of all reading clients.
    pub(super) received: u64,
    pub(super) lost: u64,
    /// The publishing time from which on results are timed; `None` while none are.
    pub(super) timed_from: Option<u64>,
    pub(super) latency: Histogram,
    /// The number of timed results, and the bytes of their messages.
    pub(super) deliveries: u64,
    pub(super) bytes: u64,
    /// The number of results received out of order, or twice.
    pub(super) disordered: u64,
    pub(super) gaps: u64,
    pub(super) errors: u64,
    /// The number of results that do not contain the expected text of their client.
    pub(super) foreign: u64,
    /// The events that all clients have received, if a publisher waits for them.
    pub(super) confirmed: Option<ConfirmedEvents>,
    /// The connections that ended unexpectedly, by reason.
    pub(super) ends: BTreeMap<ConnectionEnd, u64>,
    /// The refusals after which clients returned, by reason.
    pub(super) returns: BTreeMap<ConnectionEnd, u64>,
    /// The ends of clients that never read.
    pub(super) slow_ends: BTreeMap<ConnectionEnd, u64>,
    /// The first problem.
    pub(super) problem: Option<String>,
    /// The first result of an event, or the first result while there is none.
    pub(super) message: Option<String>,
    /// True if `message` is the result of an event.
    has_event_message: bool,
    observed_server: Option<Process>,
    pub(super) resident_peak_kib: u64,
    interval: Histogram,
    interval_count: u64,
    interval_seconds: u32,
    interval_began: Duration,
    interval_usage: Option<Usage>,
    pub(super) intervals: Vec<SubscriptionInterval>,
}

/// A received result; see `message`.
pub(super) struct ReceivedResult {
    pub(super) client: usize,
    pub(super) outcome: ResultInfo,
    pub(super) bytes: usize,
    /// The time of receipt in microseconds since 1970.
    pub(super) now_us: u64,
}

impl SubscriptionRecorder {
    pub(super) fn new(clients: usize, readers: usize, observed_server: Option<Process>) -> Self {
        let usage = observed_server.and_then(|process| process.usage().ok());
        Self {
            tallies: vec![ClientTally::default(); clients],
            readers,
            last_received: None,
            received: 0,
            lost: 0,
            timed_from: None,
            latency: Histogram::default(),
            deliveries: 0,
            bytes: 0,
            disordered: 0,
            gaps: 0,
            errors: 0,
            foreign: 0,
            confirmed: None,
            ends: BTreeMap::new(),
            returns: BTreeMap::new(),
            slow_ends: BTreeMap::new(),
            problem: None,
            message: None,
            has_event_message: false,
            observed_server,
            resident_peak_kib: 0,
            interval: Histogram::default(),
            interval_count: 0,
            interval_seconds: 1,
            interval_began: Duration::ZERO,
            interval_usage: usage,
            intervals: Vec::new(),
        }
    }

    /// Returns the number of clients that read; the others never do.
    pub(super) fn readers(&self) -> usize {
        self.readers
    }

    /// Counts a result.
    // hot path: once a message.
    pub(super) fn received(&mut self, received: &ReceivedResult) {
        let ReceivedResult { client, outcome, bytes, now_us } = received;
        let tally = &mut self.tallies[*client];
        tally.received += 1;
        tally.lost += outcome.lost;
        if *client >= self.readers {
            return;
        }
        self.received += 1;
        self.lost += outcome.lost;
        if let Some(confirmed) = &mut self.confirmed {
            confirmed.received(tally.received);
        }
        self.interval_count += 1;
        self.gaps += u64::from(outcome.gap);
        self.errors += u64::from(outcome.has_errors);
        let Some(stamp) = outcome.stamp else { return };
        if stamp <= tally.last_stamp {
            self.disordered += 1;
        }
        tally.last_stamp = stamp;
        let latency = now_us.saturating_sub(stamp) * 1000;
        self.interval.record(latency);
        if self.timed_from.is_some_and(|from| stamp >= from) {
            self.latency.record(latency);
            self.deliveries += 1;
            self.bytes += *bytes as u64;
        }
    }

    /// Counts a result by whether it belongs to its client.
    pub(super) fn record_ownership(&mut self, client: usize, is_own: bool) {
        self.foreign += u64::from(!is_own && client < self.readers);
    }

    /// Keeps a message as the first problem, if there is none yet.
    pub(super) fn keep_problem(&mut self, text: &[u8]) {
        if self.problem.is_none() {
            self.problem = Some(truncate_text(text));
        }
    }

    /// True as long as there was no result of an event that reports can show.
    pub(super) fn wants_message(&self) -> bool {
        !self.has_event_message
    }

    /// Keeps the first result of an event, and the first result with errors as a problem. The results that live queries
    /// begin with are of no event: one of them is kept until there is a better one.
    pub(super) fn keep(&mut self, text: &[u8], result: &ResultInfo) {
        if result.has_errors {
            self.keep_problem(text);
        } else if self.message.is_none() || (self.wants_message() && result.stamp.is_some()) {
            self.message = Some(truncate_text(text));
            self.has_event_message = result.stamp.is_some();
        }
    }

    /// Restarts the counts: everything published from now on counts. The caller sets separately what is timed.
    pub(super) fn restart(&mut self) {
        for tally in &mut self.tallies {
            *tally = ClientTally { last_stamp: tally.last_stamp, ..ClientTally::default() };
        }
        (self.received, self.lost, self.deliveries, self.bytes) = (0, 0, 0, 0);
        (self.disordered, self.gaps, self.errors, self.foreign) = (0, 0, 0, 0);
        self.latency.clear();
    }

    /// Counts a connection that ended unexpectedly.
    pub(super) fn record_end(&mut self, end: ConnectionEnd) {
        *self.ends.entry(end).or_default() += 1;
    }

    /// Counts a refusal after which the client returns.
    pub(super) fn record_return(&mut self, end: ConnectionEnd) {
        *self.returns.entry(end).or_default() += 1;
    }

    /// Closes an interval that has passed and returns it.
    pub(super) fn tick(
        &mut self,
        now: Duration,
        subscribed: usize,
    ) -> Option<SubscriptionInterval> {
        let length = now.saturating_sub(self.interval_began);
        if length < Duration::from_secs(u64::from(self.interval_seconds)) {
            return None;
        }
        let usage = self.usage();
        let seconds = length.as_secs_f64();
        let cores = self
            .interval_usage
            .zip(usage)
            .map(|(before, after)| after.cpu.saturating_sub(before.cpu).as_secs_f64() / seconds);
        let interval = SubscriptionInterval {
            at_seconds: now.as_secs_f64(),
            subscribed: subscribed as u64,
            deliveries_per_second: self.interval_count as f64 / seconds,
            p50_us: self.interval.quantile(0.5) as f64 / 1e3,
            p99_us: self.interval.quantile(0.99) as f64 / 1e3,
            max_us: self.interval.max() as f64 / 1e3,
            server_cores: cores,
            server_resident_mib: usage.map(|usage| usage.resident_kib as f64 / 1024.0),
        };
        self.interval.clear();
        (self.interval_count, self.interval_usage, self.interval_began) = (0, usage, now);
        if self.intervals.len() == INTERVALS_MAX {
            let mut place = 0;
            self.intervals.retain(|_| {
                place += 1;
                place % 2 == 0
            });
            self.interval_seconds *= 2;
        }
        self.intervals.push(interval.clone());
        Some(interval)
    }

    /// Returns the resource usage of the server until now.
    pub(super) fn usage(&mut self) -> Option<Usage> {
        let usage = self.observed_server?.usage().ok()?;
        self.resident_peak_kib = self.resident_peak_kib.max(usage.resident_kib);
        Some(usage)
    }
}

/// Returns the part of a message that a report shows.
fn truncate_text(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[..text.len().min(EXAMPLE_BYTES_MAX)]).into_owned()
}

/// Lists the reasons for which connections ended, most frequent first.
pub(super) fn list_ends(ends: &BTreeMap<ConnectionEnd, u64>) -> Vec<FailureCount> {
    let mut list: Vec<FailureCount> =
        ends.iter().map(|(end, count)| FailureCount { what: end.label(), count: *count }).collect();
    list.sort_by_key(|failure| std::cmp::Reverse(failure.count));
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(client: usize, stamp: u64, lost: u64) -> ReceivedResult {
        let outcome = ResultInfo { stamp: Some(stamp), lost, ..ResultInfo::default() };
        ReceivedResult { client, outcome, bytes: 10, now_us: stamp + 5 }
    }

    #[test]
    fn only_events_published_in_the_measured_time_are_timed() {
        let mut recorder = SubscriptionRecorder::new(2, 2, None);
        recorder.received(&result(0, 100, 0));
        recorder.restart();
        recorder.timed_from = Some(101);
        recorder.received(&result(0, 101, 0));
        recorder.received(&result(1, 102, 1));
        recorder.timed_from = None;
        recorder.received(&result(0, 103, 0));
        assert_eq!((recorder.received, recorder.lost, recorder.deliveries), (3, 1, 2));
        assert_eq!((recorder.bytes, recorder.latency.max()), (20, 5000));
        assert_eq!(recorder.disordered, 0);
    }

    #[test]
    fn a_result_that_comes_twice_or_late_is_out_of_order_for_its_client_only() {
        let mut recorder = SubscriptionRecorder::new(2, 2, None);
        for (client, stamp) in [(0, 5), (1, 4), (0, 5), (0, 3), (1, 6)] {
            recorder.received(&result(client, stamp, 0));
        }
        assert_eq!(recorder.disordered, 2);
    }

    #[test]
    fn the_first_result_of_an_event_takes_the_place_of_a_result_without_one() {
        let mut recorder = SubscriptionRecorder::new(1, 1, None);
        let event = ResultInfo { stamp: Some(1), ..ResultInfo::default() };
        let failed = ResultInfo { has_errors: true, ..event };
        for (text, result, message, is_wanted) in [
            ("failed", failed, None, true),
            ("initial", ResultInfo::default(), Some("initial"), true),
            ("initial again", ResultInfo::default(), Some("initial"), true),
            ("event", event, Some("event"), false),
            ("another", event, Some("event"), false),
        ] {
            recorder.keep(text.as_bytes(), &result);
            assert_eq!(
                (recorder.message.as_deref(), recorder.wants_message()),
                (message, is_wanted)
            );
        }
        assert_eq!(recorder.problem.as_deref(), Some("failed"));
    }

    #[test]
    fn a_long_run_has_longer_intervals() {
        let mut recorder = SubscriptionRecorder::new(1, 1, None);
        for second in 1..=3000 {
            recorder.tick(Duration::from_secs(second), 1);
        }
        assert!(recorder.intervals.len() <= INTERVALS_MAX);
        let ends: Vec<f64> = recorder.intervals.iter().map(|it| it.at_seconds).collect();
        assert!(ends.is_sorted() && ends.last().is_some_and(|last| *last > 2990.0), "{ends:?}");
    }
}
