//! The recent latencies of one subgraph, as a histogram of fixed size.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The time after which a latency is forgotten, at least; twice that at most.
const PERIOD: Duration = Duration::from_secs(30);

/// The time for which a computed percentile is used.
const PERCENTILE_PERIOD: Duration = Duration::from_millis(100);

/// Minimum number of latencies for a percentile.
const SAMPLES_MIN: u64 = 20;

/// Each power of two is divided into this many buckets, so a percentile is at most an eighth too long.
const BUCKETS_PER_OCTAVE: usize = 1 << OCTAVE_BITS;
const OCTAVE_BITS: u32 = 3;

/// The end of the first bucket group: shorter latencies than 2 to this power, 64 µs, count as this long.
const SHORTEST_BITS: u32 = 6;

/// Octaves from 64 µs to 134 s, longer than any usual timeout.
const OCTAVES: usize = 21;

const BUCKETS: usize = OCTAVES * BUCKETS_PER_OCTAVE;

/// The latencies of this period and of the one before: 1.3 KiB. All workers share it. A latency that races with the
/// beginning of a period may be lost, which changes no percentile that matters.
#[derive(Debug)]
pub(crate) struct LatencyHistogram {
    percent: u8,
    started: Instant,
    /// The number of the current period, counted from `started`.
    period: AtomicU64,
    /// The buckets of even and odd periods.
    counts: [[AtomicU32; BUCKETS]; 2],
    /// The percentile in microseconds, 0 if it is unknown, and the time at which it is computed again, in microseconds
    /// after `started`.
    percentile: AtomicU64,
    next_computation: AtomicU64,
}

impl LatencyHistogram {
    /// Creates a histogram without latencies, of which the percentile `percent` is needed.
    pub(crate) fn new(percent: u8, now: Instant) -> Self {
        Self {
            percent: percent.min(99),
            started: now,
            period: AtomicU64::new(0),
            counts: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU32::new(0))),
            percentile: AtomicU64::new(0),
            next_computation: AtomicU64::new(0),
        }
    }

    /// Notes a latency.
    pub(crate) fn note(&self, latency: Duration, now: Instant) {
        let period = self.advance(now);
        self.counts[(period % 2) as usize][bucket_of(latency)].fetch_add(1, Relaxed);
    }

    /// Returns the time in which the wanted percentage of the recent requests had their response; `None` if there were
    /// too few to say. hot path: two atomic reads, and the buckets ten times a second.
    pub(crate) fn percentile(&self, now: Instant) -> Option<Duration> {
        self.advance(now);
        let elapsed = micros(now.saturating_duration_since(self.started));
        let next = self.next_computation.load(Relaxed);
        let after = elapsed + micros(PERCENTILE_PERIOD);
        if elapsed >= next
            && self.next_computation.compare_exchange(next, after, Relaxed, Relaxed).is_ok()
        {
            self.percentile.store(self.compute().map_or(0, micros), Relaxed);
        }
        match self.percentile.load(Relaxed) {
            0 => None,
            micros => Some(Duration::from_micros(micros)),
        }
    }

    fn compute(&self) -> Option<Duration> {
        let count = |bucket: usize| -> u64 {
            self.counts.iter().map(|it| u64::from(it[bucket].load(Relaxed))).sum()
        };
        let total: u64 = (0..BUCKETS).map(count).sum();
        // Among fewer requests, none is expected to be above the percentile.
        let least = 100 / u64::from(100 - self.percent);
        if total < least.max(SAMPLES_MIN) {
            return None;
        }
        let wanted = (total * u64::from(self.percent)).div_ceil(100);
        let mut sum = 0;
        let reaches = |&bucket: &usize| {
            sum += count(bucket);
            sum >= wanted
        };
        // Counts may grow meanwhile, so one is found.
        let bucket = (0..BUCKETS).find(reaches).unwrap_or(BUCKETS - 1);
        Some(upper_bound(bucket))
    }

    /// Begins a new period if it is time, and returns the number of the current one.
    fn advance(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.started);
        let period = elapsed.as_secs() / PERIOD.as_secs();
        let seen = self.period.load(Relaxed);
        if period <= seen || self.period.compare_exchange(seen, period, Relaxed, Relaxed).is_err() {
            return period.max(seen);
        }
        let clear = |parity: u64| {
            self.counts[(parity % 2) as usize].iter().for_each(|it| it.store(0, Relaxed));
        };
        clear(period);
        if period > seen + 1 {
            clear(period + 1);
        }
        period
    }
}

/// Returns the bucket of a latency.
fn bucket_of(latency: Duration) -> usize {
    let micros = micros(latency).max(1 << SHORTEST_BITS);
    let octave = micros.ilog2();
    let within = (micros >> (octave - OCTAVE_BITS)) as usize % BUCKETS_PER_OCTAVE;
    let octaves = (octave - SHORTEST_BITS) as usize;
    (octaves * BUCKETS_PER_OCTAVE + within).min(BUCKETS - 1)
}

/// Returns the end of a bucket: all latencies in it are shorter.
fn upper_bound(bucket: usize) -> Duration {
    let octave = (bucket / BUCKETS_PER_OCTAVE) as u32 + SHORTEST_BITS;
    let within = (bucket % BUCKETS_PER_OCTAVE) as u64 + 1;
    let start = 1_u64 << octave;
    Duration::from_micros(start + within * (start >> OCTAVE_BITS))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLIS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn a_latency_is_below_the_end_of_its_bucket_by_an_eighth_at_most() {
        let mut latency = 1_u64 << SHORTEST_BITS;
        while latency < 100_000_000 {
            let end = micros(upper_bound(bucket_of(Duration::from_micros(latency))));
            assert!(latency < end && end <= latency + latency / 8 + 1, "{latency} {end}");
            latency += latency / 7 + 1;
        }
        assert_eq!(bucket_of(Duration::ZERO), 0);
        assert_eq!(bucket_of(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn the_percentile_is_that_of_the_latencies() {
        let start = Instant::now();
        let latencies = LatencyHistogram::new(95, start);
        for latency in 1..=100 {
            latencies.note(MILLIS(latency), start);
        }
        let found = latencies.percentile(start).unwrap_or_default();
        assert!((MILLIS(95)..=MILLIS(107)).contains(&found), "{found:?}");
    }

    #[test]
    fn few_latencies_have_no_percentile() {
        for (percent, least) in [(50, 20), (90, 20), (95, 20), (99, 100)] {
            let start = Instant::now();
            let latencies = LatencyHistogram::new(percent, start);
            (1..least).for_each(|_| latencies.note(MILLIS(5), start));
            assert_eq!(latencies.percentile(start), None, "p{percent}");
            latencies.note(MILLIS(5), start);
            assert_eq!(latencies.percentile(start), None, "it was computed a moment ago");
            let later = start + PERCENTILE_PERIOD;
            assert!(latencies.percentile(later).is_some(), "p{percent}");
        }
    }

    #[test]
    fn old_latencies_are_forgotten() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let latencies = LatencyHistogram::new(50, start);
        (0..100).for_each(|_| latencies.note(MILLIS(500), at(1)));
        (0..20).for_each(|_| latencies.note(MILLIS(5), at(31)));
        assert!(latencies.percentile(at(59)) > Some(MILLIS(500)), "the previous period counts");
        let found = latencies.percentile(at(60)).unwrap_or_default();
        assert!(found < MILLIS(6), "{found:?}");
        assert_eq!(latencies.percentile(at(500)), None, "all of it is too old");
    }
}
