//! Reading `@starling__subscription(protocol:, url:)`, which composition writes beside `@join__graph`: how the
//! subscriptions of a subgraph are reached. Other routers ignore the directive.

use apollo_compiler::{parser::SourceSpan, schema::Directive};

use super::directive_arguments::read_text;
use crate::{SUBSCRIPTION_PROTOCOLS, SubscriptionEndpoint, errors::ErrorCollector};

/// The schemes of URLs of WebSockets only.
const WEBSOCKET_SCHEMES: [&str; 2] = ["ws", "wss"];

/// The schemes of URLs for every protocol.
const COMMON_SCHEMES: [&str; 3] = ["http", "https", "unix"];

/// Reads the directive. Wrong arguments are errors, and are left out of the result.
pub(super) fn read_endpoint(
    directive: &Directive,
    errors: &mut ErrorCollector<'_>,
) -> SubscriptionEndpoint {
    let protocol = read_text(directive, "protocol").and_then(|(protocol, place)| {
        let is_known = SUBSCRIPTION_PROTOCOLS.contains(&protocol);
        if !is_known {
            let known = SUBSCRIPTION_PROTOCOLS.map(|it| format!("`{it}`")).join(", ");
            let message = format!("`{protocol}` is not a protocol of subscriptions");
            errors.push(place, message, Some(&format!("the protocols are: {known}")));
        }
        is_known.then_some(protocol)
    });
    let url = read_text(directive, "url")
        .and_then(|(url, place)| check_url(url, place, protocol, errors).then_some(url));
    SubscriptionEndpoint { protocol: protocol.map(Into::into), url: url.map(Into::into) }
}

/// Checks a URL, also against the protocol. Errors do not repeat it, because it may contain a key.
fn check_url(
    url: &str,
    place: Option<SourceSpan>,
    protocol: Option<&str>,
    errors: &mut ErrorCollector<'_>,
) -> bool {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let is_for_websockets = WEBSOCKET_SCHEMES.contains(&scheme);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_over_http = protocol.is_some_and(|it| !SubscriptionEndpoint::is_websocket_protocol(it));
    let reason = if !is_for_websockets && !COMMON_SCHEMES.contains(&scheme) {
        "it does not begin with `ws://`, `wss://`, `http://`, `https://` or `unix://`"
    } else if scheme == "unix" && !rest.starts_with('/') {
        "the absolute path of the socket is missing after `unix://`"
    } else if scheme != "unix" && authority.is_empty() {
        "the host is missing"
    } else if scheme != "unix" && authority.contains('@') {
        "it contains credentials, which would reach logs"
    } else if is_for_websockets && is_over_http {
        "it is the URL of a WebSocket, and the protocol works over HTTP"
    } else {
        return true;
    };
    let help = "write it as in `@starling__subscription(url: \"ws://reviews.internal:4001/graphql\")`, or compose again";
    errors.push(place, format!("the URL of subscriptions is wrong: {reason}"), Some(help));
    false
}
