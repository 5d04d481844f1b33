//! Histories of metrics in the process: what they were in each ten seconds of the last hour, for operators without
//! another system that keeps them.
//!
//! The caller reads all values at one moment into a [`HistorySample`] and hands it to [`History::record`]. A bucket
//! holds the differences of counters, the values of gauges, and quantiles of the durations that were added. The last
//! samples are kept as they are, so that [`History::window`] has exact quantiles for the last minute.
//!
//! This module reads no metric and no clock. Its memory is bounded by [`BUCKETS_MAX`] and [`SERIES_MAX`].

mod quantile;
mod sample;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

pub use quantile::{QUANTILES, quantiles};
pub use sample::{HistorySample, SampledValue, SeriesKey};

/// The time between two samples.
pub const INTERVAL: Duration = Duration::from_secs(10);

/// The number of buckets: one hour.
pub const BUCKETS_MAX: usize = 360;

/// The maximum number of series. One with three quantiles takes 4.3 kB, another one 1.4 kB. Three for each of a
/// thousand subgraphs, those of the router, and six for each of a hundred graphs take 9 MB.
pub const SERIES_MAX: usize = 3_800;

/// The length of the longest window.
pub const WINDOW_MAX: Duration = Duration::from_secs(60);

/// The number of samples that are kept as they are: enough for the longest window.
const SAMPLES_MAX: usize = (WINDOW_MAX.as_secs() / INTERVAL.as_secs()) as usize + 1;

crate::counters! {
    /// Counters of a history.
    pub struct HistoryStats;
    /// The metrics of a history.
    pub const HISTORY_METRICS;
    {
        gauge series = "starling_history_series": "Series of which the console keeps the last hour";
        counter left_out = "starling_history_series_left_out": "Values of which no history was kept because there were too many series";
    }
}

/// The buckets of the last hour.
#[derive(Debug, Default)]
pub struct History {
    /// The length of each bucket in seconds, the oldest first.
    lengths: VecDeque<f32>,
    series: BTreeMap<SeriesKey, Columns>,
    /// The last samples with their times, the oldest first.
    samples: VecDeque<(Instant, HistorySample)>,
    stats: Arc<HistoryStats>,
}

/// The values of one series, of the same age as `History::lengths` from the end. Not a number: there was nothing.
#[derive(Debug)]
enum Columns {
    One(VecDeque<f32>),
    Quantiles(Box<[VecDeque<f32>; QUANTILES.len()]>),
}

/// The values of one series over all buckets.
#[derive(Clone, PartialEq, Debug)]
pub enum SeriesValues {
    /// The differences of a counter, or the values of a gauge.
    One(Vec<Option<f32>>),
    /// The values of each of [`QUANTILES`].
    Quantiles([Vec<Option<f32>>; QUANTILES.len()]),
}

/// All buckets, the oldest first. The last one has begun and is shorter than the others.
#[derive(Clone, PartialEq, Debug)]
pub struct HistoryView {
    /// The length of each bucket in seconds.
    pub lengths: Vec<f32>,
    /// The series that were asked for.
    pub series: Vec<(SeriesKey, SeriesValues)>,
}

/// What happened in one period.
#[derive(Clone, PartialEq, Debug)]
pub struct HistoryWindow {
    /// The length of the period in seconds: up to [`INTERVAL`] more than wanted, and less while the process is young.
    pub seconds: f64,
    /// The change of each series.
    pub changes: BTreeMap<SeriesKey, Change>,
}

/// The change of one series.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Change {
    /// The difference of a counter.
    Count(f64),
    /// The last value of a gauge.
    Level(f64),
    /// The number of added durations, and their quantiles in seconds.
    Durations(f64, [Option<f64>; QUANTILES.len()]),
}

impl Change {
    /// Returns the difference, the value, or the number of durations.
    pub fn value(self) -> f64 {
        match self {
            Self::Count(value) | Self::Level(value) | Self::Durations(value, _) => value,
        }
    }
}

impl History {
    /// Creates an empty history that counts its series in `stats`.
    pub fn new(stats: &Arc<HistoryStats>) -> Self {
        Self { stats: Arc::clone(stats), ..Self::default() }
    }

    /// Adds a sample: the end of one bucket and the beginning of the next one. The first sample only begins.
    pub fn record(&mut self, now: Instant, sample: HistorySample) {
        if let Some((began, before)) = self.samples.back() {
            let changes = changes(Some(before), &sample);
            push(&mut self.lengths, seconds(*began, now));
            self.append(changes);
        }
        if self.samples.len() >= SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back((now, sample));
    }

    /// Returns the buckets of the series for which `wanted` is true, up to `now`, when the values are those of
    /// `sample`.
    pub fn view(
        &self,
        now: Instant,
        sample: &HistorySample,
        wanted: impl Fn(&SeriesKey) -> bool,
    ) -> HistoryView {
        let Some((began, before)) = self.samples.back() else {
            return HistoryView { lengths: Vec::new(), series: Vec::new() };
        };
        let mut current = changes(Some(before), sample);
        current.retain(|key, _| wanted(key));
        let known = self.series.iter().filter(|(key, _)| wanted(key));
        let mut series: Vec<(SeriesKey, SeriesValues)> = Vec::new();
        for (key, columns) in known {
            let last = current.remove(key).map_or([f32::NAN; QUANTILES.len()], columns_of);
            let column = |values: &VecDeque<f32>, last| self.column(values, last);
            let values = match columns {
                Columns::One(values) => SeriesValues::One(column(values, last[0])),
                Columns::Quantiles(all) => {
                    let mut all = all.iter().zip(last).map(|(values, last)| column(values, last));
                    // There is one column for each quantile.
                    SeriesValues::Quantiles(std::array::from_fn(|_| all.next().unwrap_or_default()))
                }
            };
            series.push((key.clone(), values));
        }
        for (key, change) in current {
            let none = VecDeque::new();
            let last = columns_of(change);
            let values = match change {
                Change::Durations(..) => {
                    SeriesValues::Quantiles(last.map(|last| self.column(&none, last)))
                }
                Change::Count(_) | Change::Level(_) => {
                    SeriesValues::One(self.column(&none, last[0]))
                }
            };
            series.push((key, values));
        }
        series.sort_by(|(a, _), (b, _)| a.cmp(b));
        let lengths = self.lengths.iter().copied().chain([seconds(*began, now)]);
        HistoryView { lengths: lengths.collect(), series }
    }

    /// Returns what happened in the period of that length, [`WINDOW_MAX`] at most, that ends at `now`, when the values
    /// are those of `sample`.
    pub fn window(&self, now: Instant, sample: &HistorySample, length: Duration) -> HistoryWindow {
        let is_old =
            |(at, _): &&(Instant, HistorySample)| now.saturating_duration_since(*at) >= length;
        let since = self.samples.iter().rev().find(is_old).or(self.samples.front());
        match since {
            Some((at, before)) => HistoryWindow {
                seconds: now.saturating_duration_since(*at).as_secs_f64(),
                changes: changes(Some(before), sample),
            },
            None => HistoryWindow { seconds: 0.0, changes: changes(Some(sample), sample) },
        }
    }

    /// Returns how often a series got no history because there were too many.
    pub fn left_out(&self) -> u64 {
        crate::read(&self.stats.left_out)
    }

    /// Returns the number of series.
    pub fn series_count(&self) -> usize {
        self.series.len()
    }

    fn append(&mut self, mut changes: BTreeMap<SeriesKey, Change>) {
        for (key, columns) in &mut self.series {
            let values = changes.remove(key).map_or([f32::NAN; QUANTILES.len()], columns_of);
            columns.push(values);
        }
        // A series of which nothing is left, such as that of a subgraph that was removed.
        self.series.retain(|_, columns| !columns.is_empty());
        for (key, change) in changes {
            if self.series.len() >= SERIES_MAX {
                self.stats.left_out.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let mut columns = Columns::of(change);
            columns.push(columns_of(change));
            self.series.insert(key, columns);
        }
        self.stats.series.store(self.series.len() as u64, Ordering::Relaxed);
    }

    /// Returns a column with as many values as there are buckets, and `last` behind them.
    fn column(&self, values: &VecDeque<f32>, last: f32) -> Vec<Option<f32>> {
        let missing = self.lengths.len().saturating_sub(values.len());
        let missing = std::iter::repeat_n(f32::NAN, missing);
        let all = missing.chain(values.iter().copied()).chain([last]);
        all.map(|value| Some(value).filter(|it| !it.is_nan())).collect()
    }
}

impl Columns {
    fn of(change: Change) -> Self {
        match change {
            Change::Count(_) | Change::Level(_) => Self::One(VecDeque::new()),
            Change::Durations(..) => Self::Quantiles(Box::default()),
        }
    }

    fn push(&mut self, values: [f32; QUANTILES.len()]) {
        match self {
            Self::One(column) => push(column, values[0]),
            Self::Quantiles(all) => {
                all.iter_mut().zip(values).for_each(|(column, value)| push(column, value));
            }
        }
    }

    /// True if there was nothing in any bucket. A series of durations without any is not empty: its source exists.
    fn is_empty(&self) -> bool {
        match self {
            Self::One(column) => column.iter().all(|it| it.is_nan()),
            Self::Quantiles(all) => {
                all[0].len() >= BUCKETS_MAX && all.iter().flatten().all(|it| it.is_nan())
            }
        }
    }
}

fn push(column: &mut VecDeque<f32>, value: f32) {
    if column.len() >= BUCKETS_MAX {
        column.pop_front();
    }
    column.push_back(value);
}

fn seconds(from: Instant, to: Instant) -> f32 {
    to.saturating_duration_since(from).as_secs_f32()
}

/// The change of each series between two samples. A series that is new in the second one began at 0, and so did a
/// counter that is smaller in it.
fn changes(before: Option<&HistorySample>, now: &HistorySample) -> BTreeMap<SeriesKey, Change> {
    let change = |(key, value): (&SeriesKey, &SampledValue)| {
        let before = before.and_then(|it| it.get(key));
        let change = match (value, before) {
            (SampledValue::Count(now), Some(SampledValue::Count(before))) if before <= now => {
                Change::Count(now - before)
            }
            (SampledValue::Count(now), _) => Change::Count(*now),
            (SampledValue::Level(now), _) => Change::Level(*now),
            (SampledValue::Durations(now), before) => {
                let before = match before {
                    Some(SampledValue::Durations(before)) => Some(before),
                    _ => None,
                };
                let added = quantile::added(before, now);
                Change::Durations(added.iter().map(|it| it.1 as f64).sum(), quantiles(&added))
            }
        };
        (key.clone(), change)
    };
    now.iter().map(change).collect()
}

fn columns_of(change: Change) -> [f32; QUANTILES.len()] {
    match change {
        Change::Count(value) | Change::Level(value) => [value as f32; QUANTILES.len()],
        Change::Durations(_, quantiles) => {
            quantiles.map(|it| it.map_or(f32::NAN, |value| value as f32))
        }
    }
}

#[cfg(test)]
mod tests;
