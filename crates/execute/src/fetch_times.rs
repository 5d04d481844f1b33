//! The number of requests of each fetch of a plan, and the times of some recent ones, for operators.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::{FetchError, SubgraphResponse};

/// The number of times that are kept for each fetch. With 32 of them the ninth decile is that of three requests.
const TIMES_MAX: usize = 32;

/// One request in this many is measured after the first [`TIMES_MAX`] ones: reading the clock twice takes 50 ns.
const MEASURED_ONE_IN: u64 = 16;

/// The requests of one fetch since its operation was planned. It has a constant size of 136 bytes.
#[derive(Debug)]
pub(crate) struct FetchTimes {
    requests: AtomicU64,
    /// Microseconds in a ring, at least 1; 0 in places that are not used yet.
    micros: [AtomicU32; TIMES_MAX],
}

/// The number of requests of one fetch of a plan, and the times of some recent ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchTimesReading {
    /// The number of requests, with those that were shared with other operations. A fetch that was served from a cache
    /// has none.
    pub requests: u64,
    /// The times of some recent requests until their end, the shortest first. Those that were cancelled, or were not
    /// sent, have none.
    pub times: Vec<Duration>,
}

/// A request that has begun.
#[derive(Debug)]
pub(crate) struct RunningRequest<'a> {
    times: &'a FetchTimes,
    number: u64,
    /// The start, if the request is measured.
    began: Option<Instant>,
}

impl FetchTimes {
    pub(crate) fn new() -> Self {
        Self { requests: AtomicU64::new(0), micros: [const { AtomicU32::new(0) }; TIMES_MAX] }
    }

    /// Counts a request that begins now.
    // hot path: one counter; the clock is read for one request in 16
    pub(crate) fn begin(&self) -> RunningRequest<'_> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let is_measured = number < TIMES_MAX as u64 || number.is_multiple_of(MEASURED_ONE_IN);
        RunningRequest { times: self, number, began: is_measured.then(Instant::now) }
    }

    fn record(&self, number: u64, took: Duration) {
        let measured = match number < TIMES_MAX as u64 {
            true => number,
            false => number / MEASURED_ONE_IN,
        };
        let micros = u32::try_from(took.as_micros()).unwrap_or(u32::MAX).max(1);
        let place = (measured % TIMES_MAX as u64) as usize;
        self.micros[place].store(micros, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> FetchTimesReading {
        let micros = self.micros.iter().map(|it| it.load(Ordering::Relaxed));
        let used = micros.filter(|it| *it > 0).map(|it| Duration::from_micros(u64::from(it)));
        let mut times: Vec<Duration> = used.collect();
        times.sort_unstable();
        FetchTimesReading { requests: self.requests.load(Ordering::Relaxed), times }
    }
}

impl RunningRequest<'_> {
    /// Keeps the time of a request to a subgraph, unless the router did not send it: such a time says nothing of the
    /// subgraph.
    pub(crate) fn end_fetch(self, result: &Result<SubgraphResponse, FetchError>) {
        match result {
            Err(
                FetchError::MemoryUsedUp
                | FetchError::Overloaded
                | FetchError::Unavailable(_)
                | FetchError::NoServer,
            ) => {}
            _ => self.end(),
        }
    }

    /// Keeps the time of a request that has ended.
    pub(crate) fn end(self) {
        if let Some(began) = self.began {
            self.times.record(self.number, began.elapsed());
        }
    }
}

impl FetchTimesReading {
    /// Returns the time that this share of the requests did not exceed; `None` if none was measured.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        // The nearest rank: the smallest time that at least this share does not exceed.
        let rank = (share * self.times.len() as f64).ceil() as usize;
        self.times.get(rank.saturating_sub(1)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_requests_are_counted_and_the_times_of_recent_ones_are_kept() {
        let times = FetchTimes::new();
        assert_eq!(times.read().quantile(0.5), None);
        let requests = TIMES_MAX as u64 + 100 * MEASURED_ONE_IN;
        let mut measured = 0;
        for _ in 0..requests {
            let running = times.begin();
            measured += usize::from(running.began.is_some());
            running.end();
        }
        let reading = times.read();
        assert_eq!((reading.requests, measured), (requests, TIMES_MAX + 100));
        assert_eq!(reading.times.len(), TIMES_MAX);
    }

    #[test]
    fn later_times_replace_earlier_ones() {
        let times = FetchTimes::new();
        for number in 0..TIMES_MAX as u64 {
            times.record(number, Duration::from_secs(9));
        }
        for measured in 0..TIMES_MAX as u64 {
            let number = TIMES_MAX as u64 + measured * MEASURED_ONE_IN;
            times.record(number, Duration::from_millis(measured + 1));
        }
        let reading = times.read();
        assert_eq!(reading.times.last(), Some(&Duration::from_millis(TIMES_MAX as u64)));
        assert_eq!(reading.quantile(0.5), Some(Duration::from_millis(16)));
        assert_eq!(reading.quantile(0.9), Some(Duration::from_millis(29)));
        assert_eq!(reading.quantile(1.0), Some(Duration::from_millis(32)));
    }

    #[test]
    fn requests_that_were_cancelled_or_not_sent_have_no_time() {
        let times = FetchTimes::new();
        let _cancelled = times.begin();
        times.begin().end_fetch(&Err(FetchError::Overloaded));
        assert_eq!(times.read(), FetchTimesReading { requests: 2, times: Vec::new() });
        times.begin().end_fetch(&Err(FetchError::Timeout(Duration::from_secs(1))));
        assert_eq!(times.read().times.len(), 1, "a subgraph that does not respond in time is slow");
    }
}
