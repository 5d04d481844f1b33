//! The values of all series at one moment.

use std::collections::BTreeMap;

use crate::HistogramReading;

/// The identity of a series.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SeriesKey {
    /// The name of the value.
    pub name: &'static str,
    /// The thing that has the value, such as a subgraph; empty for the process.
    pub label: Box<str>,
}

impl SeriesKey {
    /// Creates the key of a value of the process.
    pub fn new(name: &'static str) -> Self {
        Self { name, label: Box::default() }
    }

    /// Creates the key of a value that one of several things has.
    pub fn labelled(name: &'static str, label: &str) -> Self {
        Self { name, label: label.into() }
    }
}

/// The value of a series.
#[derive(Clone, PartialEq, Debug)]
pub enum SampledValue {
    /// A counter since the start.
    Count(f64),
    /// A gauge.
    Level(f64),
    /// The durations since the start.
    Durations(HistogramReading),
}

/// The values of all series at one moment.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct HistorySample(BTreeMap<SeriesKey, SampledValue>);

impl HistorySample {
    /// Adds to a counter. Several values of one counter are added up.
    pub fn add_count(&mut self, key: SeriesKey, value: f64) {
        match self.0.entry(key).or_insert(SampledValue::Count(0.0)) {
            SampledValue::Count(sum) => *sum += value,
            other => *other = SampledValue::Count(value),
        }
    }

    /// Adds to a gauge. Several values of one gauge are added up.
    pub fn add_level(&mut self, key: SeriesKey, value: f64) {
        match self.0.entry(key).or_insert(SampledValue::Level(0.0)) {
            SampledValue::Level(sum) => *sum += value,
            other => *other = SampledValue::Level(value),
        }
    }

    /// Adds durations. Several histograms of one series with equal bounds are added up.
    pub fn add_durations(&mut self, key: SeriesKey, reading: HistogramReading) {
        match self.0.get_mut(&key) {
            Some(SampledValue::Durations(sum)) if sum.buckets.len() == reading.buckets.len() => {
                sum.sum += reading.sum;
                let pairs = sum.buckets.iter_mut().zip(reading.buckets);
                pairs.for_each(|((_, sum), (_, count))| *sum += count);
            }
            _ => {
                self.0.insert(key, SampledValue::Durations(reading));
            }
        }
    }

    /// Returns a value.
    pub fn get(&self, key: &SeriesKey) -> Option<&SampledValue> {
        self.0.get(key)
    }

    /// Iterates over all values, ordered by name and label.
    pub fn iter(&self) -> impl Iterator<Item = (&SeriesKey, &SampledValue)> {
        self.0.iter()
    }
}
