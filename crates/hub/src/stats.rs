//! What the hub counts, and its live topology. The server exports both.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use prepare::Durations;

use crate::GroupId;

/// Counters of the whole hub. The first seven go up and down, the others only grow.
#[derive(Debug, Default)]
pub struct HubStats {
    /// Events that wait in groups until earlier ones are resolved.
    pub waiting: AtomicU64,
    /// Events being resolved.
    pub resolving: AtomicU64,
    /// Groups that read events of the past at their own pace: they came with a cursor, or fell behind.
    pub catching_up: AtomicU64,
    /// Triggers open or opening.
    pub triggers: AtomicU64,
    /// Groups.
    pub groups: AtomicU64,
    /// Members of groups: whatever comes from now on reaches them, or its loss is announced.
    pub subscribers: AtomicU64,
    /// Subscribers that are not members yet: their trigger is still opening, or the shard has not handled their
    /// request.
    pub joining: AtomicU64,
    /// Events that came from providers, once per trigger.
    pub events: AtomicU64,
    /// Those of them that were larger than [`crate::HubSettings::event_bytes_max`].
    pub events_too_large: AtomicU64,
    /// Events whose resolution was started: once per group and event.
    pub resolutions: AtomicU64,
    /// Batches among them: several events that waited, resolved together.
    pub batches: AtomicU64,
    /// Events resolved in batches, once per group.
    pub batched_events: AtomicU64,
    /// Current states asked for: once for all who subscribed to the same while it was on its way.
    pub states: AtomicU64,
    /// Subscribers who got the state that an earlier one had asked for.
    pub states_shared: AtomicU64,
    /// How long resolutions of events, batches and states took, from the start to the payload.
    pub resolve_durations: Durations,
    /// Resolutions that broke off without a payload (a defect, or the cores are going away).
    pub resolutions_failed: AtomicU64,
    /// Payloads handed to outlets: once per outlet, group and event.
    pub broadcasts: AtomicU64,
    /// Payloads for subscribers: the sum of members over all broadcasts.
    pub deliveries: AtomicU64,
    /// Cursors for subscribers without a payload: the sum of members over all that were handed to outlets.
    pub positions: AtomicU64,
    /// Events dropped because a group did not keep up, once per group.
    pub dropped_group_behind: AtomicU64,
    /// Events resolved in vain because the last member left meanwhile, once per group.
    pub dropped_group_left: AtomicU64,
    /// Filters compared with events: only those that an event's values may pass.
    pub filters_evaluated: AtomicU64,
    /// Events that a filter kept from a group, once per group.
    pub filtered_out: AtomicU64,
    /// Gaps that providers announced, once per trigger.
    pub gaps: AtomicU64,
    /// Groups that were put on a new graph.
    pub spliced: AtomicU64,
    /// Those of them that changed over to another source.
    pub moved: AtomicU64,
    /// Groups that ended because they are not valid on a new graph, or their new source could not be opened.
    pub ended_by_reload: AtomicU64,
    /// Subscriptions refused: the provider could not open the stream.
    pub refused_provider: AtomicU64,
    /// Groups that came with a cursor and were served from the ring alone.
    pub resumed_from_ring: AtomicU64,
    /// Groups that came with a cursor and were served by a side reader first.
    pub resumed_from_reader: AtomicU64,
    /// Subscribers that came with a cursor and joined an equal group on its way.
    pub resumed_shared: AtomicU64,
    /// Streams opened beside those of triggers for subscribers who come from before the ring.
    pub side_readers: AtomicU64,
    /// Events that were given again, once per group.
    pub replayed: AtomicU64,
    /// Groups that had more than [`crate::HubSettings::group_waiting`] events to resolve and left the live events to
    /// read them from the broker.
    pub fell_behind: AtomicU64,
    /// Times that a group began to hold back results of stored events, because the thread or task that writes to its
    /// members' sockets had no room for them.
    pub held_back: AtomicU64,
    /// Groups of which the broker has deleted events before they were read.
    pub outrun: AtomicU64,
    /// Groups that caught up and became one with an equal one.
    pub merged: AtomicU64,
    /// Cursors refused: none of the keys has signed them.
    pub cursors_invalid: AtomicU64,
    /// Cursors refused: they are of another subscription.
    pub cursors_foreign: AtomicU64,
    /// Cursors refused: what follows them is not kept any more.
    pub cursors_expired: AtomicU64,
    /// Subscriptions refused: too many subscribers.
    pub refused_overload: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Relaxed);
}

pub(crate) fn subtract(counter: &AtomicU64, count: usize) {
    counter.fetch_sub(count as u64, Relaxed);
}

/// One subscriber's place among [`crate::HubSettings::subscribers_max`] until it is a member; free again when dropped.
#[derive(Debug)]
pub(crate) struct Seat(Arc<HubStats>);

impl Seat {
    /// Its holder has joined a group, which counts its members itself.
    pub(crate) fn hand_over(self) {
        let Self(stats) = &self;
        stats.subscribers.fetch_add(1, Relaxed);
    }

    pub(crate) fn take(stats: &Arc<HubStats>, most: usize) -> Option<Self> {
        let seat = Self(Arc::clone(stats));
        // Who is just becoming a member may be counted twice, and one refused who would be the very last.
        let before = stats.joining.fetch_add(1, Relaxed) + stats.subscribers.load(Relaxed);
        (before < most as u64).then_some(seat)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        subtract(&self.0.joining, 1);
    }
}

/// One trigger as the admin listener shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TriggerView {
    /// `kind/id`
    pub provider: Box<str>,
    /// As rendered, sorted.
    pub topics: Vec<Box<str>>,
    /// Opening, live, or ending.
    pub state: TriggerState,
    /// Events that came so far.
    pub events: u64,
    /// Its subscribers.
    pub members: u64,
    /// Its groups.
    pub group_count: u64,
    /// Those with the most subscribers, a hundred at most.
    pub groups: Vec<GroupView>,
}

/// How far a trigger is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TriggerState {
    /// The provider was asked for a stream.
    Opening,
    /// Events come.
    Live,
    /// The source ended; what it sent before is still being resolved.
    Ending,
}

impl TriggerState {
    /// As the admin listener shows it.
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
    /// Its number.
    pub id: GroupId,
    /// Of the graph that it runs on.
    pub generation: u64,
    /// Identity of the operation.
    pub operation_id: u128,
    /// The name of the operation as its first subscriber wrote it; others may use another one for an equal operation.
    pub operation_name: Option<Box<str>>,
    /// The coordinate of its root field, such as `Subscription.orderChanged`.
    pub field: Arc<str>,
    /// Does a filter keep events from it?
    pub filtered: bool,
    /// Subscribers.
    pub members: u64,
    /// Outlets that they sit behind.
    pub outlets: u64,
    /// Events being resolved, or done and waiting for an earlier one.
    pub in_flight: u64,
    /// Events that wait behind them.
    pub waiting: u64,
}
