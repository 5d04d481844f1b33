//! One shard: a state machine that owns its triggers and groups. It is told what happened and answers with
//! [`Effect`]s; it never waits, has no clock and takes no lock. Tasks, streams and cores are the business of
//! [`task`].

mod group;
pub(crate) mod task;

#[cfg(test)]
mod scripted;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use events::{SourceError, SourceMessage, StreamEnd};
use execute::{ErrorCode, GraphqlError, Payload};
use futures_util::future::AbortRegistration;
use indexmap::IndexMap;
use plan::Variables;
use tokio::sync::oneshot;

pub(crate) use group::SubscriberId;

use crate::stats::{self, HubStats, Seat, TriggerState, TriggerView};
use crate::{EndReason, GroupId, HubSettings, Member, Outlet, Resolve, Source};
use group::Group;

/// Who shares a resolution: everything that the payload depends on. Compared in full, never by hash alone.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GroupKey {
    /// Number of the generation.
    pub generation: u64,
    /// Identity of the normalised operation.
    pub operation_id: u128,
    /// Values of its variables.
    pub variables: Arc<Variables>,
    /// What else a payload may depend on: the headers and claims that are forwarded or decide about
    /// access, in a canonical form.
    pub partition: Bytes,
}

/// A trigger, numbered by its shard.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct TriggerId(u64);

/// Somebody who wants in.
pub(crate) struct Joining {
    pub(crate) source: Source,
    pub(crate) key: GroupKey,
    pub(crate) resolve: Arc<dyn Resolve>,
    pub(crate) outlet: Arc<dyn Outlet>,
    pub(crate) member: Member,
    pub(crate) seat: Seat,
    pub(crate) reply: oneshot::Sender<Result<Joined, GraphqlError>>,
}

/// The answer to [`Joining`].
pub(crate) type Joined = crate::Subscription;

/// What the shard wants done.
pub(crate) enum Effect {
    /// Ask the provider for a stream; [`Shard::opened`] answers.
    Open { trigger: TriggerId, source: Source },
    /// Drop the stream, or the attempt to get one.
    Close { trigger: TriggerId },
    /// Resolve an event; [`Shard::resolved`] answers, unless it is aborted.
    Resolve {
        group: GroupId,
        ticket: u64,
        event: Bytes,
        resolve: Arc<dyn Resolve>,
        abort: AbortRegistration,
    },
}

struct Trigger {
    source: Source,
    groups: IndexMap<Arc<GroupKey>, GroupId, foldhash::fast::RandomState>,
    events: u64,
    state: State,
}

enum State {
    /// These wait for the stream.
    Opening(Vec<Joining>),
    Live,
    /// No event follows; groups end for this reason when they are drained.
    Ending(EndReason),
}

/// How a subscription gets back to its shard.
pub(crate) type Leaver = task::Leaver;

pub(crate) struct Shard {
    settings: HubSettings,
    /// This shard's part of [`HubSettings::resolutions_in_flight`].
    resolutions_max: usize,
    stats: Arc<HubStats>,
    leaver: Leaver,
    triggers: HashMap<TriggerId, Trigger, foldhash::fast::RandomState>,
    by_source: HashMap<Source, TriggerId, foldhash::fast::RandomState>,
    groups: HashMap<GroupId, Group, foldhash::fast::RandomState>,
    /// Groups that could start an event when a resolution ends.
    ready: VecDeque<GroupId>,
    resolving: usize,
    next_trigger: u64,
    next_group: u64,
    next_subscriber: u64,
    is_shut_down: bool,
    /// Generations that were ended, latest last: who was still on the way with one of them is refused.
    ended: VecDeque<(u64, GraphqlError)>,
    effects: Vec<Effect>,
}

/// Room in a [`GroupId`] for the groups that one shard ever makes; the bits above are the shard's number.
const GROUP_NUMBER_BITS: u32 = 48;

/// Entries of groups that are gone which may stand in line beside as many as there are groups, so that sweeping
/// them out costs little for each.
const STALE_READY_MAX: usize = 64;

/// Ended generations that are remembered. A request that began before a reload arrives within seconds of it;
/// so many reloads take minutes.
const ENDED_GENERATIONS_MAX: usize = 64;

impl Shard {
    pub(crate) fn new(
        number: usize,
        settings: HubSettings,
        stats: Arc<HubStats>,
        leaver: Leaver,
    ) -> Self {
        Self {
            settings,
            resolutions_max: (settings.resolutions_in_flight / settings.shards.max(1)).max(1),
            stats,
            leaver,
            triggers: HashMap::default(),
            by_source: HashMap::default(),
            groups: HashMap::default(),
            ready: VecDeque::new(),
            resolving: 0,
            next_trigger: 0,
            next_group: (number as u64) << GROUP_NUMBER_BITS,
            next_subscriber: 0,
            is_shut_down: false,
            ended: VecDeque::new(),
            effects: Vec::new(),
        }
    }

    /// What is to be done now. To be asked for after each call of any other method.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Somebody wants in. Answered when the trigger is live, so that no later event is missed.
    pub(crate) fn subscribe(&mut self, joining: Joining) {
        if self.is_shut_down {
            return refuse(joining, shutting_down());
        }
        if let Some((_, error)) = self.ended.iter().find(|it| it.0 == joining.key.generation) {
            let error = error.clone();
            return refuse(joining, error);
        }
        if let Some(&id) = self.by_source.get(&joining.source) {
            match self.triggers.get_mut(&id).map(|trigger| &mut trigger.state) {
                Some(State::Opening(waiting)) => waiting.push(joining),
                Some(State::Live) => self.join(id, joining),
                Some(State::Ending(_)) | None => {
                    debug_assert!(false, "a trigger that ends is no longer found by its source");
                }
            }
            return;
        }
        let id = TriggerId(self.next_trigger);
        self.next_trigger += 1;
        let source = joining.source.clone();
        self.effects.push(Effect::Open { trigger: id, source: source.clone() });
        self.by_source.insert(source.clone(), id);
        let state = State::Opening(vec![joining]);
        self.triggers.insert(id, Trigger { source, groups: IndexMap::default(), events: 0, state });
        stats::add(&self.stats.triggers, 1);
    }

    /// The provider answered [`Effect::Open`]. False: nobody wants the stream any more.
    pub(crate) fn opened(&mut self, id: TriggerId, result: Result<(), SourceError>) -> bool {
        let Some(trigger) = self.triggers.get_mut(&id) else { return false };
        let State::Opening(waiting) = std::mem::replace(&mut trigger.state, State::Live) else {
            debug_assert!(false, "a trigger is opened once");
            return true;
        };
        match result {
            Ok(()) => {
                for joining in waiting {
                    self.join(id, joining);
                }
                self.close_if_unused(id);
                self.triggers.contains_key(&id)
            }
            Err(error) => {
                tracing::warn!(%error, "a subscription could not be opened");
                stats::add(&self.stats.refused_provider, waiting.len());
                let error = source_error(&error);
                for joining in waiting {
                    refuse(joining, error.clone());
                }
                self.remove_trigger(id);
                false
            }
        }
    }

    /// Puts somebody into a group of a live trigger.
    fn join(&mut self, id: TriggerId, joining: Joining) {
        let Some(trigger) = self.triggers.get_mut(&id) else { return };
        let Joining { source: _, key, resolve, outlet, member, seat, reply } = joining;
        let known = trigger.groups.get(&key).copied();
        let group_id = known.unwrap_or(GroupId(self.next_group));
        let subscriber = SubscriberId(self.next_subscriber);
        self.next_subscriber += 1;
        let handle = Joined::new(group_id, subscriber, self.leaver.clone());
        if let Err(answer) = reply.send(Ok(handle)) {
            // The caller is gone, so there is nobody to join. The handle must not report leaving.
            if let Ok(handle) = answer {
                handle.forget();
            }
            return;
        }
        if known.is_none() {
            self.next_group += 1;
            let key = Arc::new(key);
            trigger.groups.insert(Arc::clone(&key), group_id);
            self.groups.insert(group_id, Group::new(group_id, id, key, resolve));
            stats::add(&self.stats.groups, 1);
        }
        if let Some(group) = self.groups.get_mut(&group_id) {
            group.join(subscriber, outlet, member, seat);
        }
    }

    /// A subscriber goes. Those who are gone already are ignored.
    pub(crate) fn leave(&mut self, group_id: GroupId, subscriber: SubscriberId) {
        let Some(group) = self.groups.get_mut(&group_id) else { return };
        group.leave(subscriber, EndReason::Unsubscribed);
        if group.is_empty() {
            self.remove_group(group_id);
            self.start_ready();
        }
    }

    /// What came from a trigger's stream. `None`: the stream was dropped without a word.
    pub(crate) fn source_message(&mut self, id: TriggerId, message: Option<SourceMessage>) {
        match message {
            Some(SourceMessage::Event(event)) => self.event(id, event.payload),
            Some(SourceMessage::Gap) => self.gap(id),
            Some(SourceMessage::End(end)) => self.source_ended(id, &end),
            None => self.source_ended(id, &StreamEnd::Closed),
        }
    }

    // hot path: once per event, then once per group. A group that is behind costs the others nothing.
    fn event(&mut self, id: TriggerId, event: Bytes) {
        let Some(trigger) = self.triggers.get_mut(&id) else { return };
        if matches!(trigger.state, State::Ending(_)) {
            return;
        }
        trigger.events += 1;
        stats::add(&self.stats.events, 1);
        for index in 0..trigger.groups.len() {
            let Some(group_id) =
                self.triggers.get(&id).and_then(|it| it.groups.get_index(index)).map(|it| *it.1)
            else {
                break;
            };
            let Some(group) = self.groups.get_mut(&group_id) else { continue };
            group.offer(event.clone());
            while self.resolving < self.resolutions_max && self.start(group_id) {}
            self.queue_if_ready(group_id);
            if let Some(group) = self.groups.get_mut(&group_id) {
                let dropped = group.trim(self.settings.group_waiting);
                stats::add(&self.stats.dropped_group_behind, dropped);
            }
        }
    }

    fn gap(&mut self, id: TriggerId) {
        let Some(trigger) = self.triggers.get(&id) else { return };
        stats::add(&self.stats.gaps, 1);
        for group in trigger.groups.values() {
            if let Some(group) = self.groups.get_mut(group) {
                group.gap();
            }
        }
    }

    /// No event follows. What came before is still resolved and delivered.
    fn source_ended(&mut self, id: TriggerId, end: &StreamEnd) {
        let Some(trigger) = self.triggers.get_mut(&id) else { return };
        if matches!(trigger.state, State::Ending(_)) {
            return;
        }
        let provider = trigger.source.provider().name();
        tracing::info!(provider, topics = ?trigger.source.topics(), reason = %end, "a source ended");
        let reason = EndReason::Error(Box::new(source_end(provider, end)));
        trigger.state = State::Ending(reason);
        let groups: Vec<_> = trigger.groups.values().copied().collect();
        self.by_source.remove(&trigger.source);
        for group in groups {
            self.end_if_drained(group);
        }
    }

    /// A resolution is done. `None`: it broke off.
    pub(crate) fn resolved(&mut self, group_id: GroupId, ticket: u64, payload: Option<Payload>) {
        let Some(group) = self.groups.get_mut(&group_id) else { return };
        self.resolving -= 1;
        let payload = payload.unwrap_or_else(|| {
            stats::add(&self.stats.resolutions_failed, 1);
            let message = "The event could not be resolved.";
            execute::request_error(&[GraphqlError::new(ErrorCode::InternalServerError, message)])
        });
        group.resolved(ticket, payload, &self.stats);
        self.queue_if_ready(group_id);
        self.end_if_drained(group_id);
        self.start_ready();
    }

    /// Ends every subscription of a generation, and those that are still on their way.
    pub(crate) fn end_generation(&mut self, generation: u64, error: &GraphqlError) {
        if self.ended.len() == ENDED_GENERATIONS_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back((generation, error.clone()));
        self.end_where(error, |key| key.generation == generation);
    }

    /// Ends everything; whoever comes later is refused.
    pub(crate) fn shut_down(&mut self) {
        self.is_shut_down = true;
        self.end_where(&shutting_down(), |_| true);
        debug_assert!(self.triggers.is_empty() && self.groups.is_empty() && self.resolving == 0);
    }

    fn end_where(&mut self, error: &GraphqlError, ends: impl Fn(&GroupKey) -> bool) {
        for trigger in self.triggers.values_mut() {
            if let State::Opening(waiting) = &mut trigger.state {
                for joining in waiting.extract_if(.., |joining| ends(&joining.key)) {
                    refuse(joining, error.clone());
                }
            }
        }
        let reason = EndReason::Error(Box::new(error.clone()));
        let mut ending: Vec<_> =
            self.groups.iter().filter(|(_, it)| ends(&it.key)).map(|(&id, _)| id).collect();
        ending.sort_unstable_by_key(|id| id.0);
        for id in ending {
            if let Some(group) = self.groups.get_mut(&id) {
                group.end(&reason);
            }
            self.remove_group(id);
        }
        let mut triggers: Vec<_> = self.triggers.keys().copied().collect();
        triggers.sort_unstable_by_key(|id| id.0);
        for id in triggers {
            self.close_if_unused(id);
        }
        self.start_ready();
    }

    /// The live topology, oldest trigger first.
    pub(crate) fn topology(&self) -> Vec<TriggerView> {
        let mut triggers: Vec<_> = self.triggers.iter().collect();
        triggers.sort_unstable_by_key(|(id, _)| id.0);
        let view = |trigger: &Trigger| {
            let mut groups: Vec<_> = trigger
                .groups
                .values()
                .filter_map(|id| self.groups.get(id))
                .map(Group::view)
                .collect();
            groups.sort_unstable_by_key(|group| group.id.0);
            TriggerView {
                provider: trigger.source.provider().name().into(),
                topics: trigger.source.topics().to_vec(),
                state: match trigger.state {
                    State::Opening(_) => TriggerState::Opening,
                    State::Live => TriggerState::Live,
                    State::Ending(_) => TriggerState::Ending,
                },
                events: trigger.events,
                groups,
            }
        };
        triggers.into_iter().map(|(_, trigger)| view(trigger)).collect()
    }

    /// How many groups one more event of the trigger concerns.
    pub(crate) fn groups_of(&self, id: TriggerId) -> usize {
        self.triggers.get(&id).map_or(0, |trigger| trigger.groups.len())
    }

    /// Starts one event of a group. False if there is none, or its window is full.
    fn start(&mut self, group_id: GroupId) -> bool {
        let Some(group) = self.groups.get_mut(&group_id) else { return false };
        let Some(start) = group.start(self.settings.group_in_flight.max(1)) else { return false };
        self.resolving += 1;
        stats::add(&self.stats.resolutions, 1);
        self.effects.push(Effect::Resolve {
            group: group_id,
            ticket: start.ticket,
            event: start.event,
            resolve: Arc::clone(&group.resolve),
            abort: start.abort,
        });
        true
    }

    /// A group that could start an event, were there room, gets in line.
    fn queue_if_ready(&mut self, group_id: GroupId) {
        let Some(group) = self.groups.get_mut(&group_id) else { return };
        if !group.is_queued && group.can_start(self.settings.group_in_flight.max(1)) {
            group.is_queued = true;
            self.ready.push_back(group_id);
        }
    }

    /// One event of each group in line, and again, while there is room.
    fn start_ready(&mut self) {
        while self.resolving < self.resolutions_max
            && let Some(group_id) = self.ready.pop_front()
        {
            let Some(group) = self.groups.get_mut(&group_id) else { continue };
            group.is_queued = false;
            self.start(group_id);
            self.queue_if_ready(group_id);
        }
    }

    /// The last delivery of a source that ended.
    fn end_if_drained(&mut self, group_id: GroupId) {
        let Some(group) = self.groups.get_mut(&group_id) else { return };
        let Some(trigger) = self.triggers.get(&group.trigger) else { return };
        let State::Ending(reason) = &trigger.state else { return };
        if group.is_drained() {
            group.end(reason);
            self.remove_group(group_id);
        }
    }

    fn remove_group(&mut self, group_id: GroupId) {
        let Some(group) = self.groups.remove(&group_id) else { return };
        debug_assert!(group.is_empty(), "members are told before their group goes");
        let resolving = group.resolving();
        self.resolving -= resolving;
        stats::add(&self.stats.dropped_group_left, resolving);
        stats::subtract(&self.stats.groups, 1);
        // Its entry in the line is skipped when its turn comes, and swept out before such entries pile up.
        if self.ready.len() > 2 * self.groups.len() + STALE_READY_MAX {
            self.ready.retain(|id| self.groups.contains_key(id));
        }
        let trigger = group.trigger;
        if let Some(trigger) = self.triggers.get_mut(&trigger) {
            trigger.groups.swap_remove(&group.key);
        }
        self.close_if_unused(trigger);
    }

    /// A trigger without groups goes, and its stream with it; one that opens stays while somebody waits.
    fn close_if_unused(&mut self, id: TriggerId) {
        let unused = self.triggers.get(&id).is_some_and(|trigger| {
            let waits = matches!(&trigger.state, State::Opening(waiting) if !waiting.is_empty());
            trigger.groups.is_empty() && !waits
        });
        if unused {
            self.remove_trigger(id);
            self.effects.push(Effect::Close { trigger: id });
        }
    }

    fn remove_trigger(&mut self, id: TriggerId) {
        if let Some(trigger) = self.triggers.remove(&id) {
            // A trigger that ends has left the index, and a new one may have its place there.
            if self.by_source.get(&trigger.source) == Some(&id) {
                self.by_source.remove(&trigger.source);
            }
            stats::subtract(&self.stats.triggers, 1);
        }
    }
}

fn refuse(joining: Joining, error: GraphqlError) {
    let Joining { reply, seat, .. } = joining;
    drop(seat);
    // A caller who is gone needs no answer.
    let _ = reply.send(Err(error));
}

pub(crate) fn shutting_down() -> GraphqlError {
    GraphqlError::new(
        ErrorCode::ShuttingDown,
        "The server is shutting down; subscribe again in a moment.",
    )
}

/// What clients may know of a failure; the log has the rest.
fn source_error(error: &SourceError) -> GraphqlError {
    match error {
        SourceError::Unavailable { provider, .. } => GraphqlError::new(
            ErrorCode::ProviderUnavailable,
            format!("The event provider {provider} is not connected at present; try again later."),
        ),
        SourceError::InvalidTopic { provider, .. } => GraphqlError::new(
            ErrorCode::ProviderUnavailable,
            format!(
                "The event provider {provider} does not accept the topic of this subscription."
            ),
        ),
    }
}

fn source_end(provider: &str, end: &StreamEnd) -> GraphqlError {
    let message = match end {
        StreamEnd::Closed => format!("The event provider {provider} was closed."),
        StreamEnd::Refused(_) => {
            format!("The event provider {provider} refuses the topic of this subscription.")
        }
    };
    GraphqlError::new(ErrorCode::ProviderUnavailable, message)
}
