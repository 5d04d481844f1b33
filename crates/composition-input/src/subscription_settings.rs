//! The settings of a subgraph's subscriptions: the words of Cosmo's file and those of the router's configuration, which
//! both may occur, become the protocols of the router.

use config::SubscriptionProtocol;

use crate::file_format::SubscriptionEntry;

/// Returns the protocol that the settings name, if they name one.
///
/// The word `sse` means a GET request in Cosmo's file and a POST request in the router's configuration. Here it keeps
/// the meaning of Cosmo's file, the only one of the two with this section.
pub(crate) fn protocol_of(entry: &SubscriptionEntry) -> Option<SubscriptionProtocol> {
    match entry.protocol.as_deref() {
        None | Some("ws") => match entry.websocket_subprotocol.as_deref() {
            Some("graphql-ws") => Some(SubscriptionProtocol::GraphqlWs),
            Some("graphql-transport-ws") => Some(SubscriptionProtocol::GraphqlTransportWs),
            Some(_) => Some(SubscriptionProtocol::Auto),
            None => entry.protocol.as_ref().map(|_| SubscriptionProtocol::Auto),
        },
        Some("sse") => Some(SubscriptionProtocol::SseGet),
        Some("sse_post") => Some(SubscriptionProtocol::Sse),
        Some(name) => SubscriptionProtocol::from_name(name),
    }
}

/// True if the subprotocol of WebSockets has no effect, because the protocol is another one or names it already.
pub(crate) fn is_subprotocol_unused(entry: &SubscriptionEntry) -> bool {
    let is_negotiable = matches!(entry.protocol.as_deref(), None | Some("ws"));
    entry.websocket_subprotocol.is_some() && !is_negotiable
}

#[cfg(test)]
mod tests {
    use super::*;
    use SubscriptionProtocol as P;

    #[test]
    fn words_of_either_file_name_a_protocol() {
        let old = Some("graphql-ws");
        let new = Some("graphql-transport-ws");
        for (protocol, subprotocol, expected) in [
            (None, None, None),
            (None, Some("auto"), Some(P::Auto)),
            (None, old, Some(P::GraphqlWs)),
            (Some("ws"), None, Some(P::Auto)),
            (Some("ws"), Some("auto"), Some(P::Auto)),
            (Some("ws"), old, Some(P::GraphqlWs)),
            (Some("ws"), new, Some(P::GraphqlTransportWs)),
            (Some("auto"), new, Some(P::Auto)),
            (Some("sse"), None, Some(P::SseGet)),
            (Some("sse"), new, Some(P::SseGet)),
            (Some("sse_get"), None, Some(P::SseGet)),
            (Some("sse_post"), None, Some(P::Sse)),
            (Some("multipart"), None, Some(P::Multipart)),
            (Some("callback"), None, Some(P::Callback)),
            (Some("graphql_ws"), None, Some(P::GraphqlWs)),
            (Some("graphql_transport_ws"), None, Some(P::GraphqlTransportWs)),
        ] {
            let [protocol, websocket_subprotocol] =
                [protocol, subprotocol].map(|it: Option<&str>| it.map(str::to_owned));
            let entry = SubscriptionEntry { url: None, protocol, websocket_subprotocol };
            let words = (&entry.protocol, &entry.websocket_subprotocol);
            assert_eq!(protocol_of(&entry), expected, "{words:?}");
        }
    }
}
