//! Introspected tokens (RFC 7662): which tokens the identity provider is asked about, the meaning of its response, and
//! the cache of results. The caller sends the requests.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use astjson::{Document, Kind, NodeId};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use execute::Claims;
use quick_cache::sync::Cache;

use crate::Rejection;
use crate::token_identity::{TokenHash, seconds};
use crate::verifier::{SECONDS_MAX, VerifiedToken};

/// The maximum nesting of a response, as for the claims of signed tokens.
const DEPTH_MAX: u32 = 32;

/// The rules for introspected tokens.
#[derive(Debug)]
pub struct IntrospectionRules {
    /// The required value of `iss`; `None` accepts any.
    pub issuer: Option<Box<str>>,
    /// The accepted audiences: one of them must be in `aud`. If empty, `aud` is not checked.
    pub audiences: Vec<Box<str>>,
    /// The maximum time for which a valid token is not introspected again.
    pub ttl: Duration,
    /// The time for which an invalid token is not introspected again.
    pub negative_ttl: Duration,
    /// The time after which a token without `exp` counts as expired.
    pub lifetime_max: Duration,
    /// The maximum number of cached tokens.
    pub entries_max: usize,
}

/// The reason why a response says nothing about the token: the endpoint does not work. It never contains parts of the
/// response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ResponseDefect {
    /// The response is not a JSON object.
    #[error("the response is not a JSON object")]
    NotAnObject,
    /// The member `active` is missing, or is neither true nor false.
    #[error("`active` in the response is neither true nor false")]
    Active,
    /// A time is not a number of seconds.
    #[error("`{0}` in the response is not a number of seconds")]
    Time(&'static str),
}

/// The results of introspections, by the hash of the token.
#[derive(Debug)]
pub struct IntrospectedTokens {
    rules: IntrospectionRules,
    cache: Cache<TokenHash, CachedResult>,
}

#[derive(Clone, Debug)]
struct CachedResult {
    result: Result<Arc<VerifiedToken>, Rejection>,
    /// The time of the introspection. If the system's clock is set back, results from the future do not count.
    since: SystemTime,
    until: SystemTime,
}

impl IntrospectedTokens {
    /// Creates an empty cache.
    pub fn new(rules: IntrospectionRules) -> Self {
        Self { cache: Cache::new(rules.entries_max), rules }
    }

    /// Returns the number of cached tokens.
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// True if no token is cached.
    pub fn is_empty(&self) -> bool {
        self.cache.is_empty()
    }

    /// Returns the result for a token that was introspected recently.
    // hot path: once per request with an introspected token. One hash of the token, which the caller computes.
    pub fn recall(
        &self,
        hash: &TokenHash,
        now: SystemTime,
    ) -> Option<Result<Arc<VerifiedToken>, Rejection>> {
        let known = self.cache.get(hash)?;
        let is_current = known.since <= now && now < known.until;
        is_current.then_some(known.result)
    }

    /// Reads the response to an introspection, and remembers the result.
    ///
    /// # Errors
    /// The response says nothing about the token.
    pub fn read_response(
        &self,
        hash: TokenHash,
        response: &Bytes,
        now: SystemTime,
    ) -> Result<Result<Arc<VerifiedToken>, Rejection>, ResponseDefect> {
        let result = self.judge(hash, response, now)?;
        let mut until = now + if result.is_ok() { self.rules.ttl } else { self.rules.negative_ttl };
        if let Ok(token) = &result {
            until = until
                .min(SystemTime::UNIX_EPOCH + Duration::from_secs(token.identity.expires_at()));
        }
        self.cache.insert(hash, CachedResult { result: result.clone(), since: now, until });
        Ok(result)
    }

    fn judge(
        &self,
        hash: TokenHash,
        response: &Bytes,
        now: SystemTime,
    ) -> Result<Result<Arc<VerifiedToken>, Rejection>, ResponseDefect> {
        let mut document = Document::with_depth_limit(DEPTH_MAX);
        let root = document.parse(response.clone()).map_err(|_| ResponseDefect::NotAnObject)?;
        if document.kind(root) != Kind::Object {
            return Err(ResponseDefect::NotAnObject);
        }
        let active = document.get(root, "active").and_then(|it| document.as_bool(it));
        if !active.ok_or(ResponseDefect::Active)? {
            return Ok(Err(Rejection::Inactive));
        }
        let expires = time(&document, root, "exp")?;
        let not_before = time(&document, root, "nbf")?;
        let now_seconds = seconds(now);
        let lifetime_max = now_seconds + self.rules.lifetime_max.as_secs().min(SECONDS_MAX);
        let expires_at = expires.unwrap_or(lifetime_max);
        // The endpoint checks the times itself (RFC 7662, section 2.2), with its own clock.
        if now_seconds >= expires_at {
            return Ok(Err(Rejection::Expired));
        }
        if not_before.is_some_and(|it| it > now_seconds) {
            return Ok(Err(Rejection::NotYet));
        }
        if let Some(issuer) = &self.rules.issuer
            && !has_text(&document, root, "iss", |it| it == &**issuer)
        {
            return Ok(Err(Rejection::Issuer));
        }
        let audiences = &self.rules.audiences;
        if !audiences.is_empty()
            && !has_text(&document, root, "aud", |it| audiences.iter().any(|known| it == &**known))
        {
            return Ok(Err(Rejection::Audience));
        }
        let claims = Claims::new(response.clone()).ok_or(ResponseDefect::NotAnObject)?;
        Ok(Ok(Arc::new(VerifiedToken::introspected(claims, expires_at, &hash))))
    }
}

/// True if a token has the form of a JSON Web Token: three parts, the first of which is an object.
pub fn is_json_web_token(token: &str) -> bool {
    let mut parts = token.split('.');
    let (head, rest) = (parts.next().unwrap_or_default(), parts.count());
    // Four characters are three bytes, which are enough to see the brace.
    let beginning = head.get(..4).and_then(|it| URL_SAFE_NO_PAD.decode(it).ok());
    rest == 2 && beginning.is_some_and(|it| it.first() == Some(&b'{'))
}

/// True if a token consists of the characters that tokens may have (RFC 6749, appendix A.12) without the space, so that
/// a header can carry it.
pub fn is_printable(token: &str) -> bool {
    !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic())
}

fn time(
    document: &Document,
    root: NodeId,
    name: &'static str,
) -> Result<Option<u64>, ResponseDefect> {
    let Some(node) = document.get(root, name).filter(|it| !document.is_null(*it)) else {
        return Ok(None);
    };
    let seconds = document.as_f64(node).filter(|it| it.is_finite() && *it >= 0.0);
    // Bounded above, so it fits.
    seconds.map(|it| Some(it.min(SECONDS_MAX as f64) as u64)).ok_or(ResponseDefect::Time(name))
}

/// True if the member is a text, or a list of texts, of which one matches.
fn has_text(document: &Document, root: NodeId, name: &str, matches: impl Fn(&str) -> bool) -> bool {
    let Some(node) = document.get(root, name) else { return false };
    let is_match = |node| document.as_str(node).is_some_and(|it| matches(&it));
    match document.kind(node) {
        Kind::Array => document.elements(node).any(is_match),
        _ => is_match(node),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use execute::ClaimPath;

    const NOW: u64 = 1_800_000_000;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn tokens(issuer: Option<&str>, audiences: &[&str]) -> IntrospectedTokens {
        IntrospectedTokens::new(IntrospectionRules {
            issuer: issuer.map(Into::into),
            audiences: audiences.iter().map(|it| (*it).into()).collect(),
            ttl: Duration::from_secs(60),
            negative_ttl: Duration::from_secs(10),
            lifetime_max: Duration::from_secs(3600),
            entries_max: 16,
        })
    }

    fn hash(text: &str) -> TokenHash {
        crate::verifier::hash_token(text)
    }

    fn read(response: &str) -> Result<Result<u64, Rejection>, ResponseDefect> {
        let tokens = tokens(Some("https://issuer"), &["starling", "other"]);
        let read =
            tokens.read_response(hash("a"), &Bytes::copy_from_slice(response.as_bytes()), at(NOW));
        read.map(|it| it.map(|it| it.identity.expires_at()))
    }

    #[test]
    fn an_active_token_is_valid_until_it_expires() {
        let valid = |more: &str| {
            read(&format!(r#"{{"active":true,"iss":"https://issuer","aud":"starling"{more}}}"#))
        };
        assert_eq!(valid(&format!(r#","exp":{}"#, NOW + 5)), Ok(Ok(NOW + 5)));
        assert_eq!(valid(&format!(r#","exp":{}.5"#, NOW + 5)), Ok(Ok(NOW + 5)));
        assert_eq!(valid(""), Ok(Ok(NOW + 3600)), "without `exp`");
        assert_eq!(valid(r#","exp":null"#), Ok(Ok(NOW + 3600)));
        assert_eq!(
            valid(r#","exp":1e300"#),
            Ok(Ok(u32::MAX.into())),
            "the latest time that is kept"
        );
        assert_eq!(valid(&format!(r#","exp":{NOW}"#)), Ok(Err(Rejection::Expired)));
        assert_eq!(valid(&format!(r#","nbf":{}"#, NOW + 1)), Ok(Err(Rejection::NotYet)));
    }

    #[test]
    fn issuer_and_audience_must_be_the_configured_ones() {
        for (response, expected) in [
            (r#"{"active":false}"#, Err(Rejection::Inactive)),
            (r#"{"active":true,"aud":"starling"}"#, Err(Rejection::Issuer)),
            (r#"{"active":true,"iss":"https://evil","aud":"starling"}"#, Err(Rejection::Issuer)),
            (r#"{"active":true,"iss":"https://issuer"}"#, Err(Rejection::Audience)),
            (r#"{"active":true,"iss":"https://issuer","aud":"x"}"#, Err(Rejection::Audience)),
            (r#"{"active":true,"iss":"https://issuer","aud":[7]}"#, Err(Rejection::Audience)),
            (r#"{"active":true,"iss":"https://issuer","aud":["x","other"]}"#, Ok(NOW + 3600)),
        ] {
            assert_eq!(read(response), Ok(expected), "{response}");
        }
        let anything = tokens(None, &[]);
        let response = Bytes::from_static(br#"{"active":true,"sub":"ann","aud":"x"}"#);
        let token = anything.read_response(hash("a"), &response, at(NOW)).expect("a response");
        let path = ClaimPath::new(["sub"]).expect("a path");
        let claims = token.expect("valid").claims.clone();
        assert_eq!(Claims::select(Some(&claims), [&path]).json(&path), Some("\"ann\""));
    }

    #[test]
    fn a_response_that_says_nothing_is_a_defect_and_never_a_verdict() {
        for (response, expected) in [
            ("", ResponseDefect::NotAnObject),
            ("<html>", ResponseDefect::NotAnObject),
            ("true", ResponseDefect::NotAnObject),
            ("[]", ResponseDefect::NotAnObject),
            (r#"{"active":true"#, ResponseDefect::NotAnObject),
            ("{}", ResponseDefect::Active),
            (r#"{"active":"true"}"#, ResponseDefect::Active),
            (r#"{"active":"false"}"#, ResponseDefect::Active),
            (r#"{"active":1}"#, ResponseDefect::Active),
            (r#"{"active":null}"#, ResponseDefect::Active),
            (r#"{"active":true,"exp":"soon"}"#, ResponseDefect::Time("exp")),
            (r#"{"active":true,"exp":-1}"#, ResponseDefect::Time("exp")),
            (r#"{"active":true,"nbf":[]}"#, ResponseDefect::Time("nbf")),
        ] {
            assert_eq!(read(response), Err(expected), "{response}");
        }
        let deep = format!(r#"{{"active":true,"a":{}{}}}"#, "[".repeat(40), "]".repeat(40));
        assert_eq!(read(&deep), Err(ResponseDefect::NotAnObject));
    }

    #[test]
    fn a_result_is_remembered_for_its_time_and_no_longer_than_the_token_lives() {
        let tokens = tokens(None, &[]);
        let remember = |name: &str, response: String| {
            let _ = tokens.read_response(hash(name), &response.into(), at(NOW));
        };
        remember("long", r#"{"active":true}"#.into());
        remember("short", format!(r#"{{"active":true,"exp":{}}}"#, NOW + 5));
        remember("invalid", r#"{"active":false}"#.into());
        remember("defect", "<html>".into());
        let known = |name: &str, seconds| tokens.recall(&hash(name), at(seconds)).is_some();
        for (name, seconds) in [("long", 60), ("short", 5), ("invalid", 10)] {
            assert!(known(name, NOW), "{name}");
            assert!(known(name, NOW + seconds - 1), "{name}");
            assert!(!known(name, NOW + seconds), "{name}");
            assert!(!known(name, NOW - 1), "the clock was set back: {name}");
        }
        assert!(!known("defect", NOW));
        assert_eq!(tokens.len(), 3);
        assert_eq!(
            tokens.recall(&hash("invalid"), at(NOW)).map(|it| it.map(drop)),
            Some(Err(Rejection::Inactive))
        );
    }

    #[test]
    fn the_cache_is_bounded() {
        let tokens = tokens(None, &[]);
        for number in 0..1000 {
            let name = number.to_string();
            let _ = tokens.read_response(
                hash(&name),
                &Bytes::from_static(br#"{"active":false}"#),
                at(NOW),
            );
        }
        assert!(tokens.len() <= 16, "{}", tokens.len());
    }

    #[test]
    fn a_json_web_token_is_told_by_its_form() {
        let object = URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256"}"#);
        assert!(is_json_web_token(&format!("{object}.a.b")));
        assert!(is_json_web_token(&format!("{object}..")));
        let array = URL_SAFE_NO_PAD.encode("[]{}");
        for opaque in [
            "",
            "abc",
            "a.b.c",
            &object,
            &format!("{object}.a"),
            &format!("{object}.a.b.c"),
            &format!("{array}.a.b"),
            "é.a.b",
            "eyé.a.b",
        ] {
            assert!(!is_json_web_token(opaque), "{opaque}");
        }
        assert!(is_printable("ab~/+=.-_"));
        for other in ["", "a b", "a\nb", "é"] {
            assert!(!is_printable(other), "{other}");
        }
    }
}
