//! Stores, persisted operations and caches of Cosmo Router.

use crate::conversion::{Conversion, Members, is_turned_off};
use crate::expression::claim;
use crate::form::Form;
use crate::redis::convert_providers;
use crate::rule::{Rule, absent, changed, same, with};
use crate::setting::Setting;
use crate::target::Value;

/// The key of a setting of the cache of responses, which has had several names.
macro_rules! cache {
    ($key:literal) => {
        concat!("(response_cache|entity_cache|entity_caching).", $key)
    };
}

pub(super) const RULES: &[Rule] = &[
    with(
        "storage_providers.redis",
        "storage_providers.redis",
        "options in the query of a URL are left out",
        redis,
    ),
    absent(
        "storage_providers.(s3|cdn)",
        "Starling reads files and URLs: let a job copy the objects, or serve the bucket over HTTPS",
    ),
    absent(
        "storage_providers.file_system",
        "sections name their files themselves: `persisted_documents.manifests[].file` and \
         `.folder`",
    ),
    with(
        "persisted_operations",
        "persisted_documents.mode",
        "manifests must be listed: files or URLs in the format of Apollo or Relay",
        persisted_operations,
    ),
    same("automatic_persisted_queries.enabled", "apq.enabled", Form::Bool),
    same("automatic_persisted_queries.cache.size", "apq.max_size", Form::Size),
    with("automatic_persisted_queries.cache.ttl", "apq.ttl", "it is for the store", apq_ttl),
    same("automatic_persisted_queries.storage.provider_id", "apq.store", Form::Text),
    absent(
        "automatic_persisted_queries.storage.object_prefix",
        "`storage_providers.redis[].namespace` is the prefix of all keys",
    ),
    with(
        "cache_warmup",
        "warming.timeout",
        "`warming.operations` must name the operations: those of another router, or a file",
        warmup,
    ),
    same(cache!("enabled"), "cache.enabled", Form::Bool),
    changed(
        cache!("fallback_ttl"),
        "cache.subgraphs.all.ttl",
        Form::Duration,
        "it is for all responses that say nothing about their time to live, also for those \
         without `cache-control`",
    ),
    with(cache!("storage"), "cache.store", "", cache_storage),
    with(cache!("private_id"), "cache.private_by.claims", "", private_id),
    absent(cache!("key_prefix"), "`storage_providers.redis[].namespace` is the prefix of all keys"),
    absent(
        cache!("invalidation"),
        "`POST /admin/invalidate` of the admin listener takes invalidations; events of brokers \
         do so too (docs/caching.md)",
    ),
    absent(cache!("cache_tag_header"), "responses have no tags for a CDN"),
];

fn redis(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    convert_providers(conversion, setting, &["storage_providers".to_owned(), "redis".to_owned()]);
}

fn persisted_operations(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    if members.take("disabled").is_some_and(|it| it.truth() == Some(true)) {
        conversion.unneeded(setting, "it is turned off");
        return;
    }
    let safelist = members.take("safelist").filter(|it| !is_turned_off(it));
    let unknown = members.take("log_unknown").filter(|it| !is_turned_off(it));
    members.unneeded(
        conversion,
        "cache",
        "documents are in memory; `persisted_documents.max_size` bounds them",
    );
    members.absent(
        conversion,
        "storage",
        "list manifests in `persisted_documents.manifests`: a file or a URL in the format of \
         Apollo or Relay, or a folder of `.graphql` files",
    );
    members.absent(
        conversion,
        "manifest",
        "list the manifest in `persisted_documents.manifests`, in the format of Apollo or Relay",
    );
    members.finish(conversion);
    let mode = match (&safelist, &unknown) {
        (Some(_), _) => "require_known",
        (None, Some(_)) => "log_unknown",
        (None, None) => return,
    };
    if let (Some(_), Some(unknown)) = (&safelist, &unknown) {
        conversion.unneeded(unknown, "it is part of `persisted_documents.mode`");
    }
    let reporter = safelist.or(unknown).unwrap_or_else(|| setting.clone());
    conversion.not_converted(
        &reporter,
        &format!(
            "list the manifests in `persisted_documents.manifests`, and set \
             `persisted_documents.mode: {mode}`"
        ),
    );
    if mode == "require_known" {
        conversion.refuse_operations(&reporter, "persisted documents are not set up yet");
    }
}

fn apq_ttl(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let store =
        conversion.root.descendant(&["automatic_persisted_queries", "storage", "provider_id"]);
    match (setting.text(), store) {
        (Some("0"), _) => conversion.unneeded(setting, "texts are kept as long as there is room"),
        (_, None) => conversion.unneeded(
            setting,
            "texts in memory have no time to live: the least used ones are removed",
        ),
        (_, Some(_)) => {
            conversion.set(setting, &["apq".to_owned(), "ttl".to_owned()], Form::Seconds, "");
        }
    }
}

fn warmup(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let enabled = members.take("enabled");
    if !conversion.is_on(enabled.as_ref()) {
        conversion.unneeded(setting, "it is turned off");
        return;
    }
    let source = members.take("source");
    if let Some(timeout) = members.take("timeout") {
        conversion.set(&timeout, &["warming".to_owned(), "timeout".to_owned()], Form::Duration, "");
    }
    for name in ["workers", "items_per_second", "item_delay", "in_memory_fallback"] {
        members.unneeded(
            conversion,
            name,
            "operations are prepared as fast as the processors allow",
        );
    }
    members.finish(conversion);
    if let Some(reporter) = source.or(enabled) {
        conversion.not_converted(
            &reporter,
            "`warming.operations` names a file, or `/admin/operations` of another router \
             (docs/scaling.md)",
        );
    }
}

fn cache_storage(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let provider = members.take("provider");
    if let Some(id) = members.take("provider_id") {
        conversion.set(&id, &["cache".to_owned(), "store".to_owned()], Form::Text, "");
    }
    if let Some(provider) = provider {
        conversion.unneeded(&provider, "each router has a memory of its own, also with a store");
    }
    members.absent(conversion, "max_entries", "`cache.memory` bounds the entries by their size");
    members.finish(conversion);
}

fn private_id(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    if setting.is_empty() {
        conversion.unneeded(setting, "it is empty");
        return;
    }
    match setting.text().and_then(claim) {
        Some(path) => {
            let to = ["cache", "private_by", "claims"].map(str::to_owned);
            conversion.write(setting, &to, Value::texts([path]), "");
        }
        None => conversion.not_converted(
            setting,
            "`cache.private_by` names the claims and headers that tell clients apart",
        ),
    }
}
