//! Verification of tokens, with a cache of verified ones.

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
use crate::token_identity::{TokenHash, TokenIdentity, seconds};

/// The number of places for hashes of tokens that connections have brought once, of eight bytes each.
const SEEN_TOKENS_MAX: usize = 4096;

/// The maximum number of cached tokens: for some ten thousand occasional clients, at about a kilobyte each.
const CACHED_TOKENS_MAX: usize = 16_384;

/// The latest expiry of a token, in seconds, so that arithmetic cannot overflow: about a thousand years.
pub(crate) const SECONDS_MAX: u64 = 1 << 35;

/// The index of an issuer in the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IssuerId(pub usize);

/// An issuer of accepted tokens, with the rules for its tokens.
#[derive(Debug)]
pub struct Issuer {
    /// The required value of `iss`; `None` accepts any.
    pub name: Option<Box<str>>,
    /// The accepted audiences: one of them must be in `aud`. If empty, tokens with an audience are refused.
    pub audiences: Vec<Box<str>>,
    /// The accepted signature algorithms.
    pub algorithms: Vec<Algorithm>,
    /// The tolerated difference between clocks.
    pub leeway: Duration,
    /// The issuer's keys; an unknown set until they are fetched.
    pub keys: KeySet,
}

/// A verified token.
#[derive(Debug)]
pub struct VerifiedToken {
    /// The claims.
    pub claims: Claims,
    /// The token itself, its subject and its expiry.
    pub identity: TokenIdentity,
    /// The issuer of the keys that verified the token, and the number of its key set. `None` for an introspected token,
    /// and for that of a live connection, which nothing verifies again.
    key_set: Option<(IssuerId, u64)>,
}

impl VerifiedToken {
    /// Creates a token that the identity provider has confirmed.
    pub(crate) fn introspected(claims: Claims, expires_at: u64, hash: &TokenHash) -> Self {
        let identity = TokenIdentity::new(hash, &claims, expires_at);
        Self { claims, identity, key_set: None }
    }

    /// Creates the token of a live connection from what the connection has kept of it.
    pub fn kept(claims: Claims, identity: TokenIdentity) -> Self {
        Self { claims, identity, key_set: None }
    }
}

/// The reason why a token is refused. It never contains parts of the token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Rejection {
    /// The token is longer than the limit.
    #[error("the token is too long")]
    TooLong,
    /// The token does not have three parts of JSON, or its algorithm does not exist (`none` does not).
    #[error("the token is malformed")]
    Malformed,
    /// The token has no claim `exp`: it would be valid forever.
    #[error("the token has no expiry: it needs the claim exp")]
    NoExpiry,
    /// The issuer of the token is not accepted.
    #[error("the issuer of the token is not accepted here")]
    Issuer,
    /// The signature algorithm of the token is not accepted.
    #[error("the token is signed with an algorithm that is not accepted here")]
    Algorithm,
    /// The issuer has no such key, as far as is known.
    #[error("the token is signed with a key that is not known")]
    UnknownKey(IssuerId),
    /// The keys of the issuer are unknown: they could not be fetched yet, or not for too long.
    #[error("tokens cannot be verified at present; try again later")]
    NoKeys(IssuerId),
    /// The token was signed with another key, or was changed.
    #[error("the signature of the token is wrong")]
    Signature,
    /// The token is meant for another audience.
    #[error("the token is meant for another audience")]
    Audience,
    /// The token has expired.
    #[error("the token has expired")]
    Expired,
    /// The token is not valid before `nbf`.
    #[error("the token is not valid yet")]
    NotYet,
    /// The identity provider says that the token is not valid: it is unknown, has expired or was revoked.
    #[error("the token is not valid")]
    Inactive,
    /// The identity provider cannot be asked about the token at present.
    #[error("tokens cannot be verified at present; try again later")]
    Unavailable,
}

impl Rejection {
    /// True if the same token may be accepted later.
    pub fn is_temporary(self) -> bool {
        matches!(self, Self::NoKeys(_) | Self::Unavailable)
    }

    /// Returns the label for metrics.
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
            Self::Inactive => "inactive",
            Self::Unavailable => "unavailable",
        }
    }

    /// Returns the precedence of the reason. If several keys and issuers refuse a token, the reason of the latest check
    /// is reported.
    fn rank(self) -> u8 {
        match self {
            Self::TooLong | Self::Issuer => 0,
            Self::Malformed | Self::NoExpiry | Self::Algorithm => 1,
            Self::UnknownKey(_) | Self::NoKeys(_) | Self::Unavailable => 2,
            Self::Signature => 3,
            Self::Audience => 4,
            Self::Expired | Self::NotYet | Self::Inactive => 5,
        }
    }
}

/// The use of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenUse {
    /// One request of many that may have the same token, so a verified token is cached at once.
    Request,
    /// A connection that stays and needs the token once. It is cached only if another connection has it too: a hundred
    /// thousand subscribers with tokens of their own would fill the cache for nothing.
    Connection,
}

/// Verifies tokens. The process has one verifier.
#[derive(Debug)]
pub struct Verifier {
    issuers: Vec<Checks>,
    token_bytes_max: usize,
    cache: Cache<TokenHash, Arc<VerifiedToken>>,
    seen: SeenTokens,
}

/// The hashes of tokens that connections have brought lately. A later token may take the place of an earlier one.
#[derive(Debug)]
struct SeenTokens(Box<[AtomicU64]>);

impl SeenTokens {
    fn new() -> Self {
        Self((0..SEEN_TOKENS_MAX).map(|_| AtomicU64::new(0)).collect())
    }

    /// Notes a token. True if it was noted before.
    fn note(&self, hash: &TokenHash) -> bool {
        let mut head = [0; 8];
        head.copy_from_slice(&hash[..8]);
        let number = u64::from_be_bytes(head);
        let place = &self.0[number as usize % SEEN_TOKENS_MAX];
        place.swap(number, Ordering::Relaxed) == number
    }
}

#[derive(Debug)]
struct Checks {
    issuer: Issuer,
    keys: ArcSwap<KeySet>,
    /// Incremented when the keys are replaced.
    key_set: AtomicU64,
}

impl Verifier {
    /// Creates a verifier for tokens of these issuers, up to this length.
    pub fn new(issuers: Vec<Issuer>, token_bytes_max: usize) -> Self {
        let issuers = issuers.into_iter().map(|mut issuer| Checks {
            keys: ArcSwap::from_pointee(std::mem::take(&mut issuer.keys)),
            issuer,
            key_set: AtomicU64::new(0),
        });
        let (issuers, cache) = (issuers.collect(), Cache::new(CACHED_TOKENS_MAX));
        Self { issuers, token_bytes_max, cache, seen: SeenTokens::new() }
    }

    /// Replaces the keys of an issuer. Tokens that were verified with the old keys are verified again, because the key
    /// that signed them may have been revoked.
    pub fn replace_keys(&self, issuer: IssuerId, keys: KeySet) {
        if let Some(checks) = self.issuers.get(issuer.0) {
            checks.keys.store(Arc::new(keys));
            checks.key_set.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Returns a token that was verified before and is still valid, without a signature check.
    // hot path: once per request. One hash of the token.
    pub fn recall(&self, token: &str, now: SystemTime) -> Option<Arc<VerifiedToken>> {
        if token.len() > self.token_bytes_max {
            return None;
        }
        self.find_cached(&hash_token(token), now)
    }

    fn find_cached(&self, hash: &TokenHash, now: SystemTime) -> Option<Arc<VerifiedToken>> {
        let known = self.cache.get(hash)?;
        let (issuer, key_set) = known.key_set?;
        let checks = self.issuers.get(issuer.0)?;
        let is_current = checks.key_set.load(Ordering::Acquire) == key_set;
        (is_current && !known.identity.has_expired(now)).then_some(known)
    }

    /// Verifies a token.
    ///
    /// # Errors
    /// See [`Rejection`].
    pub fn verify(
        &self,
        token: &str,
        usage: TokenUse,
        now: SystemTime,
    ) -> Result<Arc<VerifiedToken>, Rejection> {
        if token.len() > self.token_bytes_max {
            return Err(Rejection::TooLong);
        }
        let hash = hash_token(token);
        if let Some(known) = self.find_cached(&hash, now) {
            return Ok(known);
        }
        // An algorithm that the library does not know fails here; `none` is one of these.
        let header = decode_header(token).map_err(|_| Rejection::Malformed)?;
        // Extensions that a signer declares critical must be supported (RFC 7515, section 4.1.11), and none is.
        if header.crit.is_some() {
            return Err(Rejection::Malformed);
        }
        let payload = token.split('.').nth(1).and_then(|it| URL_SAFE_NO_PAD.decode(it).ok());
        let payload = Bytes::from(payload.ok_or(Rejection::Malformed)?);
        let unverified = UnverifiedClaims::read(&payload)?;
        let mut rejection = Rejection::Issuer;
        for (number, checks) in self.issuers.iter().enumerate() {
            let issuer = &checks.issuer;
            if issuer.name.as_deref().is_some_and(|name| Some(name) != unverified.issuer.as_deref())
            {
                continue;
            }
            // The number is read before the keys: if they change meanwhile, the token is verified once more.
            let key_set = checks.key_set.load(Ordering::Acquire);
            let id = IssuerId(number);
            let checked = checks
                .check(token, header.kid.as_deref(), header.alg, id)
                .and_then(|()| unverified.check_time(issuer.leeway, now));
            match checked {
                Ok(expires_at) => {
                    let claims = Claims::new(payload).ok_or(Rejection::Malformed)?;
                    let key_set = Some((id, key_set));
                    let identity = TokenIdentity::new(&hash, &claims, expires_at);
                    let verified = Arc::new(VerifiedToken { claims, identity, key_set });
                    if usage == TokenUse::Request || self.seen.note(&hash) {
                        self.cache.insert(hash, Arc::clone(&verified));
                    }
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
        // This crate has no clock, so `check_time` checks the time.
        (validation.validate_exp, validation.validate_nbf) = (false, false);
        // A missing claim does not match.
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
        // Only if no key fits, another key set could help.
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

/// The claims of a token before its signature is verified.
struct UnverifiedClaims {
    issuer: Option<String>,
    expires: u64,
    not_before: Option<u64>,
}

impl UnverifiedClaims {
    /// Parses the claims of a payload.
    ///
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

    /// Returns the time at which the token expires, in seconds since 1970.
    ///
    /// # Errors
    /// The token has expired or is not valid yet.
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

/// Returns the hash of a token.
pub fn hash_token(token: &str) -> TokenHash {
    Sha256::digest(token.as_bytes()).into()
}
