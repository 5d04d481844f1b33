//! Counts of the last minutes: the counters of the caches, noted every few seconds, so that operators see what happens
//! now and not only what has happened since the start.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cache::{InvalidationSourceStats, LookupStats};
use serving::caching::GenerationCaches;
use serving::serving::Serving;
use telemetry::read;

/// The time between two notes.
const INTERVAL: Duration = Duration::from_secs(10);

/// The longest time that operators can look back, beside the time since the start.
const TIME_MAX: Duration = Duration::from_secs(300);

/// The number of notes that are kept.
const NOTES_MAX: usize = (TIME_MAX.as_secs() / INTERVAL.as_secs()) as usize + 2;

/// The times that operators see, with their names. The last one is the time since the start.
const WINDOWS: [(&str, Option<Duration>); 3] =
    [("1 minute", Some(Duration::from_secs(60))), ("5 minutes", Some(TIME_MAX)), ("start", None)];

/// The notes of the last minutes.
#[derive(Debug)]
pub(crate) struct CacheHistory {
    started: Instant,
    notes: Mutex<VecDeque<(Instant, CacheCounts)>>,
}

/// The counters of all caches at one time, or their differences between two times.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CacheCounts {
    pub(crate) lookups: Vec<LookupCounts>,
    pub(crate) invalidations: Vec<InvalidationCounts>,
}

/// The counts of the lookups at one level for one subgraph; for whole responses the name of the subgraph is empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct LookupCounts {
    pub(crate) level: &'static str,
    pub(crate) subgraph: Box<str>,
    pub(crate) hits: u64,
    pub(crate) stale_hits: u64,
    pub(crate) error_hits: u64,
    pub(crate) misses: u64,
    pub(crate) misses_expired: u64,
    pub(crate) misses_invalidated: u64,
    pub(crate) refreshes: u64,
    pub(crate) stores: u64,
    pub(crate) not_stored: u64,
}

/// The counts of the invalidations of one source.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct InvalidationCounts {
    pub(crate) source: &'static str,
    pub(crate) messages: u64,
    pub(crate) invalidations: u64,
    pub(crate) malformed: u64,
    pub(crate) gaps: u64,
}

/// The counts of one window.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Window {
    /// The name of the window.
    pub(crate) name: &'static str,
    /// Its real length: up to [`INTERVAL`] longer than the name says, and shorter while the router is young.
    pub(crate) length: Duration,
    pub(crate) counts: CacheCounts,
}

impl CacheHistory {
    /// Creates a history that begins now, at which all counters are 0.
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), notes: Mutex::default() }
    }

    /// Returns the windows up to `now`, at which the counters are `counts`.
    pub(crate) fn windows(&self, now: Instant, counts: &CacheCounts) -> Vec<Window> {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let windows = WINDOWS.map(|(name, time)| {
            let is_old =
                |at: &Instant| time.is_some_and(|it| now.saturating_duration_since(*at) >= it);
            // From the newest note that is old enough.
            let before = notes.iter().rev().find(|(at, _)| is_old(at));
            let (since, counts) = match before {
                Some((at, before)) => (*at, counts.since(before)),
                None => (self.started, counts.clone()),
            };
            Window { name, length: now.saturating_duration_since(since), counts }
        });
        windows.into()
    }

    fn note(&self, now: Instant, counts: CacheCounts) {
        // A queue is consistent at any time, so the queue behind a poisoned lock is sound.
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        while notes.len() >= NOTES_MAX {
            notes.pop_front();
        }
        notes.push_back((now, counts));
    }
}

/// Notes the counters for as long as the router runs.
pub(crate) async fn follow(history: Arc<CacheHistory>, serving: Arc<Serving>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Some(caching) = &serving.current().caching {
            history.note(Instant::now(), CacheCounts::of(caching));
        }
    }
}

impl CacheCounts {
    /// Reads the counters.
    pub(crate) fn of(caching: &GenerationCaches) -> Self {
        let subgraphs = caching.subgraphs.subgraphs.iter().flatten();
        let mut lookups: Vec<_> =
            subgraphs.map(|it| LookupCounts::of("subgraph", &it.name, &it.stats)).collect();
        lookups.push(LookupCounts::of("response", "", &caching.process.response_stats));
        let sources = caching.process.invalidation_stats.sources();
        let sources = sources.map(|(source, stats)| InvalidationCounts::of(source, stats));
        Self { lookups, invalidations: sources.into() }
    }

    /// The differences to earlier counts. A counter that began anew counts from 0.
    fn since(&self, earlier: &Self) -> Self {
        let lookups = self.lookups.iter().map(|now| {
            let is_same = |it: &&LookupCounts| it.level == now.level && it.subgraph == now.subgraph;
            now.since(earlier.lookups.iter().find(is_same))
        });
        let invalidations = self
            .invalidations
            .iter()
            .map(|now| now.since(earlier.invalidations.iter().find(|it| it.source == now.source)));
        Self { lookups: lookups.collect(), invalidations: invalidations.collect() }
    }
}

impl LookupCounts {
    fn of(level: &'static str, subgraph: &str, stats: &LookupStats) -> Self {
        Self {
            level,
            subgraph: subgraph.into(),
            hits: read(&stats.hits),
            stale_hits: read(&stats.stale_hits),
            error_hits: read(&stats.error_hits),
            misses: read(&stats.misses),
            misses_expired: read(&stats.misses_expired),
            misses_invalidated: read(&stats.misses_invalidated),
            refreshes: read(&stats.refreshes),
            stores: read(&stats.stores),
            not_stored: read(&stats.not_stored),
        }
    }

    /// The number of lookups.
    pub(crate) fn all(&self) -> u64 {
        self.hits
            + self.stale_hits
            + self.error_hits
            + self.misses
            + self.misses_expired
            + self.misses_invalidated
    }

    /// The part of lookups that were served without a fetch before; `None` without lookups.
    pub(crate) fn hit_ratio(&self) -> Option<f64> {
        let all = self.all();
        (all > 0).then(|| (self.hits + self.stale_hits) as f64 / all as f64)
    }

    fn since(&self, earlier: Option<&Self>) -> Self {
        let Some(before) = earlier else { return self.clone() };
        let less = |count: fn(&Self) -> u64| count_since(count(self), count(before));
        Self {
            level: self.level,
            subgraph: self.subgraph.clone(),
            hits: less(|it| it.hits),
            stale_hits: less(|it| it.stale_hits),
            error_hits: less(|it| it.error_hits),
            misses: less(|it| it.misses),
            misses_expired: less(|it| it.misses_expired),
            misses_invalidated: less(|it| it.misses_invalidated),
            refreshes: less(|it| it.refreshes),
            stores: less(|it| it.stores),
            not_stored: less(|it| it.not_stored),
        }
    }
}

impl InvalidationCounts {
    fn of(source: &'static str, stats: &InvalidationSourceStats) -> Self {
        Self {
            source,
            messages: read(&stats.messages),
            invalidations: read(&stats.invalidations),
            malformed: read(&stats.malformed),
            gaps: read(&stats.gaps),
        }
    }

    fn since(&self, earlier: Option<&Self>) -> Self {
        let Some(before) = earlier else { return self.clone() };
        Self {
            source: self.source,
            messages: count_since(self.messages, before.messages),
            invalidations: count_since(self.invalidations, before.invalidations),
            malformed: count_since(self.malformed, before.malformed),
            gaps: count_since(self.gaps, before.gaps),
        }
    }
}

/// The difference of a counter, which began anew if it is smaller than before.
fn count_since(now: u64, before: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(hits: u64, misses: u64, messages: u64) -> CacheCounts {
        let lookups = vec![
            LookupCounts {
                level: "subgraph",
                subgraph: "products".into(),
                hits,
                misses,
                ..LookupCounts::default()
            },
            LookupCounts { level: "response", hits: 7, ..LookupCounts::default() },
        ];
        let source = InvalidationCounts { source: "admin", messages, ..Default::default() };
        CacheCounts { lookups, invalidations: vec![source] }
    }

    #[test]
    fn windows_are_differences_to_notes_that_are_old_enough() {
        let history = CacheHistory::new();
        let start = history.started;
        let at = |seconds| start + Duration::from_secs(seconds);
        for tick in 0..100 {
            history.note(at(tick * 10), counts(tick * 30, tick, tick * 2));
        }
        assert_eq!(history.notes.lock().unwrap().len(), NOTES_MAX);
        let windows = history.windows(at(995), &counts(3_000, 100, 200));
        let seen: Vec<_> = windows
            .iter()
            .map(|it| {
                let [products, responses] = &it.counts.lookups[..] else { panic!("two levels") };
                let messages = it.counts.invalidations[0].messages;
                (
                    it.name,
                    it.length.as_secs(),
                    products.hits,
                    products.misses,
                    responses.hits,
                    messages,
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("1 minute", 65, 210, 7, 0, 14),
                ("5 minutes", 305, 930, 31, 0, 62),
                ("start", 995, 3_000, 100, 7, 200)
            ]
        );
        assert_eq!(windows[0].counts.lookups[0].hit_ratio(), Some(210.0 / 217.0));
    }

    #[test]
    fn a_young_router_shows_everything_since_its_start_and_a_new_counter_counts_from_zero() {
        let history = CacheHistory::new();
        let at = |seconds| history.started + Duration::from_secs(seconds);
        let young = history.windows(at(5), &counts(3, 1, 0));
        assert!(young.iter().all(|it| it.counts == counts(3, 1, 0) && it.length.as_secs() == 5));
        history.note(at(0), counts(100, 100, 100));
        let [minute, ..] = &history.windows(at(70), &counts(2, 1, 1))[..] else {
            panic!("windows")
        };
        assert_eq!(
            (minute.counts.lookups[0].hits, minute.counts.invalidations[0].messages),
            (2, 1)
        );
        assert_eq!(LookupCounts::default().hit_ratio(), None);
    }
}
