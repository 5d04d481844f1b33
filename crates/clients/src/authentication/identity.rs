//! The identity of a client, from its verified token.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use authentication::{Fingerprint, TokenIdentity, VerifiedToken};
use execute::{Claims, ClientKey};

/// The maximum interval between two checks whether a token has expired. A change of the system's clock is noticed
/// within it.
pub const EXPIRY_CHECK_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// The identity of a client: its verified token, or none.
#[derive(Clone, Debug, Default)]
pub struct Identity(Option<Arc<VerifiedToken>>);

impl Identity {
    /// A client without a token.
    pub const ANONYMOUS: Self = Self(None);

    /// Returns the identity of a client with this token.
    pub(super) fn verified(token: Arc<VerifiedToken>) -> Self {
        Self(Some(token))
    }

    /// Returns the identity of the client of a live connection, from the claims that the connection has kept, see
    /// [`Claims::keep`], and its token.
    pub fn of_kept(claims: Option<&Claims>, token: Option<&TokenIdentity>) -> Self {
        let kept = claims.zip(token);
        Self(kept.map(|(claims, token)| Arc::new(VerifiedToken::kept(claims.clone(), *token))))
    }

    /// Returns the token's part that tells clients apart, which is all that a live connection keeps beside claims.
    pub fn token(&self) -> Option<&TokenIdentity> {
        self.0.as_ref().map(|verified| &verified.identity)
    }

    /// Returns the claims of the token.
    pub fn claims(&self) -> Option<&Claims> {
        self.0.as_ref().map(|verified| &verified.claims)
    }

    /// True if the client has no token.
    pub fn is_anonymous(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the key under which work for this identity is queued and counted; `None` without a token.
    pub fn client_key(&self) -> Option<ClientKey> {
        self.token().map(client_key_of)
    }

    /// True if both have a token of one issuer and subject. A token without a subject names nobody.
    pub fn is_same_subject(&self, other: &Self) -> bool {
        self.token().zip(other.token()).is_some_and(|(own, others)| own.is_same_subject(others))
    }

    /// Returns a fingerprint that is equal only for equal tokens; `None` without a token.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.token().map(|token| token.fingerprint)
    }

    /// Returns the time until the token expires; `None` if it does not.
    pub fn time_left(&self, now: SystemTime) -> Option<Duration> {
        self.token().map(|token| token.time_left(now))
    }

    /// Returns when the token has expired.
    pub async fn expiry(&self) {
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

/// Returns the key under which work for the client with this token is queued and counted. Renewed tokens of one subject
/// are one client; without a subject each token is a client of its own.
pub fn client_key_of(token: &TokenIdentity) -> ClientKey {
    let subject = token.subject().map(|subject| &subject[..]);
    ClientKey::of_identity(subject.unwrap_or(&token.fingerprint))
}
