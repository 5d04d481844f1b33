//! The live topology: triggers, their groups, and how many subscribers each has. As JSON, or as a page for whoever looks
//! with a browser.

use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use hub::{GroupView, HubStats, TriggerView};
use serde_json::{Value, json};

/// For `GET /admin/subscriptions`.
pub(crate) fn describe(triggers: &[TriggerView], stats: &HubStats) -> Value {
    let trigger = |trigger: &TriggerView| {
        let group = |group: &GroupView| {
            json!({
                "id": group.id.0.to_string(),
                "generation": group.generation,
                "operationId": format!("{:032x}", group.operation_id),
                "filtered": group.filtered,
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
            "subscribers": trigger.members,
            "groupCount": trigger.group_count,
            "groups": trigger.groups.iter().map(group).collect::<Vec<_>>(),
        })
    };
    json!({
        "subscribers": stats.subscribers.load(Relaxed),
        "groupCount": stats.groups.load(Relaxed),
        "triggerCount": stats.triggers.load(Relaxed),
        "triggers": triggers.iter().map(trigger).collect::<Vec<_>>(),
    })
}

const HEAD: &str = "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"2\">
<title>Starling: subscriptions</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color-scheme: light dark }
table { border-collapse: collapse; width: 100% }
th, td { padding: .25rem .75rem .25rem 0; text-align: left; font-variant-numeric: tabular-nums }
th { font-weight: 600; border-bottom: 1px solid }
td.number, th.number { text-align: right }
h2 { font-size: 1.1rem; margin: 2rem 0 .25rem }
code { font-size: .9em }
</style></head><body>
";

/// The same as a page that renews itself.
pub(crate) fn page(triggers: &[TriggerView], stats: &HubStats) -> String {
    let mut page = HEAD.to_owned();
    let _ = write!(
        page,
        "<h1>Subscriptions</h1><p>{} subscribers in {} groups on {} triggers; {} events in, {} deliveries out.</p>",
        stats.subscribers.load(Relaxed),
        stats.groups.load(Relaxed),
        stats.triggers.load(Relaxed),
        stats.events.load(Relaxed),
        stats.deliveries.load(Relaxed),
    );
    for trigger in triggers {
        let topics: Vec<_> = trigger.topics.iter().map(|topic| escaped(topic)).collect();
        let _ = write!(
            page,
            "<h2>{} <code>{}</code></h2><p>{}, {} events, {} subscribers in {} groups</p>\n<table><tr>\
             <th>operation<th>graph<th class=number>subscribers<th class=number>outlets\
             <th class=number>in flight<th class=number>waiting<th>filter</tr>\n",
            escaped(&trigger.provider),
            topics.join("</code> <code>"),
            trigger.state.as_str(),
            trigger.events,
            trigger.members,
            trigger.group_count,
        );
        for group in &trigger.groups {
            let _ = writeln!(
                page,
                "<tr><td><code>{:032x}</code><td>{}<td class=number>{}<td class=number>{}\
                 <td class=number>{}<td class=number>{}<td>{}</tr>",
                group.operation_id,
                group.generation,
                group.members,
                group.outlets,
                group.in_flight,
                group.waiting,
                if group.filtered { "yes" } else { "" },
            );
        }
        page.push_str("</table>\n");
        let left_out = trigger.group_count.saturating_sub(trigger.groups.len() as u64);
        if left_out > 0 {
            let _ = writeln!(page, "<p>and {left_out} smaller groups</p>");
        }
    }
    page.push_str("</body></html>\n");
    page
}

/// Topics come from clients.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            char => escaped.push(char),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use hub::{GroupId, TriggerState};

    use super::*;

    #[test]
    fn a_topic_cannot_put_markup_into_the_page() {
        let group = GroupView {
            id: GroupId(1),
            generation: 2,
            operation_id: 3,
            filtered: true,
            members: 40,
            outlets: 1,
            in_flight: 0,
            waiting: 5,
        };
        let trigger = TriggerView {
            provider: "nats/default".into(),
            topics: vec!["a.<script>".into(), "b&c".into()],
            state: TriggerState::Live,
            events: 6,
            members: 41,
            group_count: 2,
            groups: vec![group],
        };
        let page = page(&[trigger], &HubStats::default());
        assert!(
            page.contains(
                "<h2>nats/default <code>a.&lt;script&gt;</code> <code>b&amp;c</code></h2>"
            )
        );
        assert!(page.contains("live, 6 events, 41 subscribers in 2 groups"));
        assert!(page.contains("<td class=number>40<td class=number>1"));
        assert!(page.contains("and 1 smaller groups"));
        assert!(!page.contains("<script>"));
    }
}
