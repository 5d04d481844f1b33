//! Authentication of clients: the token of a request or of a `connection_init` is verified. [`key_sets`] provides the
//! keys; the crate `authentication` decides whether a token is valid.

pub(crate) mod key_sets;
pub(crate) mod metrics;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use authentication::{IssuerId, Rejection, VerifiedToken, Verifier};
use config::diagnostic::Diagnostic;
use config::{Config, Jwt, JwtHeader};
use execute::{ClaimPath, Claims, ClientKey, ErrorCode, GraphqlError};
use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::authentication::metrics::AuthenticationMetrics;
use crate::http::media::ResponseFormat;
use crate::http::response::{self, Response};
pub(crate) use key_sets::KeySets;

/// The identity of a client: its verified token, or none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity(Option<Arc<VerifiedToken>>);

impl Identity {
    /// A client without a token.
    pub(crate) const ANONYMOUS: Self = Self(None);

    /// Returns the claims of the token.
    pub(crate) fn claims(&self) -> Option<&Claims> {
        self.0.as_ref().map(|verified| &verified.claims)
    }

    /// True if the client has no token.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the key under which work for this identity is queued and counted; `None` without a token. Parses the
    /// claims, so it is for work that costs more than that.
    pub(crate) fn client_key(&self) -> Option<ClientKey> {
        let claims = self.claims()?;
        let [issuer, subject] = ["iss", "sub"].map(|name| ClaimPath::new([name]));
        let values = Claims::select(Some(claims), issuer.iter().chain(&subject));
        // Renewed tokens of one subject are one client. Without a subject each token is a client of its own.
        let has_subject = subject.is_some_and(|path| values.json(&path).is_some());
        let mut identity = Vec::new();
        values.append_canonical(&mut identity);
        Some(ClientKey::of_identity(if has_subject { &identity } else { self.fingerprint() }))
    }

    /// Returns a fingerprint that is equal only for equal tokens; empty without a token.
    pub(crate) fn fingerprint(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |verified| &verified.fingerprint[..])
    }

    /// Returns the time until the token expires; `None` if it does not.
    pub(crate) fn time_left(&self, now: SystemTime) -> Option<Duration> {
        self.0.as_ref().map(|verified| verified.time_left(now))
    }

    /// Returns when the token has expired.
    pub(crate) async fn expiry(&self) {
        loop {
            // The time is checked repeatedly, because the system's clock may be set.
            match self.time_left(SystemTime::now()) {
                None => std::future::pending().await,
                Some(Duration::ZERO) => return,
                Some(left) => tokio::time::sleep(left.min(EXPIRY_CHECK_INTERVAL_MAX)).await,
            }
        }
    }
}

/// The maximum interval between two checks whether a token has expired. A change of the system's clock is noticed
/// within it.
pub(crate) const EXPIRY_CHECK_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// The label of expired tokens in metrics, as for [`Rejection::Expired`].
pub(crate) const EXPIRED: &str = "expired";

/// Returns the error for a client whose token expired while it was connected.
pub(crate) fn expired_error() -> GraphqlError {
    let message = "the token has expired; reconnect with a new one";
    GraphqlError::new(ErrorCode::Unauthenticated, message)
}

/// The places in which clients send their tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenSource<'a> {
    /// The header with the token.
    pub(crate) header: &'a HeaderName,
    /// The word before the token; may be empty.
    pub(crate) prefix: &'a str,
    /// Paths of members in the payload of `connection_init`.
    pub(crate) init_payload: &'a [String],
}

/// A token from the payload of a `connection_init` that has not been verified.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PresentedToken {
    pub(crate) text: String,
    /// True if this token replaces the token header for all operations of the connection.
    pub(crate) replaces_header: bool,
}

/// Prints everything except the token.
impl std::fmt::Debug for PresentedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PresentedToken")
            .field("replaces_header", &self.replaces_header)
            .finish_non_exhaustive()
    }
}

/// The identity that a `connection_init` establishes.
#[derive(Clone, Debug, Default)]
pub(crate) struct InitOutcome {
    pub(crate) identity: Identity,
    /// The header that carries the verified token from now on.
    token_header: Option<(HeaderName, HeaderValue)>,
}

impl InitOutcome {
    /// True if [`InitOutcome::set_header`] changes the headers.
    pub(crate) fn sets_header(&self) -> bool {
        self.token_header.is_some()
    }

    /// Replaces the token header by the verified token.
    pub(crate) fn set_header(&self, headers: &mut HeaderMap) {
        if let Some((name, value)) = &self.token_header {
            headers.insert(name, value.clone());
        }
    }
}

/// The first step of identifying the client of a `connection_init`.
pub(crate) enum InitIdentification {
    /// The client is identified or refused.
    Known(Result<InitOutcome, TokenRefusal>),
    /// The token must be verified first: see [`Authenticator::verify_init_token`].
    Unverified(PresentedToken),
}

/// The reason that a client is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TokenRefusal {
    /// A token is required, and there is none.
    Missing,
    /// There are several tokens, or the value does not have the form of one.
    Unreadable(Cow<'static, str>),
    /// The token is not valid.
    Rejected(Rejection),
}

impl TokenRefusal {
    fn label(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Unreadable(_) => "unreadable",
            Self::Rejected(rejection) => rejection.label(),
        }
    }

    /// True if the same token may be accepted later.
    pub(crate) fn is_temporary(&self) -> bool {
        matches!(self, Self::Rejected(Rejection::NoKeys(_)))
    }

    /// Returns the refusal as a response: 401, or 503 if the reason is temporary.
    pub(crate) fn response(&self) -> Response {
        let (status, challenge) = match self {
            // RFC 6750, section 3.1: a client that sent no token gets no error code.
            Self::Missing => (StatusCode::UNAUTHORIZED, "Bearer".to_owned()),
            Self::Rejected(Rejection::NoKeys(_)) => {
                (StatusCode::SERVICE_UNAVAILABLE, String::new())
            }
            Self::Unreadable(_) | Self::Rejected(_) => (
                StatusCode::UNAUTHORIZED,
                format!("Bearer error=\"invalid_token\", error_description=\"{self}\""),
            ),
        };
        let code = match self.is_temporary() {
            true => ErrorCode::AuthenticationUnavailable,
            false => ErrorCode::Unauthenticated,
        };
        let error = GraphqlError::new(code, self.to_string());
        let mut response = response::refused(status, &[error], ResponseFormat::Json);
        let headers = response.headers_mut();
        if challenge.is_empty() {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        } else if let Ok(challenge) = HeaderValue::try_from(challenge) {
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

impl std::fmt::Display for TokenRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing => f.write_str("a token is required"),
            Self::Unreadable(reason) => f.write_str(reason),
            Self::Rejected(rejection) => rejection.fmt(f),
        }
    }
}

/// The verification of tokens as configured. There is one for the whole process.
#[derive(Debug)]
pub(crate) struct Authenticator {
    settings: Jwt,
    verifier: Arc<Verifier>,
    key_sets: KeySets,
}

impl Authenticator {
    /// Returns the authentication that is configured; `None` if clients need no token. Key sets are empty until
    /// [`KeySets::start`].
    ///
    /// # Errors
    /// Keys that cannot be used.
    pub(crate) fn new(config: &Config) -> Result<Option<Self>, Vec<Diagnostic>> {
        let settings = config.authentication.jwt.clone();
        if settings.issuers.is_empty() {
            return Ok(None);
        }
        let (issuers, key_sets) = key_sets::load_issuers(&settings)?;
        let verifier = Arc::new(Verifier::new(issuers, settings.max_token_size));
        Ok(Some(Self { settings, verifier, key_sets }))
    }

    /// Returns the key sets that are refreshed.
    pub(crate) fn key_sets(&self) -> &KeySets {
        &self.key_sets
    }

    pub(crate) fn verifier(&self) -> &Arc<Verifier> {
        &self.verifier
    }

    /// Returns the identity of the client that sent a request with these headers.
    ///
    /// # Errors
    /// The token is not valid. Without a token the client is anonymous: see [`Authenticator::authorize`].
    pub(crate) async fn authenticate(
        &self,
        metrics: &AuthenticationMetrics,
        headers: &HeaderMap,
    ) -> Result<Identity, TokenRefusal> {
        let identity = match self.token_of(headers) {
            Ok(None) => Ok(Identity::ANONYMOUS),
            Ok(Some(token)) => self.verify(token).await,
            Err(refusal) => Err(refusal),
        };
        identity.inspect_err(|refusal| count_refusal(metrics, refusal))
    }

    /// Returns the places in which clients send their tokens.
    pub(crate) fn token_source(&self) -> TokenSource<'_> {
        let Jwt { header, init_payload, .. } = &self.settings;
        TokenSource { header: &header.name, prefix: &header.prefix, init_payload }
    }

    /// Identifies the client of a `connection_init`, as far as that needs no verification. `before` is the identity of
    /// the handshake.
    pub(crate) fn on_connection_init(
        &self,
        metrics: &AuthenticationMetrics,
        token: Result<Option<PresentedToken>, TokenRefusal>,
        before: &Identity,
    ) -> InitIdentification {
        match token {
            Ok(None) => {
                let outcome = InitOutcome { identity: before.clone(), token_header: None };
                InitIdentification::Known(Ok(outcome))
            }
            Ok(Some(token)) => match self.find_verified(&token.text) {
                Some(identity) => InitIdentification::Known(Ok(self.outcome(identity, &token))),
                None => InitIdentification::Unverified(token),
            },
            Err(refusal) => {
                count_refusal(metrics, &refusal);
                InitIdentification::Known(Err(refusal))
            }
        }
    }

    /// Verifies the token of a `connection_init`.
    ///
    /// # Errors
    /// The token is not valid, or cannot be verified at present.
    pub(crate) async fn verify_init_token(
        &self,
        metrics: &AuthenticationMetrics,
        token: &PresentedToken,
    ) -> Result<InitOutcome, TokenRefusal> {
        let verified = self.verify(&token.text).await;
        let identity = verified.inspect_err(|refusal| count_refusal(metrics, refusal))?;
        Ok(self.outcome(identity, token))
    }

    /// Joins a verified identity with the header that is to carry its token.
    fn outcome(&self, identity: Identity, token: &PresentedToken) -> InitOutcome {
        let header = &self.settings.header;
        let token_header = token.replaces_header.then(|| {
            let text = match header.prefix.is_empty() {
                true => token.text.clone(),
                false => format!("{} {}", header.prefix, token.text),
            };
            // A verified token consists of base64url and dots, so it is always a valid value.
            let mut value = HeaderValue::try_from(text).ok()?;
            value.set_sensitive(true);
            Some((header.name.clone(), value))
        });
        InitOutcome { identity, token_header: token_header.flatten() }
    }

    /// Returns the identity of a token that was verified before, if it is still cached.
    fn find_verified(&self, token: &str) -> Option<Identity> {
        self.verifier.recall(token, SystemTime::now()).map(|verified| Identity(Some(verified)))
    }

    /// Checks that the client may send operations.
    ///
    /// # Errors
    /// The client is anonymous and `authentication.jwt.required` is set.
    pub(crate) fn authorize(
        &self,
        metrics: &AuthenticationMetrics,
        identity: &Identity,
    ) -> Result<(), TokenRefusal> {
        if self.settings.required && identity.is_anonymous() {
            count_refusal(metrics, &TokenRefusal::Missing);
            return Err(TokenRefusal::Missing);
        }
        Ok(())
    }

    async fn verify(&self, token: &str) -> Result<Identity, TokenRefusal> {
        let verify = || self.verifier.verify(token, SystemTime::now());
        let verified = match verify() {
            // The key may be new, so the key set is refreshed.
            Err(Rejection::UnknownKey(issuer) | Rejection::NoKeys(issuer))
                if self.refresh_for_unknown_key(issuer).await =>
            {
                verify()
            }
            verified => verified,
        };
        let verified = verified.map_err(|rejection| match rejection {
            // The key may be a new one that cannot be fetched.
            Rejection::UnknownKey(issuer) if self.key_sets.is_failing(issuer) => {
                Rejection::NoKeys(issuer)
            }
            rejection => rejection,
        });
        verified.map(|verified| Identity(Some(verified))).map_err(TokenRefusal::Rejected)
    }

    async fn refresh_for_unknown_key(&self, issuer: IssuerId) -> bool {
        self.key_sets.refresh_for_unknown_key(issuer).await
    }

    fn token_of<'a>(&self, headers: &'a HeaderMap) -> Result<Option<&'a str>, TokenRefusal> {
        let header = &self.settings.header;
        let mut values = headers.get_all(&header.name).iter();
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            // A proxy may have checked the other header.
            return Err(TokenRefusal::Unreadable("there are several headers with a token".into()));
        }
        let token = value.to_str().ok().and_then(|value| after_prefix(value, &header.prefix));
        token.filter(|it| !it.is_empty()).map(Some).ok_or_else(|| malformed_header(header))
    }
}

/// Returns the refusal of a token header that contains something else.
fn malformed_header(header: &JwtHeader) -> TokenRefusal {
    let JwtHeader { name, prefix } = header;
    TokenRefusal::Unreadable(match prefix.is_empty() {
        true => format!("the header {name} contains no token").into(),
        false => format!("the header {name} must have the form: {prefix} TOKEN").into(),
    })
}

/// Returns the text behind the prefix, which is a word of its own in any letter case (RFC 9110, section 11.1).
pub(crate) fn after_prefix<'a>(value: &'a str, prefix: &str) -> Option<&'a str> {
    if prefix.is_empty() {
        return Some(value.trim());
    }
    let (word, rest) = value.split_once(' ')?;
    word.eq_ignore_ascii_case(prefix).then(|| rest.trim())
}

fn count_refusal(metrics: &AuthenticationMetrics, refusal: &TokenRefusal) {
    metrics.count_refusal(refusal.label());
    tracing::debug!(reason = refusal.label(), "a client is refused");
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{JwtIssuer, Secret};

    #[test]
    fn the_prefix_is_a_word_of_its_own() {
        for (value, prefix, expected) in [
            ("Bearer abc", "Bearer", Some("abc")),
            ("bearer  abc ", "Bearer", Some("abc")),
            ("Bearerabc", "Bearer", None),
            ("Bearer", "Bearer", None),
            ("Basic abc", "Bearer", None),
            (" abc", "", Some("abc")),
        ] {
            assert_eq!(after_prefix(value, prefix), expected, "{value}");
        }
    }

    fn authentication(issuer: JwtIssuer) -> Authenticator {
        let mut config = Config::default();
        config.authentication.jwt.issuers = vec![issuer];
        Authenticator::new(&config).expect("good keys").expect("an issuer")
    }

    fn shared_secret() -> JwtIssuer {
        JwtIssuer {
            issuer: None,
            audiences: Vec::new(),
            algorithms: Vec::new(),
            leeway: Duration::ZERO,
            jwks: None,
            public_key: None,
            secret: Some(Secret::new("0123456789abcdef0123456789abcdef")),
        }
    }
    #[test]
    fn a_token_is_in_one_header_of_the_right_scheme() {
        let authentication = authentication(shared_secret());
        let token = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                let name = HeaderName::from_static("authorization");
                headers.append(name, HeaderValue::from_static(value));
            }
            authentication.token_of(&headers).map(|it| it.map(str::to_owned))
        };
        assert_eq!(token(&[]), Ok(None));
        assert_eq!(token(&["Bearer abc"]), Ok(Some("abc".to_owned())));
        let reason = |values: &[&'static str]| token(values).unwrap_err().to_string();
        let several = "there are several headers with a token";
        assert_eq!(reason(&["Bearer abc", "Bearer abc"]), several);
        for other in ["Basic abc", "Bearer ", "", "abc.def.ghi"] {
            let form = "the header authorization must have the form: Bearer TOKEN";
            assert_eq!(reason(&[other]), form, "{other}");
        }
    }

    #[test]
    fn a_refusal_challenges_the_client_and_reveals_no_more_than_necessary() {
        let challenge = |refusal: TokenRefusal| {
            let response = refusal.response();
            let challenge = response.headers().get(WWW_AUTHENTICATE);
            let challenge = challenge.map(|it| it.to_str().expect("text").to_owned());
            (response.status().as_u16(), challenge)
        };
        assert_eq!(challenge(TokenRefusal::Missing), (401, Some("Bearer".to_owned())));
        let expired = "Bearer error=\"invalid_token\", error_description=\"the token has expired\"";
        let rejected = challenge(TokenRefusal::Rejected(Rejection::Expired));
        assert_eq!(rejected, (401, Some(expired.to_owned())));
        assert_eq!(challenge(TokenRefusal::Rejected(Rejection::NoKeys(IssuerId(0)))), (503, None));
    }
}
