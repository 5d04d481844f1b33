//! Automatic persisted queries and the cache of responses of Apollo Router.

use crate::conversion::{Conversion, Members, with_names};
use crate::form::Form;
use crate::redis::servers_of;
use crate::rule::{Rule, absent, changed, same, unneeded, with};
use crate::setting::Setting;
use crate::target::Value;

const CACHE_NOTE: &str = "all subgraphs share one store";

/// The key of a setting of the cache of responses, which has had several names.
macro_rules! cache {
    ($key:literal) => {
        concat!("(response_cache|preview_response_cache|entity_cache|preview_entity_cache).", $key)
    };
}

pub(super) const RULES: &[Rule] = &[
    same("apq.enabled", "apq.enabled", Form::Bool),
    changed(
        "apq.router.cache.in_memory.limit",
        "apq.max_entries",
        Form::Number,
        "at least 16; `apq.max_size` bounds the memory, too",
    ),
    with(
        "apq.router.cache.redis",
        "storage_providers.redis, apq.store, apq.ttl",
        "a request never waits longer than `timeout` for it (10 ms by default)",
        apq_redis,
    ),
    absent("apq.subgraph", "requests to subgraphs always have the text"),
    same(cache!("enabled"), "cache.enabled", Form::Bool),
    same(cache!("subgraph.all.enabled"), "cache.subgraphs.all.enabled", Form::Bool),
    changed(
        cache!("subgraph.all.ttl"),
        "cache.subgraphs.all.ttl",
        Form::Duration,
        "it is for responses that say nothing about their time to live",
    ),
    with(
        cache!("subgraph.all.redis"),
        "storage_providers.redis, cache.store",
        CACHE_NOTE,
        cache_redis,
    ),
    absent(
        cache!("subgraph.all.private_id"),
        "`cache.private_by` names the claims and headers that tell clients apart",
    ),
    with(
        cache!("subgraph.subgraphs.<name>"),
        "cache.subgraphs.subgraphs.<name>.enabled, cache.subgraphs.subgraphs.<name>.ttl",
        CACHE_NOTE,
        cache_subgraph,
    ),
    with(cache!("redis"), "storage_providers.redis, cache.store", CACHE_NOTE, cache_redis),
    absent(
        cache!("subgraph.all.invalidation"),
        "`POST /admin/invalidate` of the admin listener takes invalidations (docs/caching.md)",
    ),
    absent(
        cache!("invalidation"),
        "`POST /admin/invalidate` of the admin listener takes invalidations; events of brokers \
         do so too (docs/caching.md)",
    ),
    absent(cache!("cdn_invalidation"), "responses have no tags for a CDN"),
    unneeded(
        cache!("debug"),
        "the header `starling-trace: 1` shows what came from memory (`trace.enabled`)",
    ),
    unneeded(cache!("private_queries_buffer_size"), "it tunes another implementation"),
    unneeded(cache!("metrics"), "`/metrics` has hits and misses"),
    absent(
        cache!("include_cache_control_header_on_router_response"),
        "clients always get `cache-control` while the cache is on",
    ),
    absent(cache!("expose_keys_in_context"), "Starling has no context of plugins"),
];

fn apq_redis(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let ttl = members.take("ttl");
    if provider(conversion, setting, members, "apq") {
        conversion.put(setting, "apq.store", Value::text("apq"));
        if let Some(ttl) = ttl {
            conversion.set(&ttl, &["apq".to_owned(), "ttl".to_owned()], Form::Duration, "");
        }
    }
}

fn cache_redis(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    if let Some(ttl) = members.take("ttl") {
        let to = ["cache", "subgraphs", "all", "ttl"].map(str::to_owned);
        if conversion.target.has(&["cache", "subgraphs", "all", "ttl"]) {
            conversion.unneeded(&ttl, "the time to live of the subgraphs counts");
        } else {
            conversion.set(
                &ttl,
                &to,
                Form::Duration,
                "it is for responses that say nothing about their time to live",
            );
        }
    }
    if provider(conversion, setting, members, "cache") {
        conversion.put(setting, "cache.store", Value::text("cache"));
    }
}

/// Adds the Redis of a section as a provider. False if it has none that Starling can use.
fn provider(
    conversion: &mut Conversion<'_>,
    setting: &Setting<'_>,
    mut members: Members<'_>,
    id: &str,
) -> bool {
    let Some(urls) = members.take("urls") else {
        conversion.refuse(setting, "has no `urls`", "");
        return false;
    };
    let servers = match servers_of(conversion, &urls) {
        Ok(servers) => servers,
        Err(reason) => {
            conversion.refuse(&urls, &reason, "");
            return false;
        }
    };
    let username = conversion.optional(members.take("username"), Form::Text);
    let password = conversion.optional(members.take("password"), Form::Text);
    let authentication =
        password.map(|it| Value::map([("username", username), ("password", Some(it))]));
    let mut further = Vec::new();
    let timeout = members.take("timeout").or_else(|| members.take("fetch_timeout"));
    further
        .extend(conversion.optional(timeout, Form::Duration).map(|it| ("timeout".to_owned(), it)));
    let namespace = conversion.optional(members.take("namespace"), Form::Text);
    further.extend(namespace.map(|it| ("namespace".to_owned(), it)));
    if let Some(tls) = members.take("tls") {
        further.extend(tls_of(conversion, &tls).map(|it| ("tls".to_owned(), it)));
    }
    for name in [
        "pool_size",
        "required_to_start",
        "reset_ttl",
        "metrics_interval",
        "insert_timeout",
        "invalidate_timeout",
        "maintenance_timeout",
    ] {
        members.unneeded(
            conversion,
            name,
            "one connection serves all threads, and the router starts and serves without Redis",
        );
    }
    members.finish(conversion);
    let value = servers.into_provider(id, None, authentication, further);
    let to = ["storage_providers".to_owned(), "redis".to_owned()];
    conversion.push(
        setting,
        &to,
        value,
        "a request never waits longer than `timeout` for it (10 ms by default)",
    );
    true
}

fn tls_of(conversion: &mut Conversion<'_>, setting: &Setting<'_>) -> Option<Value> {
    let file = |conversion: &mut Conversion<'_>, names: &[&str]| {
        let member = setting.descendant(names).filter(|it| !it.is_empty())?;
        let path = member.text().and_then(crate::variables::file_reference);
        if path.is_none() {
            conversion.refuse(
                &member,
                "is no file (`${file.PATH}`)",
                "Starling reads certificates and keys from files",
            );
        }
        path.map(Value::text)
    };
    let ca = file(conversion, &["certificate_authorities"]);
    let certificate = file(conversion, &["client_authentication", "certificate_chain"]);
    let key = file(conversion, &["client_authentication", "key"]);
    let has_any = ca.is_some() || certificate.is_some() || key.is_some();
    has_any.then(|| Value::map([("ca", ca), ("certificate", certificate), ("key", key)]))
}

fn cache_subgraph(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let path =
        |key: &str| with_names(&format!("cache.subgraphs.subgraphs.<name>.{key}"), &setting.names);
    if let Some(enabled) = members.take("enabled") {
        conversion.set(&enabled, &path("enabled"), Form::Bool, "");
    }
    if let Some(ttl) = members.take("ttl") {
        conversion.set(&ttl, &path("ttl"), Form::Duration, "");
    }
    members.absent(
        conversion,
        "private_id",
        "`cache.private_by` names the claims and headers that tell clients apart, for all \
         subgraphs",
    );
    members.absent(conversion, "redis", "all subgraphs share the store that `cache.store` names");
    members.absent(
        conversion,
        "invalidation",
        "`POST /admin/invalidate` of the admin listener takes invalidations (docs/caching.md)",
    );
    members.finish(conversion);
}
