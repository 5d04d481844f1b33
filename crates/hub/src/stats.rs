//! The counters of the hub and its live topology. The server exports both.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use telemetry::DurationHistogram;

use crate::GroupId;

/// Counters of the whole hub. The first seven go up and down, the others only grow.
#[derive(Debug, Default)]
pub struct HubStats {
    /// Events that wait in groups until earlier ones are resolved.
    pub waiting: AtomicU64,
    /// Events being resolved.
    pub resolving: AtomicU64,
    /// Groups that read past events at their own pace: they resumed from a cursor, or fell behind.
    pub catching_up: AtomicU64,
    /// Triggers that are open or being opened.
    pub triggers: AtomicU64,
    /// Groups.
    pub groups: AtomicU64,
    /// Subscribers in groups: every later event reaches them, or its loss is announced.
    pub subscribers: AtomicU64,
    /// Subscribers that are not in a group yet: their trigger is still opening, or the shard has not handled their
    /// request.
    pub joining: AtomicU64,
    /// Events that came from providers, once per trigger.
    pub events: AtomicU64,
    /// Events larger than [`crate::HubSettings::event_bytes_max`].
    pub events_too_large: AtomicU64,
    /// Events with a started resolution: once per group and event.
    pub resolutions: AtomicU64,
    /// Batches: several waiting events that are resolved together.
    pub batches: AtomicU64,
    /// Events resolved in batches, once per group.
    pub batched_events: AtomicU64,
    /// Fetched current states: once for all subscribers that came while it was fetched.
    pub states: AtomicU64,
    /// Subscribers that got the state that an earlier one had requested.
    pub states_shared: AtomicU64,
    /// Durations of resolutions of events, batches and states, from the start to the payload.
    pub resolve_durations: DurationHistogram,
    /// Resolutions that ended without a payload (a defect, or the cores have stopped).
    pub resolutions_failed: AtomicU64,
    /// Payloads passed to outlets: once per outlet, group and event.
    pub broadcasts: AtomicU64,
    /// Payloads for subscribers: the sum of subscribers over all broadcasts.
    pub deliveries: AtomicU64,
    /// Cursors for subscribers without a payload: the sum of subscribers over all that were passed to outlets.
    pub positions: AtomicU64,
    /// Events dropped because a group did not keep up, once per group.
    pub dropped_group_behind: AtomicU64,
    /// Events resolved in vain because the last subscriber left meanwhile, once per group.
    pub dropped_group_left: AtomicU64,
    /// Filters compared with events: only those that an event's values may pass.
    pub filters_evaluated: AtomicU64,
    /// Events that a filter kept from a group, once per group.
    pub filtered_out: AtomicU64,
    /// Gaps that providers announced, once per trigger.
    pub gaps: AtomicU64,
    /// Groups that were moved to a new graph.
    pub spliced: AtomicU64,
    /// Groups that were moved to a new graph and to another source.
    pub moved: AtomicU64,
    /// Groups that ended because they are not valid on a new graph, or their new source could not be opened.
    pub ended_by_reload: AtomicU64,
    /// Subscriptions refused because the provider could not open the stream.
    pub refused_provider: AtomicU64,
    /// Groups that came with a cursor and were served from the ring alone.
    pub resumed_from_ring: AtomicU64,
    /// Groups that came with a cursor and were served by a side reader first.
    pub resumed_from_reader: AtomicU64,
    /// Subscribers that came with a cursor and joined an equal group that catches up.
    pub resumed_shared: AtomicU64,
    /// Streams opened beside those of triggers, for subscribers that resume from before the ring.
    pub side_readers: AtomicU64,
    /// Events that were replayed, once per group.
    pub replayed: AtomicU64,
    /// Groups that had more than [`crate::HubSettings::group_waiting`] events to resolve and left the live events to
    /// read them from the broker.
    pub fell_behind: AtomicU64,
    /// Times that a group began to hold back results of stored events, because the thread or task that writes to its
    /// subscribers' sockets had no room for them.
    pub held_back: AtomicU64,
    /// Groups that lost events because the broker deleted them before they were read.
    pub outrun: AtomicU64,
    /// Groups that caught up and were merged into an equal one.
    pub merged: AtomicU64,
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
    /// The provider as `kind/id`.
    pub provider: Box<str>,
    /// The rendered topics, sorted.
    pub topics: Vec<Box<str>>,
    /// Opening, live, or ending.
    pub state: TriggerState,
    /// The number of events so far.
    pub events: u64,
    /// The number of its subscribers.
    pub members: u64,
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
    /// The number of events being resolved, or done and waiting for an earlier one.
    pub in_flight: u64,
    /// The number of events that wait behind them.
    pub waiting: u64,
}
