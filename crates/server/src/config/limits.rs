//! What a client's operation may cost.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::{DurationText, SizeText};
use super::{duration, size};

/// Bounds of a client's operation. All hold before anything is planned or fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// How large the body of a request may be.
    #[serde(with = "size::text")]
    #[schemars(with = "SizeText", example = &"512KiB")]
    pub body: usize,

    /// How many times its own size a compressed body may have when it is expanded. It may have 64 KiB in any case, and
    /// never more than `body`. JSON that people and programs send becomes 5 to 40 times smaller.
    #[schemars(range(min = 1, max = 100_000), example = 50)]
    pub body_expansion_ratio: u32,

    /// How deeply selections may be nested, fragments included.
    // Selections are walked recursively: the maximum keeps that within a thread's stack.
    #[schemars(range(min = 1, max = 500), example = 20)]
    pub depth: usize,

    /// How many aliases an operation may use, fragments included.
    #[schemars(range(min = 1, max = 1_000_000), example = 30)]
    pub aliases: usize,

    /// How many fields an operation may select at its root, fragments included.
    #[schemars(range(min = 1, max = 1_000_000), example = 20)]
    pub root_fields: usize,

    /// How many tokens the text of an operation may have.
    #[schemars(range(min = 1, max = 10_000_000), example = 5000)]
    pub tokens: usize,

    /// How many fields the operations of a document may select after their fragments are expanded.
    /// Checking whether equal keys fit each other has the same bound.
    #[schemars(range(min = 1, max = 10_000_000), example = 10_000)]
    pub selections: usize,

    /// How many operations that were not seen before may be prepared at the same time: parsed, validated
    /// and planned. `0`: two for each processor.
    #[schemars(range(min = 0, max = 10_000), example = 4)]
    pub preparing: u32,

    /// How many operations may wait for being prepared; more are refused with the code `OVERLOADED`, those of the
    /// client with the most waiting operations first. Clients take turns, and none waits for longer than `time`. A
    /// request of more than 32 KiB counts as several operations, one for each 32 KiB.
    #[schemars(range(min = 1, max = 100_000), example = 100)]
    pub preparing_waiting: u32,

    /// How many operations of one client may wait for being prepared. A client is the subject of a token or, without
    /// one, an address; the 2^64 addresses of an IPv6 network with the same first 64 bits count as one, and behind a
    /// proxy all clients without tokens have its address.
    #[schemars(range(min = 1, max = 100_000), example = 100)]
    pub preparing_waiting_per_client: u32,

    /// How many prepared operations are kept. Each counts as 64 KiB of memory at least, and a heavier one as
    /// more; what was not asked for longest goes first, what took long to plan goes last.
    #[schemars(range(min = 128, max = 1_000_000), example = 10_000)]
    pub prepared_operations: u32,

    /// How long a query or mutation may take in all, every subgraph request included, and how long one
    /// event of a subscription. What is not there by then is null, with an error.
    #[serde(with = "duration::text")]
    #[schemars(with = "DurationText", example = "20s")]
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 2 << 20,
            body_expansion_ratio: 100,
            depth: 100,
            aliases: 100,
            root_fields: 100,
            tokens: 15_000,
            // Each costs some 3 µs to check, normalise and plan, so a document of a kilobyte may take a processor for
            // 60 ms. Large operations of real applications have some thousand.
            selections: 20_000,
            preparing: 0,
            preparing_waiting: 512,
            preparing_waiting_per_client: 512,
            prepared_operations: 2_048,
            time: Duration::from_secs(60),
        }
    }
}

/// `body` is left out: it bounds requests, whatever operation they carry.
impl From<&Limits> for prepare::Limits {
    fn from(limits: &Limits) -> Self {
        Self {
            tokens: limits.tokens,
            depth: limits.depth,
            aliases: limits.aliases,
            root_fields: limits.root_fields,
            selections: limits.selections,
        }
    }
}
