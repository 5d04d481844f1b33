//! Decides how long the response of a subgraph may be stored, from everything that says something about it.

use std::time::Duration;

use http::HeaderMap;
use http::header::HeaderName;

use crate::cache_control::{BadTtlHeader, ResponseDirectives, read_age, read_ttl_header};
use crate::hints::DeclaredPolicy;
use crate::jitter::Jitter;
use crate::policy::CachePolicy;
use crate::scope::Scope;
use crate::tags::Tags;

/// The times and restrictions in the headers of one response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ResponseTtl {
    /// `Cache-Control`, if the response has it.
    pub directives: Option<ResponseDirectives>,
    /// `Age`.
    pub age: Duration,
    /// The operator's header, if one is configured and the response has it.
    pub ttl_header: Option<Duration>,
}

impl ResponseTtl {
    /// Reads the headers of a response. The second result is an error if the operator's header cannot be read; it is
    /// ignored then, and the caller may log that.
    pub fn from_headers(
        headers: &HeaderMap,
        ttl_header: Option<&HeaderName>,
    ) -> (Self, Result<(), BadTtlHeader>) {
        let read = ttl_header.map_or(Ok(None), |name| read_ttl_header(headers, name));
        let directives = ResponseDirectives::from_headers(headers);
        let ttl_header = read.ok().flatten();
        (Self { directives, age: read_age(headers), ttl_header }, read.map(|_| ()))
    }
}

/// The settings of the operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TtlSettings {
    /// The time for which stale entries are served while they are fetched again, unless the response says otherwise.
    pub stale_for: Duration,
    /// The time for which stale entries are served if fetching them fails, unless the response says otherwise.
    pub stale_if_error: Duration,
    /// The maximum time for which "not found" is stored; `None` if it is never stored.
    pub not_found_for: Option<Duration>,
    /// The spread of expiry.
    pub jitter: Jitter,
}

/// The content of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResponseContent {
    /// Data.
    Data,
    /// The subgraph does not know the entity, or the root field is null.
    NotFound,
}

/// The reason why a response is not stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum NotStorable {
    /// `Cache-Control: no-store`.
    #[error("the subgraph sent `no-store`")]
    NoStore,
    /// `Cache-Control: no-cache`: the subgraph would have to be asked before each use, which is a fetch.
    #[error("the subgraph sent `no-cache`")]
    NoCache,
    /// Nothing says how long the response may be stored.
    #[error("nothing says for how long the response may be stored")]
    NoLifetime,
    /// The time is over, or zero.
    #[error("the response has no time left")]
    Expired,
    /// "Not found" is not stored.
    #[error("responses without data are not stored")]
    NotFound,
}

/// Returns the policy of a response. Its times are counted from the start of its fetch, and shortened by jitter.
///
/// The first source that says a time decides it: `Cache-Control` with `Age`, the operator's header, then the schema and
/// the configuration together as `declared` ([`crate::HintFold`]). A source that forbids storing or sharing always
/// counts: a response is private if the subgraph or the schema says so.
///
/// # Errors
/// The reason why the response is not stored.
pub fn resolve_policy(
    response: &ResponseTtl,
    declared: DeclaredPolicy,
    content: ResponseContent,
    settings: &TtlSettings,
    tags: Tags,
    random: u64,
) -> Result<CachePolicy, NotStorable> {
    let directives = response.directives.unwrap_or_default();
    if directives.no_store {
        return Err(NotStorable::NoStore);
    }
    if directives.no_cache {
        return Err(NotStorable::NoCache);
    }
    let lifetime = directives
        .lifetime()
        .map(|lifetime| lifetime.saturating_sub(response.age))
        .or(response.ttl_header)
        .or(declared.max_age);
    let mut fresh_for = lifetime.ok_or(NotStorable::NoLifetime)?;
    // `s-maxage` means `proxy-revalidate` for shared caches (RFC 9111, section 5.2.2.10), so the operator's defaults do
    // not apply. A permission that the same response gives explicitly does: CDNs read it like that.
    let has_defaults = directives.s_maxage.is_none() || directives.is_private;
    let stale = |explicit: Option<Duration>, default: Duration| match directives.must_revalidate {
        true => Duration::ZERO,
        false => explicit.unwrap_or(if has_defaults { default } else { Duration::ZERO }),
    };
    let mut stale_for = stale(directives.stale_while_revalidate, settings.stale_for);
    let mut stale_if_error = stale(directives.stale_if_error, settings.stale_if_error);
    if content == ResponseContent::NotFound {
        let longest = settings.not_found_for.ok_or(NotStorable::NotFound)?;
        fresh_for = fresh_for.min(longest);
        stale_for = stale_for.min(longest);
        stale_if_error = stale_if_error.min(longest);
    }
    if fresh_for.is_zero() && stale_for.is_zero() && stale_if_error.is_zero() {
        return Err(NotStorable::Expired);
    }
    let is_private = directives.is_private || declared.scope == Scope::Private;
    Ok(CachePolicy {
        fresh_for: settings.jitter.apply(fresh_for, random),
        stale_for,
        stale_if_error,
        scope: if is_private { Scope::Private } else { Scope::Public },
        tags,
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::{AGE, CACHE_CONTROL};
    use proptest::prelude::*;

    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    const DECLARED: DeclaredPolicy =
        DeclaredPolicy { max_age: Some(Duration::from_secs(300)), scope: Scope::Public };
    const NOTHING: DeclaredPolicy = DeclaredPolicy { max_age: None, scope: Scope::Public };
    const SETTINGS: TtlSettings = TtlSettings {
        stale_for: Duration::from_secs(7),
        stale_if_error: Duration::from_secs(70),
        not_found_for: Some(Duration::from_secs(2)),
        jitter: Jitter::NONE,
    };

    fn response(cache_control: &'static str, age: u64, ttl: Option<&'static str>) -> ResponseTtl {
        let mut headers = HeaderMap::new();
        if !cache_control.is_empty() {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache_control));
        }
        headers.insert(AGE, HeaderValue::from(age));
        let name = HeaderName::from_static("x-ttl");
        if let Some(ttl) = ttl {
            headers.insert(&name, HeaderValue::from_static(ttl));
        }
        ResponseTtl::from_headers(&headers, Some(&name)).0
    }

    fn resolve(
        response: &ResponseTtl,
        declared: DeclaredPolicy,
    ) -> Result<(u64, u64, u64, Scope), NotStorable> {
        let content = ResponseContent::Data;
        resolve_policy(response, declared, content, &SETTINGS, Tags::default(), u64::MAX).map(
            |it| {
                let seconds =
                    [it.fresh_for, it.stale_for, it.stale_if_error].map(|it| it.as_secs());
                (seconds[0], seconds[1], seconds[2], it.scope)
            },
        )
    }

    #[test]
    fn the_first_source_that_says_a_time_decides() {
        use Scope::{Private, Public};
        for (response, declared, expected) in [
            (response("max-age=60", 20, Some("5")), DECLARED, Ok((40, 7, 70, Public))),
            (response("public", 20, Some("5")), DECLARED, Ok((5, 7, 70, Public))),
            (response("", 0, None), DECLARED, Ok((300, 7, 70, Public))),
            (response("", 0, None), NOTHING, Err(NotStorable::NoLifetime)),
            (response("public", 0, None), NOTHING, Err(NotStorable::NoLifetime)),
            (response("", 0, Some("x")), DECLARED, Ok((300, 7, 70, Public))),
            // Zero is a time: it does not leave the decision to the next source.
            (
                response("max-age=0, must-revalidate", 0, Some("5")),
                DECLARED,
                Err(NotStorable::Expired),
            ),
            (response("max-age=0", 0, None), DECLARED, Ok((0, 7, 70, Public))),
            (response("no-store, max-age=60", 0, None), DECLARED, Err(NotStorable::NoStore)),
            (response("no-cache", 0, Some("5")), DECLARED, Err(NotStorable::NoCache)),
            (response("private", 0, None), DECLARED, Ok((300, 7, 70, Private))),
            (
                response("private, max-age=9, s-maxage=60", 0, None),
                NOTHING,
                Ok((9, 7, 70, Private)),
            ),
        ] {
            assert_eq!(resolve(&response, declared), expected, "{response:?} {declared:?}");
        }
    }

    #[test]
    fn a_private_schema_hint_counts_whatever_the_subgraph_sends() {
        let declared = DeclaredPolicy { scope: Scope::Private, ..DECLARED };
        let resolved = resolve(&response("public, max-age=60", 0, None), declared);
        assert_eq!(resolved, Ok((60, 7, 70, Scope::Private)));
    }

    #[test]
    fn stale_responses_are_served_only_if_the_subgraph_permits_it() {
        let stale = |field| resolve(&response(field, 0, None), NOTHING).map(|it| (it.1, it.2));
        assert_eq!(stale("max-age=1"), Ok((7, 70)));
        assert_eq!(stale("max-age=1, stale-while-revalidate=0, stale-if-error=3"), Ok((0, 3)));
        assert_eq!(stale("max-age=1, must-revalidate, stale-if-error=3"), Ok((0, 0)));
        assert_eq!(stale("max-age=1, proxy-revalidate"), Ok((0, 0)));
        assert_eq!(stale("s-maxage=1"), Ok((0, 0)));
        assert_eq!(stale("s-maxage=1, stale-while-revalidate=5"), Ok((5, 0)));
    }

    #[test]
    fn not_found_is_stored_for_a_shorter_time() {
        let resolve = |settings: &TtlSettings, field| {
            let (response, content) = (response(field, 0, None), ResponseContent::NotFound);
            resolve_policy(&response, NOTHING, content, settings, Tags::default(), 0)
                .map(|it| (it.fresh_for, it.stale_for, it.stale_if_error))
        };
        assert_eq!(resolve(&SETTINGS, "max-age=60"), Ok((seconds(2), seconds(2), seconds(2))));
        assert_eq!(resolve(&SETTINGS, "max-age=1").map(|it| it.0), Ok(seconds(1)));
        let never = TtlSettings { not_found_for: None, ..SETTINGS };
        assert_eq!(resolve(&never, "max-age=60"), Err(NotStorable::NotFound));
    }

    proptest! {
        /// No header makes a response usable for longer than the decisive source permits, or shared against a
        /// restriction.
        #[test]
        fn no_header_extends_a_permission(
            field in "(max-age=[0-9]{0,3}|s-maxage=[0-9]{1,3}|private|public|no-store|no-cache|\
                must-revalidate|x=\"a,b\"|,| ){0,6}",
            age in 0u64..200,
            random: u64,
        ) {
            let mut directives = ResponseDirectives::default();
            directives.read_field(field.as_bytes());
            let response = ResponseTtl { directives: Some(directives), age: seconds(age), ttl_header: None };
            let settings = TtlSettings { jitter: Jitter::default(), ..SETTINGS };
            let resolved = resolve_policy(
                &response, DECLARED, ResponseContent::Data, &settings, Tags::default(), random,
            );
            match resolved {
                Ok(policy) => {
                    prop_assert!(!directives.no_store && !directives.no_cache);
                    let longest = directives.lifetime().map_or(seconds(300), |it| it.saturating_sub(seconds(age)));
                    prop_assert!(policy.fresh_for <= longest);
                    prop_assert_eq!(policy.scope == Scope::Private, directives.is_private);
                    prop_assert!(!directives.must_revalidate || policy.stale_for.is_zero());
                }
                Err(NotStorable::NoStore) => prop_assert!(directives.no_store),
                Err(NotStorable::NoCache) => prop_assert!(directives.no_cache),
                Err(NotStorable::Expired) => prop_assert!(directives.lifetime().is_some()),
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }
}
