//! Authentication as transports use it: verification as configured, or none, with refusals counted.

use authentication::TokenUse;
use http::HeaderMap;

use super::metrics::AuthenticationMetrics;
use super::{
    Authenticator, EXPIRED, Identity, InitIdentification, InitOutcome, PresentedToken,
    TokenRefusal, TokenSources,
};

/// The authentication of clients. Without a configured one, every client is anonymous.
#[derive(Debug)]
pub struct ClientAuthentication {
    authenticator: Option<Authenticator>,
    /// The counters of refused clients.
    pub metrics: AuthenticationMetrics,
}

impl ClientAuthentication {
    /// Wraps the configured verification of tokens; `None`: tokens are not checked.
    pub fn new(authenticator: Option<Authenticator>) -> Self {
        Self { authenticator, metrics: AuthenticationMetrics::default() }
    }

    /// Returns the verification of tokens, if one is configured.
    pub fn authenticator(&self) -> Option<&Authenticator> {
        self.authenticator.as_ref()
    }

    /// Returns the places in which clients send their tokens; `None` if tokens are not checked.
    pub fn token_sources(&self) -> Option<&TokenSources> {
        self.authenticator.as_ref().map(Authenticator::token_sources)
    }

    /// Counts a client with a token that expired while the client was connected.
    pub fn count_expired(&self) {
        self.metrics.count_refusal(EXPIRED);
    }

    /// Returns the identity of a client that sends these headers and uses its token so; anonymous if tokens are not
    /// checked. Tokens that were not verified are removed from the headers.
    ///
    /// # Errors
    /// The client has an invalid token.
    pub async fn authenticate(
        &self,
        headers: &mut HeaderMap,
        usage: TokenUse,
    ) -> Result<Identity, TokenRefusal> {
        match &self.authenticator {
            Some(authenticator) => authenticator.authenticate(&self.metrics, headers, usage).await,
            None => Ok(Identity::ANONYMOUS),
        }
    }

    /// Checks that the client may send operations.
    ///
    /// # Errors
    /// The client is anonymous and `authentication.jwt.required` is set.
    pub fn authorize(&self, identity: &Identity) -> Result<(), TokenRefusal> {
        match &self.authenticator {
            Some(authenticator) => authenticator.authorize(&self.metrics, identity),
            None => Ok(()),
        }
    }

    /// Identifies the client of a `connection_init`, as far as that needs no verification. `before` is the identity of
    /// the handshake. Without authentication every client is anonymous.
    pub fn on_connection_init(
        &self,
        token: Result<Option<PresentedToken>, TokenRefusal>,
        before: &Identity,
    ) -> InitIdentification {
        match &self.authenticator {
            Some(it) => it.on_connection_init(&self.metrics, token, before),
            None => InitIdentification::Known(Ok(InitOutcome::default())),
        }
    }

    /// Verifies the token of a `connection_init`.
    ///
    /// # Errors
    /// The token is not valid, or cannot be verified at present.
    pub async fn verify_init_token(
        &self,
        token: &PresentedToken,
    ) -> Result<InitOutcome, TokenRefusal> {
        match &self.authenticator {
            Some(authenticator) => authenticator.verify_init_token(&self.metrics, token).await,
            None => Ok(InitOutcome::default()),
        }
    }
}
