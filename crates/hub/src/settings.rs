//! Bounds of the hub.

use std::time::Duration;

/// How much the hub takes on before it refuses or drops. Every dropped event is announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HubSettings {
    /// Tasks that triggers are spread over.
    pub shards: usize,
    /// Subscribers at a time; one more is refused.
    pub subscribers_max: usize,
    /// Resolutions in flight in the whole hub; groups beyond it wait their turn.
    pub resolutions_in_flight: usize,
    /// Events of one group in flight, or done and waiting for an earlier one.
    pub group_in_flight: usize,
    /// Events of one group resolved together, where several wait and that saves requests. A batch counts as one in
    /// flight. 1: each by itself.
    pub batch_events: usize,
    /// Events that wait in one group behind those in flight. One more makes the group fall behind: it leaves the live
    /// events and reads what follows from the broker. Where that is not possible, the oldest event is dropped.
    pub group_waiting: usize,
    /// Groups of sources that can be read again never drop events. False: they drop like all others.
    pub catch_up: bool,
    /// Largest payload of an event, in bytes. Larger ones are dropped when they come, and their subscribers get an
    /// error in their place.
    pub event_bytes_max: usize,
    /// Bytes of subgraphs' answers that are kept for other groups while their events are resolved.
    pub memo_bytes: usize,
    /// Events that each trigger keeps for those who come again, where payloads have cursors.
    pub ring_events: usize,
    /// Bytes that each keeps.
    pub ring_bytes: usize,
    /// Bytes that all of them keep.
    pub ring_bytes_total: usize,
    /// How often subscribers are told where they are whose events were all for others, where payloads have cursors.
    /// `None`: never.
    pub position_interval: Option<Duration>,
}

impl Default for HubSettings {
    /// One shard moves hundreds of thousands of deliveries a second, so a few are enough; the other
    /// figures are the design's. Waiting events of all groups of a trigger share their bytes.
    fn default() -> Self {
        Self {
            shards: 4,
            subscribers_max: 1_000_000,
            resolutions_in_flight: 1024,
            group_in_flight: 8,
            // With eight in flight, half of what may wait for one subscription of a client by default: what is
            // released at once, because the first was the last to be done, finds room there.
            batch_events: 16,
            group_waiting: 64,
            catch_up: true,
            // What NATS takes by default. An event is meant to carry keys, not documents.
            event_bytes_max: 1 << 20,
            // A quarter of a million answers of a kilobyte.
            memo_bytes: 256 << 20,
            ring_events: 128,
            ring_bytes: 1 << 20,
            // 256 triggers at their bound.
            ring_bytes_total: 256 << 20,
            // Who comes again skips all but half a minute of what is not for it.
            position_interval: Some(Duration::from_secs(30)),
        }
    }
}

/// Subscribe commands that wait for one shard; beyond it `subscribe` waits. A shard works through one in
/// microseconds, so this is a burst of some milliseconds.
pub(crate) const COMMANDS_MAX: usize = 1024;

/// Messages taken from one trigger's stream at a time, and subscribers who leave at a time.
pub(crate) const MESSAGES_PER_TURN: usize = 64;

/// Offers of an event to a group that one trigger may cause before other work gets its turn; one event is always
/// finished. At some 100 ns each this is half a millisecond.
pub(crate) const OFFERS_PER_TURN: usize = 4096;

/// Bytes of a batch: of its events, or of as many payloads like the last, if those are larger. Eight such batches are what
/// may wait for a client by default. One event may have more.
pub(crate) const BATCH_BYTES_MAX: usize = 128 << 10;

/// Triggers and groups that are looked at, in one go, for members to be told where they are. One that is told costs some
/// 300 ns, or a microsecond where cursors are bound to claims, so this is a tenth of a millisecond or two.
pub(crate) const LOOKS_PER_TURN: usize = 256;
