//! The client of one subgraph over HTTP: limits, sending, retries, and reading the response.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use admission::memory::MemoryAccount;
use bytes::Bytes;
use execute::{
    FetchError, HiddenErrors, LocalFuture, Subgraph, SubgraphEndpoint, SubgraphHeaders,
    SubgraphRequest, SubgraphResponse,
};
use http::{HeaderMap, Method, Request, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use net::TlsClient;
use telemetry::GaugeGuard;
use telemetry::spans::OutgoingSpan;

use crate::attempt_timeout::AttemptTimeout;
use crate::breaker::{Admission, Breaker, BreakerChange, BreakerOpen, HealthCheck};
use crate::connection::{Http2Stream, OpenedConnection, convert_error, open_connection};
use crate::hedge::Hedging;
use crate::http1::Http1Connection;
use crate::pool::AttemptKind;
use crate::reported_errors::LOGGED_CODE_BYTES_MAX;
use crate::request_body::RequestBody;
use crate::response::{BodyBounds, ReceivedResponse, receive_response};
use crate::retry::{FailedAttempt, SentState, Verdict, judge_failure, retry_pause};
use crate::shared::SubgraphState;
use crate::stats::count;
use crate::target::Target;
use crate::{
    BreakerState, Clock, FailureKind, Protocol, TargetError, UpstreamSettings, UpstreamStats, pool,
    request_headers,
};

/// Time that a subgraph has to respond to `{__typename}`.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// The client of one subgraph. All workers share it, but each worker has connections of its own.
///
/// Fetches must run inside a `tokio::task::LocalSet`, as those of a worker do: the task that drives
/// a connection is spawned onto it and never leaves it.
#[derive(Debug)]
pub struct Upstream {
    name: Box<str>,
    target: Target,
    /// The address for the spans of traces.
    endpoint: SubgraphEndpoint,
    settings: UpstreamSettings,
    state: Arc<SubgraphState>,
    clock: Clock,
    /// The memory of the process, which responses are a part of.
    memory: Arc<MemoryAccount>,
}

/// The result of an attempt.
pub(crate) struct TimedAttempt {
    pub(crate) result: Result<SubgraphResponse, FailedAttempt>,
    /// The time that the request took that the result belongs to.
    pub(crate) took: Duration,
    /// True if the request was sent a second time because its response was late.
    pub(crate) was_hedged: bool,
}

/// The connection of one request.
enum HttpConnection {
    Http1(Http1Connection),
    Http2(Http2Stream),
}

impl Upstream {
    /// Creates a client of the subgraph `name` at `url`. It connects when it is first needed. `tls`
    /// is needed for https only; it contains the protocols to offer.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub fn new(
        name: impl Into<Box<str>>,
        url: &str,
        settings: UpstreamSettings,
        tls: Option<TlsClient>,
    ) -> Result<Self, TargetError> {
        let clock = Clock::default();
        let name = name.into();
        let target = Target::parse(url, tls)?;
        Ok(Self {
            endpoint: target.endpoint(),
            target,
            state: Arc::new(SubgraphState::new(&name, &settings, Arc::default(), clock.now())),
            name,
            settings,
            clock,
            memory: MemoryAccount::unlimited(),
        })
    }

    /// Takes over the counters of `previous`. If both have the same server and the same settings,
    /// also takes over its connections, its circuit breaker and its retry budget.
    pub fn continuing(mut self, previous: &Self) -> Self {
        let is_same = self.has_same_server(previous) && self.settings == previous.settings;
        self.state = if is_same {
            Arc::clone(&previous.state)
        } else {
            let stats = Arc::clone(&previous.state.stats);
            Arc::new(SubgraphState::new(&self.name, &self.settings, stats, self.clock.now()))
        };
        self
    }

    /// True if both have the same server.
    pub fn has_same_server(&self, other: &Self) -> bool {
        self.target.origin == other.target.origin
    }

    /// Counts responses as a part of this memory.
    pub fn with_memory(self, memory: &Arc<MemoryAccount>) -> Self {
        Self { memory: Arc::clone(memory), ..self }
    }

    /// Replaces the system's clock.
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The name of the subgraph.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The counters of the subgraph.
    pub fn stats(&self) -> &UpstreamStats {
        &self.state.stats
    }

    /// The counters of the subgraph, which several clients may share.
    pub fn shared_stats(&self) -> &Arc<UpstreamStats> {
        &self.state.stats
    }

    pub(crate) fn state(&self) -> &SubgraphState {
        &self.state
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The state of the circuit breaker; closed if the subgraph has none.
    pub fn breaker(&self) -> BreakerState {
        self.state.breaker.as_ref().map_or(BreakerState::Closed, Breaker::state)
    }

    /// Runs a request that another transport sends to the subgraph, such as a WebSocket. It is counted, timed and
    /// logged like those over HTTP, and the circuit breaker admits and judges it. It is not repeated.
    ///
    /// # Errors
    /// The request failed, or the circuit breaker is open.
    pub async fn fetch_over(
        &self,
        span: Option<&OutgoingSpan>,
        fetch: impl Future<Output = Result<SubgraphResponse, FetchError>>,
    ) -> Result<SubgraphResponse, FetchError> {
        count(&self.state.stats.requests);
        let start = Instant::now();
        let result = match self.admit() {
            Err(open) => Err(open),
            Ok(admission) => {
                let _in_flight = GaugeGuard::up(&self.state.stats.in_flight);
                let result = fetch.await;
                self.judge(admission, &result);
                result
            }
        };
        self.record(start, span, &result);
        result
    }

    /// Tells the circuit breaker what the result of a request over another transport says about the subgraph.
    fn judge(
        &self,
        admission: Option<Admission<'_>>,
        result: &Result<SubgraphResponse, FetchError>,
    ) {
        let Err(error) = result else {
            self.record_outcome(admission, Ok(()));
            return;
        };
        let verdict = match self.failure_kind(error) {
            // If the operation had no time left, that says nothing about the subgraph.
            FailureKind::Deadline => Verdict::Unknown,
            _ => judge_failure(error),
        };
        match verdict {
            Verdict::Works => self.record_outcome(admission, Ok(())),
            Verdict::Fails => self.record_outcome(admission, Err(error)),
            // A check over HTTP would show nothing about the other transport.
            Verdict::Unknown | Verdict::Unclear => {}
        }
    }

    async fn fetch_counted(
        &self,
        request: SubgraphRequest<'_>,
    ) -> Result<SubgraphResponse, FetchError> {
        count(&self.state.stats.requests);
        let (start, span) = (Instant::now(), request.headers.span);
        let result = self.fetch_retrying(request, start).await;
        self.record(start, span, &result);
        result
    }

    /// Counts and logs the result of a request that began at `start`.
    fn record(
        &self,
        start: Instant,
        span: Option<&OutgoingSpan>,
        result: &Result<SubgraphResponse, FetchError>,
    ) {
        let stats = &self.state.stats;
        stats.seconds.add(start.elapsed(), span.and_then(OutgoingSpan::exemplar));
        match result {
            Ok(_) => self.log_success(),
            Err(error) => {
                let kind = self.failure_kind(error);
                stats.count_failure(kind);
                self.log_failure(error, kind);
            }
        }
    }

    fn failure_kind(&self, error: &FetchError) -> FailureKind {
        // Messages have whole milliseconds, and so has the timeout to compare with.
        FailureKind::of(error, round_to_millis(self.settings.timeout))
    }

    /// Warns about the first failure at once, and about further failures once per interval, with
    /// their number.
    fn log_failure(&self, error: &FetchError, kind: FailureKind) {
        tracing::debug!(subgraph = &*self.name, %error, "subgraph request failed");
        // The circuit breaker logged its error when it opened, and an operation without time says nothing about the
        // subgraph.
        if !matches!(kind, FailureKind::BreakerOpen | FailureKind::Deadline) {
            self.warn_of_failure(error);
        }
    }

    fn warn_of_failure(&self, error: &dyn std::fmt::Display) {
        if let Some(failures) = self.state.failure_log.record(1, self.clock.now()) {
            tracing::warn!(
                subgraph = &*self.name,
                address = self.target.address_text(),
                %error,
                failures,
                "requests to a subgraph fail"
            );
        }
    }

    fn log_success(&self) {
        if let Some(failures) = self.state.failure_log.record_success(|| self.clock.now()) {
            tracing::info!(
                subgraph = &*self.name,
                address = self.target.address_text(),
                failures,
                "a subgraph has recovered: requests to it succeed again"
            );
        }
    }

    async fn fetch_retrying(
        &self,
        mut request: SubgraphRequest<'_>,
        start: Instant,
    ) -> Result<SubgraphResponse, FetchError> {
        let time_left = request.deadline.saturating_duration_since(start);
        // The subgraph's time begins when it has got the files.
        let time_limit = match &request.form {
            None => self.settings.timeout.min(time_left),
            Some(_) => time_left,
        };
        let deadline = start + time_limit;
        request.deadline = deadline;
        let request = &request;
        let mut failed: Option<FetchError> = None;
        // Files are sent once, and changes are made once.
        let mut hedging = match request.is_mutation || request.form.is_some() {
            true => None,
            false => self.state.hedging.as_ref(),
        };
        for number in 0.. {
            let admission = match self.admit() {
                Ok(admission) => admission,
                // The breaker opened while this request waited for another attempt.
                Err(open) => return Err(failed.unwrap_or(open)),
            };
            let timeout =
                AttemptTimeout { limit: time_limit, deadline, own: self.settings.timeout };
            let attempt = self.attempt_timed(request, hedging, deadline);
            let attempt = timeout.bound(request.form.as_ref(), attempt).await;
            let failure = match attempt {
                Ok(TimedAttempt { result: Ok(response), took, .. }) => {
                    self.record_outcome(admission, Ok(()));
                    self.state.fastest.note(took, self.clock.now());
                    return Ok(response);
                }
                Ok(TimedAttempt { result: Err(failure), was_hedged, .. }) => {
                    // A request is sent a second time once, also if it is retried.
                    hedging = hedging.filter(|_| !was_hedged);
                    failure
                }
                Err(exceeded) => {
                    let error = FetchError::Timeout(round_to_millis(exceeded.limit));
                    // If the request itself had no time left, the timeout says nothing about the
                    // subgraph.
                    if exceeded.is_own {
                        self.record_outcome(admission, Err(&error));
                    }
                    return Err(error);
                }
            };
            match judge_failure(&failure.error) {
                Verdict::Unknown => {}
                Verdict::Works => self.record_outcome(admission, Ok(())),
                Verdict::Fails => self.record_outcome(admission, Err(&failure.error)),
                Verdict::Unclear => {
                    let check = admission.and_then(|it| it.failed_unclearly(self.clock.now()));
                    if let Some(check) = check {
                        self.run_health_check(check, deadline).await;
                    }
                }
            }
            let Some(pause) = self.plan_retry(number, &failure, request, deadline) else {
                return Err(failure.error);
            };
            failed = Some(failure.error);
            if let Some(span) = request.headers.span {
                span.note_retry();
            }
            tokio::time::sleep(pause).await;
        }
        // The loop above ends by returning, because the number of retries is bounded.
        Err(failed.unwrap_or(FetchError::Overloaded))
    }

    fn admit(&self) -> Result<Option<Admission<'_>>, FetchError> {
        let Some(breaker) = &self.state.breaker else { return Ok(None) };
        let admitted = breaker.admit(self.clock.now());
        admitted.map(Some).map_err(|BreakerOpen(pause)| FetchError::Unavailable(pause))
    }

    fn record_outcome(&self, admission: Option<Admission<'_>>, outcome: Result<(), &FetchError>) {
        let Some(admission) = admission else { return };
        let change = match outcome {
            Ok(()) => admission.succeeded(),
            Err(_) => admission.failed(self.clock.now()),
        };
        self.report_change(change, outcome.err());
    }

    /// Sends the subgraph a query that every GraphQL server can respond to, without any part that a
    /// client chose. `deadline` is that of the request whose failure caused the check.
    async fn run_health_check(&self, check: HealthCheck<'_>, deadline: Instant) {
        count(&self.state.stats.breaker_checks);
        let check_deadline = Instant::now() + CHECK_TIMEOUT;
        let until = deadline.min(check_deadline);
        let request = SubgraphRequest {
            body: Bytes::from_static(br#"{"query":"{__typename}"}"#),
            form: None,
            is_mutation: false,
            headers: SubgraphHeaders::default(),
            deadline: until,
        };
        let error =
            match tokio::time::timeout_at(until.into(), self.attempt_request(&request)).await {
                Ok(Ok(_)) => None,
                Ok(Err(failure)) => Some(failure.error),
                Err(_) if until == check_deadline => Some(FetchError::Timeout(CHECK_TIMEOUT)),
                // The result of the check is unknown.
                Err(_) => return,
            };
        let now = self.clock.now();
        let change = match error.as_ref().map_or(Verdict::Works, judge_failure) {
            Verdict::Unknown => return,
            Verdict::Works => check.passed(now),
            Verdict::Fails | Verdict::Unclear => check.failed(now),
        };
        self.report_change(change, error.as_ref());
    }

    /// Counts and logs a change of the circuit breaker. `error` is that of the last request.
    fn report_change(&self, change: Option<BreakerChange>, error: Option<&FetchError>) {
        match change {
            None => {}
            Some(BreakerChange::Opened { failures }) => {
                count(&self.state.stats.breaker_opened);
                tracing::warn!(
                    subgraph = &*self.name,
                    address = self.target.address_text(),
                    error = error.map(tracing::field::display),
                    failures,
                    "the circuit breaker has opened: most requests to this subgraph fail, so it gets none for now"
                );
            }
            Some(BreakerChange::Closed) => {
                tracing::info!(
                    subgraph = &*self.name,
                    address = self.target.address_text(),
                    "the circuit breaker has closed: this subgraph works again"
                );
            }
        }
    }

    /// Returns the pause before the request is sent again, or `None` if it is not sent again.
    fn plan_retry(
        &self,
        number: u32,
        failure: &FailedAttempt,
        request: &SubgraphRequest<'_>,
        deadline: Instant,
    ) -> Option<Duration> {
        let settings = &self.settings.retry;
        if number >= settings.retries
            || !failure.may_repeat(request.is_mutation)
            || has_begun(request)
        {
            return None;
        }
        let pause = retry_pause(settings, number, random_u32());
        let stats = &self.state.stats;
        let shortest = self.state.fastest.duration(self.clock.now());
        if Instant::now() + pause + shortest >= deadline {
            count(&stats.retries_too_late);
            return None;
        }
        let requests = stats.requests.load(Ordering::Relaxed);
        if !self.state.budget.withdraw(requests, self.clock.now()) {
            count(&stats.retries_refused);
            return None;
        }
        count(&stats.retries);
        Some(pause)
    }

    /// Makes an attempt, with a second request if `hedging` allows it.
    async fn attempt_timed(
        &self,
        request: &SubgraphRequest<'_>,
        hedging: Option<&Hedging>,
        deadline: Instant,
    ) -> TimedAttempt {
        match hedging {
            // Boxed, so that requests without it need no memory for it.
            Some(hedging) => Box::pin(self.attempt_hedged(request, hedging, deadline)).await,
            None => {
                let began = Instant::now();
                let result = self.attempt_request(request).await;
                TimedAttempt { result, took: began.elapsed(), was_hedged: false }
            }
        }
    }

    pub(crate) async fn attempt_request(
        &self,
        request: &SubgraphRequest<'_>,
    ) -> Result<SubgraphResponse, FailedAttempt> {
        let state = &*self.state;
        let _permit = state.limits.acquire(self.speaks_http2(), &state.stats).await?;
        let _in_flight = GaugeGuard::up(&state.stats.in_flight);
        self.attempt_with_permit(request, AttemptKind::Ordinary).await
    }

    /// Makes an attempt that has its permit.
    pub(crate) async fn attempt_with_permit(
        &self,
        request: &SubgraphRequest<'_>,
        kind: AttemptKind,
    ) -> Result<SubgraphResponse, FailedAttempt> {
        let state = &*self.state;
        // The files of a form cannot be sent again, so it does not risk a connection that may be closed already.
        if let Some(connection) = self.checkout(request.form.is_none(), kind) {
            match self.exchange(connection, request).await {
                // A reused connection that failed without a response had most likely been closed as
                // idle; that says nothing about the next connection.
                Err(failure)
                    if (failure.sent == SentState::NotSent && !has_begun(request))
                        || (failure.sent == SentState::NoResponse && !request.is_mutation) =>
                {
                    count(&state.stats.reconnects);
                }
                other => return other,
            }
        }
        let connection = self.open_connection().await;
        // Nothing was sent, whatever prevented the connection.
        let connection = connection
            .map_err(|error| FailedAttempt { sent: SentState::NotSent, ..error.into() })?;
        self.exchange(connection, request).await
    }

    /// True if one connection is most likely enough for many requests.
    pub(crate) fn speaks_http2(&self) -> bool {
        match self.settings.protocol {
            Protocol::Http1 => false,
            Protocol::Http2 => true,
            Protocol::Auto => self.state.agreed_http2.load(Ordering::Relaxed),
        }
    }

    /// Takes an open connection of this worker. One that was idle over HTTP/1.1 only if `may_be_closed`.
    fn checkout(&self, may_be_closed: bool, kind: AttemptKind) -> Option<HttpConnection> {
        if self.settings.protocol != Protocol::Http1
            && let Some(stream) = pool::join_http2_connection(&self.state, kind)
        {
            return Some(HttpConnection::Http2(stream));
        }
        if !may_be_closed {
            return None;
        }
        let connection = pool::take_idle(&self.state, self.settings.idle_timeout)?;
        Some(HttpConnection::Http1(connection))
    }

    async fn open_connection(&self) -> Result<HttpConnection, FetchError> {
        if !self.speaks_http2() {
            return self.connect().await;
        }
        let shared = || {
            let stream = pool::join_http2_connection(&self.state, AttemptKind::Ordinary);
            stream.map(HttpConnection::Http2)
        };
        pool::connect_gate(&self.state).run(shared, async || self.connect().await).await
    }

    async fn connect(&self) -> Result<HttpConnection, FetchError> {
        let (state, settings) = (&self.state, &self.settings);
        let permit = state.limits.acquire_connection(&state.stats).await?;
        let (origin, timeout) = (&self.target.origin, settings.connect_timeout);
        Ok(match open_connection(origin, settings.protocol, timeout, state, permit).await? {
            OpenedConnection::Http1(connection) => HttpConnection::Http1(connection),
            OpenedConnection::Http2(connection) => {
                let stream = Http2Stream::new(std::rc::Rc::clone(&connection));
                pool::add_http2_connection(state, connection, settings.idle_timeout);
                HttpConnection::Http2(stream)
            }
        })
    }

    async fn exchange(
        &self,
        connection: HttpConnection,
        request: &SubgraphRequest<'_>,
    ) -> Result<SubgraphResponse, FailedAttempt> {
        let settings = &self.settings;
        let bounds = BodyBounds {
            bytes_max: settings.max_response_size,
            memory: &self.memory,
            may_refuse: !request.is_mutation,
        };
        let target = &self.target;
        let body = RequestBody::of(request, settings.signs_bodies()).await?;
        match connection {
            HttpConnection::Http1(mut connection) => {
                let signed = (&target.absolute, &body);
                let headers =
                    request_headers::headers(Some(&target.host), settings, request, signed)?;
                let path = target.path.as_str();
                let sending = connection.send(path, &headers, &body, request.is_mutation);
                let response = sending.await?;
                let ReceivedResponse { response, is_read_to_end } =
                    receive_response(response, bounds).await;
                if is_read_to_end {
                    pool::return_connection(&self.state, connection, self.settings.idle_timeout);
                }
                response
            }
            HttpConnection::Http2(stream) => {
                let headers =
                    request_headers::headers(None, settings, request, (&target.absolute, &body))?;
                let message = build_post(&target.absolute, headers, body);
                let response = stream.send(message).await?;
                let body = |body: Incoming| body.map_err(|error| convert_error(&error));
                receive_response(response.map(body), bounds).await.response
            }
        }
    }
}

impl Subgraph for Upstream {
    fn fetch<'a>(
        &'a self,
        request: SubgraphRequest<'a>,
    ) -> LocalFuture<'a, Result<SubgraphResponse, FetchError>> {
        Box::pin(self.fetch_counted(request))
    }

    fn endpoint(&self) -> Option<&SubgraphEndpoint> {
        Some(&self.endpoint)
    }

    fn note_slowness(&self, is_slow: bool) {
        if let Some(hedging) = &self.state.hedging {
            hedging.note_slowness(is_slow);
        }
    }

    fn note_split(&self) {
        count(&self.stats().taken_apart);
    }

    fn note_unusable_response(&self, problem: &str) {
        tracing::debug!(subgraph = &*self.name, problem, "a response cannot be used");
        self.warn_of_failure(&format_args!("the subgraph {problem}"));
    }

    fn note_errors(&self, code: Option<&str>) {
        self.stats().reported_errors.count(code);
    }

    fn note_hidden_errors(&self, errors: &HiddenErrors<'_>) {
        let count = u64::try_from(errors.count).unwrap_or(u64::MAX);
        if let Some(count) = self.state.reported_log.record(count, self.clock.now()) {
            let code = errors.code.map(|it| &it[..it.floor_char_boundary(LOGGED_CODE_BYTES_MAX)]);
            let path = (errors.path)();
            tracing::warn!(
                subgraph = &*self.name,
                address = self.target.address_text(),
                code,
                path = path.as_deref(),
                errors = count,
                "a subgraph reports errors whose messages are hidden from clients (include_subgraph_errors); the level \
                 `debug` shows them"
            );
        }
    }
}

fn build_post(target: &http::Uri, headers: HeaderMap, body: RequestBody) -> Request<RequestBody> {
    let mut request = Request::new(body);
    *request.method_mut() = Method::POST;
    *request.uri_mut() = target.clone();
    *request.version_mut() = Version::HTTP_2;
    *request.headers_mut() = headers;
    request
}

/// True if parts of a form were taken, so that the request cannot be sent again.
fn has_begun(request: &SubgraphRequest<'_>) -> bool {
    request.form.as_ref().is_some_and(|form| form.body.has_begun())
}

/// Rounds a duration for messages: `1.234567891s` is no more useful than `1.235s`.
fn round_to_millis(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// Returns a number that is random enough to spread retries.
fn random_u32() -> u32 {
    // Each state has different keys.
    std::hash::RandomState::new().build_hasher().finish() as u32
}
