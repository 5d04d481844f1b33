//! Counters of refused clients, and the metrics of the key sets of issuers.

use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use telemetry::{Metric, read};

use super::key_sets::FollowedKeySet;

/// Counters of refused clients, by the reason.
#[derive(Debug, Default)]
pub(crate) struct AuthenticationMetrics {
    refused: Family<ReasonLabel, Counter>,
}

/// The metrics of authentication.
pub(crate) const AUTHENTICATION_METRICS: &[Metric<AuthenticationMetrics>] = &[Metric::handle(
    "starling_authentication_refused",
    "Clients refused, and connections closed, by what was wrong with their token",
    |it| &it.refused,
)];

/// The metrics of one key set. The label that names the issuer is added by the caller.
pub(crate) const KEY_SET_METRICS: &[Metric<FollowedKeySet>] = &[
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

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

impl AuthenticationMetrics {
    /// Counts a client that was refused for this reason.
    pub(crate) fn count_refusal(&self, reason: &'static str) {
        self.refused.get_or_create(&ReasonLabel { reason }).inc();
    }
}
