//! One subgraph over HTTP: waiting for a turn, sending, retrying, reading the answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use execute::{FetchError, LocalFuture, Subgraph, SubgraphAnswer, SubgraphRequest};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method, Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use net::TlsClient;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::connection::{Connection, SendError, describe};
use crate::stats::{Gauge, count};
use crate::target::Target;
use crate::{TargetError, UpstreamSettings, UpstreamStats, content_type, pool, request_headers};

/// Bytes of a body that nobody needs, read all the same so that the connection can be used again.
/// More than that costs more than a new connection.
const UNWANTED_BODY_BYTES_MAX: u64 = 64 * 1024;

/// Room made ahead for a body of announced length. A server may announce what it never sends.
const BODY_ROOM_BYTES_MAX: u64 = 1024 * 1024;

/// The client of one subgraph. Shared by all cores; each has connections of its own.
///
/// Fetches must run inside a `tokio::task::LocalSet`, as those of a core do: the task that drives
/// a connection is spawned onto it and never leaves it.
#[derive(Debug)]
pub struct Upstream {
    name: Box<str>,
    target: Target,
    settings: UpstreamSettings,
    turns: Semaphore,
    stats: Arc<UpstreamStats>,
}

impl Upstream {
    /// A client of the subgraph `name` at `url`. Connects when it is first needed. `tls` is
    /// needed for https only.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub fn new(
        name: impl Into<Box<str>>,
        url: &str,
        settings: UpstreamSettings,
        tls: Option<TlsClient>,
    ) -> Result<Self, TargetError> {
        Ok(Self {
            name: name.into(),
            target: Target::parse(url, tls)?,
            turns: Semaphore::new(settings.max_connections.clamp(1, Semaphore::MAX_PERMITS)),
            settings,
            stats: Arc::default(),
        })
    }

    /// The subgraph's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its counters. They go on with the next generation if given to
    /// [`with_stats`](Self::with_stats) there.
    pub fn stats(&self) -> &Arc<UpstreamStats> {
        &self.stats
    }

    /// Counts into `stats`.
    pub fn with_stats(mut self, stats: Arc<UpstreamStats>) -> Self {
        self.stats = stats;
        self
    }

    async fn fetch_counted(
        &self,
        request: SubgraphRequest<'_>,
    ) -> Result<SubgraphAnswer, FetchError> {
        count(&self.stats.requests);
        let start = Instant::now();
        let patience = self.settings.timeout.min(request.deadline.saturating_duration_since(start));
        let result = tokio::time::timeout(patience, self.fetch_in_turn(&request))
            .await
            .unwrap_or_else(|_| Err(FetchError::Timeout(rounded(patience))));
        if let Err(error) = &result {
            self.stats.count_failure(error);
            tracing::debug!(subgraph = &*self.name, %error, "subgraph request failed");
        }
        result
    }

    async fn fetch_in_turn(
        &self,
        request: &SubgraphRequest<'_>,
    ) -> Result<SubgraphAnswer, FetchError> {
        let _turn = self.turn().await?;
        let _in_flight = Gauge::up(&self.stats.in_flight);
        let headers = request_headers::headers(&self.target.host, request);
        if let Some(connection) = pool::take(&self.target.origin).await {
            match self.send(connection, headers.clone(), request.body.clone()).await {
                Ok((connection, response)) => return self.receive(connection, response).await,
                Err(failed) => {
                    let may_repeat = failed.unsent || (failed.unanswered && !request.is_mutation);
                    if !may_repeat {
                        return Err(failed.error);
                    }
                    count(&self.stats.retries);
                }
            }
        }
        // A new connection is not retried: who accepts and then hangs up has a reason.
        count(&self.stats.connections_opened);
        let connection =
            Connection::open(&self.target.origin, self.settings.connect_timeout).await?;
        let sent = self.send(connection, headers, request.body.clone()).await;
        let (connection, response) = sent.map_err(|failed| failed.error)?;
        self.receive(connection, response).await
    }

    /// Waits until fewer than `max_connections` requests are in flight.
    async fn turn(&self) -> Result<SemaphorePermit<'_>, FetchError> {
        if let Ok(turn) = self.turns.try_acquire() {
            return Ok(turn);
        }
        let waiting = Gauge::up(&self.stats.waiting);
        if self.stats.waiting.load(Ordering::Relaxed) > self.settings.max_waiting as u64 {
            return Err(FetchError::Overloaded);
        }
        let turn = self.turns.acquire().await;
        drop(waiting);
        // The semaphore is never closed.
        turn.map_err(|_| FetchError::Overloaded)
    }

    async fn send(
        &self,
        mut connection: Connection,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(Connection, Response<Incoming>), SendError> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.target.path.clone();
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = headers;
        let response = connection.send(request).await?;
        Ok((connection, response))
    }

    async fn receive(
        &self,
        connection: Connection,
        response: Response<Incoming>,
    ) -> Result<SubgraphAnswer, FetchError> {
        let (head, body) = response.into_parts();
        let announced =
            head.headers.get(CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse().ok());
        if let Err(refused) = content_type::check(head.status, &head.headers) {
            if announced.is_none_or(|it: u64| it <= UNWANTED_BODY_BYTES_MAX)
                && read(body, announced, UNWANTED_BODY_BYTES_MAX).await.is_ok()
            {
                self.give_back(connection);
            }
            return Err(refused);
        }
        let limit = self.settings.max_response_size;
        if announced.is_some_and(|it| it > limit) {
            return Err(FetchError::TooLarge { limit });
        }
        let body = read(body, announced, limit).await?;
        self.give_back(connection);
        Ok(SubgraphAnswer { status: head.status, headers: head.headers, body })
    }

    fn give_back(&self, connection: Connection) {
        pool::give_back(&self.target.origin, connection, self.settings.idle_timeout);
    }
}

impl Subgraph for Upstream {
    fn fetch<'a>(
        &'a self,
        request: SubgraphRequest<'a>,
    ) -> LocalFuture<'a, Result<SubgraphAnswer, FetchError>> {
        Box::pin(self.fetch_counted(request))
    }
}

/// Reads a body of at most `limit` bytes.
async fn read(mut body: Incoming, announced: Option<u64>, limit: u64) -> Result<Bytes, FetchError> {
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    let mut length = 0u64;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| describe(&error))?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len() as u64;
        if length > limit {
            return Err(FetchError::TooLarge { limit });
        }
        // Most answers come in one piece and are never copied.
        if first.is_empty() && rest.is_empty() {
            if body.is_end_stream() {
                return Ok(data);
            }
            first = data;
        } else {
            if rest.is_empty() {
                let room = announced.unwrap_or_default().min(BODY_ROOM_BYTES_MAX) as usize;
                rest.reserve(room.max(first.len() + data.len()));
                rest.extend_from_slice(&first);
                first = Bytes::new();
            }
            rest.extend_from_slice(&data);
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// For messages: `1.234567891s` tells nobody more than `1.235s`.
fn rounded(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}
