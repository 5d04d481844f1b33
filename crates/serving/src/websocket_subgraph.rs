//! A subgraph with queries and mutations over the WebSocket of its subscriptions (`queries_over: websocket`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use events::SubgraphSubscription;
use execute::{
    FetchError, ForwardedHeaders, HiddenErrors, LocalFuture, Subgraph, SubgraphRequest,
    SubgraphResponse,
};
use http::{HeaderMap, StatusCode};
use subscription_client::SubgraphSubscriptions;
use upstream::Upstream;

use crate::forwarding;
use crate::trace_formats::trace_headers;

/// The client of such a subgraph.
pub(crate) struct WebSocketSubgraph {
    pub(crate) client: Arc<SubgraphSubscriptions>,
    /// The client over HTTP, for the metrics, the circuit breaker and the log.
    pub(crate) upstream: Arc<Upstream>,
    /// The time limit of a request (`traffic`).
    pub(crate) timeout: Duration,
}

impl Subgraph for WebSocketSubgraph {
    fn fetch<'a>(
        &'a self,
        request: SubgraphRequest<'a>,
    ) -> LocalFuture<'a, Result<SubgraphResponse, FetchError>> {
        Box::pin(async move {
            if request.form.is_some() {
                let reason =
                    "the subgraph gets its requests over a WebSocket, which carries no files";
                return Err(FetchError::Protocol(reason.into()));
            }
            let span = request.headers.span;
            // Every header distinguishes clients here, as it does over HTTP.
            let all = request.headers.forwarded.into();
            let all = ForwardedHeaders { all, ..ForwardedHeaders::default() };
            let wanted = SubgraphSubscription {
                field: Box::default(),
                request: request.body,
                headers: request.headers.forwarded.into(),
                trace: span.map(|it| trace_headers(&it.context, it.id)).unwrap_or_default(),
                partition: forwarding::partition(&all).into(),
            };
            let began = Instant::now();
            let deadline = began
                .checked_add(self.timeout)
                .map_or(request.deadline, |own| own.min(request.deadline));
            let fetch = async {
                let response =
                    tokio::time::timeout_at(deadline.into(), self.client.fetch(wanted)).await;
                let timeout = || FetchError::Timeout(deadline.saturating_duration_since(began));
                let body = response.map_err(|_| timeout())??;
                Ok::<_, FetchError>(SubgraphResponse {
                    status: StatusCode::OK,
                    headers: HeaderMap::new(),
                    body,
                    policy: None,
                    hedge: None,
                })
            };
            self.upstream.fetch_over(span, fetch).await
        })
    }

    fn note_split(&self) {
        self.upstream.note_split();
    }

    fn note_unusable_response(&self, problem: &str) {
        self.upstream.note_unusable_response(problem);
    }

    fn note_errors(&self, code: Option<&str>) {
        self.upstream.note_errors(code);
    }

    fn note_hidden_errors(&self, errors: &HiddenErrors<'_>) {
        self.upstream.note_hidden_errors(errors);
    }
}
