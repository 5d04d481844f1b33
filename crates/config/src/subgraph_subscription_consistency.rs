//! Rules that involve several keys of the subscriptions that subgraphs serve, and of the endpoint for their callbacks.
//!
//! The supergraph may set the protocol and the URL as well. `serving` checks the combination when a graph is loaded.

use super::Config;
use super::findings::{Findings, KeyPlaces};
use super::quantity::Quantity;
use super::subgraph_subscription::{QueryTransport, SubscriptionProtocol, SubscriptionRetry};
use super::subgraphs::SubgraphSettings;

/// Checks the subscription settings of a whole configuration.
pub(super) fn check(config: &Config, places: &KeyPlaces, findings: &mut Findings) {
    for (name, settings) in &config.subgraphs {
        let path = format!("subgraphs.{name}");
        check_protocol(&path, settings, config, places, findings);
        let retry = format!("{path}.subscription.retry");
        check_retry(&retry, &settings.subscription.retry, places, findings);
    }
    check_callback_path(config, places, findings);
}

/// Checks the protocol against the URL, the transport of queries, and the endpoint for callbacks.
fn check_protocol(
    path: &str,
    settings: &SubgraphSettings,
    config: &Config,
    places: &KeyPlaces,
    findings: &mut Findings,
) {
    let Some(protocol) = settings.subscription.protocol else { return };
    let name = protocol.name();
    let protocol_place = places.get(&format!("{path}.subscription.protocol"));
    if let Some(url) = &settings.subscription.url
        && !protocol.accepts_url(url)
    {
        findings
            .error("conflict", format!("`{path}.subscription` has the URL of a WebSocket"))
            .at_place(places.get(&format!("{path}.subscription.url")), "only for a WebSocket")
            .related_place(protocol_place, "over HTTP")
            .help(format!("write `http://` or `https://`, or remove `protocol: {name}`"));
    }
    if settings.queries_over == QueryTransport::Websocket && !protocol.is_websocket() {
        findings
            .error("conflict", format!("`{path}.queries_over` needs a WebSocket"))
            .at_place(places.get(&format!("{path}.queries_over")), "needs a WebSocket")
            .related_place(protocol_place, "not a WebSocket")
            .help("remove `queries_over`, or write `protocol: auto`");
    }
    if protocol == SubscriptionProtocol::Callback && config.subscriptions.callback.is_none() {
        findings
            .error("missing-key", "`subscriptions.callback` is missing")
            .at_place(protocol_place, "needs a URL to which the subgraph sends events")
            .help(CALLBACK_HELP);
    }
}

/// The advice if a subgraph uses callbacks and there is no endpoint for them.
const CALLBACK_HELP: &str = "add `subscriptions: {callback: {public_url: \"http://ROUTER:4000/callback\"}}`, with the \
                             host under which subgraphs reach this router";

fn check_retry(path: &str, retry: &SubscriptionRetry, places: &KeyPlaces, findings: &mut Findings) {
    if retry.initial <= retry.max {
        return;
    }
    let [initial, max] = ["initial", "max"].map(|key| places.get(&format!("{path}.{key}")));
    findings
        .error("conflict", format!("`{path}.initial` is longer than `{path}.max`"))
        .at_place(initial.or(max), "must be the shortest waiting time")
        .related_place(initial.and(max), "the longest waiting time")
        .help(format!("write an `initial` of at most `{}`, or a longer `max`", retry.max.print()));
}

/// Checks that the endpoint on the main listener has a path of its own.
fn check_callback_path(config: &Config, places: &KeyPlaces, findings: &mut Findings) {
    let Some(callback) = &config.subscriptions.callback else { return };
    if callback.listen.is_some() {
        return;
    }
    let place = places.get("subscriptions.callback.path");
    let (owner, other) = if callback.path == config.path {
        ("the GraphQL endpoint", places.get("path"))
    } else if callback.path == "/" {
        ("the page for trying out queries", None)
    } else {
        return;
    };
    findings
        .error("conflict", format!("`subscriptions.callback.path` is the path of {owner}"))
        .at_place(place, "taken on the main listener")
        .related_place(other, "taken here")
        .help("choose another path, or give the endpoint a listener with `listen`");
}

/// Warns about the endpoint for callbacks of a graph without any.
pub(super) fn check_unused_callback(config: &Config, places: &KeyPlaces, findings: &mut Findings) {
    if config.subscriptions.callback.is_none() {
        return;
    }
    let message = "`subscriptions.callback` has no effect: no subgraph sends events by callbacks";
    let finding = findings.warning("no-effect", message);
    if let Some(place) = places.get("subscriptions.callback") {
        finding.at(place.key.clone(), "not used");
    }
    finding.help("remove it, or write `subgraphs: {NAME: {subscription: {protocol: callback}}}`");
}
