//! Introspection of opaque tokens (RFC 7662): one request to the identity provider for each new token, however many
//! requests bring it. [`authentication::IntrospectedTokens`] decides and remembers, [`upstream::Backoff`] pauses
//! after failures, so that an identity provider that is down costs nothing per request.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use authentication::{
    IntrospectedTokens, IntrospectionRules, Rejection, TokenHash, VerifiedToken, hash_token,
    is_json_web_token, is_printable,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use config::{IntrospectionAuth, TokenIntrospection};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use single_flight::SingleFlight;
use telemetry::LogLimit;
use tokio::sync::Semaphore;
use upstream::{Backoff, Resource, resource_tls};

/// The media type that is requested from the endpoint (RFC 7662, section 2.2).
const ACCEPT: &str = "application/json";

/// The characters that a form encodes, which is more than it must.
const FORM_ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// Verifies opaque tokens by asking the identity provider.
pub struct Introspector {
    resource: Resource,
    /// The URL for log lines: without its query, which may contain secrets.
    shown_url: String,
    /// The headers of each request: credentials, if they are sent so.
    headers: HeaderMap,
    /// The end of each request's body: credentials, if they are sent so.
    body_end: String,
    /// True if tokens that have the form of a JSON Web Token are introspected too.
    takes_all: bool,
    token_bytes_max: usize,
    timeout: Duration,
    tokens: IntrospectedTokens,
    backoff: Mutex<Backoff>,
    flights: Arc<SingleFlight<TokenHash, Result<Arc<VerifiedToken>, Rejection>>>,
    permits: Semaphore,
    failure_log: LogLimit,
    /// The counters of introspections.
    pub stats: IntrospectionStats,
}

/// Counters of introspections since the start of the process.
#[derive(Debug, Default)]
pub struct IntrospectionStats {
    /// The number of responses that confirmed a token.
    pub valid: AtomicU64,
    /// The number of responses that refused a token.
    pub invalid: AtomicU64,
    /// The number of requests without a response that makes sense.
    pub failed: AtomicU64,
    /// The number of tokens that were not introspected because of failures before.
    pub backoff: AtomicU64,
    /// The number of tokens that waited too long for their turn.
    pub concurrency: AtomicU64,
}

/// Prints nothing secret.
impl std::fmt::Debug for Introspector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Introspector")
            .field("url", &self.shown_url)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl Introspector {
    /// Creates the introspection of tokens up to this length, with no token known. `takes_all`: also of those that have
    /// the form of a JSON Web Token.
    ///
    /// # Errors
    /// The reason why the endpoint cannot be used: its URL or its certificate authorities.
    pub(super) fn new(
        settings: &TokenIntrospection,
        takes_all: bool,
        token_bytes_max: usize,
    ) -> Result<Self, String> {
        let path = "authentication.introspection";
        let resource = resource_tls(&settings.url, settings.ca.as_deref()).and_then(|tls| {
            Resource::new(&settings.url, tls, ACCEPT, settings.max_size, settings.timeout)
                .map_err(|error| error.to_string())
        });
        let resource = resource.map_err(|error| format!("`{path}`: {error}"))?;
        let (mut headers, mut body_end) = (HeaderMap::new(), String::new());
        // Both are encoded as in a form, also in the header (RFC 6749, section 2.3.1).
        let id = form_encode(&settings.client_id);
        let secret = form_encode(settings.client_secret.expose());
        match settings.auth {
            IntrospectionAuth::Basic => {
                let value = format!("Basic {}", STANDARD.encode(format!("{id}:{secret}")));
                let value = HeaderValue::try_from(value).map(|mut value| {
                    value.set_sensitive(true);
                    value
                });
                // Base64 is always a valid value.
                headers.extend(value.ok().map(|value| (AUTHORIZATION, value)));
            }
            IntrospectionAuth::Post => {
                body_end = format!("&client_id={id}&client_secret={secret}");
            }
        }
        Ok(Self {
            resource,
            shown_url: settings.url.split(['?', '#']).next().unwrap_or_default().to_owned(),
            headers,
            body_end,
            takes_all,
            token_bytes_max,
            timeout: settings.timeout,
            tokens: IntrospectedTokens::new(IntrospectionRules {
                issuer: settings.issuer.as_deref().map(Into::into),
                audiences: settings.audiences.iter().map(|it| it.as_str().into()).collect(),
                ttl: settings.cache.ttl,
                negative_ttl: settings.cache.negative_ttl,
                lifetime_max: settings.max_lifetime,
                entries_max: settings.cache.entries,
            }),
            backoff: Mutex::default(),
            flights: Arc::default(),
            permits: Semaphore::new(settings.max_concurrent as usize),
            failure_log: LogLimit::new(),
            stats: IntrospectionStats::default(),
        })
    }

    /// Returns the number of tokens in the cache.
    pub(super) fn cached_tokens(&self) -> u64 {
        self.tokens.len() as u64
    }

    /// True if this token is introspected, and not verified by keys.
    pub(super) fn is_responsible(&self, token: &str) -> bool {
        self.takes_all || !is_json_web_token(token)
    }

    /// Returns a valid token that was introspected recently.
    pub(super) fn recall(&self, token: &str, now: SystemTime) -> Option<Arc<VerifiedToken>> {
        if token.len() > self.token_bytes_max {
            return None;
        }
        self.tokens.recall(&hash_token(token), now).and_then(Result::ok)
    }

    /// Verifies a token, by the cache if possible.
    ///
    /// # Errors
    /// The token is not valid, or the identity provider cannot be asked at present.
    pub(super) async fn verify(
        self: &Arc<Self>,
        token: &str,
    ) -> Result<Arc<VerifiedToken>, Rejection> {
        if token.len() > self.token_bytes_max {
            return Err(Rejection::TooLong);
        }
        if !is_printable(token) {
            return Err(Rejection::Malformed);
        }
        let hash = hash_token(token);
        if let Some(known) = self.tokens.recall(&hash, SystemTime::now()) {
            return known;
        }
        let now = Instant::now();
        if self.backoff().is_paused(now) {
            self.stats.backoff.fetch_add(1, Ordering::Relaxed);
            return Err(Rejection::Unavailable);
        }
        let start = || {
            let (introspector, token) = (Arc::clone(self), token.to_owned());
            async move { introspector.introspect(hash, &token).await }
        };
        let joined = self.flights.join(hash, now + self.timeout, start).await;
        joined.map_or(Err(Rejection::Unavailable), |(result, _)| result)
    }

    async fn introspect(
        &self,
        hash: TokenHash,
        token: &str,
    ) -> Result<Arc<VerifiedToken>, Rejection> {
        let permit = tokio::time::timeout(self.timeout, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            self.stats.concurrency.fetch_add(1, Ordering::Relaxed);
            return Err(Rejection::Unavailable);
        };
        // The introspection of another caller may have ended just before.
        if let Some(known) = self.tokens.recall(&hash, SystemTime::now()) {
            return known;
        }
        if !self.backoff().admit(Instant::now()) {
            self.stats.backoff.fetch_add(1, Ordering::Relaxed);
            return Err(Rejection::Unavailable);
        }
        let body =
            format!("token={}&token_type_hint=access_token{}", form_encode(token), self.body_end);
        let response = self.resource.post_form(Bytes::from(body), self.headers.clone()).await;
        let result = match response {
            Ok(response) => {
                let read = self.tokens.read_response(hash, &response, SystemTime::now());
                read.map_err(|defect| defect.to_string())
            }
            // The body of an error says nothing about the token, and may repeat it.
            Err(error) => Err(error.to_string()),
        };
        match result {
            Ok(result) => {
                self.backoff().succeeded();
                let counter = if result.is_ok() { &self.stats.valid } else { &self.stats.invalid };
                counter.fetch_add(1, Ordering::Relaxed);
                result
            }
            Err(reason) => {
                self.record_failure(&reason);
                Err(Rejection::Unavailable)
            }
        }
    }

    fn record_failure(&self, reason: &str) {
        self.stats.failed.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let pause = self.backoff().failed(now).unwrap_or_default();
        if let Some(suppressed) = self.failure_log.admit(now) {
            tracing::warn!(
                url = self.shown_url,
                reason,
                ?pause,
                suppressed,
                "a token could not be introspected; its client gets AUTHENTICATION_UNAVAILABLE"
            );
        }
    }

    /// Locks the state of failures. No code panics under this lock, so a poisoned one holds a sound state.
    fn backoff(&self) -> MutexGuard<'_, Backoff> {
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn form_encode(text: &str) -> String {
    utf8_percent_encode(text, FORM_ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Secret;

    fn settings(auth: &str) -> TokenIntrospection {
        let settings = serde_json::json!({
            "url": "http://127.0.0.1:1/introspect?key=hidden",
            "client_id": "star:ling",
            "client_secret": "a b&c",
            "auth": auth,
        });
        serde_json::from_value(settings).expect("settings")
    }

    #[test]
    fn credentials_are_sent_in_one_place_and_shown_in_none() {
        let basic = Introspector::new(&settings("basic"), true, 100).expect("usable");
        let value = basic.headers[AUTHORIZATION].to_str().expect("text");
        let expected = STANDARD.encode("star%3Aling:a%20b%26c");
        assert_eq!(value, format!("Basic {expected}"));
        assert_eq!(basic.body_end, "");
        let post = Introspector::new(&settings("post"), true, 100).expect("usable");
        assert_eq!(post.headers, HeaderMap::new());
        assert_eq!(post.body_end, "&client_id=star%3Aling&client_secret=a%20b%26c");
        for shown in [format!("{basic:?}"), format!("{post:?}")] {
            for secret in ["hidden", "a b", "a%20b", expected.as_str()] {
                assert!(!shown.contains(secret), "{shown}");
            }
        }
    }

    #[test]
    fn tokens_with_the_form_of_a_signed_one_are_left_to_keys() {
        let jwt = "eyJhbGciOiJIUzI1NiJ9.e30.x";
        let opaque_only = Introspector::new(&settings("basic"), false, 100).expect("usable");
        assert!(opaque_only.is_responsible("abc") && !opaque_only.is_responsible(jwt));
        let all = Introspector::new(&settings("basic"), true, 100).expect("usable");
        assert!(all.is_responsible("abc") && all.is_responsible(jwt));
    }

    #[tokio::test]
    async fn tokens_that_no_header_can_carry_are_refused_without_a_request() {
        let mut settings = settings("basic");
        settings.client_secret = Secret::new("x");
        let introspector = Arc::new(Introspector::new(&settings, true, 10).expect("usable"));
        for (token, expected) in [
            ("12345678901", Rejection::TooLong),
            ("a b", Rejection::Malformed),
            ("a\r\nb", Rejection::Malformed),
            ("é", Rejection::Malformed),
        ] {
            assert_eq!(introspector.verify(token).await.map(drop), Err(expected), "{token}");
        }
        assert_eq!(introspector.stats.failed.load(Ordering::Relaxed), 0);
    }
}
