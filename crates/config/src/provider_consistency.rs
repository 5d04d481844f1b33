//! Rules that involve several keys of the providers of events.

use std::collections::HashMap;

use super::Config;
use super::client_tls::ClientTls;
use super::events::Providers;
use super::findings::{Findings, KeyPlaces};
use super::kafka::KafkaProvider;
use super::nats::NatsProvider;
use super::provider_settings::Retry;
use super::quantity::Quantity;
use super::redis::RedisProvider;

/// Checks the providers of a whole configuration.
pub(super) fn check(config: &Config, places: &KeyPlaces, findings: &mut Findings) {
    let providers = &config.events.providers;
    check_ids(providers, places, findings);
    for (index, provider) in providers.nats.iter().enumerate() {
        let path = format!("events.providers.nats[{index}]");
        check_nats(&path, provider, places, findings);
    }
    for (index, provider) in providers.kafka.iter().enumerate() {
        let path = format!("events.providers.kafka[{index}]");
        check_kafka(&path, provider, places, findings);
    }
    for (index, provider) in providers.redis.iter().enumerate() {
        let path = format!("events.providers.redis[{index}]");
        check_redis(&path, provider, places, findings);
    }
}

/// Checks that no two providers of one kind have the same id.
fn check_ids(providers: &Providers, places: &KeyPlaces, findings: &mut Findings) {
    // The last one may be the default that was added; it has no place and no duplicate.
    let memory: Vec<_> = providers.memory.iter().map(|provider| provider.id.as_str()).collect();
    let nats: Vec<_> = providers.nats.iter().map(|provider| provider.id.as_str()).collect();
    let redis: Vec<_> = providers.redis.iter().map(|provider| provider.id.as_str()).collect();
    let kafka: Vec<_> = providers.kafka.iter().map(|provider| provider.id.as_str()).collect();
    for (kind, ids) in [("memory", memory), ("nats", nats), ("kafka", kafka), ("redis", redis)] {
        let mut first = HashMap::new();
        for (index, id) in ids.into_iter().enumerate() {
            let path = format!("events.providers.{kind}[{index}].id");
            let Some(other) = first.insert(id, path.clone()) else { continue };
            findings
                .error("conflict", format!("two providers of kind `{kind}` have the id `{id}`"))
                .at_place(places.get(&path), "used again here")
                .related_place(places.get(&other), "first used here")
                .help("give each its own id: directives name a provider by it");
        }
    }
}

fn check_nats(path: &str, provider: &NatsProvider, places: &KeyPlaces, findings: &mut Findings) {
    if provider.has_credentials_in_url() && provider.authentication.is_some() {
        report_two_kinds_of_credentials(path, &format!("{path}.url"), places, findings);
    }
    provider.tls.check_pair(&format!("{path}.tls"), places, findings);
    check_retry(path, &provider.retry, places, findings);
}

fn check_kafka(path: &str, provider: &KafkaProvider, places: &KeyPlaces, findings: &mut Findings) {
    if let Some(tls) = &provider.tls {
        tls.files.check_pair(&format!("{path}.tls"), places, findings);
    }
    check_retry(path, &provider.retry, places, findings);
}

fn check_redis(path: &str, provider: &RedisProvider, places: &KeyPlaces, findings: &mut Findings) {
    let servers = RedisServers {
        urls: &provider.urls,
        is_cluster: provider.cluster_enabled,
        has_sentinel: provider.sentinel.is_some(),
        has_authentication: provider.authentication.is_some(),
        tls: &provider.tls,
        retry: &provider.retry,
    };
    check_redis_servers(path, &servers, places, findings);
    if provider.sharded_channels && !provider.cluster_enabled {
        findings
            .error("conflict", format!("`{path}` has sharded channels and is no cluster"))
            .at_place(places.get(&format!("{path}.sharded_channels")), "has no effect here")
            .help("add `cluster_enabled: true`, or remove `sharded_channels`");
    }
}

/// The settings of Redis servers that a broker and a store have in common.
pub(super) struct RedisServers<'a> {
    pub(super) urls: &'a [String],
    pub(super) is_cluster: bool,
    pub(super) has_sentinel: bool,
    pub(super) has_authentication: bool,
    pub(super) tls: &'a ClientTls,
    pub(super) retry: &'a Retry,
}

/// Checks the servers of a broker or a store at `path`.
pub(super) fn check_redis_servers(
    path: &str,
    servers: &RedisServers<'_>,
    places: &KeyPlaces,
    findings: &mut Findings,
) {
    servers.tls.check_pair(&format!("{path}.tls"), places, findings);
    if servers.is_cluster && servers.has_sentinel {
        findings
            .error("conflict", format!("`{path}` is a cluster and has sentinels"))
            .at_place(places.get(&format!("{path}.sentinel")), "sentinels")
            .related_place(places.get(&format!("{path}.cluster_enabled")), "a cluster")
            .help("keep one: a cluster elects its masters without sentinels");
    }
    let has_credentials = |url: &String| RedisProvider::has_credentials(url);
    let mut with = servers.urls.iter().enumerate().filter(|(_, url)| has_credentials(url));
    if let Some((number, _)) = with.next() {
        if servers.has_authentication {
            report_two_kinds_of_credentials(
                path,
                &format!("{path}.urls[{number}]"),
                places,
                findings,
            );
        } else if let Some((other, _)) = with.next() {
            findings
                .error("conflict", format!("several URLs of `{path}` have credentials"))
                .at_place(places.get(&format!("{path}.urls[{other}]")), "credentials again")
                .related_place(places.get(&format!("{path}.urls[{number}]")), "first here")
                .help("remove them from the URLs and write them once, as `authentication`");
        }
    }
    check_retry(path, servers.retry, places, findings);
}

fn report_two_kinds_of_credentials(
    path: &str,
    url: &str,
    places: &KeyPlaces,
    findings: &mut Findings,
) {
    findings
        .error("conflict", format!("`{path}` has two kinds of credentials"))
        .at_place(places.get(url), "credentials in the URL")
        .related_place(places.get(&format!("{path}.authentication")), "given here as well")
        .help("keep `authentication`, and remove user and password from the URL");
}

/// Checks the waiting times of the provider at `path`.
fn check_retry(path: &str, retry: &Retry, places: &KeyPlaces, findings: &mut Findings) {
    let Retry { initial, max } = *retry;
    if initial <= max {
        return;
    }
    let path = format!("{path}.retry");
    let given = [format!("{path}.initial"), format!("{path}.max")];
    let [initial_place, max_place] = given.each_ref().map(|path| places.get(path));
    findings
        .error("conflict", format!("`{path}.initial` is longer than `{path}.max`"))
        .at_place(initial_place.or(max_place), "must be the shortest waiting time")
        .related_place(initial_place.and(max_place), "the longest waiting time")
        .help(format!("write an `initial` of at most `{}`, or a longer `max`", max.print()));
}
