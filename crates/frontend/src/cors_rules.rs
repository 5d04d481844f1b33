//! The policies of `cors`, prepared for requests: which one applies to an origin, and the values of its headers.

use std::collections::HashSet;

use config::{Cors, CorsMethod, CorsPolicy, OriginPattern};
use http::header::{HeaderName, HeaderValue};

/// The entry of `origins` for all origins.
const ANY: &str = "*";

/// The maximum length of an origin that is compared: scheme, a host of 253 bytes and a port are shorter.
const ORIGIN_BYTES_MAX: usize = 300;

/// The policies for pages of other origins, in the order in which they are tried.
#[derive(Debug, Default)]
pub struct CorsRules(Box<[CorsRule]>);

/// One policy.
#[derive(Debug)]
pub(crate) struct CorsRule {
    exact: HashSet<Box<str>>,
    wildcards: Box<[OriginWildcard]>,
    patterns: Box<[OriginPattern]>,
    /// True if the policy has `"*"`.
    has_any: bool,
    credentials: bool,
    /// True if pages may send GET requests.
    pub(crate) allows_get: bool,
    /// The value of `access-control-allow-methods`.
    pub(crate) methods: HeaderValue,
    /// The value of `access-control-allow-headers`; `None` for all that the browser asks for.
    pub(crate) allow_headers: Option<HeaderValue>,
    /// The value of `access-control-expose-headers`.
    pub(crate) expose_headers: Option<HeaderValue>,
    /// The value of `access-control-max-age`.
    pub(crate) max_age: HeaderValue,
    /// True if pages of the public internet may reach the router in a private network.
    pub(crate) has_private_network_access: bool,
}

/// The policy of an origin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllowedOrigin<'a> {
    /// The policy.
    pub(crate) rule: &'a CorsRule,
    /// True if the policy has the origin itself, a wildcard or a pattern for it; false if it has only `"*"`.
    pub(crate) is_named: bool,
}

impl AllowedOrigin<'_> {
    /// True if pages of the origin may send cookies and HTTP authentication.
    pub(crate) fn allows_credentials(self) -> bool {
        self.is_named && self.rule.credentials
    }
}

impl CorsRules {
    /// Prepares the policies of a configuration.
    pub fn new(cors: &Cors) -> Self {
        Self(cors.all_policies().map(|policy| CorsRule::new(&policy)).collect())
    }

    /// True if no page of another origin is allowed.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the policy of an origin: the first one that names it, and only if there is none, the first one for all.
    pub(crate) fn find(&self, origin: &HeaderValue) -> Option<AllowedOrigin<'_>> {
        let named = origin.to_str().ok().filter(|text| text.len() <= ORIGIN_BYTES_MAX);
        let named = named.and_then(|text| self.0.iter().find(|rule| rule.names(text)));
        match named {
            Some(rule) => Some(AllowedOrigin { rule, is_named: true }),
            None => self.any_origin().map(|rule| AllowedOrigin { rule, is_named: false }),
        }
    }

    /// Returns the policy for all origins.
    pub(crate) fn any_origin(&self) -> Option<&CorsRule> {
        self.0.iter().find(|rule| rule.has_any)
    }
}

impl CorsRule {
    fn new(policy: &CorsPolicy) -> Self {
        let named = || policy.origins.iter().filter(|origin| *origin != ANY);
        let wildcards: Box<[_]> = named().filter_map(|it| OriginWildcard::parse(it)).collect();
        let exact = named().filter(|origin| !origin.contains('*'));
        let methods: Vec<_> = policy.methods.iter().map(|method| method.as_str()).collect();
        Self {
            exact: exact.map(|origin| origin.as_str().into()).collect(),
            wildcards,
            patterns: policy.match_origins.clone().into(),
            has_any: policy.origins.iter().any(|origin| origin == ANY),
            credentials: policy.credentials,
            allows_get: policy.methods.contains(&CorsMethod::Get),
            methods: joined(&methods),
            allow_headers: header_list(&policy.allow_headers),
            expose_headers: header_list(&policy.expose_headers),
            max_age: HeaderValue::from(policy.max_age.as_secs()),
            has_private_network_access: policy.private_network_access,
        }
    }

    /// True if the policy has this origin, a wildcard or a pattern for it.
    fn names(&self, origin: &str) -> bool {
        self.exact.contains(origin)
            || self.wildcards.iter().any(|wildcard| wildcard.matches(origin))
            || self.patterns.iter().any(|pattern| pattern.matches(origin))
    }
}

fn header_list(names: &[HeaderName]) -> Option<HeaderValue> {
    let names: Vec<_> = names.iter().map(HeaderName::as_str).collect();
    if names.is_empty() { None } else { Some(joined(&names)) }
}

/// Joins words of ASCII letters to the value of a header.
fn joined(words: &[&str]) -> HeaderValue {
    HeaderValue::try_from(words.join(", ")).unwrap_or(HeaderValue::from_static(""))
}

/// All subdomains of a host: `https://*.example.com`.
#[derive(Debug)]
struct OriginWildcard {
    /// Scheme and separator: `https://`.
    scheme: Box<str>,
    /// Host and port with the point before them: `.example.com:8443`.
    domain: Box<str>,
}

impl OriginWildcard {
    /// Parses an origin with `*`; `None` if it has none.
    fn parse(origin: &str) -> Option<Self> {
        let (scheme, domain) = origin.split_once('*')?;
        Some(Self { scheme: scheme.into(), domain: domain.into() })
    }

    /// True if the origin has the scheme, the port, and one or more labels before the host.
    fn matches(&self, origin: &str) -> bool {
        let host = origin.strip_prefix(&*self.scheme);
        let Some(labels) = host.and_then(|host| host.strip_suffix(&*self.domain)) else {
            return false;
        };
        let is_letter = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_')
        };
        labels.split('.').all(|label| !label.is_empty() && label.bytes().all(is_letter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_stands_for_subdomains_and_nothing_else() {
        let wildcard = OriginWildcard::parse("https://*.example.com:8443").unwrap();
        for origin in ["https://a.example.com:8443", "https://a-1.b_2.example.com:8443"] {
            assert!(wildcard.matches(origin), "{origin}");
        }
        for origin in [
            "https://example.com:8443",
            "https://.example.com:8443",
            "https://a..example.com:8443",
            "https://evil-example.com:8443",
            "https://a.example.com",
            "https://a.example.com:84431",
            "http://a.example.com:8443",
            "https://a.example.com.evil.com:8443",
            "https://evil.com/.example.com:8443",
            "https://evil.com#.example.com:8443",
            "https://u@a.example.com:8443",
            "https://evil.com:1.example.com:8443",
            "https://A.example.com:8443",
            "https://\u{e4}.example.com:8443",
            "null",
        ] {
            assert!(!wildcard.matches(origin), "{origin}");
        }
    }

    #[test]
    fn the_first_policy_that_names_an_origin_decides_and_every_origin_comes_last() {
        let policy = |origins: &[&str], pattern: Option<&str>, credentials| CorsPolicy {
            origins: origins.iter().map(|&it| it.to_owned()).collect(),
            match_origins: pattern.map(|it| OriginPattern::new(it).unwrap()).into_iter().collect(),
            credentials,
            ..CorsPolicy::default()
        };
        let rules = CorsRules::new(&Cors {
            origins: vec!["*".into()],
            policies: vec![
                policy(&["https://*.example"], None, false),
                policy(&["https://b.example"], Some("https://[a-z]+[.]test"), true),
            ],
        });
        let credentials = |origin| {
            let found = rules.find(&HeaderValue::from_static(origin)).unwrap();
            (found.is_named, found.allows_credentials())
        };
        assert_eq!(credentials("https://b.example"), (true, false));
        assert_eq!(credentials("https://x.test"), (true, true));
        assert_eq!(credentials("https://x.test.evil"), (false, false));
        assert_eq!(credentials("null"), (false, false));
        assert_eq!(credentials("*"), (false, false));
    }

    #[test]
    fn an_origin_that_no_browser_sends_is_not_compared() {
        let pattern = OriginPattern::new(".*").unwrap();
        let policy = CorsPolicy { match_origins: vec![pattern], ..CorsPolicy::default() };
        let rules = CorsRules::new(&Cors { origins: Vec::new(), policies: vec![policy] });
        assert!(rules.find(&HeaderValue::from_static("https://a.example")).is_some());
        let long = HeaderValue::try_from(format!("https://{}", "a".repeat(400))).unwrap();
        assert!(rules.find(&long).is_none());
        assert!(rules.find(&HeaderValue::from_bytes(b"https://\xff").unwrap()).is_none());
    }
}
