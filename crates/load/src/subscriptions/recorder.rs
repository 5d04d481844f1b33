//! Counts what clients receive, for each of them and over time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::client::End;
use super::confirmed::Confirmed;
use crate::histogram::Histogram;
use crate::process::{Process, Usage};
use crate::report::Failure;
use crate::report::subscriptions::Interval;

/// Points of a plot over time; every second one goes when there are more.
const INTERVALS_MAX: usize = 480;

/// Bytes of a message that a report shows.
const EXAMPLE_BYTES_MAX: usize = 4096;

/// What one client has received since the counts began.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) received: u64,
    /// Results that the server said were lost.
    pub(super) lost: u64,
    /// When the latest of its events was published.
    last_stamp: u64,
}

/// The counts of one run.
pub(super) struct Recorder {
    /// By client.
    pub(super) tallies: Vec<Tally>,
    /// The first so many read as they should; only they count below.
    readers: usize,
    /// When the last result came, from the beginning of the run.
    pub(super) last_received: Option<Duration>,
    /// Sums.
    pub(super) received: u64,
    pub(super) lost: u64,
    /// Results of events published from then on are timed; none for now, if nothing.
    pub(super) timed_from: Option<u64>,
    pub(super) latency: Histogram,
    /// Timed results, and the bytes of their messages.
    pub(super) deliveries: u64,
    pub(super) bytes: u64,
    /// Results out of order, or twice.
    pub(super) disordered: u64,
    pub(super) gaps: u64,
    pub(super) errors: u64,
    /// Results without what each result of their client has to contain.
    pub(super) foreign: u64,
    /// Which events everybody has got, where somebody waits for that.
    pub(super) confirmed: Option<Confirmed>,
    /// How connections ended that nobody meant to end.
    pub(super) ends: BTreeMap<End, u64>,
    /// The same of those that never read.
    pub(super) slow_ends: BTreeMap<End, u64>,
    /// The first thing that went wrong, and the first result.
    pub(super) complaint: Option<String>,
    pub(super) message: Option<String>,
    watched: Option<Process>,
    pub(super) resident_peak_kib: u64,
    interval: Histogram,
    interval_count: u64,
    interval_seconds: u32,
    interval_began: Duration,
    interval_usage: Option<Usage>,
    pub(super) intervals: Vec<Interval>,
}

/// What matters of a result; see `message`.
pub(super) struct Received {
    pub(super) client: usize,
    pub(super) outcome: super::message::Outcome,
    pub(super) bytes: usize,
    /// In microseconds since 1970.
    pub(super) now_us: u64,
}

impl Recorder {
    pub(super) fn new(clients: usize, readers: usize, watched: Option<Process>) -> Self {
        let usage = watched.and_then(|process| process.usage().ok());
        Self {
            tallies: vec![Tally::default(); clients],
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
            slow_ends: BTreeMap::new(),
            complaint: None,
            message: None,
            watched,
            resident_peak_kib: 0,
            interval: Histogram::default(),
            interval_count: 0,
            interval_seconds: 1,
            interval_began: Duration::ZERO,
            interval_usage: usage,
            intervals: Vec::new(),
        }
    }

    /// How many clients read as they should; the others never do.
    pub(super) fn readers(&self) -> usize {
        self.readers
    }

    /// Counts a result.
    // hot path: once a message.
    pub(super) fn received(&mut self, received: &Received) {
        let Received { client, outcome, bytes, now_us } = received;
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

    /// Counts a result that is not its client's own.
    pub(super) fn belongs(&mut self, client: usize, is_own: bool) {
        self.foreign += u64::from(!is_own && client < self.readers);
    }

    /// Keeps a message as the first thing that went wrong, if it is the first.
    pub(super) fn keep_complaint(&mut self, text: &[u8]) {
        if self.complaint.is_none() {
            self.complaint = Some(shown(text));
        }
    }

    /// Keeps the first result, and the first with errors as the first complaint.
    pub(super) fn keep(&mut self, text: &[u8], has_errors: bool) {
        if has_errors {
            self.keep_complaint(text);
        } else if self.message.is_none() {
            self.message = Some(shown(text));
        }
    }

    /// Begins to count anew: whatever is published from this time on counts, and what is timed is said later.
    pub(super) fn restart(&mut self) {
        for tally in &mut self.tallies {
            *tally = Tally { last_stamp: tally.last_stamp, ..Tally::default() };
        }
        (self.received, self.lost, self.deliveries, self.bytes) = (0, 0, 0, 0);
        (self.disordered, self.gaps, self.errors, self.foreign) = (0, 0, 0, 0);
        self.latency.clear();
    }

    /// A connection that was not to end has ended.
    pub(super) fn ended(&mut self, end: End) {
        *self.ends.entry(end).or_default() += 1;
    }

    /// Closes an interval that has passed.
    pub(super) fn tick(&mut self, now: Duration, subscribed: usize) -> Option<Interval> {
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
        let interval = Interval {
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

    /// What the watched process has used until now.
    pub(super) fn usage(&mut self) -> Option<Usage> {
        let usage = self.watched?.usage().ok()?;
        self.resident_peak_kib = self.resident_peak_kib.max(usage.resident_kib);
        Some(usage)
    }
}

/// As much of a message as a report shows.
fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[..text.len().min(EXAMPLE_BYTES_MAX)]).into_owned()
}

/// How connections ended, most frequent first.
pub(super) fn failures(ends: &BTreeMap<End, u64>) -> Vec<Failure> {
    let mut list: Vec<Failure> =
        ends.iter().map(|(end, count)| Failure { what: end.label(), count: *count }).collect();
    list.sort_by_key(|failure| std::cmp::Reverse(failure.count));
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subscriptions::message::Outcome;

    fn result(client: usize, stamp: u64, lost: u64) -> Received {
        let outcome = Outcome { stamp: Some(stamp), lost, ..Outcome::default() };
        Received { client, outcome, bytes: 10, now_us: stamp + 5 }
    }

    #[test]
    fn only_what_was_published_in_the_measured_time_is_timed() {
        let mut recorder = Recorder::new(2, 2, None);
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
        let mut recorder = Recorder::new(2, 2, None);
        for (client, stamp) in [(0, 5), (1, 4), (0, 5), (0, 3), (1, 6)] {
            recorder.received(&result(client, stamp, 0));
        }
        assert_eq!(recorder.disordered, 2);
    }

    #[test]
    fn a_long_run_has_longer_intervals() {
        let mut recorder = Recorder::new(1, 1, None);
        for second in 1..=3000 {
            recorder.tick(Duration::from_secs(second), 1);
        }
        assert!(recorder.intervals.len() <= INTERVALS_MAX);
        let ends: Vec<f64> = recorder.intervals.iter().map(|it| it.at_seconds).collect();
        assert!(ends.is_sorted() && ends.last().is_some_and(|last| *last > 2990.0), "{ends:?}");
    }
}
