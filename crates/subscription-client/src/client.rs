//! The client of one subgraph's subscriptions.

use std::sync::Arc;

use bytes::Bytes;
use events::{EventFuture, EventStream, SourceError, SubgraphSubscription, SubscriptionClient};
use execute::FetchError;
use net::TlsClient;
use telemetry::LogLimit;
use upstream::{Target, TargetError};

use crate::callback_endpoint::CallbackEndpoint;
use crate::endpoint::SubscriptionEndpoint;
use crate::http_probe;
use crate::operation_task::HttpOperations;
use crate::probe_outcome::{ProbeError, ProbeOutcome};
use crate::settings::SubscriptionSettings;
use crate::stats::SubscriptionStats;
use crate::websocket::WebSocketPool;

/// The subscriptions of one subgraph. Connections outlive this value as long as a stream uses them.
#[derive(Debug)]
pub struct SubgraphSubscriptions {
    endpoint: Arc<SubscriptionEndpoint>,
    websockets: WebSocketPool,
    /// The operations by other protocols than WebSocket.
    http: HttpOperations,
}

impl SubgraphSubscriptions {
    /// Creates the client of the subgraph `name`. `url` has the scheme `ws`, `wss`, `http`, `https` or `unix`; `tls` is
    /// for `wss` and `https`. Connects to nothing yet.
    ///
    /// # Errors
    /// The URL cannot be used.
    pub fn new(
        name: &str,
        url: &str,
        tls: Option<TlsClient>,
        settings: SubscriptionSettings,
    ) -> Result<Self, TargetError> {
        let target = Target::parse(&http_url(url), tls)?;
        Ok(Self::of(
            SubscriptionEndpoint {
                source_name: format!("subgraph/{name}").into(),
                target,
                settings,
                stats: Arc::default(),
                latest_headers: Arc::default(),
                log_limit: LogLimit::new(),
            },
            None,
        ))
    }

    fn of(endpoint: SubscriptionEndpoint, callbacks: Option<Arc<CallbackEndpoint>>) -> Self {
        let endpoint = Arc::new(endpoint);
        let websockets = WebSocketPool::new(Arc::clone(&endpoint));
        let http = HttpOperations::new(Arc::clone(&endpoint), callbacks);
        Self { endpoint, websockets, http }
    }

    /// Returns the same client with an endpoint for callbacks, which [`SubscriptionProtocol::Callback`] needs.
    ///
    /// [`SubscriptionProtocol::Callback`]: crate::SubscriptionProtocol::Callback
    #[must_use]
    pub fn with_callbacks(self, callbacks: Option<Arc<CallbackEndpoint>>) -> Self {
        let http = HttpOperations::new(Arc::clone(&self.endpoint), callbacks);
        Self { http, ..self }
    }

    /// Returns the same client with the counters of `previous`, and the latest headers of its partitions.
    #[must_use]
    pub fn continuing(&self, previous: &Self) -> Self {
        let SubscriptionEndpoint { source_name, target, settings, .. } = &*self.endpoint;
        let endpoint = SubscriptionEndpoint {
            source_name: source_name.clone(),
            target: target.clone(),
            settings: settings.clone(),
            stats: Arc::clone(&previous.endpoint.stats),
            latest_headers: Arc::clone(&previous.endpoint.latest_headers),
            log_limit: LogLimit::new(),
        };
        Self::of(endpoint, self.http.callbacks().cloned())
    }

    /// True if both ask the same server in the same way, so that one can replace the other.
    pub fn is_equal(&self, other: &Self) -> bool {
        let (ours, theirs) = (&*self.endpoint, &*other.endpoint);
        ours.source_name == theirs.source_name
            && ours.target == theirs.target
            && ours.settings == theirs.settings
    }

    /// Sends a query or mutation over the WebSocket of its partition, and waits for the response. Dropping the future
    /// ends the operation. Nothing is sent a second time.
    ///
    /// # Errors
    /// There was no connection, or it ended before the response.
    pub async fn fetch(&self, wanted: SubgraphSubscription) -> Result<Bytes, FetchError> {
        self.websockets.fetch(Arc::new(wanted)).await
    }

    /// Checks that the subgraph serves subscriptions, without headers of clients: over a WebSocket that it acknowledges
    /// a connection, over HTTP how it responds to an operation that it must refuse. No subscription begins.
    ///
    /// # Errors
    /// The subgraph cannot be reached, or does not serve subscriptions by this protocol.
    pub async fn probe(&self) -> Result<ProbeOutcome, ProbeError> {
        match self.endpoint.settings.protocol.is_websocket() {
            true => self.websockets.probe().await.map(|()| ProbeOutcome::Proven),
            false => http_probe::probe(&self.endpoint, self.http.callbacks()).await,
        }
    }

    /// Returns the name of the subgraph.
    pub fn subgraph(&self) -> &str {
        let name = &*self.endpoint.source_name;
        name.strip_prefix("subgraph/").unwrap_or(name)
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Arc<SubscriptionStats> {
        &self.endpoint.stats
    }
}

impl SubscriptionClient for SubgraphSubscriptions {
    fn name(&self) -> &str {
        &self.endpoint.source_name
    }

    fn note_headers(&self, wanted: &SubgraphSubscription) {
        self.endpoint.latest_headers.note(wanted);
    }

    fn renew_headers(&self, wanted: &SubgraphSubscription) {
        self.endpoint.latest_headers.note(wanted);
        // Without effect for other protocols, which have no connections in the pool.
        self.websockets.send_latest_headers(&wanted.partition);
    }

    fn subscribe(
        &self,
        wanted: Arc<SubgraphSubscription>,
    ) -> EventFuture<'_, Result<EventStream, SourceError>> {
        match self.endpoint.settings.protocol.is_websocket() {
            true => Box::pin(self.websockets.subscribe(wanted)),
            false => Box::pin(self.http.subscribe(wanted)),
        }
    }

    fn resubscribe(
        &self,
        wanted: Arc<SubgraphSubscription>,
    ) -> EventFuture<'_, Result<EventStream, SourceError>> {
        match self.endpoint.settings.protocol.is_websocket() {
            true => Box::pin(self.websockets.resubscribe(wanted)),
            false => Box::pin(self.http.resubscribe(wanted)),
        }
    }
}

/// Returns the URL of the HTTP server behind a WebSocket URL (RFC 6455, section 3). Other URLs are returned unchanged.
fn http_url(url: &str) -> String {
    match url.strip_prefix("ws") {
        Some(rest) if rest.starts_with(':') || rest.starts_with("s:") => format!("http{rest}"),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn websocket_urls_are_those_of_their_http_servers() {
        assert_eq!(http_url("ws://a/b"), "http://a/b");
        assert_eq!(http_url("wss://a/b"), "https://a/b");
        assert_eq!(http_url("https://a/b"), "https://a/b");
        assert_eq!(http_url("wsx://a/b"), "wsx://a/b");
    }
}
