//! Reads any bytes as the headers of a subgraph's response and of a client's request that concern caches: reading never
//! panics, and no value becomes a permission that it is not.
//!
//! The first byte chooses the number of seconds in `Age`. The rest are values separated by line feeds: `Cache-Control`,
//! `Cache-Control` again, `Vary`, `If-None-Match`, the operator's header, a template of tags, the key of an entity.

#![no_main]

use std::time::Duration;

use cache::{
    DeclaredPolicy, EntityKey, Jitter, NotStorable, ResponseContent, ResponseTtl, Scope,
    TagTemplate, Tags, TemplateScope, TtlSettings, Validator, Vary, read_ttl_header,
    resolve_policy,
};
use http::header::{AGE, CACHE_CONTROL, HeaderName, HeaderValue, VARY};
use http::HeaderMap;
use libfuzzer_sys::fuzz_target;

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

fuzz_target!(|data: &[u8]| {
    let Some((age, rest)) = data.split_first() else { return };
    let mut values = rest.split(|byte| *byte == b'\n');
    let mut next = || values.next().unwrap_or_default();
    let mut headers = HeaderMap::new();
    let ttl = HeaderName::from_static("x-ttl");
    for name in [CACHE_CONTROL, CACHE_CONTROL, VARY] {
        if let Ok(value) = HeaderValue::from_bytes(next()) {
            headers.append(name, value);
        }
    }
    let if_none_match = next();
    if let Ok(value) = HeaderValue::from_bytes(next()) {
        headers.append(&ttl, value);
    }
    headers.append(AGE, HeaderValue::from(u16::from(*age)));

    let settings = TtlSettings { jitter: Jitter::default(), ..TtlSettings::default() };
    let (response, _) = ResponseTtl::from_headers(&headers, Some(&ttl));
    let declared = DeclaredPolicy { max_age: Some(Duration::from_secs(9)), scope: Scope::Private };
    let content = ResponseContent::Data;
    match resolve_policy(&response, declared, content, &settings, Tags::default(), 7) {
        Ok(policy) => {
            assert!(policy.fresh_for <= YEAR && policy.scope == Scope::Private);
            let directives = response.directives.unwrap_or_default();
            assert!(!directives.no_store && !directives.no_cache);
            assert!(!directives.must_revalidate || policy.stale_for.is_zero());
        }
        Err(reason) => assert_ne!(reason, NotStorable::NoLifetime, "the schema declares a time"),
    }
    if let Ok(Some(time)) = read_ttl_header(&headers, &ttl) {
        assert!(time <= YEAR);
    }
    if let Some(value) = Vary::from_headers(&headers).header_value() {
        let mut again = Vary::default();
        again.read_field(value.as_bytes());
        assert_eq!(again, Vary::from_headers(&headers));
    }
    let validator = Validator::of(data);
    let listed = [if_none_match, b",", validator.to_string().as_bytes()].concat();
    // A quote that does not end may hide the rest; anything else may not.
    if !if_none_match.contains(&b'"') {
        assert!(validator.matches(&listed));
    }
    if let Ok(text) = std::str::from_utf8(next()) {
        for scope in [TemplateScope::Entity, TemplateScope::RootField] {
            if let Err(error) = TagTemplate::compile(text, scope) {
                assert!(text.get(error.range).is_some());
            }
        }
    }
    if let Ok(text) = std::str::from_utf8(next())
        && let Ok(key) = EntityKey::from_json(text)
    {
        assert!(key.fields().count() > 0);
    }
});
