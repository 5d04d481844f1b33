//! Messages of a trigger's stream. Events are offered to the groups with matching filters, gaps are announced, and the
//! end of the source ends its groups.

use std::sync::Arc;

use bindings::FilteredEvent;
use bytes::Bytes;
use events::{Event, SourceMessage, StreamEnd};
use execute::{EventFetchCache, Sharing};

use super::client_errors::source_end;
use super::group::OfferedEvent;
use super::group_table::GroupTable;
use super::trigger::Trigger;
use super::{Shard, TriggerId, TriggerPhase};
use crate::stats::{self, HubStats};
use crate::{EndReason, GroupId, TriggerEvent};

impl Shard {
    /// Handles a message of a trigger's stream. `None` if the stream was dropped without an end. Returns the number of
    /// groups that an event was offered to.
    pub(crate) fn on_source_message(
        &mut self,
        id: TriggerId,
        message: Option<SourceMessage>,
    ) -> usize {
        match message {
            Some(SourceMessage::Event(event)) => return self.on_event(id, event),
            Some(SourceMessage::Progress(partition_offset)) => {
                let Some(trigger) = self.triggers.get_mut(id) else { return 0 };
                let Some(replay) = &mut trigger.replay else { return 0 };
                replay.record_passed(partition_offset);
                trigger.announce_lane_hole(&mut self.groups);
                self.feed_groups_ahead(id);
            }
            Some(SourceMessage::Gap) => self.on_gap(id),
            Some(SourceMessage::End(end)) => self.on_source_ended(id, &end),
            None => self.on_source_ended(id, &StreamEnd::Closed),
        }
        0
    }

    // hot path: once per event, then once per group. A group that is behind costs the others nothing.
    fn on_event(&mut self, id: TriggerId, mut event: Arc<Event>) -> usize {
        let Some(trigger) = self.triggers.get_mut(id) else { return 0 };
        if matches!(trigger.phase, TriggerPhase::Ending(_)) {
            return 0;
        }
        trigger.events += 1;
        stats::add(&self.stats.events, 1);
        // A single group shares its fetches with no other.
        let sharing = (trigger.groups.len() > 1).then(|| {
            let event = Some(EventFetchCache::new(Arc::clone(&self.memo_room)));
            Arc::new(Sharing { event, ..Sharing::default() })
        });
        // The payload of an event that is too large is not delivered, so its memory is freed.
        let bytes = event.payload.len();
        let too_large = (bytes > self.settings.event_bytes_max).then_some(bytes);
        if too_large.is_some() {
            stats::add(&self.stats.events_too_large, 1);
            event = Arc::new(without_payload(&event));
        }
        let (partition_offset, published, number) =
            (event.partition_offset, event.published, trigger.events);
        let event = TriggerEvent { event, too_large, sharing };
        let cursor = match (&mut trigger.replay, partition_offset) {
            (Some(replay), Some(partition_offset)) => {
                match replay.record_event(&event, number, partition_offset, published) {
                    // A repetition: the provider has reconnected, and began a little earlier.
                    None => return 0,
                    cursor => cursor,
                }
            }
            _ => None,
        };
        trigger.announce_lane_hole(&mut self.groups);
        let matching = trigger.matching_groups(&self.groups, &event, &self.stats);
        let is_stored = cursor.is_some() && self.settings.catch_up;
        let offered =
            || OfferedEvent { event: event.clone(), number, cursor: cursor.clone(), is_stored };
        let mut index = 0;
        while let Some(group) = self.triggers.get(id).and_then(|it| it.groups.unfiltered(index)) {
            self.offer(group, offered());
            index += 1;
        }
        for &group in &matching {
            self.offer(group, offered());
        }
        self.detach_groups_behind();
        if cursor.is_some() {
            self.feed_groups_ahead(id);
        }
        index + matching.len()
    }

    fn offer(&mut self, group_id: GroupId, offered: OfferedEvent) {
        let Some(group) = self.groups.get_mut(group_id) else { return };
        let may_catch_up = offered.is_stored;
        group.offer(offered);
        stats::add(&self.stats.waiting, 1);
        self.scheduler.start_all(group, &mut self.effects);
        if may_catch_up {
            if group.is_behind(self.settings.group_waiting) {
                self.behind.push(group_id);
            }
            return;
        }
        let dropped = group.drop_oldest(self.settings.group_waiting);
        stats::add(&self.stats.dropped_group_behind, dropped);
        stats::subtract(&self.stats.waiting, dropped);
    }

    fn on_gap(&mut self, id: TriggerId) {
        let Some(trigger) = self.triggers.get(id) else { return };
        stats::add(&self.stats.gaps, 1);
        trigger.announce_gap(&mut self.groups);
        self.gap_for_catch_up_groups(id);
    }

    /// Handles the end of a trigger's source. Events that came before are still resolved and delivered.
    fn on_source_ended(&mut self, id: TriggerId, end: &StreamEnd) {
        let Some(trigger) = self.triggers.get_mut(id) else { return };
        if matches!(trigger.phase, TriggerPhase::Ending(_)) {
            return;
        }
        let provider = trigger.source.provider().name();
        tracing::info!(provider, topics = ?trigger.source.topics(), reason = %end, "a source ended");
        let reason = match end {
            StreamEnd::Complete => EndReason::Complete,
            end => EndReason::Error(Box::new(source_end(provider, end))),
        };
        trigger.phase = TriggerPhase::Ending(reason);
        let groups: Vec<_> = trigger.groups.iter().collect();
        self.triggers.hide(id);
        self.end_catch_up_groups(id);
        for group in groups {
            self.end_if_drained(group);
        }
        self.close_if_unused(id);
    }
}

impl Trigger {
    /// Returns the groups with a filter that an event passes.
    fn matching_groups(
        &self,
        groups: &GroupTable,
        event: &TriggerEvent,
        stats: &HubStats,
    ) -> Vec<GroupId> {
        let filtered = self.groups.filtered();
        let mut matching = Vec::new();
        if filtered == 0 {
            return matching;
        }
        if let Some(event) = FilteredEvent::read(&event.event) {
            matching = self.groups.candidates(&event);
            stats::add(&stats.filters_evaluated, matching.len());
            matching.retain(|id| {
                let filter = groups.get(*id).and_then(|it| it.operation.filter.as_ref());
                filter.is_none_or(|filter| filter.passes(&event))
            });
        }
        stats::add(&stats.filtered_out, filtered - matching.len());
        matching
    }

    /// Makes the live groups announce a gap with their next event.
    fn announce_gap(&self, groups: &mut GroupTable) {
        for group in self.groups.iter() {
            if let Some(group) = groups.get_mut(group) {
                group.record_gap();
            }
        }
    }

    /// Makes the live groups announce a gap if the first events of a partition that has just appeared may have been
    /// lost.
    fn announce_lane_hole(&mut self, groups: &mut GroupTable) {
        if self.replay.as_mut().is_some_and(|it| it.take_lane_hole()) {
            self.announce_gap(groups);
        }
    }
}

/// Returns an event that is too large without its payload.
pub(super) fn without_payload(event: &Event) -> Event {
    Event { payload: Bytes::new(), ..event.clone() }
}
