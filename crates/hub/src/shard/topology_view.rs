//! A view of the shard's triggers and groups, for operators.

use super::{Shard, Trigger, TriggerPhase};
use crate::stats::{TriggerState, TriggerView};

/// The maximum number of triggers that are shown.
const TRIGGERS_SHOWN_MAX: usize = 1_000;

/// The maximum number of groups that are shown of each trigger.
const GROUPS_SHOWN_MAX: usize = 100;

impl Shard {
    /// The live topology: the oldest triggers, and the largest groups of each.
    pub(crate) fn topology(&self) -> Vec<TriggerView> {
        let mut triggers = self.triggers.ids();
        triggers.truncate(TRIGGERS_SHOWN_MAX);
        let view = |trigger: &Trigger| {
            let mut groups: Vec<_> = trigger
                .groups
                .iter()
                .chain(trigger.replay.iter().flat_map(|it| it.catching_up.iter().copied()))
                .filter_map(|id| self.groups.get(id))
                .map(super::group::Group::view)
                .collect();
            let group_count = groups.len() as u64;
            let members = groups.iter().map(|group| group.members).sum();
            groups.sort_unstable_by_key(|group| (std::cmp::Reverse(group.members), group.id.0));
            groups.truncate(GROUPS_SHOWN_MAX);
            groups.shrink_to_fit();
            TriggerView {
                provider: trigger.source.provider().name().into(),
                topics: trigger.source.topics().to_vec(),
                state: match trigger.phase {
                    TriggerPhase::Opening(_) => TriggerState::Opening,
                    TriggerPhase::Live => TriggerState::Live,
                    TriggerPhase::Ending(_) => TriggerState::Ending,
                },
                events: trigger.events,
                members,
                group_count,
                groups,
            }
        };
        triggers.into_iter().filter_map(|id| self.triggers.get(id)).map(view).collect()
    }
}
