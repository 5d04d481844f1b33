//! Limits on the cost of a client's operation, and on the memory of all of them.

use std::time::Duration;

use http::HeaderName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::{DurationText, MemoryLimitText, SizeText};
use super::memory_limit::MemoryLimit;
use super::quantity;
use super::timeout_header::{TimeoutFormat, TimeoutHeader};

/// Limits on a client's operation. All but `memory` and `time` apply before anything is planned or fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The maximum size of a request's body.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"512KiB")]
    pub body: usize,

    /// The maximum ratio of the expanded size of a compressed body to its compressed size. A body may always have 64
    /// KiB, and never more than `body`. Usual JSON becomes 5 to 40 times smaller.
    #[schemars(range(min = 1, max = 100_000), example = 50)]
    pub body_expansion_ratio: u32,

    /// The maximum depth of nested selections, fragments included.
    // Selections are walked recursively: the maximum keeps that within a thread's stack.
    #[schemars(range(min = 1, max = 500), example = 20)]
    pub depth: usize,

    /// The maximum number of aliases in an operation, fragments included.
    #[schemars(range(min = 1, max = 1_000_000), example = 30)]
    pub aliases: usize,

    /// The maximum number of fields at the root of an operation, fragments included.
    #[schemars(range(min = 1, max = 1_000_000), example = 20)]
    pub root_fields: usize,

    /// The maximum number of tokens in the text of an operation.
    #[schemars(range(min = 1, max = 10_000_000), example = 5000)]
    pub tokens: usize,

    /// The maximum number of fields that the operations of a document select after their fragments are expanded. The
    /// check that equal response keys can be merged has the same bound.
    #[schemars(range(min = 1, max = 10_000_000), example = 10_000)]
    pub selections: usize,

    /// The maximum number of new operations that may be prepared at the same time: parsed, validated and planned. `0`:
    /// two for each processor.
    #[schemars(range(min = 0, max = 10_000), example = 4)]
    pub preparing: u32,

    /// The maximum number of operations that may wait to be prepared. Further ones are refused with the code
    /// `OVERLOADED`, first those of the client with the most waiting operations. Clients take turns, and no operation
    /// waits longer than `time`. A request of more than 32 KiB counts as several operations, one for each 32 KiB.
    #[schemars(range(min = 1, max = 100_000), example = 100)]
    pub preparing_waiting: u32,

    /// The maximum number of operations of one client that may wait to be prepared. A client is the subject of a token
    /// or, without one, an address. The 2^64 addresses of an IPv6 network with the same first 64 bits count as one.
    /// Behind a proxy, all clients without tokens have the proxy's address.
    #[schemars(range(min = 1, max = 100_000), example = 100)]
    pub preparing_waiting_per_client: u32,

    /// The maximum number of prepared operations in the cache. Each counts as at least 64 KiB of memory, and a heavier
    /// one as more. The least recently used ones are removed first, and those that took long to plan last.
    #[schemars(range(min = 128, max = 1_000_000), example = 10_000)]
    pub prepared_operations: u32,

    /// The time limit for a query or mutation, all subgraph requests included, and for one event of a subscription.
    /// Fields that have no value by then are null, with an error.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = "20s")]
    pub time: Duration,

    /// The headers by which clients, or proxies in front of the router, say how long they wait for a response. The
    /// shortest of these times, from the arrival of the request, bounds the operation if it is less than `time`. What
    /// is left of it is sent on to subgraphs with `traffic.all.deadline_header`. A value that cannot be read is
    /// ignored. Operations on WebSockets have no headers of their own, and only `time`. By default it is the header
    /// that Envoy adds to requests with a timeout. `[]`: no header is read.
    #[schemars(length(max = 8))]
    pub deadline_headers: Vec<TimeoutHeader>,

    /// The memory budget of the process: a size, `auto` or `off`. `auto` is 90 % of what the system gives the process:
    /// the least of its cgroups' limits and the memory of the machine. It leaves at least 32 MiB, or a quarter of a
    /// memory below 128 MiB. When it is used up, large bodies and responses, then new operations are refused with the
    /// code `OVERLOADED`, and slow clients lose what waits for them, before the system ends the process.
    #[schemars(with = "MemoryLimitText", example = &"512MiB")]
    pub memory: MemoryLimit,
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
            // Each selection costs about 3 µs to check, normalise and plan, so a document of a kilobyte may take a
            // processor for 60 ms. Large operations of real applications have some thousand selections.
            selections: 20_000,
            preparing: 0,
            preparing_waiting: 512,
            preparing_waiting_per_client: 512,
            prepared_operations: 2_048,
            time: Duration::from_secs(60),
            // Envoy removes it from requests of external clients. Any other client can only shorten its own time.
            deadline_headers: vec![TimeoutHeader {
                name: HeaderName::from_static("x-envoy-expected-rq-timeout-ms"),
                format: TimeoutFormat::Milliseconds,
            }],
            memory: MemoryLimit::Auto,
        }
    }
}
