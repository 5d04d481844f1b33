//! Settings of automatic persisted queries.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::SizeText;
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
}

impl Default for Apq {
    fn default() -> Self {
        // Texts of applications have one or two kilobytes, so both bounds are reached at about the same time.
        Self { enabled: true, max_size: 16 << 20, max_entries: 10_000 }
    }
}
