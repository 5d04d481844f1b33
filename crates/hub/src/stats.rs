//! The counters of the hub and its live topology. The server exports both.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bindings::Source;
use telemetry::DurationHistogram;

use crate::{GroupId, TransportCounts};

telemetry::counters! {
    /// Counters of the whole hub.
    pub struct HubStats;
    /// The metrics of these counters.
    pub const HUB_COUNTERS;
    {
        gauge triggers = "starling_hub_triggers": "Open triggers";
        gauge groups = "starling_hub_groups": "Groups of equal subscribers";
        gauge catching_up = "starling_hub_groups_catching_up":
            "Groups that read past events from their broker, because of a cursor or because they fell behind";
        gauge readers_waiting = "starling_hub_side_readers_waiting":
            "Streams for groups that are behind the kept events that wait to be opened: a few are opened at a time";
        /// Subscribers in groups: every later event reaches them, or its loss is announced.
        gauge subscribers = "starling_hub_subscribers": "Subscribers that get events";
        /// Subscribers that are not in a group yet: their trigger is still opening, or the shard has not
        /// handled their request.
        gauge joining = "starling_hub_joining": "Subscribers that wait for their source to open";
        gauge waiting = "starling_hub_events_waiting": "Events that wait in groups until earlier ones are resolved";
        gauge resolving = "starling_hub_resolving": "Events being resolved";
        /// Events that came from providers, once per trigger.
        counter events = "starling_hub_events": "Events that reached triggers";
        counter events_too_large = "starling_hub_events_too_large": "Events over `events.max_event_size`";
        counter resolutions = "starling_hub_resolutions": "Events resolved, once per group";
        counter batches = "starling_hub_batches": "Batches of events that waited in a group and were resolved together";
        counter batched_events = "starling_hub_batched_events": "Events resolved in batches, once per group";
        /// Resolutions that ended without a payload (a defect, or the cores have stopped).
        counter resolutions_failed = "starling_hub_resolutions_failed": "Resolutions that failed because of a defect";
        /// Payloads passed to outlets: once per outlet, group and event.
        counter broadcasts = "starling_hub_broadcasts": "Payloads passed to outlets";
        /// Payloads for subscribers: the sum of subscribers over all broadcasts.
        counter deliveries = "starling_hub_deliveries": "Payloads for subscribers";
        /// Cursors for subscribers without a payload: the sum of subscribers over all that were passed to
        /// outlets.
        counter positions = "starling_hub_positions": "Cursors sent to subscribers without a payload for some time";
        /// Gaps that providers announced, once per trigger.
        counter gaps = "starling_hub_gaps": "Gaps that reached triggers";
        /// Filters compared with events: only those that an event's values may pass.
        counter filters_evaluated = "starling_hub_filters_evaluated": "Filters of groups evaluated for an event";
        /// Events that a filter kept from a group, once per group.
        counter filtered_out = "starling_hub_filtered_out": "Events that a filter excluded from a group";
        counter spliced = "starling_hub_operations_renewed": "Groups of subscribers that moved to a new graph";
        counter moved = "starling_hub_operations_moved":
            "Groups of subscribers that moved to a new graph and to another source";
        /// Groups that ended because they are not valid on a new graph, or their new source could not be
        /// opened.
        counter ended_by_reload = "starling_hub_groups_ended_by_reload":
            "Groups of subscribers that were not valid on a new graph";
        counter states = "starling_hub_states":
            "Current states fetched for subscriptions, once for all that joined together";
        counter states_shared = "starling_hub_states_shared":
            "Subscribers that shared a fetch of the current state that was in flight";
        counter side_readers = "starling_hub_side_readers":
            "Streams opened at brokers for groups that are behind the kept events";
        /// Events that were replayed, once per group.
        counter replayed = "starling_hub_events_replayed":
            "Past events passed to groups that have a cursor or fell behind";
        counter fell_behind = "starling_hub_groups_fell_behind":
            "Groups that had more than subscriptions.group_queue_events waiting events, and read the rest from \
             their broker";
        counter held_back = "starling_hub_groups_held_back":
            "Times that a group started to hold back results of stored events because a thread that writes to its \
             clients did not keep up";
        counter outrun = "starling_hub_groups_outrun":
            "Times that a broker had deleted events before a group that had fallen behind read them";
        counter merged = "starling_hub_groups_merged": "Groups that caught up and were merged with an equal one";
    }
    /// Durations of resolutions of events, batches and states, from the start to the payload.
    pub resolve_durations: DurationHistogram,
    /// Events dropped because a group did not keep up, once per group.
    pub dropped_group_behind: AtomicU64,
    /// Events resolved in vain because the last subscriber left meanwhile, once per group.
    pub dropped_group_left: AtomicU64,
    /// Subscriptions refused because the provider could not open the stream.
    pub refused_provider: AtomicU64,
    /// Groups that came with a cursor and were served from the ring alone.
    pub resumed_from_ring: AtomicU64,
    /// Groups that came with a cursor and were served by a side reader first.
    pub resumed_from_reader: AtomicU64,
    /// Subscribers that came with a cursor and joined an equal group that catches up.
    pub resumed_shared: AtomicU64,
    /// Cursors refused because no key verifies them.
    pub cursors_invalid: AtomicU64,
    /// Cursors refused because they belong to another subscription.
    pub cursors_foreign: AtomicU64,
    /// Cursors refused because the events that follow are no longer stored.
    pub cursors_expired: AtomicU64,
    /// Subscriptions refused because there are too many subscribers.
    pub refused_overload: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Relaxed);
}

pub(crate) fn subtract(counter: &AtomicU64, count: usize) {
    counter.fetch_sub(count as u64, Relaxed);
}

/// One subscriber's share of [`crate::HubSettings::subscribers_max`] until it is in a group; released when dropped.
#[derive(Debug)]
pub(crate) struct SubscriptionSlot(Arc<HubStats>);

impl SubscriptionSlot {
    /// Releases the slot, because the subscriber is in a group now, which counts its subscribers itself.
    pub(crate) fn release_to_group(self) {
        let Self(stats) = &self;
        stats.subscribers.fetch_add(1, Relaxed);
    }

    pub(crate) fn acquire(stats: &Arc<HubStats>, most: usize) -> Option<Self> {
        let slot = Self(Arc::clone(stats));
        // A subscriber that is being added may be counted twice, so the very last one may be refused.
        let before = stats.joining.fetch_add(1, Relaxed) + stats.subscribers.load(Relaxed);
        (before < most as u64).then_some(slot)
    }
}

impl Drop for SubscriptionSlot {
    fn drop(&mut self) {
        subtract(&self.0.joining, 1);
    }
}

/// One trigger as the admin listener shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TriggerView {
    /// The number of the trigger, which no other one of the hub ever has. Triggers with equal topics differ by it: they
    /// began at different positions.
    pub number: u64,
    /// The source of its events, with the name of the provider and the rendered topics.
    pub source: Source,
    /// Opening, live, or ending.
    pub state: TriggerState,
    /// The number of events so far.
    pub events: u64,
    /// The number of its subscribers.
    pub members: u64,
    /// The numbers of its subscribers by transport.
    pub transports: TransportCounts,
    /// The number of its groups.
    pub group_count: u64,
    /// The groups with the most subscribers, a hundred at most.
    pub groups: Vec<GroupView>,
}

/// The phase of a trigger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TriggerState {
    /// The provider is opening the stream.
    Opening,
    /// Events arrive.
    Live,
    /// The source ended; its earlier events are still being resolved.
    Ending,
}

impl TriggerState {
    /// Returns the name that the admin listener shows.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Live => "live",
            Self::Ending => "ending",
        }
    }
}

/// One group as the admin listener shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupView {
    /// The group.
    pub id: GroupId,
    /// The generation of the graph that it runs on.
    pub generation: u64,
    /// The identity of the operation.
    pub operation_id: u128,
    /// The name of the operation in the first subscriber's text; others may use another one for an equal operation.
    pub operation_name: Option<Box<str>>,
    /// The coordinate of its root field, such as `Subscription.orderChanged`.
    pub field: Arc<str>,
    /// True if it has a filter.
    pub filtered: bool,
    /// The number of subscribers.
    pub members: u64,
    /// The number of outlets of its subscribers.
    pub outlets: u64,
    /// The numbers of its subscribers by transport.
    pub transports: TransportCounts,
    /// The number of events being resolved, or done and waiting for an earlier one.
    pub in_flight: u64,
    /// The number of events that wait behind them.
    pub waiting: u64,
}
