//! Settings of cross-origin resource sharing: the pages of other origins that may use the endpoint.

use std::time::Duration;

use http::HeaderName;
use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::{DurationOrZeroText, OriginPatternText, OriginText, PageHeaderText};
use super::headers::header_names;
use super::pattern::{self, pattern_traits};
use super::quantity;

/// Cross-origin resource sharing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cors {
    /// The origins of web pages that may send requests from a browser, such as `https://app.example.com`, or
    /// `https://*.example.com` for all subdomains of a host. `"*"` allows every origin, but only without credentials:
    /// pages that send cookies, and WebSockets opened with cookies, need their origin in this list. If neither this
    /// list nor `cors.policies` has an entry, browsers allow only pages that the router itself serves. Browsers let
    /// pages of other origins open WebSockets and send GET requests nevertheless; the router refuses these with status
    /// 403.
    ///
    /// The list is short for a policy with these origins and the defaults of all other keys, before those of
    /// `cors.policies`.
    #[schemars(with = "Vec<OriginText>", length(max = 1000), example = ["https://app.example.com"])]
    pub origins: Vec<String>,

    /// Rules for pages, by their origin. The first policy decides that names the origin in `origins` or matches it by
    /// `match_origins`; only if there is none, the first one with `"*"`.
    #[schemars(length(max = 100))]
    pub policies: Vec<CorsPolicy>,
}

impl Cors {
    /// Returns all policies in the order in which they are tried, the one of `cors.origins` included.
    pub fn all_policies(&self) -> impl Iterator<Item = CorsPolicy> + '_ {
        let short = CorsPolicy { origins: self.origins.clone(), ..CorsPolicy::default() };
        let short = Some(short).filter(|it| !it.origins.is_empty());
        short.into_iter().chain(self.policies.iter().cloned())
    }
}

/// The rules for the pages of some origins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CorsPolicy {
    /// The origins, as in `cors.origins`. In `https://*.example.com`, `*` stands for one or more labels of the host:
    /// `https://a.b.example.com` matches, `https://example.com` and `https://evil-example.com` do not.
    #[schemars(with = "Vec<OriginText>", length(max = 1000), example = ["https://*.example.com"])]
    pub origins: Vec<String>,

    /// Regular expressions for further origins. A pattern must match the whole origin, scheme and port included, which
    /// browsers send in lower case.
    #[schemars(with = "Vec<OriginPatternText>", length(max = 100))]
    #[schemars(example = ["https://pr-[0-9]+\\.preview\\.example\\.com"])]
    pub match_origins: Vec<OriginPattern>,

    /// Allows cookies and HTTP authentication. If `false`, browsers send requests without them, and a WebSocket or a
    /// GET with them is refused. `"*"` never allows them.
    #[schemars(example = false)]
    pub credentials: bool,

    /// The methods that pages may use. Browsers ask only about PUT and DELETE; a GET is refused with status 403 if it
    /// is not in the list.
    #[schemars(example = ["GET", "POST"])]
    pub methods: Vec<CorsMethod>,

    /// The headers that pages may send. If the list is empty, pages may send every header.
    #[serde(with = "header_names")]
    #[schemars(with = "Vec<PageHeaderText>", length(max = 100), example = ["content-type", "authorization"])]
    pub allow_headers: Vec<HeaderName>,

    /// The response headers that the code of pages may read, in addition to those that browsers always show, such as
    /// `content-type`.
    #[serde(with = "header_names")]
    #[schemars(with = "Vec<PageHeaderText>", length(max = 100), example = ["retry-after", "x-request-cost"])]
    pub expose_headers: Vec<HeaderName>,

    /// The time for which a browser may remember the response to a preflight. Browsers keep it for two hours at most.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationOrZeroText", example = &"10m")]
    pub max_age: Duration,

    /// Allows pages of the public internet to reach a router in a private network, if the browser asks for that in a
    /// preflight (`access-control-request-private-network`).
    #[schemars(example = true)]
    pub private_network_access: bool,
}

impl Default for CorsPolicy {
    fn default() -> Self {
        Self {
            origins: Vec::new(),
            match_origins: Vec::new(),
            credentials: true,
            methods: CorsMethod::ALL.to_vec(),
            allow_headers: Vec::new(),
            // The headers of the router's own responses that a client acts on.
            expose_headers: vec![
                RETRY_AFTER,
                WWW_AUTHENTICATE,
                HeaderName::from_static("ratelimit"),
                HeaderName::from_static("ratelimit-policy"),
            ],
            // The most that browsers keep.
            max_age: Duration::from_secs(7200),
            private_network_access: false,
        }
    }
}

/// A method of the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum CorsMethod {
    /// Queries, and event streams.
    Get,
    /// All operations.
    Post,
    /// Reserves an event stream for several operations.
    Put,
    /// Stops an operation of such a stream.
    Delete,
}

impl CorsMethod {
    /// All methods.
    pub const ALL: [Self; 4] = [Self::Get, Self::Post, Self::Put, Self::Delete];

    /// Returns the method as it is written in a header.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }
}

/// A regular expression for whole origins.
#[derive(Clone)]
pub struct OriginPattern {
    /// The pattern as it is in the configuration.
    text: Box<str>,
    anchored: Regex,
}

impl OriginPattern {
    /// Compiles a pattern in the syntax of the `regex` crate: matching takes linear time.
    ///
    /// # Errors
    /// Describes in one line what is wrong with the pattern.
    pub fn new(pattern: &str) -> Result<Self, String> {
        let compile = |text: &str| pattern::compile(&mut RegexBuilder::new(text));
        // Compiled alone first: `a)|(b` is no pattern, though it would be one inside the group.
        compile(pattern)?;
        let anchored = compile(&format!(r"\A(?:{pattern})\z"))?;
        Ok(Self { text: pattern.into(), anchored })
    }

    fn text(&self) -> &str {
        &self.text
    }

    /// True if the pattern matches the whole origin.
    pub fn matches(&self, origin: &str) -> bool {
        self.anchored.is_match(origin)
    }
}

pattern_traits!(OriginPattern);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_origins_only() {
        let pattern = OriginPattern::new(r"https://a\.example|https://b\.example").unwrap();
        assert!(pattern.matches("https://a.example"));
        assert!(pattern.matches("https://b.example"));
        for other in ["https://a.example.evil", "http://x?https://b.example", "https://b.example\n"]
        {
            assert!(!pattern.matches(other), "{other}");
        }
    }

    #[test]
    fn a_pattern_cannot_leave_its_anchors() {
        assert!(OriginPattern::new("a)|(b").is_err());
        assert!(OriginPattern::new("(?x) a # ").is_err());
        assert!(OriginPattern::new("(a{1000}){1000}").is_err());
    }

    #[test]
    fn the_short_form_is_the_first_policy() {
        let second = CorsPolicy { credentials: false, ..CorsPolicy::default() };
        let cors = Cors { origins: vec!["https://a.example".into()], policies: vec![second] };
        let policies: Vec<_> = cors.all_policies().map(|it| it.credentials).collect();
        assert_eq!(policies, [true, false]);
        assert_eq!(Cors::default().all_policies().count(), 0);
    }
}
