//! The values of counters and histograms that were read before: they tell where each stream of values began, and how
//! much it has grown.
//!
//! A stream is a metric with its labels. Most streams begin with the process. One that appears later began after the
//! reading before, and one with a smaller value than before has begun again since then: operations and clients get and
//! lose their metrics, and some counters belong to a graph.
//!
//! When an operation loses its row, the counts of the row move to the row that others share. Their part that was
//! exported for the operation then counts as exported for the shared row, so that no use is part of the growth twice.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use telemetry::{HistogramReading, RowIdentity, SampleValue};

/// The meaning of the values of counters and histograms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Temporality {
    /// The total since the beginning of the stream.
    #[default]
    Cumulative,
    /// The growth since the last reading that the collector has taken.
    Delta,
}

/// The streams of a process. The times are nanoseconds since 1970.
#[derive(Debug)]
pub(crate) struct MetricStreams {
    pub(crate) temporality: Temporality,
    streams: HashMap<StreamKey, Stream>,
    /// The streams of rows at the reading before, by the stream of the row that gets the counts of lost ones.
    rows: HashMap<StreamKey, Vec<StreamKey>>,
    hasher: RandomState,
    /// The time of the reading before; that of the start for the first one.
    last_reading: u64,
    readings: u64,
}

/// A hash of the name, the labels and the row. Two of the some ten thousand streams of a router have the same one with
/// a probability of less than 1 in 10^10.
pub(crate) type StreamKey = u64;

#[derive(Debug)]
struct Stream {
    /// The time since which the next value counts.
    since: u64,
    /// For growth the value at `since`; for totals that of the last reading.
    before: StreamValue,
    /// The number of the last reading with the stream.
    reading: u64,
    /// The stream that gets the counts if the row of this one is given up.
    heir: Option<StreamKey>,
}

/// The row of a table that values belong to, see [`RowIdentity`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StreamRow {
    number: u64,
    shared_labels: Vec<(Box<str>, Box<str>)>,
}

/// The part of a sum of fractions by which it may be smaller than the same sum in another order.
const ROUNDING_MAX: f64 = 1e-9;

/// The value of a stream.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum StreamValue {
    Whole(u64),
    Fraction(f64),
    Histogram { sum: f64, counts: Box<[u64]> },
}

/// A value to export.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct StreamPoint {
    pub(crate) key: StreamKey,
    pub(crate) since: u64,
    pub(crate) value: StreamValue,
}

impl From<SampleValue> for StreamValue {
    fn from(value: SampleValue) -> Self {
        match value {
            SampleValue::Whole(value) => Self::Whole(value),
            SampleValue::Fraction(value) => Self::Fraction(value),
        }
    }
}

impl From<&HistogramReading> for StreamValue {
    fn from(reading: &HistogramReading) -> Self {
        let counts = reading.buckets.iter().map(|(_, count)| *count).collect();
        Self::Histogram { sum: reading.sum, counts }
    }
}

impl From<RowIdentity<'_>> for StreamRow {
    fn from(row: RowIdentity<'_>) -> Self {
        let labels = row.shared_labels.iter();
        let shared_labels = labels.map(|&(name, value)| (name.into(), value.into())).collect();
        Self { number: row.number, shared_labels }
    }
}

impl StreamValue {
    /// Returns the value of a stream that begins.
    fn zero(&self) -> Self {
        match self {
            Self::Whole(_) => Self::Whole(0),
            Self::Fraction(_) => Self::Fraction(0.0),
            Self::Histogram { counts, .. } => {
                Self::Histogram { sum: 0.0, counts: vec![0; counts.len()].into() }
            }
        }
    }

    /// Adds what another stream has counted.
    fn add(&mut self, other: &Self) {
        match (self, other) {
            (Self::Whole(value), Self::Whole(more)) => *value += more,
            (Self::Fraction(value), Self::Fraction(more)) => *value += more,
            (Self::Histogram { sum, counts }, Self::Histogram { sum: more, counts: others })
                if counts.len() == others.len() =>
            {
                *sum += more;
                counts.iter_mut().zip(others).for_each(|(count, more)| *count += more);
            }
            // The values of a metric have one type.
            _ => {}
        }
    }

    /// Returns the growth since `before`; `None` if the value has begun again since then.
    fn growth(&self, before: &Self) -> Option<Self> {
        match (self, before) {
            (Self::Whole(value), Self::Whole(before)) => {
                value.checked_sub(*before).map(Self::Whole)
            }
            (Self::Fraction(value), Self::Fraction(before)) => {
                // Sums of fractions depend on their order in the last digits.
                let is_rounded = before - value <= before * ROUNDING_MAX;
                is_rounded.then(|| Self::Fraction((value - before).max(0.0)))
            }
            (
                Self::Histogram { sum, counts },
                Self::Histogram { sum: sum_before, counts: before },
            ) if counts.len() == before.len() => {
                let growth = counts.iter().zip(before).map(|(now, then)| now.checked_sub(*then));
                let counts = growth.collect::<Option<Box<[u64]>>>()?;
                Some(Self::Histogram { sum: (sum - sum_before).max(0.0), counts })
            }
            _ => None,
        }
    }
}

impl MetricStreams {
    pub(crate) fn new(temporality: Temporality, started: u64) -> Self {
        Self {
            temporality,
            streams: HashMap::new(),
            rows: HashMap::new(),
            hasher: RandomState::new(),
            last_reading: started,
            readings: 0,
        }
    }

    /// The time of the reading before.
    pub(crate) fn last_reading(&self) -> u64 {
        self.last_reading
    }

    /// Adds a value of the current reading, and returns the value to export. The values of the rows of a table come
    /// before those of the row that they share.
    pub(crate) fn add(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        row: Option<&StreamRow>,
        value: StreamValue,
    ) -> StreamPoint {
        let key = self.hasher.hash_one((name, labels, row.map(|row| row.number)));
        let heir = row.map(|row| {
            let shared = row.shared_labels.iter().map(|(name, value)| (&**name, &**value));
            let own = labels.iter().skip(row.shared_labels.len()).copied();
            let labels: Vec<_> = shared.chain(own).collect();
            self.hasher.hash_one((name, &*labels, None::<u64>))
        });
        let (since, reading) = (self.last_reading, self.readings);
        let mut inherited = value.zero();
        for row in self.rows.remove(&key).unwrap_or_default() {
            if self.streams.get(&row).is_some_and(|row| row.reading != reading)
                && let Some(lost) = self.streams.remove(&row)
            {
                inherited.add(&lost.before);
            }
        }
        let new_stream = || Stream { since, before: value.zero(), reading, heir };
        let stream = self.streams.entry(key).or_insert_with(new_stream);
        stream.reading = reading;
        stream.before.add(&inherited);
        let growth = match value.growth(&stream.before) {
            Some(growth) => growth,
            None => {
                (stream.since, stream.before) = (since, value.zero());
                value.clone()
            }
        };
        match self.temporality {
            Temporality::Cumulative => {
                stream.before = value.clone();
                StreamPoint { key, since: stream.since, value }
            }
            Temporality::Delta => StreamPoint { key, since: stream.since, value: growth },
        }
    }

    /// Ends the current reading at that time. Streams that it does not have are forgotten.
    pub(crate) fn end_reading(&mut self, now: u64) {
        let reading = self.readings;
        self.streams.retain(|_, stream| stream.reading == reading);
        self.rows.clear();
        for (key, stream) in &self.streams {
            if let Some(heir) = stream.heir {
                self.rows.entry(heir).or_default().push(*key);
            }
        }
        self.readings += 1;
        self.last_reading = now;
    }

    /// Notes that the collector has taken the growth of these streams up to their values at that time.
    pub(crate) fn note_taken(&mut self, taken: Vec<(StreamKey, StreamValue)>, until: u64) {
        for (key, value) in taken {
            if let Some(stream) = self.streams.get_mut(&key) {
                (stream.before, stream.since) = (value, until);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: &[(&str, &str)] = &[("kind", "x")];

    /// Reads the stream at `now`, and returns the time since which the value counts, and the value.
    fn read(streams: &mut MetricStreams, value: u64, now: u64) -> (u64, u64) {
        let point = streams.add("requests", LABELS, None, StreamValue::Whole(value));
        streams.end_reading(now);
        let StreamValue::Whole(exported) = point.value else { panic!("another type") };
        if streams.temporality == Temporality::Delta {
            streams.note_taken(vec![(point.key, StreamValue::Whole(value))], now);
        }
        (point.since, exported)
    }

    #[test]
    fn totals_count_since_the_stream_began() {
        let mut streams = MetricStreams::new(Temporality::Cumulative, 100);
        assert_eq!(read(&mut streams, 5, 200), (100, 5));
        assert_eq!(read(&mut streams, 7, 300), (100, 7));
        assert_eq!(read(&mut streams, 1, 400), (300, 1), "it has begun again");
        streams.end_reading(500);
        assert_eq!(streams.len(), 0, "a stream without a value is forgotten");
        assert_eq!(read(&mut streams, 9, 600), (500, 9));
    }

    #[test]
    fn growth_counts_since_the_last_reading() {
        let mut streams = MetricStreams::new(Temporality::Delta, 100);
        assert_eq!(read(&mut streams, 5, 200), (100, 5));
        assert_eq!(read(&mut streams, 7, 300), (200, 2));
        assert_eq!(read(&mut streams, 7, 400), (300, 0));
        assert_eq!(read(&mut streams, 1, 500), (400, 1), "it has begun again");
    }

    #[test]
    fn growth_that_the_collector_has_not_taken_is_part_of_the_next() {
        let mut streams = MetricStreams::new(Temporality::Delta, 100);
        read(&mut streams, 5, 200);
        let lost = streams.add("requests", LABELS, None, StreamValue::Whole(8));
        assert_eq!((lost.since, lost.value), (200, StreamValue::Whole(3)));
        streams.end_reading(300);
        assert_eq!(read(&mut streams, 9, 400), (200, 4));
    }

    #[test]
    fn histograms_grow_in_each_bucket() {
        let mut streams = MetricStreams::new(Temporality::Delta, 0);
        let mut read = |sum, counts: [u64; 2]| {
            let value = StreamValue::Histogram { sum, counts: counts.into() };
            let point = streams.add("seconds", &[], None, value.clone());
            streams.end_reading(1);
            streams.note_taken(vec![(point.key, value)], 1);
            point.value
        };
        let histogram =
            |sum, counts: [u64; 2]| StreamValue::Histogram { sum, counts: counts.into() };
        assert_eq!(read(1.0, [1, 0]), histogram(1.0, [1, 0]));
        assert_eq!(read(4.0, [1, 3]), histogram(3.0, [0, 3]));
        assert_eq!(read(0.5, [2, 0]), histogram(0.5, [2, 0]), "it has begun again");
    }

    /// Reads rows of a table (number, name, value) and the row that they share, and returns the exported values.
    fn read_table(
        streams: &mut MetricStreams,
        rows: &[(u64, &str, u64)],
        shared: u64,
        is_taken: bool,
    ) -> Vec<u64> {
        let shared_labels = &[("operation", "other")];
        let rows = rows.iter().map(|&(number, name, value)| {
            let row = StreamRow::from(RowIdentity { number, shared_labels });
            (name, Some(row), value)
        });
        let mut taken = Vec::new();
        let points = rows.chain([("other", None, shared)]).map(|(name, row, value)| {
            let labels = &[("operation", name), ("code", "TIMEOUT")];
            let value = StreamValue::Whole(value);
            let point = streams.add("errors", labels, row.as_ref(), value.clone());
            taken.push((point.key, value));
            match point.value {
                StreamValue::Whole(value) => value,
                value => panic!("{value:?}"),
            }
        });
        let points = points.collect();
        streams.end_reading(1);
        if is_taken {
            streams.note_taken(taken, 1);
        }
        points
    }

    #[test]
    fn counts_that_a_lost_row_has_exported_are_not_exported_again() {
        let mut streams = MetricStreams::new(Temporality::Delta, 0);
        let mut read =
            |rows: &[_], shared, is_taken| read_table(&mut streams, rows, shared, is_taken);
        assert_eq!(read(&[(0, "A", 100), (1, "B", 50)], 7, true), [100, 50, 7]);
        // A has counted 5 more before its row was given to C, and the shared row has counted 1 itself.
        assert_eq!(read(&[(2, "C", 3), (1, "B", 50)], 7 + 105 + 1, true), [3, 0, 6]);
        // The collector does not take this; C has lost its row to A, which has counted more than ever before.
        assert_eq!(read(&[(3, "A", 400), (1, "B", 51)], 113 + 4, false), [400, 1, 1]);
        assert_eq!(read(&[(3, "A", 400), (1, "B", 51)], 117, false), [400, 1, 1]);
        // The counts of a row that no collector has taken are part of the growth of the shared row.
        assert_eq!(read(&[(4, "D", 1), (1, "B", 52)], 117 + 400, true), [1, 2, 401]);
        assert_eq!(read(&[(4, "D", 1), (1, "B", 52)], 518, true), [0, 0, 1]);
    }

    #[test]
    fn a_shared_row_that_begins_with_the_counts_of_a_lost_row_has_not_grown() {
        let mut streams = MetricStreams::new(Temporality::Delta, 0);
        let identity = RowIdentity { number: 4, shared_labels: &[("operation", "other")] };
        let row = StreamRow::from(identity);
        let value = StreamValue::Fraction(0.3);
        let point = streams.add("seconds", &[("operation", "A")], Some(&row), value.clone());
        streams.end_reading(1);
        streams.note_taken(vec![(point.key, value)], 1);
        // A sum of fractions in another order.
        let moved = StreamValue::Fraction(0.3 - f64::EPSILON);
        let point = streams.add("seconds", &[("operation", "other")], None, moved);
        assert_eq!(point.value, StreamValue::Fraction(0.0));
    }

    #[test]
    fn streams_differ_in_their_labels() {
        let mut streams = MetricStreams::new(Temporality::Delta, 0);
        for labels in [&[("a", "1")][..], &[("a", "2")], &[("b", "1")], &[]] {
            let point = streams.add("requests", labels, None, StreamValue::Whole(4));
            assert_eq!(point.value, StreamValue::Whole(4), "{labels:?}");
        }
        assert_eq!(streams.len(), 4);
    }
}
