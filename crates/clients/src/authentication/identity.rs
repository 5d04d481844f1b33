//! The identity of a client, from its verified token.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use authentication::VerifiedToken;
use execute::{ClaimPath, Claims, ClientKey};

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

    /// Returns the claims of the token.
    pub fn claims(&self) -> Option<&Claims> {
        self.0.as_ref().map(|verified| &verified.claims)
    }

    /// True if the client has no token.
    pub fn is_anonymous(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the key under which work for this identity is queued and counted; `None` without a token. Parses the
    /// claims, so it is for work that costs more than that.
    pub fn client_key(&self) -> Option<ClientKey> {
        let claims = self.claims()?;
        let [issuer, subject] = ["iss", "sub"].map(|name| ClaimPath::new([name]));
        let values = Claims::select(Some(claims), issuer.iter().chain(&subject));
        // Renewed tokens of one subject are one client. Without a subject each token is a client of its own.
        let has_subject = subject.is_some_and(|path| values.json(&path).is_some());
        let mut identity = Vec::new();
        values.append_canonical(&mut identity);
        Some(ClientKey::of_identity(if has_subject { &identity } else { self.fingerprint() }))
    }

    /// True if both have a token of one issuer and subject. A token without a subject names nobody.
    pub fn is_same_subject(&self, other: &Self) -> bool {
        let [issuer, subject] = ["iss", "sub"].map(|name| ClaimPath::new([name]));
        let paths = || issuer.iter().chain(&subject);
        let values =
            |identity: &Self| identity.claims().map(|it| Claims::select(Some(it), paths()));
        let (Some(own), Some(others)) = (values(self), values(other)) else { return false };
        subject.as_ref().is_some_and(|path| own.json(path).is_some()) && own == others
    }

    /// Returns a fingerprint that is equal only for equal tokens; empty without a token.
    pub fn fingerprint(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |verified| &verified.fingerprint[..])
    }

    /// Returns the time until the token expires; `None` if it does not.
    pub fn time_left(&self, now: SystemTime) -> Option<Duration> {
        self.0.as_ref().map(|verified| verified.time_left(now))
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
