//! The JSON behind the page of the caches.

use std::time::Instant;

use cache::{
    EntryLabel, HotEntry, InvalidationPreview, InvalidationSourceStats, LabelKey, LargeEntry, Store,
};
use serde_json::{Value, json};
use serving::caching::GenerationCaches;
use serving::redaction::redact_literals;
use telemetry::read;

use super::history::{CacheCounts, CacheHistory, InvalidationCounts, LookupCounts, Window};

/// The number of entries in each list of hot and of large entries.
const ENTRIES_LISTED: usize = 20;

/// Returns the JSON of `GET /admin/cache`. Entries have the values of their keys if `shows_values` is true.
pub(super) fn describe(
    caching: &GenerationCaches,
    history: &CacheHistory,
    shows_values: bool,
) -> Value {
    let process = &caching.process;
    let counts = CacheCounts::of(caching);
    let windows = history.windows(Instant::now(), &counts);
    let stores = [("subgraph", &process.entities), ("response", &process.responses)];
    let now = process.now();
    let mut hottest: Vec<(&str, HotEntry)> = Vec::new();
    let mut largest: Vec<(&str, LargeEntry)> = Vec::new();
    for (level, store) in stores {
        let hot = store.hottest(ENTRIES_LISTED, now);
        hottest.extend(hot.into_iter().map(|entry| (level, entry)));
        let large = store.largest(ENTRIES_LISTED);
        largest.extend(large.into_iter().map(|entry| (level, entry)));
    }
    hottest.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.hits));
    largest.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.bytes));
    hottest.truncate(ENTRIES_LISTED);
    largest.truncate(ENTRIES_LISTED);
    let totals = process.totals(&caching.subgraphs);
    let store = |(level, store): (&'static str, &std::sync::Arc<Store>)| {
        let of_level = totals.iter().filter(|(name, ..)| *name == level);
        let subgraphs = of_level.map(|(_, subgraph, totals)| {
            json!({
                "subgraph": subgraph,
                "entries": totals.entries,
                "bytes": totals.bytes,
                "evictions": totals.evictions,
            })
        });
        let all = store.totals();
        json!({
            "level": level,
            "entries": all.entries,
            "bytes": all.bytes,
            "bytesMax": store.bytes_max(),
            "evictions": all.evictions,
            "removedExpired": read(&store.stats().removed_expired),
            "removedInvalidated": read(&store.stats().removed_invalidated),
            "subgraphs": subgraphs.collect::<Vec<_>>(),
        })
    };
    let sources = process.invalidation_stats.sources();
    json!({
        "windows": windows.iter().map(window).collect::<Vec<_>>(),
        "stores": stores.map(store),
        "effectTimes": sources.map(|(source, stats)| effect_time(source, stats)),
        "hottest": hottest
            .iter()
            .map(|(level, entry)| hot_entry(level, entry, shows_values))
            .collect::<Vec<_>>(),
        "largest": largest
            .iter()
            .map(|(level, entry)| large_entry(level, entry, shows_values))
            .collect::<Vec<_>>(),
    })
}

fn window(window: &Window) -> Value {
    let CacheCounts { lookups, invalidations } = &window.counts;
    json!({
        "name": window.name,
        "seconds": window.length.as_secs_f64(),
        "lookups": lookups.iter().map(lookup_counts).collect::<Vec<_>>(),
        "invalidations": invalidations.iter().map(invalidation_counts).collect::<Vec<_>>(),
    })
}

fn lookup_counts(counts: &LookupCounts) -> Value {
    json!({
        "level": counts.level,
        "subgraph": counts.subgraph,
        "lookups": counts.all(),
        "hitRatio": counts.hit_ratio(),
        "hits": counts.hits,
        "staleHits": counts.stale_hits,
        "errorHits": counts.error_hits,
        "misses": counts.misses,
        "missesExpired": counts.misses_expired,
        "missesInvalidated": counts.misses_invalidated,
        "refreshes": counts.refreshes,
        "stores": counts.stores,
        "notStored": counts.not_stored,
    })
}

fn invalidation_counts(counts: &InvalidationCounts) -> Value {
    json!({
        "source": counts.source,
        "messages": counts.messages,
        "invalidations": counts.invalidations,
        "malformed": counts.malformed,
        "gaps": counts.gaps,
    })
}

/// The times from the receipt of messages to their effect, since the start: the mean, and the bound below which 99 of
/// 100 are.
fn effect_time(source: &str, stats: &InvalidationSourceStats) -> Value {
    let times = stats.seconds.read();
    let all: u64 = times.buckets.iter().map(|(_, count)| count).sum();
    let mut below = 0;
    let p99 = times.buckets.iter().find(|(_, count)| {
        below += count;
        below * 100 >= all * 99
    });
    let is_known = all > 0;
    json!({
        "source": source,
        "meanSeconds": is_known.then(|| times.sum / all as f64),
        // An unknown bound is null.
        "p99Seconds": p99.map(|(bound, _)| *bound).filter(|bound| is_known && bound.is_finite()),
    })
}

fn hot_entry(level: &str, entry: &HotEntry, shows_values: bool) -> Value {
    let HotEntry { label, hits, error, per_second, bytes } = entry;
    let mut value = labelled(level, label, shows_values);
    value["hits"] = (*hits).into();
    value["error"] = (*error).into();
    value["perSecond"] = (*per_second).into();
    value["bytes"] = (*bytes).into();
    value
}

fn large_entry(level: &str, entry: &LargeEntry, shows_values: bool) -> Value {
    let mut value = labelled(level, &entry.label, shows_values);
    value["bytes"] = entry.bytes.into();
    value
}

fn labelled(level: &str, label: &EntryLabel, shows_values: bool) -> Value {
    let EntryLabel { subgraph, name, key } = label;
    let name = match subgraph {
        // A selection: a few literals stay in it, such as those of directives.
        Some(_) if !shows_values => redact_literals(name),
        _ => name.to_string(),
    };
    let shown = |key: &LabelKey| if shows_values { key.values.clone() } else { key.masked.clone() };
    json!({
        "level": level,
        "subgraph": subgraph,
        "name": name,
        "key": key.as_ref().map(shown),
        "isPrivate": key.is_none(),
    })
}

/// Returns the JSON of `POST /admin/cache/preview`.
pub(super) fn describe_preview([subgraph, response]: &[InvalidationPreview; 2]) -> Value {
    let level = |name: &str, it: &InvalidationPreview| {
        json!({
            "level": name,
            "entries": it.entries,
            "bytes": it.bytes,
            "scanned": it.scanned,
            "isComplete": it.is_complete,
        })
    };
    json!({
        "entries": subgraph.entries + response.entries,
        "bytes": subgraph.bytes + response.bytes,
        "isComplete": subgraph.is_complete && response.is_complete,
        "levels": [level("subgraph", subgraph), level("response", response)],
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn effect_times_are_mean_and_bound() {
        let stats = InvalidationSourceStats::default();
        let none = effect_time("event", &stats);
        assert_eq!(none, json!({"source": "event", "meanSeconds": null, "p99Seconds": null}));
        for _ in 0..99 {
            stats.count_message(1, Duration::from_micros(40));
        }
        stats.count_message(1, Duration::from_millis(40));
        let times = effect_time("event", &stats);
        assert_eq!(times["p99Seconds"], 0.000_05);
        let mean = times["meanSeconds"].as_f64().expect("a number");
        assert!((mean - 0.000_439_6).abs() < 1e-9, "{mean}");
    }

    #[test]
    fn a_private_entry_is_described_without_its_key() {
        let label = EntryLabel::new(Some("users"), "User", &[("id", "7")], true);
        let entry = LargeEntry { label, bytes: 9 };
        let expected = json!({
            "level": "subgraph", "subgraph": "users", "name": "User", "key": null, "isPrivate": true, "bytes": 9,
        });
        for shows_values in [true, false] {
            assert_eq!(large_entry("subgraph", &entry, shows_values), expected);
        }
    }

    #[test]
    fn values_in_keys_and_selections_are_shown_if_they_are_allowed() {
        let selection = "user(id:$12 kind:\"s3cret\"){name}";
        let label = EntryLabel::new(Some("users"), selection, &[("id", "s3cret")], false);
        let masked = label.key.as_ref().map(|it| it.masked.clone()).expect("it is public");
        for (shows_values, name, key) in
            [(true, selection, "id: s3cret"), (false, "user(id:$12 kind:\"…\"){name}", &*masked)]
        {
            let value = labelled("subgraph", &label, shows_values);
            assert_eq!((&value["name"], &value["key"]), (&json!(name), &json!(key)));
        }
        assert!(masked.starts_with("id: #"), "{masked}");
        // The id of an operation has digits, and is no value.
        let label = EntryLabel::new(None, "Board 00ff12", &[], false);
        assert_eq!(labelled("response", &label, false)["name"], "Board 00ff12");
    }
}
