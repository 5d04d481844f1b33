//! Messages of a trigger's stream. Events are offered to the groups with matching filters, gaps are announced, and the
//! end of the source ends its groups.

use std::sync::Arc;

use bindings::{FilteredEvent, Source};
use events::{Event, SourceMessage, StreamEnd};

use super::Shard;
use super::client_errors::source_end;
use super::group::OfferedEvent;
use super::trigger::TriggerPhase;
use super::trigger_id::TriggerId;
use crate::event_spans::EventSpans;
use crate::stats;
use crate::{EndReason, TriggerEvent};

impl Shard {
    /// Handles a message of a trigger's stream. `None` if the stream was dropped without an end. Returns the number of
    /// groups that an event was offered to.
    pub(crate) fn on_source_message(
        &mut self,
        id: TriggerId,
        message: Option<SourceMessage>,
    ) -> usize {
        let mut offers = 0;
        match message {
            Some(SourceMessage::Event(event)) => offers = self.offer_event(id, event, None),
            Some(SourceMessage::Progress(partition_offset)) => {
                if self.catch_up.record_passed(id, partition_offset) {
                    self.groups.record_gaps(self.triggers.live_groups(id));
                }
            }
            Some(SourceMessage::Gap) => {
                stats::add(&self.stats.gaps, usize::from(self.triggers.contains(id)));
                self.groups.record_gaps(self.triggers.live_groups(id));
                self.catch_up.on_gap(id);
            }
            Some(SourceMessage::End(end)) => self.on_source_ended(id, &end),
            None => self.on_source_ended(id, &StreamEnd::Closed),
        }
        self.settle();
        offers
    }

    /// Handles an event as [`Shard::on_source_message`] does, with its trace.
    pub(crate) fn on_traced_event(
        &mut self,
        id: TriggerId,
        event: Arc<Event>,
        spans: &Arc<EventSpans>,
    ) -> usize {
        // The event of a live query only says that there is another result.
        let has_states = self.triggers.get(id).is_none_or(|it| it.source.has_states());
        let offers = self.offer_event(id, event, Some(spans).filter(|_| !has_states));
        self.settle();
        offers
    }

    // hot path: once per event, then once per group. A group that is behind costs the others nothing.
    fn offer_event(
        &mut self,
        id: TriggerId,
        event: Arc<Event>,
        spans: Option<&Arc<EventSpans>>,
    ) -> usize {
        // The client of a subgraph has a limit of its own for its results, and so have live queries.
        let has_own_limit = |source: &Source| source.is_of_subgraph() || source.has_states();
        let has_own_limit = self.triggers.get(id).is_some_and(|it| has_own_limit(&it.source));
        let bytes_max = if has_own_limit { usize::MAX } else { self.settings.event_bytes_max };
        let event = TriggerEvent::new(event, bytes_max);
        let Some((event, number)) = self.triggers.record_event(id, event) else { return 0 };
        let Some(recorded) = self.catch_up.record_event(id, &event, number) else { return 0 };
        if recorded.has_partition_hole {
            self.groups.record_gaps(self.triggers.live_groups(id));
        }
        let cursor = recorded.cursor;
        let is_stored = cursor.is_some() && self.settings.catch_up;
        let Some(trigger) = self.triggers.get(id) else { return 0 };
        let filtered = trigger.groups.filtered();
        let mut matching = Vec::new();
        if filtered > 0 {
            if let Some(values) = FilteredEvent::read(&event.event) {
                matching = trigger.groups.candidates(&values);
                self.groups.retain_passing(&mut matching, &values);
            }
            stats::add(&self.stats.filtered_out, filtered - matching.len());
        }
        let most = self.settings.group_waiting;
        let unfiltered = (0..).map_while(|index| trigger.groups.unfiltered(index));
        let mut offers = 0;
        for group_id in unfiltered.chain(matching) {
            offers += 1;
            let (event, cursor) = (event.clone(), cursor.clone());
            let offered = OfferedEvent { event, number, cursor, is_stored, spans: spans.cloned() };
            let Some(group) = self.groups.offer(group_id, offered) else { continue };
            self.scheduler.start_all(group, &mut self.effects);
            if group.waiting() > most {
                self.groups.bound_waiting(group_id, most, is_stored);
            }
        }
        self.detach_groups_behind();
        offers
    }

    /// Handles the end of a trigger's source. Events that came before are still resolved and delivered.
    fn on_source_ended(&mut self, id: TriggerId, end: &StreamEnd) {
        let Some(trigger) = self.triggers.get_mut(id).filter(|it| !it.is_ending()) else { return };
        let provider = trigger.source.name();
        // The reason may contain a message of a subgraph.
        tracing::debug!(
            provider,
            topics = ?trigger.source.masked_topics(),
            reason = end.reason_without_topics(trigger.source.topics()),
            "a source ended"
        );
        let reason = match end {
            StreamEnd::Complete => EndReason::Complete,
            end => EndReason::Error(Box::new(source_end(provider, end))),
        };
        trigger.phase = TriggerPhase::Ending(reason.clone());
        let groups: Vec<_> = trigger.groups.iter().collect();
        self.triggers.hide(id);
        self.triggers.check_later(id);
        self.catch_up.on_source_ended(id, &reason);
        for group in groups {
            self.continue_group(group);
        }
    }
}
