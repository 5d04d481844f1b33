//! The identity of a token and its subject, without the claims.

use std::time::{Duration, SystemTime};

use execute::{ClaimPath, Claims};
use sha2::{Digest, Sha256};

/// The hash of a token, equal only for equal tokens. Caches keep it in place of the token.
pub type TokenHash = [u8; 32];

/// Half of a SHA-256: no second token or subject with an equal one can be found.
pub type Fingerprint = [u8; 16];

/// Identifies a token and its subject. Every live connection with a token keeps one, so it is small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenIdentity {
    /// The time at which the token expires, in seconds since 1970, with the leeway included.
    pub expires_at: u64,
    /// The fingerprint of the token.
    pub fingerprint: Fingerprint,
    /// The fingerprint of the issuer and the subject; `None` if the token names no subject.
    pub subject: Option<Fingerprint>,
}

// With the pointer to it at most 64 bytes of a connection, see `cargo xtask bench subscriptions --filter header-bytes`.
const _: () = assert!(size_of::<TokenIdentity>() <= 48);

impl TokenIdentity {
    /// Creates the identity of the token with this hash and these claims.
    pub(crate) fn new(hash: &TokenHash, claims: &Claims, expires_at: u64) -> Self {
        let [issuer, subject] = ["iss", "sub"].map(|name| ClaimPath::new([name]));
        let values = Claims::select(Some(claims), issuer.iter().chain(&subject));
        let has_subject = subject.is_some_and(|path| values.json(&path).is_some());
        let mut canonical = Vec::new();
        values.append_canonical(&mut canonical);
        Self {
            expires_at,
            fingerprint: shorten(hash),
            subject: has_subject.then(|| shorten(&Sha256::digest(&canonical).into())),
        }
    }

    /// True if the token has expired.
    pub fn has_expired(&self, now: SystemTime) -> bool {
        seconds(now) >= self.expires_at
    }

    /// Returns the time until the token expires.
    pub fn time_left(&self, now: SystemTime) -> Duration {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Duration::from_secs(self.expires_at).saturating_sub(now)
    }

    /// True if both tokens are of one issuer and subject. False without a subject.
    pub fn is_same_subject(&self, other: &Self) -> bool {
        self.subject.is_some() && self.subject == other.subject
    }
}

pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn shorten(hash: &TokenHash) -> Fingerprint {
    let mut half = Fingerprint::default();
    half.copy_from_slice(&hash[..size_of::<Fingerprint>()]);
    half
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(token: u8, claims: &str) -> TokenIdentity {
        let claims = Claims::new(claims.to_owned().into()).expect("an object");
        TokenIdentity::new(&[token; 32], &claims, 1_800_000_000)
    }

    #[test]
    fn a_renewed_token_has_the_same_subject_and_another_fingerprint() {
        let ann = r#"{"iss":"a","sub":"ann","exp":1}"#;
        let token = identity(1, ann);
        let renewed = identity(2, r#"{"sub":"ann","exp":2,"iss":"a"}"#);
        assert!(token.is_same_subject(&renewed) && token.fingerprint != renewed.fingerprint);
        for other in
            [r#"{"iss":"b","sub":"ann"}"#, r#"{"iss":"a","sub":"bob"}"#, r#"{"sub":"ann"}"#, "{}"]
        {
            assert!(!token.is_same_subject(&identity(1, other)), "{other}");
        }
        let nobody = identity(1, r#"{"iss":"a","sub":null}"#);
        assert!(!nobody.is_same_subject(&nobody));
    }
}
