//! How the router reaches the subscriptions of a subgraph: the protocol and the URL of the configuration, or else those
//! of the supergraph, key by key. The clients that connect there are made elsewhere.

use config::diagnostic::Diagnostic;
use config::{Config, QueryTransport, SubgraphSettings, SubscriptionProtocol};
use graph::{SubgraphId, SubgraphKind, SubscriptionEndpoint, Supergraph};

/// The protocol and the URL of one subgraph's subscriptions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResolvedEndpoint {
    /// The subgraph.
    pub subgraph: SubgraphId,
    /// The protocol.
    pub protocol: SubscriptionProtocol,
    /// The URL as it is configured: for a WebSocket it may begin with `http`.
    pub url: Box<str>,
}

impl ResolvedEndpoint {
    /// Returns the URL for people: with the scheme that is used, and without credentials and a query, which may contain
    /// keys.
    pub fn shown_url(&self) -> String {
        let Some((scheme, rest)) = self.url.split_once("://") else { return String::new() };
        // The query of a socket's URL is the path of the endpoint.
        if scheme == "unix" {
            return self.url.to_string();
        }
        let scheme = match (scheme, self.protocol.is_websocket()) {
            ("http", true) => "ws",
            ("https", true) => "wss",
            _ => scheme,
        };
        let address = rest.split(['?', '#']).next().unwrap_or_default();
        let (authority, path) = match address.find('/') {
            Some(at) => address.split_at(at),
            None => (address, ""),
        };
        let host = authority.rsplit('@').next().unwrap_or_default();
        format!("{scheme}://{host}{path}")
    }
}

/// Returns the endpoints of all subgraphs to which the router subscribes, in the order of the graph: those that resolve
/// a subscription field, and those with queries over the same WebSockets.
///
/// # Errors
/// All of [`resolve_endpoint`].
pub fn resolve_endpoints(
    config: &Config,
    graph: &Supergraph,
) -> Result<Vec<ResolvedEndpoint>, Vec<Diagnostic>> {
    let (mut endpoints, mut problems) = (Vec::new(), Vec::new());
    for index in 0..graph.subgraphs.len() {
        let id = SubgraphId(index as u16);
        if !has_endpoint(config, graph, id) {
            continue;
        }
        match resolve_endpoint(config, graph, id) {
            Ok(endpoint) => endpoints.push(endpoint),
            Err(diagnostic) => problems.push(*diagnostic),
        }
    }
    if problems.is_empty() { Ok(endpoints) } else { Err(problems) }
}

/// Returns the endpoint of a subgraph with a server.
///
/// # Errors
/// The configuration and the supergraph do not fit together: a URL for another protocol, callbacks without
/// `subscriptions.callback`, or queries over a protocol without WebSocket.
pub fn resolve_endpoint(
    config: &Config,
    graph: &Supergraph,
    id: SubgraphId,
) -> Result<ResolvedEndpoint, Box<Diagnostic>> {
    let subgraph = graph.subgraph(id);
    let settings = config.subgraphs.get(&*subgraph.name);
    let section = settings.map(|it| &it.subscription);
    let composed = subgraph.subscription.as_ref();
    let protocol = section.and_then(|it| it.protocol).or_else(|| protocol_in_graph(composed));
    let url = section.and_then(|it| it.url.as_deref());
    let url = url.or_else(|| composed?.url.as_deref()).unwrap_or(&subgraph.url);
    let endpoint =
        ResolvedEndpoint { subgraph: id, protocol: protocol.unwrap_or_default(), url: url.into() };
    check_endpoint(&endpoint, &subgraph.name, settings, config)?;
    Ok(endpoint)
}

/// True if the router subscribes to the subgraph, or sends its queries the same way.
fn has_endpoint(config: &Config, graph: &Supergraph, id: SubgraphId) -> bool {
    let subgraph = graph.subgraph(id);
    let settings = config.subgraphs.get(&*subgraph.name);
    subgraph.kind == SubgraphKind::Server
        && (has_subscriptions(graph, id)
            || settings.is_some_and(|it| it.queries_over == QueryTransport::Websocket))
}

/// True if the subgraph resolves a subscription field.
fn has_subscriptions(graph: &Supergraph, id: SubgraphId) -> bool {
    let mut roots = graph.subscription.into_iter().flat_map(|root| &graph.ty(root).fields);
    roots.any(|&field| graph.field(field).resolved_by.contains(id))
}

fn protocol_in_graph(composed: Option<&SubscriptionEndpoint>) -> Option<SubscriptionProtocol> {
    // Names that are not known are errors of the supergraph.
    SubscriptionProtocol::from_name(composed?.protocol.as_deref()?)
}

/// Checks the rules that the configuration alone cannot check, because a part comes from the supergraph.
fn check_endpoint(
    endpoint: &ResolvedEndpoint,
    subgraph: &str,
    settings: Option<&SubgraphSettings>,
    config: &Config,
) -> Result<(), Box<Diagnostic>> {
    let protocol = endpoint.protocol;
    let name = protocol.name();
    if !protocol.accepts_url(&endpoint.url) {
        let message = format!(
            "subgraph `{subgraph}`: its subscriptions have the URL of a WebSocket and the protocol `{name}`"
        );
        let help = format!(
            "one of them comes from the supergraph; set `subgraphs.{subgraph}.subscription` to a `protocol` and a `url` \
             that fit together"
        );
        return Err(Box::new(Diagnostic::error("conflict", message).help(help)));
    }
    if protocol == SubscriptionProtocol::Callback && config.subscriptions.callback.is_none() {
        let message = format!(
            "subgraph `{subgraph}` sends events by callbacks, and `subscriptions.callback` is missing"
        );
        let help = "add `subscriptions: {callback: {public_url: \"http://ROUTER:4000/callback\"}}`, with the host under \
                    which subgraphs reach this router";
        return Err(Box::new(Diagnostic::error("missing-key", message).help(help)));
    }
    let is_over_websocket = settings.is_some_and(|it| it.queries_over == QueryTransport::Websocket);
    if is_over_websocket && !protocol.is_websocket() {
        let message = format!(
            "`subgraphs.{subgraph}.queries_over` needs a WebSocket, and the protocol of the subgraph's subscriptions is \
             `{name}`"
        );
        let help = format!(
            "remove `queries_over`, or set `subgraphs.{subgraph}.subscription.protocol` to `auto`"
        );
        return Err(Box::new(Diagnostic::error("conflict", message).help(help)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{SubgraphSubscriptionSettings, SubscriptionCallback};

    /// Returns a graph with an event subgraph and two subgraphs with servers, of which one has a subscription and these
    /// directives.
    fn graph(directives: &str) -> Supergraph {
        let sdl = format!(
            r#"
            schema @link(url: "https://specs.apollo.dev/link/v1.0")
              @link(url: "https://specs.apollo.dev/join/v0.5", for: EXECUTION) {{
              query: Query
              subscription: Subscription
            }}
            enum join__Graph {{
              EVENTS @join__graph(name: "events", url: "")
              REVIEWS @join__graph(name: "reviews", url: "http://reviews:1/graphql?key=1") {directives}
              STOCK @join__graph(name: "stock", url: "https://stock/graphql")
            }}
            type Query @join__type(graph: REVIEWS) @join__type(graph: STOCK) {{ a: Int }}
            type Subscription @join__type(graph: EVENTS) @join__type(graph: REVIEWS) {{
              moved: Int @join__field(graph: EVENTS)
                @join__directive(graphs: [EVENTS], name: "events__subscribe", args: {{topics: ["a"]}})
              reviewAdded: Int @join__field(graph: REVIEWS)
            }}
            "#
        );
        Supergraph::from_sdl(&sdl, "test.graphql").unwrap()
    }

    /// Returns a configuration for the subgraph `reviews`.
    fn config(protocol: Option<SubscriptionProtocol>, url: Option<&str>) -> Config {
        let url = url.map(str::to_owned);
        let subscription = SubgraphSubscriptionSettings {
            protocol,
            url,
            ..SubgraphSubscriptionSettings::default()
        };
        let settings = SubgraphSettings { subscription, ..SubgraphSettings::default() };
        Config { subgraphs: [("reviews".to_owned(), settings)].into(), ..Config::default() }
    }

    /// Returns the name, the protocol and the shown URL of each endpoint, or the messages.
    fn resolve(config: &Config, directives: &str) -> Vec<String> {
        let graph = graph(directives);
        match resolve_endpoints(config, &graph) {
            Ok(endpoints) => endpoints
                .iter()
                .map(|it| {
                    let name = &graph.subgraph(it.subgraph).name;
                    format!("{name} {} {}", it.protocol.name(), it.shown_url())
                })
                .collect(),
            Err(diagnostics) => diagnostics.iter().map(|it| it.message.clone()).collect(),
        }
    }

    #[test]
    fn the_configuration_wins_over_the_supergraph_key_by_key() {
        let none = config(None, None);
        assert_eq!(resolve(&Config::default(), ""), ["reviews auto ws://reviews:1/graphql"]);
        assert_eq!(resolve(&none, ""), ["reviews auto ws://reviews:1/graphql"]);
        let composed =
            r#"@starling__subscription(protocol: "sse_get", url: "https://r.internal/s?k=1")"#;
        assert_eq!(resolve(&none, composed), ["reviews sse_get https://r.internal/s"]);
        let socket = config(Some(SubscriptionProtocol::GraphqlWs), None);
        assert_eq!(resolve(&socket, composed), ["reviews graphql_ws wss://r.internal/s"]);
        let moved = config(None, Some("unix:///run/r.sock?path=/s"));
        assert_eq!(resolve(&moved, composed), ["reviews sse_get unix:///run/r.sock?path=/s"]);
    }

    #[test]
    fn settings_that_do_not_fit_to_the_supergraph_are_errors() {
        let socket = r#"@starling__subscription(url: "wss://r.internal/")"#;
        assert_eq!(
            resolve(&config(Some(SubscriptionProtocol::Sse), None), socket),
            [
                "subgraph `reviews`: its subscriptions have the URL of a WebSocket and the protocol `sse`"
            ]
        );
        let by_callback = r#"@starling__subscription(protocol: "callback")"#;
        let mut settings = config(None, None);
        assert_eq!(
            resolve(&settings, by_callback),
            [
                "subgraph `reviews` sends events by callbacks, and `subscriptions.callback` is missing"
            ]
        );
        settings.subscriptions.callback = Some(SubscriptionCallback {
            public_url: "http://router/callback".into(),
            listen: None,
            path: "/callback".into(),
            heartbeat_interval: std::time::Duration::ZERO,
        });
        assert_eq!(resolve(&settings, by_callback), ["reviews callback http://reviews:1/graphql"]);
        let reviews = settings.subgraphs.get_mut("reviews").unwrap();
        reviews.queries_over = QueryTransport::Websocket;
        assert_eq!(
            resolve(&settings, by_callback),
            [
                "`subgraphs.reviews.queries_over` needs a WebSocket, and the protocol of the subgraph's subscriptions is \
              `callback`"
            ]
        );
    }

    #[test]
    fn queries_over_a_websocket_need_an_endpoint_without_subscriptions() {
        let stock = SubgraphSettings {
            queries_over: QueryTransport::Websocket,
            ..SubgraphSettings::default()
        };
        let config =
            Config { subgraphs: [("stock".to_owned(), stock)].into(), ..Config::default() };
        let expected = ["reviews auto ws://reviews:1/graphql", "stock auto wss://stock/graphql"];
        assert_eq!(resolve(&config, ""), expected);
    }

    #[test]
    fn supergraphs_and_configurations_name_the_same_protocols() {
        let names = SubscriptionProtocol::ALL.map(SubscriptionProtocol::name);
        assert_eq!(names, graph::SUBSCRIPTION_PROTOCOLS);
        for protocol in SubscriptionProtocol::ALL {
            let by_graph = SubscriptionEndpoint::is_websocket_protocol(protocol.name());
            assert_eq!(protocol.is_websocket(), by_graph, "{protocol:?}");
        }
    }

    #[test]
    fn shown_urls_have_no_secrets() {
        for (url, expected) in [
            ("https://me:hunter2@host:1/a?token=hunter2", "https://host:1/a"),
            ("http://host?token=hunter2", "http://host"),
            ("http://host/a@b", "http://host/a@b"),
            ("nonsense", ""),
        ] {
            let protocol = SubscriptionProtocol::Sse;
            let endpoint = ResolvedEndpoint { subgraph: SubgraphId(0), protocol, url: url.into() };
            assert_eq!(endpoint.shown_url(), expected);
        }
    }
}
