//! Settings of file uploads.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::findings::{Findings, KeyPlaces};
use super::format::{DurationText, SizeText};
use super::quantity::{self, Quantity};

/// File uploads (GraphQL multipart request specification).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Uploads {
    /// Accepts files. Each request with files must carry one of `csrf.required_headers`.
    #[schemars(example = true)]
    pub enabled: bool,

    /// The maximum number of files in a request.
    #[schemars(range(min = 1, max = 100), example = 3)]
    pub max_files: u16,

    /// The maximum size of a file. A larger one gets status 413.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"5MiB")]
    pub max_file_bytes: usize,

    /// The maximum size of a request with files. A larger one gets status 413.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"16MiB")]
    pub max_bytes: usize,

    /// The maximum memory of all requests with files at the same time. Files flow to their subgraph while they arrive,
    /// and each takes about 512 KiB meanwhile. A file is kept in memory as a whole if the operation needs a later file
    /// first, or if its subgraph gets signed requests. A request that needs more memory than is left gets status 503.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"1GiB")]
    pub max_bytes_total: usize,

    /// The time limit for receiving a request with files, in place of `http.body_timeout`. A slow client gets status
    /// 408. If the subgraph is slow to take the files, its request fails with a timeout. `limits.time` and the timeout
    /// of the subgraph begin afterwards.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"5m")]
    pub timeout: Duration,
}

impl Default for Uploads {
    fn default() -> Self {
        Self {
            enabled: false,
            max_files: 10,
            max_file_bytes: 10 << 20,
            max_bytes: 32 << 20,
            max_bytes_total: 256 << 20,
            // 32 MiB over a slow mobile network.
            timeout: Duration::from_secs(120),
        }
    }
}

impl Uploads {
    /// Reports bounds that contradict each other.
    pub(super) fn check_bounds(&self, places: &KeyPlaces, findings: &mut Findings) {
        if self.max_file_bytes > self.max_bytes {
            let (smaller, size) = ("max_file_bytes", self.max_file_bytes);
            let (larger, bound) = ("max_bytes", self.max_bytes);
            let [at, other] = [smaller, larger].map(|key| places.get(&format!("uploads.{key}")));
            findings
                .error("conflict", format!("`uploads.{smaller}` is larger than `uploads.{larger}`"))
                .at_place(at.or(other), format!("`{smaller}` is {}", size.print()))
                .related_place(at.and(other), format!("`{larger}` is {}", bound.print()))
                .help(format!("raise `{larger}`, or lower `{smaller}`"));
        }
    }
}
