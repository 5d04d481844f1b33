//! Settings of cursors, with which subscribers resume.

use std::time::Duration;

use execute::ClaimPath;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::{CursorKeyText, DurationOrZeroText, MemberPathText, SizeText};
use super::quantity;
use super::secret::Secret;

/// Settings of cursors, with which subscribers resume after a reconnect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cursor {
    /// Adds a cursor to each payload whose events come from a broker that stores them: `extensions.cursor`, and `id:`
    /// in server-sent events. If `false`, payloads have no cursor, and cursors that clients send are refused.
    #[schemars(example = false)]
    pub enabled: bool,

    /// The keys that cursors are signed with, each of at least 16 bytes. The first key signs, all of them verify. To
    /// rotate keys, put the new key first, and remove the old one when clients no longer send cursors signed with it.
    /// All routers behind one address need the same keys. Without a key, the router generates one, and cursors are
    /// valid only in that process.
    // Equal to `hub::CURSOR_KEYS_MAX`.
    #[schemars(with = "Vec<CursorKeyText>", length(max = 8), example = ["${CURSOR_KEY}"])]
    pub keys: Vec<Secret>,

    /// The token claims that a cursor is bound to. A cursor is refused (`CURSOR_FOREIGN`) if it comes from a client
    /// with other values of these claims, or without a token. Choose claims that are equal in all tokens of one client
    /// and on all routers, such as `sub`. Clients with different values share no resolution. Whether a client may
    /// subscribe is checked in any case.
    #[schemars(with = "Vec<MemberPathText>", length(max = 8), example = ["sub"])]
    pub bind_claims: Vec<String>,

    /// Adds cursors also to events of providers of the kind `memory`. They are valid as long as the process runs.
    #[schemars(example = true)]
    pub memory: bool,

    /// The interval at which subscribers get the cursor of their current position if all events since their last one
    /// were for others. A client that resumes with it does not make the router read these events again.
    /// `docs/subscriptions.md` describes the form in each transport. `0s` turns this off.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationOrZeroText", example = &"2m", extend("x-minimum" = 1000))]
    pub heartbeat: Duration,

    /// The maximum number of recent events of a source that are kept for subscribers that resume. Subscribers that were
    /// away for longer are served from the broker.
    #[schemars(range(min = 0, max = 1_000_000), example = 1000)]
    pub ring_events: u32,

    /// The maximum size of the events that are kept for one source.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"256KiB")]
    pub ring_bytes: usize,

    /// The maximum size of the events that are kept for all sources together.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"64MiB")]
    pub ring_bytes_total: usize,
}

impl Cursor {
    /// Returns the claims that a cursor is bound to.
    pub fn claims(&self) -> Vec<ClaimPath> {
        // Each path has been checked, so none is dropped here.
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
            // When a client resumes, at most half a minute of events for others is read again.
            heartbeat: Duration::from_secs(30),
            // A second of a busy source, a minute of a quiet one: as long as most clients take to reconnect.
            ring_events: 128,
            ring_bytes: 1 << 20,
            // 256 sources at their bound. Most sources are far below it.
            ring_bytes_total: 256 << 20,
        }
    }
}
