//! One subgraph over HTTP: waiting for a turn, sending, retrying, reading the answer.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use execute::{FetchError, HiddenErrors, LocalFuture, Subgraph, SubgraphAnswer, SubgraphRequest};
use http::{HeaderMap, Method, Request, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use net::TlsClient;

use crate::answer::{Received, receive};
use crate::breaker::{Admission, Breaker, Change, Check, IsOpen};
use crate::connection::{OneStream, Opened, describe, open};
use crate::http1::Connection;
use crate::retry::{Failure, Sent, Verdict, pause, verdict};
use crate::standing::Standing;
use crate::stats::{Gauge, count};
use crate::target::Target;
use crate::{
    BreakerState, Clock, Protocol, TargetError, UpstreamSettings, UpstreamStats, pool,
    request_headers,
};

/// How long a subgraph may take for `{__typename}`.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// The client of one subgraph. Shared by all cores; each has connections of its own.
///
/// Fetches must run inside a `tokio::task::LocalSet`, as those of a core do: the task that drives
/// a connection is spawned onto it and never leaves it.
#[derive(Debug)]
pub struct Upstream {
    name: Box<str>,
    target: Target,
    settings: UpstreamSettings,
    standing: Arc<Standing>,
    clock: Clock,
}

/// Where one request goes out.
enum Line {
    Http1(Connection),
    Http2(OneStream),
}

impl Upstream {
    /// A client of the subgraph `name` at `url`. Connects when it is first needed. `tls` is
    /// needed for https only; it offers the protocols that it is to speak.
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
        Ok(Self {
            target: Target::parse(url, tls)?,
            standing: Arc::new(Standing::new(&name, &settings, Arc::default(), clock.now())),
            name,
            settings,
            clock,
        })
    }

    /// Goes on where `previous` was: with its counters, and, if it is still the same server with the
    /// same settings, with its connections, its breaker and its budget.
    pub fn continuing(mut self, previous: &Self) -> Self {
        let is_same =
            self.target.origin == previous.target.origin && self.settings == previous.settings;
        self.standing = if is_same {
            Arc::clone(&previous.standing)
        } else {
            let stats = Arc::clone(&previous.standing.stats);
            Arc::new(Standing::new(&self.name, &self.settings, stats, self.clock.now()))
        };
        self
    }

    /// With another clock than the system's.
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The subgraph's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its counters.
    pub fn stats(&self) -> &UpstreamStats {
        &self.standing.stats
    }

    /// What its circuit breaker does; closed where there is none.
    pub fn breaker(&self) -> BreakerState {
        self.standing.breaker.as_ref().map_or(BreakerState::Closed, Breaker::state)
    }

    async fn fetch_counted(
        &self,
        request: SubgraphRequest<'_>,
    ) -> Result<SubgraphAnswer, FetchError> {
        let stats = &self.standing.stats;
        count(&stats.requests);
        let start = Instant::now();
        let result = self.fetch_retrying(&request, start).await;
        stats.seconds.observe(start.elapsed());
        match &result {
            Ok(_) => self.log_success(),
            Err(error) => {
                stats.count_failure(error);
                self.log_failure(error);
            }
        }
        result
    }

    /// Warns about the first failure at once, and about the failures that follow once per interval, with their number.
    fn log_failure(&self, error: &FetchError) {
        tracing::debug!(subgraph = &*self.name, %error, "subgraph request failed");
        // The circuit breaker has said so when it opened.
        if !matches!(error, FetchError::Unavailable(_)) {
            self.warn_of_failure(error);
        }
    }

    fn warn_of_failure(&self, error: &dyn std::fmt::Display) {
        if let Some(failures) = self.standing.failure_log.record(1, self.clock.now()) {
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
        if let Some(failures) = self.standing.failure_log.record_success(|| self.clock.now()) {
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
        request: &SubgraphRequest<'_>,
        start: Instant,
    ) -> Result<SubgraphAnswer, FetchError> {
        let patience = self.settings.timeout.min(request.deadline.saturating_duration_since(start));
        let deadline = start + patience;
        let mut failed: Option<FetchError> = None;
        for number in 0.. {
            let admission = match self.admit() {
                Ok(admission) => admission,
                // It opened while this request waited for another attempt.
                Err(open) => return Err(failed.unwrap_or(open)),
            };
            let attempt = tokio::time::timeout_at(deadline.into(), self.attempt(request)).await;
            let failure = match attempt {
                Ok(Ok(answer)) => {
                    self.settle(admission, true);
                    return Ok(answer);
                }
                Ok(Err(failure)) => failure,
                Err(_) => {
                    // Who has no time left says nothing about the subgraph.
                    if patience == self.settings.timeout {
                        self.settle(admission, false);
                    }
                    return Err(FetchError::Timeout(rounded(patience)));
                }
            };
            match verdict(&failure.error) {
                Verdict::Unknown => {}
                Verdict::Works => self.settle(admission, true),
                Verdict::Fails => self.settle(admission, false),
                Verdict::Unclear => {
                    let check = admission.and_then(|it| it.failed_unclearly(self.clock.now()));
                    if let Some(check) = check {
                        self.run_check(check, deadline).await;
                    }
                }
            }
            let Some(pause) = self.retry(number, &failure, request, deadline) else {
                return Err(failure.error);
            };
            failed = Some(failure.error);
            tokio::time::sleep(pause).await;
        }
        // The loop above ends by returning: retries are bounded.
        Err(failed.unwrap_or(FetchError::Overloaded))
    }

    fn admit(&self) -> Result<Option<Admission<'_>>, FetchError> {
        let Some(breaker) = &self.standing.breaker else { return Ok(None) };
        let admitted = breaker.admit(self.clock.now());
        admitted.map(Some).map_err(|IsOpen(pause)| FetchError::Unavailable(pause))
    }

    fn settle(&self, admission: Option<Admission<'_>>, is_well: bool) {
        let Some(admission) = admission else { return };
        self.report(match is_well {
            true => admission.succeeded(),
            false => admission.failed(self.clock.now()),
        });
    }

    /// Asks the subgraph for what every GraphQL server knows, without anything that comes from a client. `deadline` is
    /// that of the request that gave the reason.
    async fn run_check(&self, check: Check<'_>, deadline: Instant) {
        count(&self.standing.stats.breaker_checks);
        let enough = Instant::now() + CHECK_TIMEOUT;
        let until = deadline.min(enough);
        let request = SubgraphRequest {
            body: Bytes::from_static(br#"{"query":"{__typename}"}"#),
            is_mutation: false,
            headers: &[],
            deadline: until,
        };
        let found = match tokio::time::timeout_at(until.into(), self.attempt(&request)).await {
            Ok(Ok(_)) => Verdict::Works,
            Ok(Err(failure)) => verdict(&failure.error),
            Err(_) if until == enough => Verdict::Fails,
            Err(_) => Verdict::Unknown,
        };
        let now = self.clock.now();
        self.report(match found {
            Verdict::Unknown => return,
            Verdict::Works => check.passed(now),
            Verdict::Fails | Verdict::Unclear => check.failed(now),
        });
    }

    fn report(&self, change: Option<Change>) {
        match change {
            None => {}
            Some(Change::Opened) => {
                count(&self.standing.stats.breaker_opened);
                tracing::warn!(
                    subgraph = &*self.name,
                    "the circuit breaker has opened: most requests to this subgraph fail, so it gets none for now"
                );
            }
            Some(Change::Closed) => {
                tracing::info!(
                    subgraph = &*self.name,
                    "the circuit breaker has closed: this subgraph answers again"
                );
            }
        }
    }

    /// The pause before the request is sent again; `None` if it is not.
    fn retry(
        &self,
        number: u32,
        failure: &Failure,
        request: &SubgraphRequest<'_>,
        deadline: Instant,
    ) -> Option<Duration> {
        let settings = &self.settings.retry;
        if number >= settings.retries || !failure.may_repeat(request.is_mutation) {
            return None;
        }
        let pause = pause(settings, number, random());
        if Instant::now() + pause >= deadline {
            return None;
        }
        let stats = &self.standing.stats;
        let requests = stats.requests.load(Ordering::Relaxed);
        if !self.standing.budget.withdraw(requests, self.clock.now()) {
            count(&stats.retries_refused);
            return None;
        }
        count(&stats.retries);
        Some(pause)
    }

    async fn attempt(&self, request: &SubgraphRequest<'_>) -> Result<SubgraphAnswer, Failure> {
        let standing = &*self.standing;
        let _turn = standing.limits.turn(self.speaks_http2(), &standing.stats).await?;
        let _in_flight = Gauge::up(&standing.stats.in_flight);
        if let Some(line) = self.open_line() {
            match self.exchange(line, request).await {
                // A reused connection that died unanswered had most likely been closed as idle; that
                // says nothing about the next one.
                Err(failure)
                    if failure.sent == Sent::Nothing
                        || (failure.sent == Sent::Unanswered && !request.is_mutation) =>
                {
                    count(&standing.stats.reconnects);
                }
                other => return other,
            }
        }
        let line = self.new_line().await;
        // Whatever kept a connection from being opened, nothing has been sent.
        let line = line.map_err(|error| Failure { sent: Sent::Nothing, ..error.into() })?;
        self.exchange(line, request).await
    }

    /// Is one connection most likely enough for many requests?
    fn speaks_http2(&self) -> bool {
        match self.settings.protocol {
            Protocol::Http1 => false,
            Protocol::Http2 => true,
            Protocol::Auto => self.standing.agreed_http2.load(Ordering::Relaxed),
        }
    }

    /// A connection of this core that is open already.
    fn open_line(&self) -> Option<Line> {
        if self.settings.protocol != Protocol::Http1
            && let Some(stream) = pool::share(&self.standing)
        {
            return Some(Line::Http2(stream));
        }
        let connection = pool::take_exclusive(&self.standing, self.settings.idle_timeout)?;
        Some(Line::Http1(connection))
    }

    async fn new_line(&self) -> Result<Line, FetchError> {
        if !self.speaks_http2() {
            return self.connect().await;
        }
        let shared = || pool::share(&self.standing).map(Line::Http2);
        pool::opening(&self.standing).run(shared, async || self.connect().await).await
    }

    async fn connect(&self) -> Result<Line, FetchError> {
        let (standing, settings) = (&self.standing, &self.settings);
        let permit = standing.limits.open(&standing.stats).await?;
        let (origin, timeout) = (&self.target.origin, settings.connect_timeout);
        Ok(match open(origin, settings.protocol, timeout, standing, permit).await? {
            Opened::Http1(connection) => Line::Http1(connection),
            Opened::Http2(connection) => {
                let stream = OneStream::new(std::rc::Rc::clone(&connection));
                pool::offer(standing, connection, settings.idle_timeout);
                Line::Http2(stream)
            }
        })
    }

    async fn exchange(
        &self,
        line: Line,
        request: &SubgraphRequest<'_>,
    ) -> Result<SubgraphAnswer, Failure> {
        let (limit, compression) = (self.settings.max_response_size, self.settings.compression);
        let target = &self.target;
        match line {
            Line::Http1(mut connection) => {
                let headers = request_headers::headers(Some(&target.host), compression, request);
                let path = target.path.as_str();
                let sending = connection.send(path, &headers, &request.body, request.is_mutation);
                let response = sending.await?;
                let Received { answer, is_drained } = receive(response, limit).await;
                if is_drained {
                    pool::give_back(&self.standing, connection, self.settings.idle_timeout);
                }
                answer
            }
            Line::Http2(stream) => {
                let headers = request_headers::headers(None, compression, request);
                let message = post(&target.absolute, headers, &request.body);
                let response = stream.send(message).await?;
                let body = |body: Incoming| body.map_err(|error| describe(&error));
                receive(response.map(body), limit).await.answer
            }
        }
    }
}

impl Subgraph for Upstream {
    fn fetch<'a>(
        &'a self,
        request: SubgraphRequest<'a>,
    ) -> LocalFuture<'a, Result<SubgraphAnswer, FetchError>> {
        Box::pin(self.fetch_counted(request))
    }

    fn note_taken_apart(&self) {
        count(&self.stats().taken_apart);
    }

    fn note_unusable_response(&self, problem: &str) {
        tracing::debug!(subgraph = &*self.name, problem, "a response cannot be used");
        self.warn_of_failure(&format_args!("the subgraph {problem}"));
    }

    fn note_hidden_errors(&self, errors: &HiddenErrors<'_>) {
        let count = u64::try_from(errors.count).unwrap_or(u64::MAX);
        if let Some(count) = self.standing.reported_log.record(count, self.clock.now()) {
            tracing::warn!(
                subgraph = &*self.name,
                message = errors.message,
                code = errors.code,
                extensions = errors.extensions,
                errors = count,
                "a subgraph reports errors whose messages are hidden from clients (include_subgraph_errors)"
            );
        }
    }
}

fn post(target: &http::Uri, headers: HeaderMap, body: &Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = target.clone();
    *request.version_mut() = Version::HTTP_2;
    *request.headers_mut() = headers;
    request
}

/// For messages: `1.234567891s` tells nobody more than `1.235s`.
fn rounded(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// Random enough to spread retries.
fn random() -> u32 {
    // Each state has keys of its own.
    std::hash::RandomState::new().build_hasher().finish() as u32
}
