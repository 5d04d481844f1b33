//! From a token to its claims.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use astjson::{Document, Kind};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use execute::Claims;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation, decode, decode_header};
use quick_cache::sync::Cache;
use serde::de::IgnoredAny;
use sha2::{Digest, Sha256};

use crate::KeySet;

/// Verified tokens that are remembered: some ten thousand clients that ask now and then, at about a kilobyte each.
const REMEMBERED_MAX: usize = 16_384;

/// How far ahead a token may expire, for arithmetic: a thousand years.
const SECONDS_MAX: u64 = 1 << 35;

/// One of the issuers, by their order in the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IssuerId(pub usize);

/// Whose tokens are taken, and what is asked of them.
#[derive(Debug)]
pub struct Issuer {
    /// What `iss` must be; `None`: anything.
    pub name: Option<Box<str>>,
    /// One of them must be in `aud`. Without any, tokens that are meant for an audience are refused.
    pub audiences: Vec<Box<str>>,
    /// What may sign them.
    pub algorithms: Vec<Algorithm>,
    /// How far clocks may differ.
    pub leeway: Duration,
    /// Their keys; empty until there are some.
    pub keys: KeySet,
}

/// A token that was verified.
#[derive(Debug)]
pub struct Verified {
    /// What it says.
    pub claims: Claims,
    /// Seconds since 1970 at which it counts no longer, the leeway included.
    pub expires_at: u64,
    /// Equal for equal tokens alone.
    pub fingerprint: [u8; 32],
    issuer: IssuerId,
    /// Which of the issuer's key sets has verified it.
    key_set: u64,
}

impl Verified {
    /// Does it count no longer?
    pub fn has_expired(&self, now: SystemTime) -> bool {
        seconds(now) >= self.expires_at
    }

    /// How long it counts.
    pub fn time_left(&self, now: SystemTime) -> Duration {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Duration::from_secs(self.expires_at).saturating_sub(now)
    }
}

/// Why a token is refused. Nothing in it repeats the token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Rejection {
    /// Longer than is read.
    #[error("the token is too long")]
    TooLong,
    /// Not three parts, not JSON, an algorithm that does not exist (`none` is none).
    #[error("the token is malformed")]
    Malformed,
    /// No claim `exp`: such a token would be valid forever.
    #[error("the token does not say when it expires: it needs the claim exp")]
    NoExpiry,
    /// Of nobody whose tokens are taken.
    #[error("the token is of an issuer that is not accepted here")]
    Issuer,
    /// Signed in a way that is not allowed.
    #[error("the token is signed with an algorithm that is not accepted here")]
    Algorithm,
    /// The issuer has no such key, as far as is known.
    #[error("the token is signed with a key that is not known")]
    UnknownKey(IssuerId),
    /// The keys of the issuer are not known: they could not be fetched yet, or not for too long.
    #[error("tokens cannot be verified at present; try again later")]
    NoKeys(IssuerId),
    /// Somebody else has signed it, or it was changed.
    #[error("the signature of the token is wrong")]
    Signature,
    /// For somebody else.
    #[error("the token is meant for another audience")]
    Audience,
    /// Over.
    #[error("the token has expired")]
    Expired,
    /// Before `nbf`.
    #[error("the token is not valid yet")]
    NotYet,
}

impl Rejection {
    /// For metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::Malformed => "malformed",
            Self::NoExpiry => "no_expiry",
            Self::Issuer => "issuer",
            Self::Algorithm => "algorithm",
            Self::UnknownKey(_) => "unknown_key",
            Self::NoKeys(_) => "no_keys",
            Self::Signature => "signature",
            Self::Audience => "audience",
            Self::Expired => "expired",
            Self::NotYet => "not_yet",
        }
    }

    /// Of several keys and issuers that refuse a token, the one that came furthest says why.
    fn rank(self) -> u8 {
        match self {
            Self::TooLong | Self::Issuer => 0,
            Self::Malformed | Self::NoExpiry | Self::Algorithm => 1,
            Self::UnknownKey(_) | Self::NoKeys(_) => 2,
            Self::Signature => 3,
            Self::Audience => 4,
            Self::Expired | Self::NotYet => 5,
        }
    }
}

/// Verifies tokens. One for the whole process.
#[derive(Debug)]
pub struct Verifier {
    issuers: Vec<Checks>,
    token_bytes_max: usize,
    remembered: Cache<[u8; 32], Arc<Verified>>,
}

#[derive(Debug)]
struct Checks {
    issuer: Issuer,
    keys: ArcSwap<KeySet>,
    /// Counts key sets.
    key_set: AtomicU64,
}

impl Verifier {
    /// For tokens of these issuers, up to that length.
    pub fn new(issuers: Vec<Issuer>, token_bytes_max: usize) -> Self {
        let issuers = issuers.into_iter().map(|mut issuer| Checks {
            keys: ArcSwap::from_pointee(std::mem::take(&mut issuer.keys)),
            issuer,
            key_set: AtomicU64::new(0),
        });
        Self { issuers: issuers.collect(), token_bytes_max, remembered: Cache::new(REMEMBERED_MAX) }
    }

    /// From now on these are the keys of an issuer. Tokens that were verified are verified again: the key that signed
    /// them may have been taken back.
    pub fn replace_keys(&self, issuer: IssuerId, keys: KeySet) {
        if let Some(checks) = self.issuers.get(issuer.0) {
            checks.keys.store(Arc::new(keys));
            checks.key_set.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Whether a token was verified before, and counts still: without a signature check.
    // hot path: once per request. One hash of the token.
    pub fn recall(&self, token: &str, now: SystemTime) -> Option<Arc<Verified>> {
        if token.len() > self.token_bytes_max {
            return None;
        }
        self.remembered_as(&fingerprint(token), now)
    }

    fn remembered_as(&self, fingerprint: &[u8; 32], now: SystemTime) -> Option<Arc<Verified>> {
        let known = self.remembered.get(fingerprint)?;
        let checks = self.issuers.get(known.issuer.0)?;
        let is_current = checks.key_set.load(Ordering::Acquire) == known.key_set;
        (is_current && !known.has_expired(now)).then_some(known)
    }

    /// Verifies a token.
    ///
    /// # Errors
    /// See [`Rejection`].
    pub fn verify(&self, token: &str, now: SystemTime) -> Result<Arc<Verified>, Rejection> {
        if token.len() > self.token_bytes_max {
            return Err(Rejection::TooLong);
        }
        let fingerprint = fingerprint(token);
        if let Some(known) = self.remembered_as(&fingerprint, now) {
            return Ok(known);
        }
        // An algorithm that the library does not know (and it knows no `none`) fails here.
        let header = decode_header(token).map_err(|_| Rejection::Malformed)?;
        // What a signer calls critical must be understood (RFC 7515, section 4.1.11), and nothing is.
        if header.crit.is_some() {
            return Err(Rejection::Malformed);
        }
        let payload = token.split('.').nth(1).and_then(|it| URL_SAFE_NO_PAD.decode(it).ok());
        let payload = Bytes::from(payload.ok_or(Rejection::Malformed)?);
        let stated = Stated::read(&payload)?;
        let mut rejection = Rejection::Issuer;
        for (number, checks) in self.issuers.iter().enumerate() {
            let issuer = &checks.issuer;
            if issuer.name.as_deref().is_some_and(|name| Some(name) != stated.issuer.as_deref()) {
                continue;
            }
            // Before the keys: if they change meanwhile, the token is verified once more.
            let key_set = checks.key_set.load(Ordering::Acquire);
            let id = IssuerId(number);
            let checked = checks
                .check(token, header.kid.as_deref(), header.alg, id)
                .and_then(|()| stated.check_time(issuer.leeway, now));
            match checked {
                Ok(expires_at) => {
                    let claims = Claims::new(payload).ok_or(Rejection::Malformed)?;
                    let verified =
                        Verified { claims, expires_at, fingerprint, issuer: id, key_set };
                    let verified = Arc::new(verified);
                    self.remembered.insert(fingerprint, Arc::clone(&verified));
                    return Ok(verified);
                }
                Err(reason) if reason.rank() > rejection.rank() => rejection = reason,
                Err(_) => {}
            }
        }
        Err(rejection)
    }
}

impl Checks {
    fn check(
        &self,
        token: &str,
        key_id: Option<&str>,
        algorithm: Algorithm,
        id: IssuerId,
    ) -> Result<(), Rejection> {
        let issuer = &self.issuer;
        if !issuer.algorithms.contains(&algorithm) {
            return Err(Rejection::Algorithm);
        }
        let keys = self.keys.load();
        if !keys.is_known() {
            return Err(Rejection::NoKeys(id));
        }
        let mut validation = Validation::new(algorithm);
        // The time is checked by whoever is told what time it is.
        (validation.validate_exp, validation.validate_nbf) = (false, false);
        // A claim that is left out is none that fits.
        let mut required = vec!["exp"];
        if let Some(name) = &issuer.name {
            validation.set_issuer(&[name]);
            required.push("iss");
        }
        if !issuer.audiences.is_empty() {
            validation.set_audience(&issuer.audiences);
            required.push("aud");
        }
        validation.set_required_spec_claims(&required);
        let mut rejection: Option<Rejection> = None;
        for key in keys.candidates(key_id, algorithm) {
            let reason = match decode::<IgnoredAny>(token, key, &validation) {
                Ok(_) => return Ok(()),
                Err(error) => reason(error.kind()),
            };
            if rejection.is_none_or(|known| reason.rank() > known.rank()) {
                rejection = Some(reason);
            }
        }
        // Only where no key fits: another one would help then, and nothing else.
        Err(rejection.unwrap_or(Rejection::UnknownKey(id)))
    }
}

fn reason(error: &ErrorKind) -> Rejection {
    match error {
        ErrorKind::InvalidAudience => Rejection::Audience,
        ErrorKind::MissingRequiredClaim(claim) if claim == "aud" => Rejection::Audience,
        ErrorKind::InvalidIssuer => Rejection::Issuer,
        ErrorKind::InvalidToken
        | ErrorKind::MissingRequiredClaim(_)
        | ErrorKind::InvalidClaimFormat(_)
        | ErrorKind::Base64(_)
        | ErrorKind::Json(_)
        | ErrorKind::Utf8(_) => Rejection::Malformed,
        _ => Rejection::Signature,
    }
}

/// What a token says of itself, whoever has written it.
struct Stated {
    issuer: Option<String>,
    expires: u64,
    not_before: Option<u64>,
}

impl Stated {
    /// # Errors
    /// The payload is not an object of claims, or has no `exp`.
    fn read(payload: &Bytes) -> Result<Self, Rejection> {
        let mut document = Document::with_depth_limit(32);
        let root = document.parse(payload.clone()).map_err(|_| Rejection::Malformed)?;
        if document.kind(root) != Kind::Object {
            return Err(Rejection::Malformed);
        }
        // Seconds may have a fraction (RFC 7519, section 2).
        let time = |name| match document.get(root, name) {
            None => Some(None),
            Some(node) if document.is_null(node) => Some(None),
            Some(node) => {
                let seconds = document.as_f64(node).filter(|it| it.is_finite() && *it >= 0.0)?;
                // Bounded above, so it fits.
                Some(Some(seconds.min(SECONDS_MAX as f64) as u64))
            }
        };
        let issuer = document.get(root, "iss").and_then(|it| document.as_str(it));
        Ok(Self {
            issuer: issuer.map(Into::into),
            expires: time("exp").ok_or(Rejection::Malformed)?.ok_or(Rejection::NoExpiry)?,
            not_before: time("nbf").ok_or(Rejection::Malformed)?,
        })
    }

    /// Seconds since 1970 at which it counts no longer.
    fn check_time(&self, leeway: Duration, now: SystemTime) -> Result<u64, Rejection> {
        let (now, leeway) = (seconds(now), leeway.as_secs());
        let expires_at = self.expires + leeway;
        if now >= expires_at {
            return Err(Rejection::Expired);
        }
        if self.not_before.is_some_and(|it| it > now + leeway) {
            return Err(Rejection::NotYet);
        }
        Ok(expires_at)
    }
}

fn fingerprint(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}
