//! A view of the shard's triggers and groups, for operators.

use super::trigger::{Trigger, TriggerPhase};
use super::trigger_id::TriggerId;
use super::trigger_table::TriggerTable;
use crate::stats::{TriggerState, TriggerView};
use crate::{GroupView, TransportCounts};

/// The maximum number of triggers that are shown.
const TRIGGERS_SHOWN_MAX: usize = 1_000;

/// The maximum number of groups that are shown of each trigger.
const GROUPS_SHOWN_MAX: usize = 100;

/// Returns the live topology: the oldest triggers, and the largest groups of each. `groups_of` returns all groups of a
/// trigger.
pub(super) fn view(
    triggers: &TriggerTable,
    groups_of: impl Fn(TriggerId, &Trigger) -> Vec<GroupView>,
) -> Vec<TriggerView> {
    let mut ids = triggers.ids();
    ids.truncate(TRIGGERS_SHOWN_MAX);
    let view = |(id, trigger): (TriggerId, &Trigger)| {
        let mut groups = groups_of(id, trigger);
        let group_count = groups.len() as u64;
        let members = groups.iter().map(|group| group.members).sum();
        let mut transports = TransportCounts::default();
        for group in &groups {
            for (sum, count) in transports.iter_mut().zip(group.transports) {
                *sum += count;
            }
        }
        groups.sort_unstable_by_key(|group| (std::cmp::Reverse(group.members), group.id.0));
        groups.truncate(GROUPS_SHOWN_MAX);
        groups.shrink_to_fit();
        TriggerView {
            number: id.0,
            source: trigger.source.clone(),
            state: match trigger.phase {
                TriggerPhase::Opening(_) => TriggerState::Opening,
                TriggerPhase::Live => TriggerState::Live,
                TriggerPhase::Ending(_) => TriggerState::Ending,
            },
            events: trigger.events,
            members,
            transports,
            group_count,
            groups,
        }
    };
    ids.into_iter().filter_map(|id| Some((id, triggers.get(id)?))).map(view).collect()
}
