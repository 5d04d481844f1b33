//! The identity of a token and its subject, without the claims.

use std::num::NonZeroU32;
use std::time::{Duration, SystemTime};

use execute::{ClaimPath, Claims};
use sha2::{Digest, Sha256};

/// The hash of a token, equal only for equal tokens. Caches keep it in place of the token.
pub type TokenHash = [u8; 32];

/// Half of a SHA-256: no second token with an equal one can be found.
pub type Fingerprint = [u8; 16];

/// The first 96 bits of a SHA-256: nobody can find a second subject with the one of a given subject.
pub type SubjectFingerprint = [u8; 12];

/// Identifies a token and its subject. Every live connection with a token keeps one, so it is small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenIdentity {
    /// The fingerprint of the token.
    pub fingerprint: Fingerprint,
    /// The fingerprint of the issuer and the subject; zeros if the token names no subject.
    subject: SubjectFingerprint,
    /// See [`TokenIdentity::expires_at`]. Never zero, so that an identity and none take 32 bytes too.
    expires_at: NonZeroU32,
}

// Each live connection has room for one: `cargo xtask bench subscriptions --filter header-bytes`.
const _: () = assert!(size_of::<Option<TokenIdentity>>() <= 32);

const NO_SUBJECT: SubjectFingerprint = [0; 12];

impl TokenIdentity {
    /// Creates the identity of the token with this hash and these claims.
    pub(crate) fn new(hash: &TokenHash, claims: &Claims, expires_at: u64) -> Self {
        let [issuer, subject] = ["iss", "sub"].map(|name| ClaimPath::new([name]));
        let values = Claims::select(Some(claims), issuer.iter().chain(&subject));
        let has_subject = subject.is_some_and(|path| values.json(&path).is_some());
        let mut canonical = Vec::new();
        values.append_canonical(&mut canonical);
        let subject = has_subject.then(|| shorten(&Sha256::digest(&canonical).into()));
        Self {
            fingerprint: shorten(hash),
            subject: subject.unwrap_or(NO_SUBJECT),
            expires_at: u32::try_from(expires_at)
                .map_or(NonZeroU32::MAX, |at| NonZeroU32::new(at).unwrap_or(NonZeroU32::MIN)),
        }
    }

    /// The time at which the token expires, in seconds since 1970, with the leeway included. A token that is valid beyond
    /// the year 2106 expires then, and one that has
    /// expired in 1970 a second later.
    pub fn expires_at(&self) -> u64 {
        self.expires_at.get().into()
    }

    /// The fingerprint of the issuer and the subject; `None` if the token names no subject.
    pub fn subject(&self) -> Option<&SubjectFingerprint> {
        Some(&self.subject).filter(|subject| **subject != NO_SUBJECT)
    }

    /// True if the token has expired.
    pub fn has_expired(&self, now: SystemTime) -> bool {
        seconds(now) >= self.expires_at()
    }

    /// Returns the time until the token expires.
    pub fn time_left(&self, now: SystemTime) -> Duration {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Duration::from_secs(self.expires_at()).saturating_sub(now)
    }

    /// True if both tokens are of one issuer and subject. False without a subject.
    pub fn is_same_subject(&self, other: &Self) -> bool {
        self.subject().is_some() && self.subject == other.subject
    }
}

pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Returns the first `BYTES` bytes of a hash, which has 32.
fn shorten<const BYTES: usize>(hash: &TokenHash) -> [u8; BYTES] {
    let mut beginning = [0; BYTES];
    beginning.copy_from_slice(&hash[..BYTES]);
    beginning
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
        assert_eq!(nobody.subject(), None);
    }

    #[test]
    fn a_token_without_end_expires_when_no_later_time_can_be_kept() {
        let claims = Claims::new("{}".into()).expect("an object");
        let expires_at = |at| TokenIdentity::new(&[1; 32], &claims, at).expires_at();
        assert_eq!(expires_at(1_800_000_000), 1_800_000_000);
        assert_eq!(expires_at(u64::MAX), 4_294_967_295);
        assert_eq!(expires_at(0), 1);
    }
}
