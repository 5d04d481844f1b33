//! The page of live subscriptions: providers, subgraphs that serve subscriptions, triggers, their groups, and the
//! number of subscribers of each. As JSON, or as a page for browsers.

use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bindings::Source;
use events::{ErrorKind, Lag, Provider, Providers};
use hub::{GroupView, HubStats, TransportCounts, TriggerView};
use live::metrics::Transport;
use serde_json::{Value, json};
use subscription_client::SubscriptionStats;

/// Everything that the page shows.
pub(crate) struct SubscriptionsView<'a> {
    /// The brokers.
    pub(crate) providers: &'a Providers,
    /// The subgraphs that serve subscriptions, by their names as sources.
    pub(crate) subgraphs: Vec<(&'a str, &'a SubscriptionStats)>,
    /// The live triggers.
    pub(crate) triggers: &'a [TriggerView],
    /// The counters of the hub.
    pub(crate) stats: &'a HubStats,
    /// True if topics are shown with the values of clients (`admin.show_values`).
    pub(crate) shows_values: bool,
}

/// Returns the topics of a source as operators see them: with values of clients, or with a fingerprint in their place.
pub(crate) fn shown_topics(source: &Source, shows_values: bool) -> Vec<Box<str>> {
    if shows_values { source.topics().to_vec() } else { source.masked_topics() }
}

/// Returns the JSON of `GET /admin/subscriptions`.
pub(crate) fn describe(view: &SubscriptionsView<'_>) -> Value {
    let SubscriptionsView { providers, subgraphs, triggers, stats, shows_values } = view;
    let trigger = |trigger: &TriggerView| {
        let group = |group: &GroupView| {
            json!({
                "id": group.id.0.to_string(),
                "generation": group.generation,
                "operationId": format!("{:032x}", group.operation_id),
                "operationName": group.operation_name,
                "field": &*group.field,
                "filtered": group.filtered,
                "subscribers": group.members,
                "outlets": group.outlets,
                "transports": by_transport(&group.transports),
                "eventsInFlight": group.in_flight,
                "eventsWaiting": group.waiting,
            })
        };
        json!({
            // JavaScript has no integers of 64 bits.
            "id": trigger.number.to_string(),
            "provider": trigger.source.name(),
            "topics": shown_topics(&trigger.source, *shows_values),
            "state": trigger.state.as_str(),
            "events": trigger.events,
            "subscribers": trigger.members,
            "transports": by_transport(&trigger.transports),
            "groupCount": trigger.group_count,
            "groups": trigger.groups.iter().map(group).collect::<Vec<_>>(),
        })
    };
    json!({
        "providers": providers.iter().map(|it| provider(&**it)).collect::<Vec<_>>(),
        "subgraphs": subgraphs.iter().map(|(name, it)| subgraph(name, it)).collect::<Vec<_>>(),
        "subscribers": stats.subscribers.load(Relaxed),
        "groupCount": stats.groups.load(Relaxed),
        "triggerCount": stats.triggers.load(Relaxed),
        "triggers": triggers.iter().map(trigger).collect::<Vec<_>>(),
    })
}

/// Returns the transports that have subscribers, with their numbers.
fn by_transport(counts: &TransportCounts) -> Vec<Value> {
    let counts = Transport::ALL.map(|it| (it.name(), counts[it.id().number()]));
    let used = counts.into_iter().filter(|(_, subscribers)| *subscribers > 0);
    used.map(|(transport, subscribers)| json!({"transport": transport, "subscribers": subscribers}))
        .collect()
}

fn provider(provider: &dyn Provider) -> Value {
    let stats = provider.stats();
    let topics = stats.topics();
    let topics = topics.iter().map(|(topic, stats)| {
        let Lag { events, time } = stats.lag();
        json!({
            "topic": topic,
            "streams": stats.streams.load(Relaxed),
            "received": stats.received.load(Relaxed),
            "published": stats.published.load(Relaxed),
            "publishFailures": stats.publish_failures.load(Relaxed),
            "dropped": stats.dropped.load(Relaxed),
            "lagEvents": events,
            "lagSeconds": time.map(|time| time.as_secs_f64()),
        })
    });
    let errors = ErrorKind::ALL.map(|kind| (kind.as_str().to_owned(), stats.errors(kind).into()));
    json!({
        "name": provider.name(),
        "state": stats.state().as_str(),
        "connected": provider.is_connected(),
        "streams": stats.streams.load(Relaxed),
        "received": stats.received.load(Relaxed),
        "published": stats.published.load(Relaxed),
        "dropped": stats.dropped.load(Relaxed),
        "gaps": stats.gaps.load(Relaxed),
        "reconnects": stats.reconnects.load(Relaxed),
        "errors": Value::Object(errors.into_iter().collect()),
        "topics": topics.collect::<Vec<_>>(),
    })
}

fn subgraph(name: &str, stats: &SubscriptionStats) -> Value {
    json!({
        "name": name,
        "connections": stats.connections.load(Relaxed),
        "operations": stats.operations.load(Relaxed),
        "results": stats.results.load(Relaxed),
        "dropped": stats.dropped.load(Relaxed),
        "resumed": stats.resumed.load(Relaxed),
        "failed": stats.failed.load(Relaxed),
        "connectionsLost": stats.connections_lost.load(Relaxed),
        "connectFailures": stats.connect_failures.load(Relaxed),
        "messagesIgnored": stats.ignored.load(Relaxed),
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

/// Returns the same as a page that refreshes itself.
pub(crate) fn page(view: &SubscriptionsView<'_>) -> String {
    let SubscriptionsView { providers, subgraphs, triggers, stats, shows_values } = view;
    let mut page = HEAD.to_owned();
    let _ = write!(
        page,
        "<h1>Subscriptions</h1><p>{} in {} on {}; {} in, {} out.</p>",
        counted(stats.subscribers.load(Relaxed), "subscriber", "subscribers"),
        counted(stats.groups.load(Relaxed), "group", "groups"),
        counted(stats.triggers.load(Relaxed), "trigger", "triggers"),
        counted(stats.events.load(Relaxed), "event", "events"),
        counted(stats.deliveries.load(Relaxed), "delivery", "deliveries"),
    );
    page.push_str(
        "<table><tr><th>provider<th>state<th class=number>streams<th class=number>received<th class=number>published\
         <th class=number>errors<th class=number>gaps<th class=number>reconnects<th class=number>furthest behind</tr>\n",
    );
    for provider in providers.iter() {
        let stats = provider.stats();
        let lags = stats.topics().into_iter().map(|(_, topic)| topic.lag());
        let (events, time) = lags
            .fold((None, None), |(events, time), lag| (lag.events.max(events), lag.time.max(time)));
        let _ = writeln!(
            page,
            "<tr><td>{}<td>{}<td class=number>{}<td class=number>{}<td class=number>{}<td class=number>{}\
             <td class=number>{}<td class=number>{}<td class=number>{}</tr>",
            escaped(provider.name()),
            stats.state().as_str(),
            stats.streams.load(Relaxed),
            stats.received.load(Relaxed),
            stats.published.load(Relaxed),
            stats.all_errors(),
            stats.gaps.load(Relaxed),
            stats.reconnects.load(Relaxed),
            behind(events, time),
        );
    }
    page.push_str("</table>\n");
    if !subgraphs.is_empty() {
        write_subgraphs(&mut page, subgraphs);
    }
    if !shows_values {
        page.push_str(
            "<p>The values of clients in topics are shown as a fingerprint, unless <code>admin.show_values</code> is \
             set. The parameter <code>topic</code> of the URL finds a topic with its values.</p>\n",
        );
    }
    for trigger in *triggers {
        let topics = shown_topics(&trigger.source, *shows_values);
        let topics: Vec<_> = topics.iter().map(|topic| escaped(topic)).collect();
        let _ = write!(
            page,
            "<h2>{} <code>{}</code></h2><p>{}, {}, {} in {}</p>\n<table><tr>\
             <th>operation<th>root field<th>operation id<th>graph<th class=number>subscribers<th class=number>outlets\
             <th class=number>in flight<th class=number>waiting<th>filter</tr>\n",
            escaped(trigger.source.name()),
            topics.join("</code> <code>"),
            trigger.state.as_str(),
            counted(trigger.events, "event", "events"),
            counted(trigger.members, "subscriber", "subscribers"),
            counted(trigger.group_count, "group", "groups"),
        );
        for group in &trigger.groups {
            let _ = writeln!(
                page,
                "<tr><td>{}<td><code>{}</code><td><code>{:032x}</code><td>{}<td class=number>{}<td class=number>{}\
                 <td class=number>{}<td class=number>{}<td>{}</tr>",
                escaped(group.operation_name.as_deref().unwrap_or("(without a name)")),
                escaped(group.field.strip_prefix("Subscription.").unwrap_or(&group.field)),
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
            let smaller = counted(left_out, "smaller group", "smaller groups");
            let _ = writeln!(page, "<p>and {smaller}</p>");
        }
    }
    page.push_str("</body></html>\n");
    page
}

fn write_subgraphs(page: &mut String, subgraphs: &[(&str, &SubscriptionStats)]) {
    page.push_str(
        "<table><tr><th>subgraph<th class=number>connections<th class=number>operations<th class=number>results\
         <th class=number>dropped<th class=number>resumed<th class=number>failed<th class=number>connections lost</tr>\n",
    );
    for (name, stats) in subgraphs {
        let _ = writeln!(
            page,
            "<tr><td>{}<td class=number>{}<td class=number>{}<td class=number>{}<td class=number>{}<td class=number>{}\
             <td class=number>{}<td class=number>{}</tr>",
            escaped(name),
            stats.connections.load(Relaxed),
            stats.operations.load(Relaxed),
            stats.results.load(Relaxed),
            stats.dropped.load(Relaxed),
            stats.resumed.load(Relaxed),
            stats.failed.load(Relaxed),
            stats.connections_lost.load(Relaxed),
        );
    }
    page.push_str("</table>\n");
}

/// Returns a number with its noun, `1 group` or `2 groups`.
fn counted(count: u64, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// Returns the lag as a text, `70 events, 12 s`, as far as it is known.
fn behind(events: Option<u64>, time: Option<Duration>) -> String {
    let events = events.map(|events| counted(events, "event", "events"));
    let time = time.map(|time| format!("{} s", time.as_secs()));
    events.into_iter().chain(time).collect::<Vec<_>>().join(", ")
}

/// Escapes a text for HTML, because topics may contain values of clients.
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
    use std::sync::Arc;

    use hub::{GroupId, TriggerState};

    use super::*;

    /// Returns a provider and a source of these topics there.
    fn memory_source(topics: &[&str]) -> (Arc<dyn Provider>, Source) {
        let memory = events::Memory::new("default", events::MemorySettings::default());
        let memory: Arc<dyn Provider> = Arc::new(memory);
        let topics = topics.iter().map(|&topic| topic.into()).collect();
        (Arc::clone(&memory), Source::new(memory, topics))
    }

    #[test]
    fn a_topic_cannot_put_markup_into_the_page() {
        let (memory, source) = memory_source(&["a.<script>", "b&c"]);
        let group = GroupView {
            id: GroupId(1),
            generation: 2,
            operation_id: 3,
            operation_name: Some("Board".into()),
            field: "Subscription.moved".into(),
            filtered: true,
            members: 40,
            outlets: 1,
            transports: TransportCounts::default(),
            in_flight: 0,
            waiting: 5,
        };
        let trigger = TriggerView {
            number: 8,
            source,
            state: TriggerState::Live,
            events: 6,
            members: 41,
            transports: TransportCounts::default(),
            group_count: 2,
            groups: vec![group],
        };
        let providers = Providers::new([memory]).unwrap();
        let subgraph = SubscriptionStats::default();
        subgraph.operations.store(7, Relaxed);
        let (stats, triggers) = (HubStats::default(), [trigger]);
        let subgraphs = vec![("subgraph/reviews", &subgraph)];
        let view = SubscriptionsView {
            providers: &providers,
            subgraphs,
            triggers: &triggers,
            stats: &stats,
            shows_values: true,
        };
        assert_eq!(describe(&view)["subgraphs"][0]["operations"], 7);
        let page = page(&view);
        assert!(page.contains("<tr><td>subgraph/reviews<td class=number>0<td class=number>7"));
        assert!(page.contains(
            "<h2>memory/default <code>a.&lt;script&gt;</code> <code>b&amp;c</code></h2>"
        ));
        assert!(page.contains("<tr><td>memory/default<td>connected<td class=number>0"));
        assert!(page.contains("live, 6 events, 41 subscribers in 2 groups"));
        assert!(page.contains("<td class=number>40<td class=number>1"));
        assert!(page.contains("and 1 smaller group<"));
        assert!(!page.contains("<script>"));
    }

    #[test]
    fn values_in_topics_are_shown_as_fingerprints_unless_they_are_allowed() {
        let (memory, source) = memory_source(&["moved.s3cret"]);
        memory.stats().register_topic("moved.{{args.id}}", &["moved.".to_owned(), String::new()]);
        let masked = source.masked_topics().concat();
        let triggers = [TriggerView {
            number: 1,
            source,
            state: TriggerState::Live,
            events: 0,
            members: 0,
            transports: TransportCounts::default(),
            group_count: 0,
            groups: Vec::new(),
        }];
        let (providers, stats) = (Providers::new([memory]).unwrap(), HubStats::default());
        for (shows_values, expected) in [(false, &*masked), (true, "moved.s3cret")] {
            let view = SubscriptionsView {
                providers: &providers,
                subgraphs: Vec::new(),
                triggers: &triggers,
                stats: &stats,
                shows_values,
            };
            assert_eq!(describe(&view)["triggers"][0]["topics"], json!([expected]));
            let page = page(&view);
            assert!(page.contains(&format!("<code>{expected}</code>")), "{page}");
            assert_eq!(page.contains("s3cret"), shows_values, "{page}");
        }
        assert!(masked.starts_with("moved.{{args.id}} #"), "{masked}");
    }

    #[test]
    fn a_group_is_shown_with_the_name_of_its_operation_its_root_field_and_its_transports() {
        let mut transports = TransportCounts::default();
        transports[Transport::WebSocket.id().number()] = 2;
        transports[Transport::Once.id().number()] = 1;
        let group = GroupView {
            id: GroupId(1),
            generation: 1,
            operation_id: 3,
            operation_name: Some("Board".into()),
            field: "Subscription.flightMoved".into(),
            filtered: false,
            members: 3,
            outlets: 1,
            transports,
            in_flight: 0,
            waiting: 0,
        };
        let unnamed = GroupView { operation_name: None, ..group.clone() };
        let trigger = TriggerView {
            number: 8,
            source: memory_source(&["a"]).1,
            state: TriggerState::Live,
            events: 1,
            members: 3,
            transports,
            group_count: 1,
            groups: vec![group, unnamed],
        };
        let providers = Providers::new([]).unwrap();
        let triggers = [trigger];
        let stats = HubStats::default();
        let view = SubscriptionsView {
            providers: &providers,
            subgraphs: Vec::new(),
            triggers: &triggers,
            stats: &stats,
            shows_values: true,
        };
        let page = page(&view);
        assert!(page.contains("<tr><td>Board<td><code>flightMoved</code><td><code>0000"), "{page}");
        assert!(page.contains("<tr><td>(without a name)<td><code>flightMoved</code>"), "{page}");
        assert!(page.contains("live, 1 event, 3 subscribers in 1 group<"), "{page}");
        assert!(page.contains("0 subscribers in 0 groups on 0 triggers; 0 events in"), "{page}");
        let json = describe(&view);
        let groups = &json["triggers"][0]["groups"];
        assert_eq!(json["triggers"][0]["id"], "8");
        assert_eq!(groups[0]["operationName"], "Board");
        assert_eq!(groups[0]["field"], "Subscription.flightMoved");
        assert_eq!(groups[1]["operationName"], Value::Null);
        let transports = json!([
            {"transport": "websocket", "subscribers": 2},
            {"transport": "once", "subscribers": 1},
        ]);
        assert_eq!(groups[0]["transports"], transports);
        assert_eq!(json["triggers"][0]["transports"], transports);
    }
}
