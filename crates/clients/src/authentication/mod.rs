//! Authentication of clients: the token of a request or of a `connection_init` is verified. [`key_sets`] provides the
//! keys, `introspector` asks the identity provider about opaque tokens; the crate `authentication` decides whether a
//! token is valid.

mod client_authentication;
mod identity;
mod introspector;
pub mod key_sets;
pub mod metrics;
mod token_sources;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use authentication::{IssuerId, Rejection, Verifier};
use config::diagnostic::Diagnostic;
use config::{Config, OnTokenError};
use execute::{ErrorCode, GraphqlError};
use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use self::metrics::AuthenticationMetrics;
use crate::refusal::Refusal;
pub use authentication::{Fingerprint, TokenIdentity, TokenUse};
pub use client_authentication::ClientAuthentication;
pub use identity::{EXPIRY_CHECK_INTERVAL_MAX, Identity, client_key_of};
pub use introspector::Introspector;
pub use key_sets::KeySets;
pub use token_sources::{PlaceId, TokenSources};

/// The label of expired tokens in metrics, as for [`Rejection::Expired`].
const EXPIRED: &str = "expired";

/// Returns the error for a client whose token expired while it was connected.
pub fn expired_error() -> GraphqlError {
    let message = "the token has expired; reconnect with a new one";
    GraphqlError::new(ErrorCode::Unauthenticated, message)
}

/// A token from the payload of a `connection_init` that has not been verified.
#[derive(Clone, PartialEq, Eq)]
pub struct PresentedToken {
    /// The token, without a prefix.
    pub text: String,
    /// The header that carries this token for all operations of the connection; `None` if none does.
    pub header: Option<PlaceId>,
    /// True if the token renews the one of a connection, where an invalid token never makes the client anonymous.
    pub is_renewal: bool,
}

/// Prints everything except the token.
impl std::fmt::Debug for PresentedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PresentedToken")
            .field("header", &self.header)
            .field("is_renewal", &self.is_renewal)
            .finish_non_exhaustive()
    }
}

/// The identity that a `connection_init` establishes.
#[derive(Clone, Debug, Default)]
pub struct InitOutcome {
    /// The identity from now on.
    pub identity: Identity,
    /// The change of the headers that contain tokens.
    header_change: Option<TokenHeaderChange>,
}

/// The header that carries the verified token from now on. Other places lose theirs.
#[derive(Clone, Debug)]
struct TokenHeaderChange {
    sources: Arc<TokenSources>,
    header: Option<(HeaderName, HeaderValue)>,
}

impl InitOutcome {
    /// True if [`InitOutcome::set_header`] changes the headers.
    pub fn sets_header(&self) -> bool {
        self.header_change.is_some()
    }

    /// Replaces the token headers by the verified token.
    pub fn set_header(&self, headers: &mut HeaderMap) {
        let Some(change) = &self.header_change else { return };
        change.sources.keep_only(None, headers);
        if let Some((name, value)) = &change.header {
            headers.insert(name, value.clone());
        }
    }
}

/// The first step of identifying the client of a `connection_init`.
pub enum InitIdentification {
    /// The client is identified or refused.
    Known(Result<InitOutcome, TokenRefusal>),
    /// The token must be verified first: see [`Authenticator::verify_init_token`].
    Unverified(PresentedToken),
}

/// The reason that a client is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TokenRefusal {
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
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Rejected(rejection) if rejection.is_temporary())
    }

    /// Returns the refusal of a request over HTTP: 401, or 503 if the reason is temporary.
    pub fn refusal(&self) -> Refusal {
        let (status, challenge) = match self {
            // RFC 6750, section 3.1: a client that sent no token gets no error code.
            Self::Missing => (StatusCode::UNAUTHORIZED, "Bearer".to_owned()),
            Self::Rejected(rejection) if rejection.is_temporary() => {
                let code = ErrorCode::AuthenticationUnavailable;
                let error = GraphqlError::new(code, self.to_string());
                return Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error).retry_later();
            }
            Self::Unreadable(_) | Self::Rejected(_) => (
                StatusCode::UNAUTHORIZED,
                format!("Bearer error=\"invalid_token\", error_description=\"{self}\""),
            ),
        };
        let error = GraphqlError::new(ErrorCode::Unauthenticated, self.to_string());
        let challenge = HeaderValue::try_from(challenge).ok();
        Refusal {
            header: challenge.map(|challenge| (WWW_AUTHENTICATE, challenge)),
            ..Refusal::new(status, error)
        }
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
pub struct Authenticator {
    is_required: bool,
    on_error: OnTokenError,
    sources: Arc<TokenSources>,
    verifier: Arc<Verifier>,
    key_sets: KeySets,
    introspector: Option<Arc<Introspector>>,
}

impl Authenticator {
    /// Returns the authentication that is configured; `None` if clients need no token. Key sets are empty until
    /// [`KeySets::start`].
    ///
    /// # Errors
    /// Keys and certificate authorities that cannot be used.
    pub fn new(config: &Config) -> Result<Option<Self>, Vec<Diagnostic>> {
        let settings = &config.authentication.jwt;
        let introspection = config.authentication.introspection.as_ref();
        if settings.issuers.is_empty() && introspection.is_none() {
            return Ok(None);
        }
        let loaded = key_sets::load_issuers(settings);
        let introspector = introspection.map(|it| {
            Introspector::new(it, settings.issuers.is_empty(), settings.max_token_size)
                .map_err(|message| Box::new(Diagnostic::error("authentication", message)))
        });
        let (loaded, introspector) = match (loaded, introspector.transpose()) {
            (Ok(loaded), Ok(introspector)) => (loaded, introspector),
            (loaded, introspector) => {
                let mut problems = loaded.err().unwrap_or_default();
                problems.extend(introspector.err().map(|it| *it));
                return Err(problems);
            }
        };
        let (issuers, key_sets) = loaded;
        Ok(Some(Self {
            is_required: settings.required,
            on_error: settings.on_error,
            sources: Arc::new(TokenSources::new(settings)),
            verifier: Arc::new(Verifier::new(issuers, settings.max_token_size)),
            key_sets,
            introspector: introspector.map(Arc::new),
        }))
    }

    /// Returns the key sets that are refreshed.
    pub fn key_sets(&self) -> &KeySets {
        &self.key_sets
    }

    /// Returns the part that asks the identity provider about opaque tokens, if it is configured.
    pub fn introspector(&self) -> Option<&Arc<Introspector>> {
        self.introspector.as_ref()
    }

    /// Returns the part that verifies tokens.
    pub fn verifier(&self) -> &Arc<Verifier> {
        &self.verifier
    }

    /// Returns the identity of the client that sent a request with these headers, which uses its token so. Tokens that
    /// were not verified are removed from the headers.
    ///
    /// # Errors
    /// The token is not valid. Without a token the client is anonymous: see [`Authenticator::authorize`].
    pub async fn authenticate(
        &self,
        metrics: &AuthenticationMetrics,
        headers: &mut HeaderMap,
        usage: TokenUse,
    ) -> Result<Identity, TokenRefusal> {
        let verified = match self.sources.find(headers) {
            Ok(None) => return Ok(Identity::ANONYMOUS),
            Ok(Some(found)) => {
                let verified = Box::pin(self.verify(found.text, usage)).await;
                verified.map(|it| (it, found.place))
            }
            Err(refusal) => Err(refusal),
        };
        match verified {
            Ok((identity, place)) => {
                if self.sources.has_several() {
                    self.sources.keep_only(Some(place), headers);
                }
                Ok(identity)
            }
            Err(refusal) => {
                self.continue_or_refuse(metrics, refusal)?;
                self.sources.keep_only(None, headers);
                Ok(Identity::ANONYMOUS)
            }
        }
    }

    /// Counts a client with a token that was not verified, which continues without one if the configuration allows it.
    ///
    /// # Errors
    /// The client is refused.
    fn continue_or_refuse(
        &self,
        metrics: &AuthenticationMetrics,
        refusal: TokenRefusal,
    ) -> Result<(), TokenRefusal> {
        if self.on_error == OnTokenError::Reject || refusal.is_temporary() {
            count_refusal(metrics, &refusal);
            return Err(refusal);
        }
        metrics.count_ignored_token(refusal.label());
        tracing::debug!(reason = refusal.label(), "a client with an invalid token is anonymous");
        Ok(())
    }

    /// Returns the places in which clients send their tokens.
    pub fn token_sources(&self) -> &TokenSources {
        &self.sources
    }

    /// Identifies the client of a `connection_init`, as far as that needs no verification. `before` is the identity of
    /// the handshake.
    pub fn on_connection_init(
        &self,
        metrics: &AuthenticationMetrics,
        token: Result<Option<PresentedToken>, TokenRefusal>,
        before: &Identity,
    ) -> InitIdentification {
        match token {
            Ok(None) => {
                let outcome = InitOutcome { identity: before.clone(), header_change: None };
                InitIdentification::Known(Ok(outcome))
            }
            Ok(Some(token)) => match self.find_verified(&token.text) {
                Some(identity) => InitIdentification::Known(Ok(self.outcome(identity, &token))),
                None => InitIdentification::Unverified(token),
            },
            Err(refusal) => {
                let continued = self.continue_or_refuse(metrics, refusal);
                InitIdentification::Known(continued.map(|()| self.anonymous_outcome()))
            }
        }
    }

    /// Verifies the token of a `connection_init`.
    ///
    /// # Errors
    /// The token is not valid, or cannot be verified at present.
    pub async fn verify_init_token(
        &self,
        metrics: &AuthenticationMetrics,
        token: &PresentedToken,
    ) -> Result<InitOutcome, TokenRefusal> {
        match self.verify(&token.text, TokenUse::Connection).await {
            Ok(identity) => Ok(self.outcome(identity, token)),
            Err(refusal) if token.is_renewal => {
                count_refusal(metrics, &refusal);
                Err(refusal)
            }
            Err(refusal) => {
                self.continue_or_refuse(metrics, refusal).map(|()| self.anonymous_outcome())
            }
        }
    }

    /// Returns the outcome for a client that continues without its token: no header carries one.
    fn anonymous_outcome(&self) -> InitOutcome {
        let change = TokenHeaderChange { sources: Arc::clone(&self.sources), header: None };
        InitOutcome { identity: Identity::ANONYMOUS, header_change: Some(change) }
    }

    /// Joins a verified identity with the header that is to carry its token.
    fn outcome(&self, identity: Identity, token: &PresentedToken) -> InitOutcome {
        let header = token.header.and_then(|place| self.sources.header_value(place, &token.text));
        let has_change = header.is_some() || self.sources.has_several();
        let header_change =
            has_change.then(|| TokenHeaderChange { sources: Arc::clone(&self.sources), header });
        InitOutcome { identity, header_change }
    }

    /// Returns the identity of a token that was verified before, if it is still cached.
    fn find_verified(&self, token: &str) -> Option<Identity> {
        let now = SystemTime::now();
        let known = match &self.introspector {
            Some(it) if it.is_responsible(token) => it.recall(token, now),
            _ => self.verifier.recall(token, now),
        };
        known.map(Identity::verified)
    }

    /// Checks that the client may send operations.
    ///
    /// # Errors
    /// The client is anonymous and `authentication.jwt.required` is set.
    pub fn authorize(
        &self,
        metrics: &AuthenticationMetrics,
        identity: &Identity,
    ) -> Result<(), TokenRefusal> {
        if self.is_required && identity.is_anonymous() {
            count_refusal(metrics, &TokenRefusal::Missing);
            return Err(TokenRefusal::Missing);
        }
        Ok(())
    }

    async fn verify(&self, token: &str, usage: TokenUse) -> Result<Identity, TokenRefusal> {
        if let Some(introspector) = &self.introspector
            && introspector.is_responsible(token)
        {
            let verified = introspector.verify(token).await;
            return verified.map(Identity::verified).map_err(TokenRefusal::Rejected);
        }
        let verify = || self.verifier.verify(token, usage, SystemTime::now());
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
        verified.map(Identity::verified).map_err(TokenRefusal::Rejected)
    }

    async fn refresh_for_unknown_key(&self, issuer: IssuerId) -> bool {
        self.key_sets.refresh_for_unknown_key(issuer).await
    }
}

fn count_refusal(metrics: &AuthenticationMetrics, refusal: &TokenRefusal) {
    metrics.count_refusal(refusal.label());
    tracing::debug!(reason = refusal.label(), "a client is refused");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_challenges_the_client_and_reveals_no_more_than_necessary() {
        let challenge = |refusal: TokenRefusal| {
            let refusal = refusal.refusal();
            let challenge = refusal.header.filter(|(name, _)| name == WWW_AUTHENTICATE);
            let challenge = challenge.map(|(_, it)| it.to_str().expect("text").to_owned());
            (refusal.status.as_u16(), challenge)
        };
        assert_eq!(challenge(TokenRefusal::Missing), (401, Some("Bearer".to_owned())));
        let expired = "Bearer error=\"invalid_token\", error_description=\"the token has expired\"";
        let rejected = challenge(TokenRefusal::Rejected(Rejection::Expired));
        assert_eq!(rejected, (401, Some(expired.to_owned())));
        assert_eq!(challenge(TokenRefusal::Rejected(Rejection::NoKeys(IssuerId(0)))), (503, None));
    }
}
