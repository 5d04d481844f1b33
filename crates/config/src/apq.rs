//! Settings of automatic persisted queries.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::{DurationText, ProviderIdText, SizeText};
use super::quantity;

/// Automatic persisted queries: a client sends the SHA-256 of an operation in place of its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Apq {
    /// Stores operations by their hash. If `false`, a hash alone gets the error `PERSISTED_QUERY_NOT_SUPPORTED`, and
    /// clients send the text.
    #[schemars(example = false)]
    pub enabled: bool,

    /// The maximum size of all stored texts. The least used ones are removed first.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"64MiB", extend("x-minimum" = 65_536))]
    pub max_size: usize,

    /// The maximum number of stored texts.
    #[schemars(range(min = 16, max = 10_000_000), example = 50_000)]
    pub max_entries: u32,

    /// The store in which all routers keep the texts: the id of a Redis in `storage_providers`. By default each router
    /// has those that clients sent to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = null), with = "Option<ProviderIdText>", example = &"shared")]
    pub store: Option<String>,

    /// The time after which the store forgets a text that no router has stored or read there meanwhile.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"48h", extend("x-minimum" = 1000))]
    pub ttl: Duration,
}

impl Default for Apq {
    fn default() -> Self {
        // Texts of applications have one or two kilobytes, so both bounds are reached at about the same time.
        Self {
            enabled: true,
            max_size: 16 << 20,
            max_entries: 10_000,
            store: None,
            ttl: Duration::from_secs(24 * 3600),
        }
    }
}
