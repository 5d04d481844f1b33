//! Cursors: how subscribers that come again go on where they were.

use std::time::Duration;

use execute::ClaimPath;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::{CursorKeyText, DurationOrZeroText, MemberPathText, SizeText};
use super::secret::Secret;
use super::{duration, size};

/// Cursors, by which subscribers go on where they were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cursor {
    /// Give every payload a cursor whose events come from a broker that keeps them: `extensions.cursor`, and `id:` in
    /// server-sent events. Turned off, payloads have none and those that clients bring are refused.
    #[schemars(example = false)]
    pub enabled: bool,

    /// The keys that cursors are signed with, each of at least 16 bytes. The first one signs, all of them verify: to
    /// rotate, put the new key first and remove the old one once no client comes with a cursor of it any more. All
    /// routers behind one address need the same keys. Without a key one is made up, and cursors hold in that
    /// process alone.
    // As `hub::CURSOR_KEYS_MAX`.
    #[schemars(with = "Vec<CursorKeyText>", length(max = 8), example = ["${CURSOR_KEY}"])]
    pub keys: Vec<Secret>,

    /// Claims of a token that a cursor is bound to: it is refused (`CURSOR_FOREIGN`) if it comes from a client for
    /// which they are other ones, or with no token. Name what is the same in each token of one client, such as `sub`,
    /// and in each router. Clients that differ in them share no resolution. Whether a client may subscribe is checked
    /// in any case.
    #[schemars(with = "Vec<MemberPathText>", length(max = 8), example = ["sub"])]
    pub bind_claims: Vec<String>,

    /// Cursors also for events of providers of the kind `memory`. They hold as long as the process that gave them.
    #[schemars(example = true)]
    pub memory: bool,

    /// How often subscribers are told the cursor of where they are, where all events since their last one were for
    /// others: who comes again with it does not have these read again. `docs/subscriptions.md` says how each transport
    /// does it. `0s` tells nobody.
    #[serde(with = "duration::text")]
    #[schemars(with = "DurationOrZeroText", example = &"2m", extend("x-minimum" = 1000))]
    pub heartbeat: Duration,

    /// How many recent events of a source are kept for subscribers that come again; whoever was away for longer reads
    /// from the broker.
    #[schemars(range(min = 0, max = 1_000_000), example = 1000)]
    pub ring_events: u32,

    /// How many bytes of events are kept for one source.
    #[serde(with = "size::text")]
    #[schemars(with = "SizeText", example = &"256KiB")]
    pub ring_bytes: usize,

    /// How many bytes of events are kept for all sources together.
    #[serde(with = "size::text")]
    #[schemars(with = "SizeText", example = &"64MiB")]
    pub ring_bytes_total: usize,
}

impl Cursor {
    /// The claims that a cursor is bound to.
    pub fn claims(&self) -> Vec<ClaimPath> {
        // Every one of them has been checked.
        self.bind_claims.iter().filter_map(|it| ClaimPath::parse(it)).collect()
    }
}

impl Default for Cursor {
    fn default() -> Self {
        Self {
            enabled: true,
            keys: Vec::new(),
            bind_claims: Vec::new(),
            memory: false,
            // What a client has read again of what is not for it when it comes back: at most half a minute.
            heartbeat: Duration::from_secs(30),
            // A second of a busy source, a minute of a quiet one: as long as most clients take to reconnect.
            ring_events: 128,
            ring_bytes: 1 << 20,
            // 256 sources at their bound. Most sources are far below it.
            ring_bytes_total: 256 << 20,
        }
    }
}
