//! Counters of refused clients, and the metrics of the key sets of issuers.

use std::time::Instant;

use telemetry::{LabelledCounters, Metric, read};

use super::introspector::Introspector;
use super::key_sets::FollowedKeySet;

/// Counters of refused clients, by the reason.
#[derive(Debug, Default)]
pub struct AuthenticationMetrics {
    refused: LabelledCounters,
    ignored: LabelledCounters,
}

/// The metrics of authentication.
pub const AUTHENTICATION_METRICS: &[Metric<AuthenticationMetrics>] = &[
    Metric::counters(
        "starling_authentication_refused",
        "Clients refused, and connections closed, by what was wrong with their token",
        |it, samples| it.refused.write("reason", samples),
    ),
    Metric::counters(
        "starling_authentication_ignored_tokens",
        "Clients that became anonymous because of on_error: continue, by what was wrong with their token",
        |it, samples| it.ignored.write("reason", samples),
    ),
];

/// The metrics of token introspection.
pub const INTROSPECTION_METRICS: &[Metric<Introspector>] = &[
    Metric::counters(
        "starling_authentication_introspections",
        "Introspections of tokens at the identity provider, by result",
        |it, samples| {
            samples.add_labelled(("result", "valid"), read(&it.stats.valid))?;
            samples.add_labelled(("result", "invalid"), read(&it.stats.invalid))?;
            samples.add_labelled(("result", "failed"), read(&it.stats.failed))
        },
    ),
    Metric::counters(
        "starling_authentication_introspections_omitted",
        "Tokens that were not introspected and got status 503, by reason: backoff after failures, or too many at a time",
        |it, samples| {
            samples.add_labelled(("reason", "backoff"), read(&it.stats.backoff))?;
            samples.add_labelled(("reason", "concurrency"), read(&it.stats.concurrency))
        },
    ),
    Metric::gauge(
        "starling_authentication_introspected_tokens",
        "Introspected tokens in the cache, which authentication.introspection.cache.entries bounds",
        Introspector::cached_tokens,
    ),
];

/// The metrics of one key set. The label that names the issuer is added by the caller.
pub const KEY_SET_METRICS: &[Metric<FollowedKeySet>] = &[
    Metric::counters(
        "starling_authentication_key_sets",
        "Reads of the key sets of issuers, by result",
        |it, samples| {
            samples.add_labelled(("result", "read"), read(&it.fetched))?;
            samples.add_labelled(("result", "failed"), read(&it.failed))
        },
    ),
    Metric::gauge(
        "starling_authentication_keys",
        "Keys of issuers that verify tokens; 0 if none could be read, or they are too old",
        |it| read(&it.keys),
    ),
    Metric::gauges(
        "starling_authentication_keys_age_seconds",
        "Seconds since the keys of an issuer were read; absent if there are none",
        |it, samples| it.age(Instant::now()).map_or(Ok(()), |age| samples.add(age.as_secs())),
    ),
    Metric::counter(
        "starling_authentication_keys_expired",
        "Times that keys of an issuer were discarded because of max_age",
        |it| read(&it.expired),
    ),
];

impl AuthenticationMetrics {
    /// Counts a client that was refused for this reason.
    pub fn count_refusal(&self, reason: &'static str) {
        self.refused.add(reason, 1);
    }

    /// Counts a client with a token that was ignored for this reason.
    pub(super) fn count_ignored_token(&self, reason: &'static str) {
        self.ignored.add(reason, 1);
    }
}
