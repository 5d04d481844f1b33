//! The headers that tell clients and their caches about a response: `cache-control`, `age`, `etag` and `vary`, and 304
//! for what a client has already.

use cache::{
    AgeStyle, ClientCaching, ConditionalResponse, FoldedPolicy, Jitter, Scope, Validator, Vary,
    decide_conditional,
};
use config::{Config, HeaderRule, Propagation};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AGE, CACHE_CONTROL, ETAG, HeaderValue, IF_NONE_MATCH, SET_COOKIE, VARY,
};
use http::{HeaderMap, HeaderName, Method, StatusCode};

use super::response::{Response, ResponseBody};
use clients::authentication::TokenSources;

/// The rules for all responses.
#[derive(Clone, Debug)]
pub struct ClientCacheRules {
    age: AgeStyle,
    jitter: Jitter,
    /// The headers of requests on which responses may depend.
    vary: HeaderValue,
    /// The same for responses that are compressed for clients that accept it.
    vary_compressed: HeaderValue,
    /// True if responses may depend on headers of requests that the configuration does not name. The headers say that
    /// they are private.
    has_unknown_headers: bool,
}

/// The parts of a request that decide about the caching of its response.
#[derive(Debug)]
pub(crate) struct CachedRequest {
    is_read: bool,
    known: Vec<HeaderValue>,
    is_personal: bool,
}

/// The permissions of clients and their caches for a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClientCopy {
    /// They may not store it.
    Forbidden,
    /// They may store it.
    Allowed,
    /// They may store it, and this client has it already: [`remove_body`] is due.
    Known,
}

/// Makes a response to a client that has it already a 304.
pub(crate) fn remove_body(response: &mut Response) {
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    *response.body_mut() = ResponseBody::Whole(bytes::Bytes::new());
}

impl CachedRequest {
    /// Takes the parts from a request. It is personal if it identifies its client.
    pub(crate) fn of(method: &Method, headers: &HeaderMap, is_personal: bool) -> Self {
        let is_read = method == Method::GET || method == Method::HEAD;
        let known = if is_read {
            headers.get_all(IF_NONE_MATCH).iter().cloned().collect()
        } else {
            Vec::new()
        };
        Self { is_read, known, is_personal }
    }
}

impl ClientCacheRules {
    /// Creates the rules from the configuration. `tokens` are the places of tokens, where they are verified. `None` if
    /// clients may store nothing.
    pub fn new(config: &Config, tokens: Option<&TokenSources>) -> Option<Self> {
        let settings = &config.cache;
        if !settings.enabled {
            return None;
        }
        let (mut vary, mut has_unknown_headers) = (Vary::default(), false);
        // The format of the response.
        vary.insert(ACCEPT);
        if let Some(tokens) = tokens {
            vary.read_field(tokens.vary().as_bytes());
        }
        let special = config.headers.subgraphs.values();
        let rules = special.chain([&config.headers.all]).flat_map(|rules| &rules.request);
        for rule in rules {
            match rule {
                HeaderRule::Propagate(Propagation { named: Some(name), .. }) => {
                    vary.insert(name.clone());
                }
                // Patterns and expressions may read any header.
                HeaderRule::Propagate(_) | HeaderRule::Set(_) => has_unknown_headers = true,
                // Requests with a token are never told that a response is public.
                HeaderRule::Claim(_) | HeaderRule::Insert(_) | HeaderRule::Remove(_) => {}
            }
        }
        settings.private_headers().into_iter().for_each(|name| vary.insert(name));
        // The graph that responds. Hosts and paths are parts of the URL.
        for header in config.graphs.iter().filter_map(|it| it.header.as_ref()) {
            if let Ok(name) = HeaderName::from_bytes(header.name.as_bytes()) {
                vary.insert(name);
            }
        }
        let mut vary_compressed = vary.clone();
        vary_compressed.insert(ACCEPT_ENCODING);
        // A set of more names than it holds is `*`.
        let value = |vary: Vary| vary.header_value().unwrap_or(HeaderValue::from_static("*"));
        Some(Self {
            age: if settings.send_age { AgeStyle::Stated } else { AgeStyle::Deducted },
            jitter: Jitter::from_permille(u16::from(settings.jitter) * 10),
            vary: value(vary),
            vary_compressed: value(vary_compressed),
            has_unknown_headers,
        })
    }

    /// Adds the headers of caching to a response with this policy. `is_compressible` is true if it is sent compressed
    /// to clients that accept that.
    ///
    /// Hot path: all that a hit of the cache does for its headers.
    pub(crate) fn apply(
        &self,
        request: &CachedRequest,
        policy: &FoldedPolicy,
        is_compressible: bool,
        response: &mut Response,
    ) -> ClientCopy {
        if response.status() != StatusCode::OK || response.headers().contains_key(SET_COOKIE) {
            return ClientCopy::Forbidden;
        }
        // A shared cache would give the response to clients without the rights of this one.
        let scope = match request.is_personal || self.has_unknown_headers {
            true => Scope::Private,
            false => policy.policy.scope,
        };
        let told = ClientCaching::of(policy, scope, self.age, self.jitter, fastrand::u64(..));
        let Ok(cache_control) = HeaderValue::try_from(told.cache_control) else {
            return ClientCopy::Forbidden;
        };
        let validator = match response.body() {
            ResponseBody::Whole(bytes) if request.is_read => {
                let known = policy.validator;
                debug_assert!(known.is_none_or(|known| known == Validator::of(bytes)));
                // The response may be compressed later, so its validator is weak.
                Some(known.unwrap_or_else(|| Validator::of(bytes)).weak())
            }
            _ => None,
        };
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, cache_control);
        if let Some(age) = told.age {
            headers.insert(AGE, HeaderValue::from(age));
        }
        let vary = if is_compressible { &self.vary_compressed } else { &self.vary };
        headers.append(VARY, vary.clone());
        let Some(validator) = validator else { return ClientCopy::Allowed };
        if let Ok(etag) = HeaderValue::try_from(validator.to_string()) {
            headers.insert(ETAG, etag);
        }
        let known = request.known.iter().map(HeaderValue::as_bytes);
        match decide_conditional(request.is_read, known, validator) {
            ConditionalResponse::NotModified => ClientCopy::Known,
            ConditionalResponse::Full => ClientCopy::Allowed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cache::{CachePolicy, PolicyFold};
    use config::Caching;

    use super::*;

    fn rules(text: &str) -> ClientCacheRules {
        let mut config: Config = serde_json::from_str(text).expect("a configuration");
        config.cache = Caching { enabled: true, jitter: 0, ..config.cache };
        ClientCacheRules::new(&config, None).expect("caching is enabled")
    }

    fn policy(scope: Scope) -> FoldedPolicy {
        let mut fold = PolicyFold::default();
        let fresh_for = Duration::from_secs(60);
        let policy = CachePolicy { fresh_for, scope, ..CachePolicy::default() };
        fold.add(&policy, Duration::from_secs(20));
        fold.finish().expect("a part")
    }

    fn response() -> Response {
        Response::new(ResponseBody::Whole("{}".into()))
    }

    fn apply(rules: &ClientCacheRules, request: &CachedRequest, to: &mut Response) -> ClientCopy {
        rules.apply(request, &policy(Scope::Public), false, to)
    }

    fn request(known: &[&str], is_personal: bool) -> CachedRequest {
        let known = known.iter().map(|it| HeaderValue::from_str(it).expect("a value")).collect();
        CachedRequest { is_read: true, known, is_personal }
    }

    fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
        response.headers().get(name).map(|it| it.to_str().expect("text"))
    }

    #[test]
    fn clients_learn_the_time_that_is_left_and_what_the_response_depends_on() {
        let rules =
            rules(r#"{"headers":{"all":{"request":[{"propagate":{"named":"x-tenant"}}]}}}"#);
        let mut public = response();
        assert_eq!(apply(&rules, &request(&[], false), &mut public), ClientCopy::Allowed);
        assert_eq!(header(&public, "cache-control"), Some("public, max-age=40"));
        assert_eq!(
            (header(&public, "vary"), header(&public, "age")),
            (Some("accept, x-tenant"), None)
        );
        let mut compressible = response();
        rules.apply(&request(&[], false), &policy(Scope::Public), true, &mut compressible);
        assert_eq!(header(&compressible, "vary"), Some("accept, accept-encoding, x-tenant"));
        let mut private = response();
        rules.apply(&request(&[], false), &policy(Scope::Private), false, &mut private);
        assert_eq!(header(&private, "cache-control"), Some("private, max-age=40"));
        let mut personal = response();
        assert_eq!(apply(&rules, &request(&[], true), &mut personal), ClientCopy::Allowed);
        assert_eq!(header(&personal, "cache-control"), Some("private, max-age=40"));
        let mut cookie = response();
        cookie.headers_mut().insert(SET_COOKIE, HeaderValue::from_static("a=b"));
        let mut failed = response();
        *failed.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        for forbidden in [&mut cookie, &mut failed] {
            assert_eq!(apply(&rules, &request(&[], false), forbidden), ClientCopy::Forbidden);
        }
    }

    #[test]
    fn a_header_that_selects_a_graph_tells_responses_apart() {
        let rules = rules(
            r#"{"graphs":[
                {"name":"a","path":"/a","supergraph":{"file":"a.graphql"}},
                {"name":"b","header":{"name":"X-Graph","value":"b"},"supergraph":{"file":"b.graphql"}}
            ]}"#,
        );
        let mut response = response();
        assert_eq!(apply(&rules, &request(&[], false), &mut response), ClientCopy::Allowed);
        assert_eq!(header(&response, "vary"), Some("accept, x-graph"));
    }

    #[test]
    fn a_pattern_or_an_expression_may_read_any_header() {
        let matching = r#"{"headers":{"all":{"request":[{"propagate":{"matching":"^x-"}}]}}}"#;
        let mut response = response();
        let copy = apply(&rules(matching), &request(&[], false), &mut response);
        assert_eq!(copy, ClientCopy::Allowed);
        assert_eq!(header(&response, "cache-control"), Some("private, max-age=40"));
    }

    #[test]
    fn a_client_that_has_the_response_gets_304() {
        let rules = rules(r#"{"cache":{"send_age":true}}"#);
        let mut first = response();
        assert_eq!(apply(&rules, &request(&[], false), &mut first), ClientCopy::Allowed);
        assert_eq!(header(&first, "age"), Some("20"));
        assert_eq!(header(&first, "cache-control"), Some("public, max-age=60"));
        let etag = header(&first, "etag").expect("a validator").to_owned();
        assert!(etag.starts_with("W/\""), "{etag}");
        let mut second = response();
        let copy = apply(&rules, &request(&["\"other\"", &etag], false), &mut second);
        assert_eq!(copy, ClientCopy::Known);
        remove_body(&mut second);
        assert_eq!(second.status(), StatusCode::NOT_MODIFIED);
        assert!(matches!(second.body(), ResponseBody::Whole(bytes) if bytes.is_empty()));
        assert_eq!(header(&second, "etag"), Some(&*etag));
        let post = CachedRequest { is_read: false, ..request(&[&etag], false) };
        let mut third = response();
        assert_eq!(apply(&rules, &post, &mut third), ClientCopy::Allowed);
        assert_eq!((third.status(), header(&third, "etag")), (StatusCode::OK, None));
    }
}
