//! Rules that involve several keys of `storage_providers`, and of the sections that name a store.

use super::findings::{Findings, KeyPlaces};
use super::provider_consistency::{RedisServers, check_redis_servers};
use super::wording::find_similar;
use super::{Config, RateLimit};

/// Checks the stores, and the sections that use them.
pub(super) fn check(config: &Config, places: &KeyPlaces, findings: &mut Findings) {
    let stores = &config.storage_providers.redis;
    for (index, store) in stores.iter().enumerate() {
        let path = format!("storage_providers.redis[{index}]");
        let first = stores[..index].iter().position(|it| it.id == store.id);
        if let Some(first) = first {
            findings
                .error("conflict", format!("two stores have the id `{}`", store.id))
                .at_place(places.get(&format!("{path}.id")), "used again here")
                .related_place(
                    places.get(&format!("storage_providers.redis[{first}].id")),
                    "first used here",
                )
                .help("give each its own id: other sections name a store by it");
        }
        let servers = RedisServers {
            urls: &store.urls,
            is_cluster: store.cluster_enabled,
            has_sentinel: store.sentinel.is_some(),
            has_authentication: store.authentication.is_some(),
            tls: &store.tls,
            retry: &store.retry,
        };
        check_redis_servers(&path, &servers, places, findings);
    }
    for (index, limit) in config.rate_limits.iter().enumerate() {
        check_rate_limit(config, &format!("rate_limits[{index}]"), limit, places, findings);
    }
    check_cache(config, places, findings);
    if let Some(store) = &config.apq.store {
        check_reference(config, "apq.store", store, places, findings);
    } else if places.get("apq.ttl").is_some() {
        findings
            .warning("no-effect", "`apq.ttl` has no effect without `apq.store`")
            .at_place(places.get("apq.ttl"), "not used")
            .help("name a store of `storage_providers` in `apq.store`, or remove the key");
    }
}

fn check_cache(config: &Config, places: &KeyPlaces, findings: &mut Findings) {
    let Some(store) = &config.cache.store else {
        if places.get("cache.lock_wait").is_some() {
            findings
                .warning("no-effect", "`cache.lock_wait` has no effect without `cache.store`")
                .at_place(places.get("cache.lock_wait"), "not used")
                .help("name a store of `storage_providers` in `cache.store`, or remove the key");
        }
        return;
    };
    check_reference(config, "cache.store", store, places, findings);
    if !config.cache.enabled {
        findings
            .warning("no-effect", "`cache.store` has no effect without `cache.enabled`")
            .at_place(places.get("cache.store"), "not used")
            .help("set `cache.enabled: true`, or remove the key");
    }
}

/// The largest difference between a rate and the one that is counted in whole microseconds, in parts of the rate: 1 %.
const RATE_ERROR_PARTS: u128 = 100;

fn check_rate_limit(
    config: &Config,
    path: &str,
    limit: &RateLimit,
    places: &KeyPlaces,
    findings: &mut Findings,
) {
    let Some(store) = &limit.store else {
        if places.get(&format!("{path}.on_failure")).is_some() {
            findings
                .warning("no-effect", format!("`{path}.on_failure` has no effect without a store"))
                .at_place(places.get(&format!("{path}.on_failure")), "not used")
                .help("name a store of `storage_providers` in `store`, or remove the key");
        }
        return;
    };
    check_reference(config, &format!("{path}.store"), store, places, findings);
    let (per, rate) = (limit.per.as_micros(), u128::from(limit.rate.max(1)));
    let counted = limit.interval_micros() * rate;
    if per.abs_diff(counted) * RATE_ERROR_PARTS > per {
        findings
            .error("too-fast", format!("`{path}` is too fast to be counted in Redis"))
            .at_place(
                places.get(&format!("{path}.rate")),
                "less than some microseconds for each unit",
            )
            .help("lower `rate`, or remove `store`: each router then counts by itself");
    }
}

fn check_reference(
    config: &Config,
    path: &str,
    store: &str,
    places: &KeyPlaces,
    findings: &mut Findings,
) {
    if config.storage_providers.ids().any(|it| it == store) {
        return;
    }
    let known: Vec<_> = config.storage_providers.ids().collect();
    let help = match (find_similar(store, known.iter().copied()), known.is_empty()) {
        (Some(similar), _) => format!("did you mean `{similar}`?"),
        (None, true) => "add the Redis to `storage_providers.redis`, with this `id`".to_owned(),
        (None, false) => format!("`storage_providers.redis` has: {}", known.join(", ")),
    };
    findings
        .error("unknown-store", format!("`{path}` names no store"))
        .at_place(places.get(path), "no store has this id")
        .help(help);
}
