//! Subscriptions of Apollo Router: WebSockets and callbacks of subgraphs.

use crate::conversion::{Conversion, Members, with_names};
use crate::form::Form;
use crate::rule::{Rule, absent, changed, unneeded, with};
use crate::setting::Setting;
use crate::target::Value;

const PROTOCOL: &str = "`graphql_ws` there is the protocol of npm's `graphql-ws`, which is \
                        `graphql_transport_ws` here, and the other way round";

pub(super) const RULES: &[Rule] = &[
    with(
        "subscription.enabled",
        "block.subscriptions",
        "subscriptions are always on; `false` blocks them",
        enabled,
    ),
    with(
        "subscription.mode.callback",
        "subscriptions.callback, subgraphs.<name>.subscription.protocol",
        "each router needs a `public_url` of its own",
        callback,
    ),
    with(
        "(subscription.mode|subscription.mode.preview).passthrough.all",
        "subgraphs.<name>.subscription",
        "Starling negotiates the protocol (`auto`); a path must be written for each subgraph",
        passthrough_all,
    ),
    with(
        "(subscription.mode|subscription.mode.preview).passthrough.subgraphs.<name>",
        "subgraphs.<name>.subscription.protocol, subgraphs.<name>.subscription.url, \
         subgraphs.<name>.subscription.ping_interval",
        PROTOCOL,
        passthrough,
    ),
    unneeded(
        "subscription.enable_deduplication",
        "equal subscriptions always share one at the subgraph",
    ),
    unneeded(
        "subscription.deduplication",
        "equal subscriptions always share one at the subgraph; \
         `subgraphs.<name>.subscription.share_by` names the headers that count",
    ),
    absent(
        "subscription.max_opened_subscriptions",
        "`http.max_connections` and `websocket.max_subscriptions_per_connection` bound them",
    ),
    changed(
        "subscription.queue_capacity",
        "subscriptions.queue_events",
        Form::Number,
        "it bounds the events that wait for one slow client (`subscriptions.policy`)",
    ),
    absent("subscription.reject_duplicate_connections", "there is no such switch"),
];

/// Converts the switch of subscriptions, which are always on in Starling: where they are off, they are blocked.
pub(crate) fn enabled(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let to = ["block".to_owned(), "subscriptions".to_owned()];
    match (setting.truth(), conversion.value(setting, Form::Bool)) {
        (Some(true), _) => conversion.unneeded(setting, "subscriptions are always on"),
        (Some(false), _) => conversion.write(setting, &to, Value::Bool(true), ""),
        (None, Ok(Value::Text(reference))) => {
            let note = "a condition in CEL: the variable must be `true` or `false`";
            conversion.write(setting, &to, Value::Text(format!("!{reference}")), note);
        }
        (None, _) => {
            let note = "the value is neither true nor false: subscriptions are blocked";
            conversion.write(setting, &to, Value::Bool(true), note);
        }
    }
}

fn callback(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let to = |key: &str| ["subscriptions", "callback", key].map(str::to_owned);
    if let Some(url) = members.take("public_url") {
        conversion.set(&url, &to("public_url"), Form::Text, "each router needs a URL of its own");
    }
    if let Some(listen) = members.take("listen") {
        let main = conversion.root.descendant(&["supergraph", "listen"]);
        let main = main.and_then(|it| it.text()).unwrap_or("127.0.0.1:4000").to_owned();
        match listen.text() == Some(&*main) {
            true => conversion
                .unneeded(&listen, "it is that of the main listener, which is the default"),
            false => conversion.set(&listen, &to("listen"), Form::Address, ""),
        }
    }
    if let Some(path) = members.take("path") {
        conversion.set(&path, &to("path"), Form::Text, "");
    }
    if let Some(interval) = members.take("heartbeat_interval") {
        heartbeat(conversion, &interval, &to("heartbeat_interval"));
    }
    for name in members.take("subgraphs").iter().flat_map(Setting::items) {
        if let Some(subgraph) = name.text() {
            let to = ["subgraphs", subgraph, "subscription", "protocol"].map(str::to_owned);
            conversion.write(&name, &to, Value::text("callback"), "");
        }
    }
    members.finish(conversion);
}

/// Converts the interval of heartbeats: a duration, `enabled` or `disabled`.
fn heartbeat(conversion: &mut Conversion<'_>, setting: &Setting<'_>, to: &[String]) {
    match setting.text() {
        Some("disabled") => conversion.write(setting, to, Value::text("0s"), ""),
        Some("enabled") => conversion.unneeded(setting, "it is the default"),
        _ => conversion.set(setting, to, Form::Duration, ""),
    }
}

fn passthrough_all(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    members.unneeded(
        conversion,
        "protocol",
        "Starling negotiates the protocol with each subgraph (`auto`)",
    );
    members.absent(
        conversion,
        "path",
        "write the whole URL for each subgraph with subscriptions: \
         `subgraphs.<name>.subscription.url`",
    );
    if let Some(interval) = members.take("heartbeat_interval") {
        let silent = "a ping is sent only on a silent connection";
        let advice = "set `subgraphs.<name>.subscription.ping_interval` for each subgraph \
                      (30 seconds by default)";
        match interval.text() {
            Some("disabled") => conversion.unneeded(&interval, silent),
            _ => conversion.not_converted(&interval, advice),
        }
    }
    members.finish(conversion);
}

fn passthrough(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let to =
        |key: &str| with_names(&format!("subgraphs.<name>.subscription.{key}"), &setting.names);
    if let Some(protocol) = members.take("protocol") {
        let words = Form::Words(&[
            ("graphql_ws", "graphql_transport_ws"),
            ("graphql_transport_ws", "graphql_ws"),
        ]);
        conversion.set(&protocol, &to("protocol"), words, PROTOCOL);
    }
    if let Some(path) = members.take("path") {
        let name = setting.names.first().map_or("", String::as_str);
        let url = conversion.root.descendant(&["override_subgraph_url", name]);
        let url = url.and_then(|it| conversion.text(&it).ok());
        subscription_path(conversion, &path, url, &to("url"));
    }
    if let Some(interval) = members.take("heartbeat_interval") {
        heartbeat(conversion, &interval, &to("ping_interval"));
    }
    members.finish(conversion);
}

/// Writes the URL of subscriptions, made of the URL of the subgraph and another path.
pub(crate) fn subscription_path(
    conversion: &mut Conversion<'_>,
    path: &Setting<'_>,
    url: Option<String>,
    to: &[String],
) {
    let parts = url.as_deref().and_then(|url| {
        let (scheme, rest) = url.split_once("://")?;
        let scheme = if scheme == "https" { "wss" } else { "ws" };
        Some((scheme, rest.split('/').next()?))
    });
    match (parts, path.text()) {
        (Some((scheme, host)), Some(text)) if !host.contains("${") || host.contains('}') => {
            conversion.write(path, to, Value::text(format!("{scheme}://{host}{text}")), "");
        }
        _ => conversion.not_converted(
            path,
            &format!(
                "write the whole URL, which the supergraph has without this path: `{}`",
                to.join(".")
            ),
        ),
    }
}
