//! The limits of the hub.

use std::time::Duration;

/// The limits beyond which the hub refuses or drops. Every dropped event is announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HubSettings {
    /// The number of tasks that triggers are distributed over.
    pub shards: usize,
    /// The maximum number of subscribers; one more is refused.
    pub subscribers_max: usize,
    /// The maximum number of resolutions in flight in the whole hub; groups beyond it wait.
    pub resolutions_in_flight: usize,
    /// The maximum number of events of one group that are in flight, or done and waiting for an earlier one.
    pub group_in_flight: usize,
    /// The maximum number of waiting events of one group that are resolved together, if that saves requests. A batch
    /// counts as one in flight. 1: events are resolved one by one.
    pub batch_events: usize,
    /// The maximum number of events that wait in one group behind those in flight. One more makes the group fall
    /// behind: it leaves the live events and reads the following ones from the broker. Where that is not possible, the
    /// oldest event is dropped.
    pub group_waiting: usize,
    /// True if groups of sources that can be read again never drop events. False if they drop like all others.
    pub catch_up: bool,
    /// The time in one turn of a shard in which it begins to resolve events itself, those that wait for nothing. Other
    /// work of its thread waits meanwhile. The first one of a turn always begins.
    pub own_resolving_max: Duration,
    /// The maximum size of an event's payload, in bytes. Larger events are dropped on arrival, and their subscribers
    /// get an error instead.
    pub event_bytes_max: usize,
    /// The maximum number of bytes of subgraph responses that are kept for other groups while their events are
    /// resolved.
    pub memo_bytes: usize,
    /// The maximum number of events that each trigger keeps for subscribers that resume, where payloads have cursors.
    pub ring_events: usize,
    /// The maximum number of bytes that each trigger keeps.
    pub ring_bytes: usize,
    /// The maximum number of bytes that all triggers keep.
    pub ring_bytes_total: usize,
    /// The maximum number of streams that a shard opens at a time, at one provider, for groups that are behind the kept
    /// events. Further ones wait.
    pub readers_opening_max: usize,
    /// The interval at which subscribers without matching events get their position, where payloads have cursors.
    /// `None`: never.
    pub position_interval: Option<Duration>,
}

impl Default for HubSettings {
    /// One shard moves hundreds of thousands of deliveries a second, so a few are enough; the other figures are the
    /// design's. Waiting events of all groups of a trigger share their bytes.
    fn default() -> Self {
        Self {
            shards: 4,
            subscribers_max: 1_000_000,
            resolutions_in_flight: 1024,
            group_in_flight: 8,
            // With eight in flight, this is half of what may wait for one subscription of a client by default: results
            // that are released together, because the first was the last to be done, fit there.
            batch_events: 16,
            group_waiting: 64,
            catch_up: true,
            // One usually takes some microseconds, and a long list for which a client asks a hundred fields takes
            // milliseconds.
            own_resolving_max: Duration::from_micros(500),
            // The default limit of NATS. An event is meant to carry keys, not documents.
            event_bytes_max: 1 << 20,
            // A quarter of a million responses of a kilobyte.
            memo_bytes: 256 << 20,
            ring_events: 128,
            ring_bytes: 1 << 20,
            // 256 triggers at their limit.
            ring_bytes_total: 256 << 20,
            // A broker makes a consumer in some milliseconds, so the four shards open some thousands in a second, and a
            // broker never has to make more than 128 at once. With ten thousand at once, the last ones could reach the
            // time limit for opening a stream, and all other requests to the broker would wait behind them.
            readers_opening_max: 32,
            // A subscriber that resumes skips all but half a minute of the events that do not match.
            position_interval: Some(Duration::from_secs(30)),
        }
    }
}

/// The maximum number of subscribe commands that wait for one shard; beyond it `subscribe` waits. A shard handles one
/// in microseconds, so this is a burst of some milliseconds.
pub(crate) const COMMANDS_MAX: usize = 1024;

/// The maximum number of messages taken from one trigger's stream at a time, and of subscribers that leave at a time.
pub(crate) const MESSAGES_PER_TURN: usize = 64;

/// The maximum number of offers of an event to a group that one trigger may cause before other work runs; one event is
/// always finished. At some 100 ns each this is half a millisecond.
pub(crate) const OFFERS_PER_TURN: usize = 4096;

/// The maximum size of a batch in bytes: of its events, or of as many payloads like the last, if those are larger.
/// Eight such batches are what may wait for a client by default. One event may have more.
pub(crate) const BATCH_BYTES_MAX: usize = 128 << 10;

/// The number of triggers and groups that one step of a position round visits. A group that gets its position costs
/// some 300 ns, or a microsecond where cursors are bound to claims, so this is a tenth of a millisecond or two.
pub(crate) const VISITS_PER_STEP: usize = 256;
