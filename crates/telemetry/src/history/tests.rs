//! Histories in virtual time.

use super::*;
use crate::HistogramReading;

/// A sample with a counter, a gauge and durations up to 10 ms, 100 ms and above.
fn sample(requests: f64, open: f64, durations: [u64; 3]) -> HistorySample {
    let mut sample = HistorySample::default();
    sample.add_count(SeriesKey::new("requests"), requests);
    sample.add_level(SeriesKey::new("open"), open);
    let bounds = [0.01, 0.1, f64::INFINITY];
    let buckets = bounds.into_iter().zip(durations).collect();
    sample.add_durations(
        SeriesKey::new("took"),
        HistogramReading { buckets, ..HistogramReading::default() },
    );
    sample
}

fn values(view: &HistoryView, name: &str) -> Vec<Option<f32>> {
    match view.series.iter().find(|(key, _)| key.name == name) {
        Some((_, SeriesValues::One(values))) => values.clone(),
        Some((_, SeriesValues::Quantiles([median, ..]))) => median.clone(),
        None => Vec::new(),
    }
}

#[test]
fn a_bucket_has_the_difference_of_a_counter_the_value_of_a_gauge_and_quantiles_of_new_durations() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut history = History::default();
    history.record(at(0), sample(5.0, 1.0, [7, 7, 7]));
    history.record(at(10), sample(25.0, 4.0, [7 + 10, 7, 7]));
    history.record(at(21), sample(25.0, 3.0, [17, 7 + 10, 7]));
    let view = history.view(at(24), &sample(28.0, 2.0, [17, 17, 7 + 3]), |_| true);
    assert_eq!(view.lengths, [10.0, 11.0, 3.0]);
    assert_eq!(values(&view, "requests"), [Some(20.0), Some(0.0), Some(3.0)]);
    assert_eq!(values(&view, "open"), [Some(4.0), Some(3.0), Some(2.0)]);
    assert_eq!(values(&view, "took"), [Some(0.005), Some(0.055), Some(0.1)]);
    let requests =
        history.view(at(24), &sample(28.0, 2.0, [17, 17, 10]), |it| it.name == "requests");
    assert_eq!(requests.series.len(), 1);
}

#[test]
fn a_bucket_without_durations_has_no_quantiles() {
    let start = Instant::now();
    let mut history = History::default();
    history.record(start, sample(0.0, 0.0, [1, 0, 0]));
    history.record(start + INTERVAL, sample(0.0, 0.0, [1, 0, 0]));
    let view = history.view(start + INTERVAL, &sample(0.0, 0.0, [1, 0, 0]), |_| true);
    assert_eq!(values(&view, "took"), [None, None]);
}

#[test]
fn a_window_has_exact_quantiles_of_all_durations_in_it() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut history = History::default();
    for tick in 0..100 {
        history.record(at(tick * 10), sample(tick as f64, tick as f64, [tick, 0, 0]));
    }
    // 98 of 100 new durations are short; no single bucket would say so.
    let now = sample(200.0, 1.0, [93 + 98, 2, 0]);
    let window = history.window(at(995), &now, Duration::from_secs(60));
    assert!((window.seconds - 65.0).abs() < 1e-9);
    assert_eq!(window.changes[&SeriesKey::new("requests")], Change::Count(107.0));
    let Change::Durations(count, [median, _, p99]) = window.changes[&SeriesKey::new("took")] else {
        panic!("durations");
    };
    assert_eq!(count, 100.0);
    assert!(median.is_some_and(|it| it < 0.01) && p99.is_some_and(|it| it > 0.01 && it <= 0.1));
}

#[test]
fn a_young_history_has_windows_since_its_beginning() {
    let start = Instant::now();
    let mut history = History::default();
    let none = history.window(start, &sample(9.0, 1.0, [0, 0, 0]), WINDOW_MAX);
    assert_eq!((none.seconds, none.changes[&SeriesKey::new("requests")].value()), (0.0, 0.0));
    assert!(history.view(start, &sample(9.0, 1.0, [0, 0, 0]), |_| true).lengths.is_empty());
    history.record(start, sample(2.0, 0.0, [0, 0, 0]));
    let young =
        history.window(start + Duration::from_secs(4), &sample(9.0, 1.0, [0, 0, 0]), WINDOW_MAX);
    assert_eq!((young.seconds, young.changes[&SeriesKey::new("requests")].value()), (4.0, 7.0));
}

#[test]
fn counters_that_are_new_or_begin_anew_count_from_zero_and_series_without_values_are_removed() {
    let start = Instant::now();
    let at = |tick: u32| start + INTERVAL * tick;
    let labelled = |label, value| {
        let mut sample = HistorySample::default();
        sample.add_count(SeriesKey::labelled("requests", label), value);
        sample
    };
    let mut history = History::default();
    history.record(at(0), labelled("a", 100.0));
    history.record(at(1), labelled("a", 30.0));
    history.record(at(2), labelled("b", 7.0));
    let view = history.view(at(2), &labelled("b", 7.0), |_| true);
    let seen: Vec<_> =
        view.series.iter().map(|(key, values)| (&*key.label, values.clone())).collect();
    let (a, b) = ([Some(30.0), None, None], [None, Some(7.0), Some(0.0)]);
    assert_eq!(seen, [("a", SeriesValues::One(a.into())), ("b", SeriesValues::One(b.into()))]);
    for tick in 3..=BUCKETS_MAX as u32 + 2 {
        history.record(at(tick), labelled("b", 7.0));
    }
    assert_eq!(history.series_count(), 1, "`a` had nothing for an hour");
}

#[test]
fn an_hour_of_as_many_series_as_are_allowed_is_kept() {
    let start = Instant::now();
    let mut history = History::default();
    let many = |value| {
        let mut sample = HistorySample::default();
        for index in 0..SERIES_MAX + 10 {
            sample.add_level(SeriesKey::labelled("level", &index.to_string()), value);
        }
        sample
    };
    history.record(start, many(0.0));
    history.record(start + INTERVAL, many(1.0));
    assert_eq!((history.series_count(), history.left_out()), (SERIES_MAX, 10));
    let mut history = History::default();
    for tick in 0..2 * BUCKETS_MAX as u32 {
        history.record(start + INTERVAL * tick, sample(f64::from(tick), 0.0, [0, 0, 0]));
    }
    let view = history.view(start + INTERVAL * 800, &sample(800.0, 0.0, [0, 0, 0]), |_| true);
    assert_eq!(view.lengths.len(), BUCKETS_MAX + 1);
    assert_eq!(values(&view, "requests").len(), BUCKETS_MAX + 1);
}

#[test]
fn quantiles_are_those_of_prometheus() {
    let none: [Option<f64>; 3] = [None; 3];
    assert_eq!(quantiles(&[]), none);
    assert_eq!(quantiles(&[(0.1, 0), (f64::INFINITY, 0)]), none);
    let buckets = [(0.1, 50), (0.2, 40), (0.4, 10), (f64::INFINITY, 0)];
    let [median, p90, p99] = quantiles(&buckets).map(|it| it.expect("durations"));
    assert!((median - 0.1).abs() < 1e-9 && (p90 - 0.2).abs() < 1e-9 && (p99 - 0.38).abs() < 1e-9);
    assert_eq!(quantiles(&[(0.1, 0), (f64::INFINITY, 3)]), [Some(0.1); 3]);
}
