//! The clients of subscriptions that subgraphs serve: created from the configuration, one for each subgraph that
//! resolves a subscription field. A subscription's source is made here, with everything that decides about sharing.

use std::sync::Arc;

use bindings::Source;
use bytes::Bytes;
use config::diagnostic::Diagnostic;
use config::{
    Config, HttpProtocol, QueryTransport, SubgraphSubscriptionSettings,
    SubscriptionProtocol as Named, SubscriptionSharing,
};
use events::{Retry, SubgraphSubscription};
use execute::{ClaimPath, ClaimValues, ErrorCode, Executable, ForwardedHeaders, GraphqlError};
use graph::{SubgraphId, Supergraph};
use http::{HeaderName, HeaderValue};
use plan::Variables;
use subscription_client::{
    CallbackEndpoint, ReconnectSettings, SubgraphSubscriptions, SubscriptionProtocol,
    SubscriptionSettings,
};

use crate::forwarding;
use crate::subscription_endpoint::ResolvedEndpoint;
use crate::upstreams::{SubgraphCertificates, protocol_of};

/// Distinguishes partitions by some headers from partitions by all: a query, which goes by all, never gets a connection
/// that was opened with the headers of another client.
const SHARED: u8 = 1;

/// The subscriptions of one subgraph.
#[derive(Clone, Debug)]
pub struct SubgraphStreams {
    /// The client.
    pub client: Arc<SubgraphSubscriptions>,
    /// The name of the type with the subscription fields.
    root_type: Box<str>,
    /// The headers that distinguish clients; `None`: all that are forwarded.
    share_by_headers: Option<Vec<HeaderName>>,
    /// The claims that distinguish clients.
    claims: Vec<ClaimPath>,
    /// The members of the client's `extensions` that are sent.
    extensions: Vec<String>,
}

/// The facts of a client's request that its subgraph may get.
pub(crate) struct SentFacts<'a> {
    /// The headers for subgraphs.
    pub(crate) headers: &'a ForwardedHeaders,
    /// The client's `extensions`, a JSON object.
    pub(crate) extensions: &'a Bytes,
    /// The headers with the identity of its trace.
    pub(crate) trace: Arc<[(HeaderName, HeaderValue)]>,
}

/// A source, and everything that its events may depend on.
pub(crate) struct SubgraphSource {
    pub(crate) source: Source,
    /// The headers, claims and extensions that distinguish clients, in a canonical form.
    pub(crate) partition: Vec<u8>,
    /// The coordinate of the root field.
    pub(crate) field: Arc<str>,
    /// The members of the client's `extensions` that are sent, as a JSON object. Empty without any.
    pub(crate) extensions: Bytes,
}

impl SubgraphStreams {
    /// Returns the claims that distinguish clients.
    pub(crate) fn claims(&self) -> &[ClaimPath] {
        &self.claims
    }

    /// True if forwarded headers that are not listed do not distinguish clients.
    pub(crate) fn ignores_other_headers(&self) -> bool {
        self.share_by_headers.is_some()
    }

    /// Returns the source of a subscription.
    pub(crate) fn source(
        &self,
        subgraph: SubgraphId,
        executable: &Executable,
        variables: &Variables,
        claims: &ClaimValues,
        SentFacts { headers, extensions, trace }: SentFacts<'_>,
    ) -> Result<SubgraphSource, GraphqlError> {
        let headers = headers.of(subgraph).forwarded;
        let extensions = select_members(extensions, &self.extensions);
        let sent = Some(&extensions).filter(|it| !it.is_empty());
        let shape = &executable.plan().shape;
        let root = shape.objects.get(shape.root.0 as usize);
        let root_field = root.and_then(|it| it.variants.first()?.fields.first());
        let request = executable.subscription_request(variables, sent).zip(root_field);
        let Some((request, root_field)) = request else {
            let message = "The operation has no root field that a subgraph serves.";
            return Err(GraphqlError::new(ErrorCode::InternalServerError, message));
        };
        let coordinate = format!("{}.{}", self.root_type, root_field.field_name).into_boxed_str();
        let decides =
            |name: &HeaderName| self.share_by_headers.as_ref().is_none_or(|it| it.contains(name));
        let distinct = headers.iter().filter(|(name, _)| decides(name)).cloned().collect();
        let distinct = ForwardedHeaders { all: distinct, ..ForwardedHeaders::default() };
        let mut partition = forwarding::partition(&distinct);
        if self.share_by_headers.is_some() {
            partition.push(SHARED);
        }
        claims.only(&self.claims).append_canonical(&mut partition);
        let wanted = SubgraphSubscription {
            field: coordinate.clone(),
            request,
            headers: headers.into(),
            trace,
            partition: partition.clone().into(),
        };
        partition.extend_from_slice(&extensions);
        let client = Arc::clone(&self.client) as Arc<dyn events::SubscriptionClient>;
        let source = Source::of_subgraph(client, wanted);
        let field = coordinate.into();
        Ok(SubgraphSource { source, partition, field, extensions })
    }
}

/// Returns a JSON object with those members of `extensions`, a JSON object, that have one of the names, in the order of
/// the names. Empty without any.
fn select_members(extensions: &Bytes, names: &[String]) -> Bytes {
    if names.is_empty() || extensions.is_empty() {
        return Bytes::new();
    }
    let mut values: Vec<Option<Bytes>> = vec![None; names.len()];
    // The extensions are an object: other requests were refused before.
    let _ = astjson::outline_members(extensions, |key, value| {
        if let Some(at) = names.iter().position(|name| *name == *key) {
            values[at] = Some(value);
        }
    });
    let mut text = Vec::new();
    for (name, value) in names.iter().zip(values) {
        let Some(value) = value else { continue };
        text.push(if text.is_empty() { b'{' } else { b',' });
        astjson::print_string(name, &mut text);
        text.push(b':');
        text.extend_from_slice(&value);
    }
    if !text.is_empty() {
        text.push(b'}');
    }
    text.into()
}

/// Creates the clients of `endpoints`, each at the place of its subgraph in the graph. Connects to nothing yet. A
/// client of `previous` that asks the same server in the same way is kept with its connections.
///
/// # Errors
/// Every URL that cannot be used, and certificates that cannot be read.
pub fn load_streams(
    config: &Config,
    graph: &Supergraph,
    endpoints: &[ResolvedEndpoint],
    certificates: &SubgraphCertificates,
    callbacks: Option<&Arc<CallbackEndpoint>>,
    previous: &[Option<SubgraphStreams>],
) -> Result<Vec<Option<SubgraphStreams>>, Vec<Diagnostic>> {
    let mut streams: Vec<_> = graph.subgraphs.iter().map(|_| None).collect();
    let mut problems = Vec::new();
    for endpoint in endpoints {
        match load_stream(config, graph, endpoint, certificates, callbacks) {
            Ok(new) => {
                let stream = continue_stream(config, new, previous);
                streams[usize::from(endpoint.subgraph.0)] = Some(stream);
            }
            Err(diagnostic) => problems.push(*diagnostic),
        }
    }
    if problems.is_empty() { Ok(streams) } else { Err(problems) }
}

/// Returns the stream with the client of `previous` if it is equal, or with its counters. With several graphs, another
/// client of the same name may be that of another server, and has counters of its own.
fn continue_stream(
    config: &Config,
    mut new: SubgraphStreams,
    previous: &[Option<SubgraphStreams>],
) -> SubgraphStreams {
    let same_name = |it: &&SubgraphStreams| it.client.subgraph() == new.client.subgraph();
    let Some(known) = previous.iter().flatten().find(same_name) else { return new };
    if known.client.is_equal(&new.client) {
        new.client = Arc::clone(&known.client);
    } else if config.graphs.is_empty() {
        new.client = Arc::new(new.client.continuing(&known.client));
    }
    new
}

/// True if queries and mutations of the subgraph use its WebSocket.
pub fn has_queries(config: &Config, subgraph: &str) -> bool {
    let transport = config.subgraphs.get(subgraph).map(|it| it.queries_over);
    transport == Some(QueryTransport::Websocket)
}

fn load_stream(
    config: &Config,
    graph: &Supergraph,
    endpoint: &ResolvedEndpoint,
    certificates: &SubgraphCertificates,
    callbacks: Option<&Arc<CallbackEndpoint>>,
) -> Result<SubgraphStreams, Box<Diagnostic>> {
    let ResolvedEndpoint { protocol, url, .. } = endpoint;
    let name = &*graph.subgraph(endpoint.subgraph).name;
    let section = config.subgraphs.get(name).map(|it| &it.subscription);
    let settings = section.cloned().unwrap_or_default();
    // WebSockets are upgraded from HTTP/1.1.
    let http = match protocol.is_websocket() {
        true => HttpProtocol::Http1,
        false => config.traffic.of(name).protocol,
    };
    let tls_url = url.replacen("wss:", "https:", 1);
    let tls = certificates.client_of(config, name, &tls_url, http)?;
    let client =
        SubgraphSubscriptions::new(name, url, tls, settings_of(config, name, &settings, *protocol));
    let client = client.map_err(|error| {
        let message = format!("the URL of the subscriptions of subgraph `{name}`: {error}");
        Box::new(Diagnostic::error("subgraph-url", message).help(format!(
            "set `subgraphs.{name}.subscription.url` to the URL of a ws, wss, http, https or unix server"
        )))
    })?;
    let share_by = settings.share_by.as_ref();
    Ok(SubgraphStreams {
        client: Arc::new(client.with_callbacks(callbacks.cloned())),
        root_type: graph
            .subscription
            .map(|it| graph.ty(it).name.as_ref().into())
            .unwrap_or_default(),
        share_by_headers: share_by.map(|it| it.headers.clone()),
        claims: share_by.map(SubscriptionSharing::claim_paths).unwrap_or_default(),
        extensions: settings.extensions,
    })
}

fn settings_of(
    config: &Config,
    subgraph: &str,
    settings: &SubgraphSubscriptionSettings,
    protocol: Named,
) -> SubscriptionSettings {
    let connect_timeout = settings.connect_timeout;
    SubscriptionSettings {
        protocol: match protocol {
            Named::Auto => SubscriptionProtocol::Auto,
            Named::GraphqlTransportWs => SubscriptionProtocol::GraphqlTransportWs,
            Named::GraphqlWs => SubscriptionProtocol::GraphqlWs,
            Named::Sse => SubscriptionProtocol::Sse,
            Named::SseGet => SubscriptionProtocol::SseGet,
            Named::Multipart => SubscriptionProtocol::Multipart,
            Named::Callback => SubscriptionProtocol::Callback,
        },
        http: protocol_of(config.traffic.of(subgraph).protocol),
        init_payload: settings.init_payload,
        connect_timeout: connect_timeout
            .unwrap_or_else(|| config.traffic.of(subgraph).connect_timeout),
        ack_timeout: settings.ack_timeout,
        ping_interval: Some(settings.ping_interval).filter(|it| !it.is_zero()),
        idle_timeout: Some(settings.idle_timeout).filter(|it| !it.is_zero()),
        message_bytes_max: settings.max_message_size,
        connections_max: settings.max_connections as usize,
        operations_max: settings.max_operations as usize,
        close_after: settings.close_after,
        reconnect: ReconnectSettings {
            delays: Retry { initial: settings.retry.initial, max: settings.retry.max },
            attempts: settings.retry.attempts,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_the_configuration_are_those_of_the_client() {
        let settings = SubgraphSubscriptionSettings::default();
        let used = settings_of(&Config::default(), "a", &settings, Named::default());
        assert_eq!(used, SubscriptionSettings::default());
    }

    #[test]
    fn only_listed_members_of_extensions_are_sent() {
        let select = |extensions: &'static str, names: &[&str]| {
            let names: Vec<_> = names.iter().map(|&it| it.to_owned()).collect();
            select_members(&Bytes::from(extensions), &names)
        };
        assert_eq!(
            select(r#"{"a":1,"b":{"c":2},"cursor":"x"}"#, &["b", "a"]),
            r#"{"b":{"c":2},"a":1}"#
        );
        assert_eq!(select(r#"{"a":1}"#, &["b"]), "");
        assert_eq!(select(r#"{"a":1}"#, &[]), "");
        assert_eq!(select("", &["a"]), "");
    }
}
