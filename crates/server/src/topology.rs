//! The live topology as JSON: triggers, their groups, and how many subscribers each has.

use hub::TriggerView;
use serde_json::{Value, json};

/// For `GET /admin/subscriptions`.
pub(crate) fn describe(triggers: &[TriggerView]) -> Value {
    let trigger = |trigger: &TriggerView| {
        let group = |group: &hub::GroupView| {
            json!({
                "id": group.id.0.to_string(),
                "generation": group.generation,
                "operationId": format!("{:032x}", group.operation_id),
                "subscribers": group.members,
                "outlets": group.outlets,
                "eventsInFlight": group.in_flight,
                "eventsWaiting": group.waiting,
            })
        };
        json!({
            "provider": trigger.provider,
            "topics": trigger.topics,
            "state": trigger.state.as_str(),
            "events": trigger.events,
            "groups": trigger.groups.iter().map(group).collect::<Vec<_>>(),
        })
    };
    json!({ "triggers": triggers.iter().map(trigger).collect::<Vec<_>>() })
}
