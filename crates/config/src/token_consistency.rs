//! Rules that involve several keys of authentication: places of tokens, issuers, introspection, and rules for headers
//! that replace a verified token.

use http::header::COOKIE;

use super::findings::{Findings, KeyPlaces};
use super::{Config, HeaderRule, IntrospectedTokens, OnTokenError, TokenIntrospection, TokenPlace};

/// Checks the places, the issuers and the introspection of tokens.
pub(super) fn check(config: &Config, places: &KeyPlaces, findings: &mut Findings) {
    let jwt = &config.authentication.jwt;
    let introspection = config.authentication.introspection.as_ref();
    let accepts_tokens = !jwt.issuers.is_empty() || introspection.is_some();
    if jwt.required && !accepts_tokens {
        findings
            .error("conflict", "`authentication.jwt.required` is true, and no issuer is accepted")
            .at_place(
                places.get("authentication.jwt.required"),
                "no client could have a valid token",
            )
            .help("add `issuers` or `authentication.introspection`, or remove `required`");
    }
    if jwt.required && jwt.on_error == OnTokenError::Continue {
        findings
            .error("conflict", "`authentication.jwt.on_error: continue` conflicts with `required`")
            .at_place(
                places.get("authentication.jwt.on_error"),
                "makes clients anonymous, and those are refused",
            )
            .related_place(places.get("authentication.jwt.required"), "refuses anonymous clients")
            .help("remove one of them");
    }
    check_places(config, places, findings);
    if let Some(introspection) = introspection {
        check_introspection(config, introspection, places, findings);
    }
    if accepts_tokens {
        check_renamed_headers(config, places, findings);
    }
    for (index, issuer) in jwt.issuers.iter().enumerate() {
        let path = format!("authentication.jwt.issuers[{index}]");
        // A public key that is used as a shared secret would let every client sign tokens.
        let is_public = issuer.secret.is_none();
        let wrong = issuer.algorithms.iter().position(|it| it.is_public() != is_public);
        if let Some(number) = wrong {
            let (algorithm, keys) = (issuer.algorithms[number], ["a secret", "public keys"]);
            findings
                .error(
                    "conflict",
                    format!("`{algorithm:?}` does not go with {}", keys[usize::from(is_public)]),
                )
                .at_place(
                    places.get(&format!("{path}.algorithms[{number}]")),
                    format!("needs {}", keys[usize::from(!is_public)]),
                )
                .help("remove it: each kind of key has algorithms of its own");
        }
        if let Some(jwks) = issuer.jwks.as_ref().filter(|it| it.max_age < it.refresh) {
            let (age, refresh) = (places.get(&format!("{path}.jwks.max_age")), jwks.refresh);
            findings
                .error("conflict", format!("`{path}.jwks.max_age` is shorter than `refresh`"))
                .at_place(age, format!("keys are read every {refresh:?}, and would expire before"))
                .help("make `max_age` several times as long as `refresh`, or leave it out");
        }
        let url = issuer.jwks.as_ref().and_then(|it| it.url.as_deref()).unwrap_or_default();
        if is_remote_without_tls(url) {
            findings
                .warning("not-secure", format!("`{path}.jwks.url` is fetched without TLS"))
                .at_place(
                    places.get(&format!("{path}.jwks.url")),
                    "an attacker on the network can replace the keys",
                )
                .help("write `https://`");
        }
    }
}

/// True if a request to `url` crosses the network unencrypted.
pub(super) fn is_remote_without_tls(url: &str) -> bool {
    let host = url.strip_prefix("http://").map(|rest| rest.split(['/', ':']).next());
    host.flatten().is_some_and(|host| !["localhost", "127.0.0.1", "[::1]"].contains(&host))
}

/// Checks that each place of tokens is named once, and by one key.
fn check_places(config: &Config, places: &KeyPlaces, findings: &mut Findings) {
    let jwt = &config.authentication.jwt;
    if jwt.sources.is_empty() {
        return;
    }
    if let Some(place) = places.get("authentication.jwt.header") {
        findings
            .warning("no-effect", "`authentication.jwt.header` has no effect beside `sources`")
            .at_place(Some(place), "not among `sources`")
            .related_place(places.get("authentication.jwt.sources"), "lists all places of tokens")
            .help("move the header to `sources`, or remove it");
    }
    for (index, source) in jwt.sources.iter().enumerate() {
        let is_same = |other: &&TokenPlace| match (source, *other) {
            (TokenPlace::Header(a), TokenPlace::Header(b)) => a.name == b.name,
            (TokenPlace::Cookie(a), TokenPlace::Cookie(b)) => a.name == b.name,
            _ => false,
        };
        let path = format!("authentication.jwt.sources[{index}]");
        if jwt.sources[..index].iter().any(|other| is_same(&other)) {
            findings
                .error("conflict", format!("`{path}` names a place that is listed before"))
                .at_place(places.get(&path), "never used")
                .help("remove it");
        }
    }
    let has_cookie = jwt.sources.iter().any(|it| matches!(it, TokenPlace::Cookie(_)));
    let allowed = &config.websocket.init_payload_headers;
    if has_cookie && let Some(index) = allowed.iter().position(|it| it == COOKIE) {
        let path = format!("websocket.init_payload_headers[{index}]");
        findings
            .error("conflict", format!("`{path}` lets payloads replace a cookie with a token"))
            .at_place(places.get(&path), "would reach subgraphs without verification")
            .related_place(places.get("authentication.jwt.sources"), "has a cookie")
            .help("remove it: the router takes tokens from payloads by `init_payload`");
    }
}

fn check_introspection(
    config: &Config,
    introspection: &TokenIntrospection,
    places: &KeyPlaces,
    findings: &mut Findings,
) {
    let path = "authentication.introspection";
    if introspection.tokens == IntrospectedTokens::All
        && !config.authentication.jwt.issuers.is_empty()
    {
        findings
            .error("conflict", format!("`{path}.tokens: all` conflicts with `issuers`"))
            .at_place(places.get(&format!("{path}.tokens")), "no token would be left for them")
            .related_place(places.get("authentication.jwt.issuers"), "never used")
            .help("remove one of them");
    }
    if is_remote_without_tls(&introspection.url) {
        findings
            .warning("not-secure", format!("`{path}.url` is requested without TLS"))
            .at_place(
                places.get(&format!("{path}.url")),
                "an attacker on the network can read tokens, and make any token valid",
            )
            .help("write `https://`");
    }
}

/// Warns about rules that put another header of the client where subgraphs expect the verified token.
fn check_renamed_headers(config: &Config, places: &KeyPlaces, findings: &mut Findings) {
    let sources = config.authentication.jwt.places();
    let headers: Vec<_> = sources
        .iter()
        .filter_map(|it| match it {
            TokenPlace::Header(header) => Some(&header.name),
            TokenPlace::Cookie(_) => None,
        })
        .collect();
    let special = config.headers.subgraphs.iter();
    let special = special.map(|(name, rules)| (format!("headers.subgraphs.{name}"), rules));
    let all = std::iter::once(("headers.all".to_owned(), &config.headers.all));
    for (section, rules) in all.chain(special) {
        for (index, rule) in rules.request.iter().enumerate() {
            let HeaderRule::Propagate(rule) = rule else { continue };
            let renamed = rule.rename.as_ref().filter(|name| headers.contains(name));
            let Some(header) = renamed else { continue };
            // A header that has a verified token itself may get the name of another one.
            if rule.named.as_ref().is_some_and(|name| headers.contains(&name)) {
                continue;
            }
            let path = format!("{section}.request[{index}].propagate.rename");
            findings
                .warning("not-secure", format!("`{path}` replaces the verified token"))
                .at_place(places.get(&path), "any client can send this header with any text")
                .help(format!(
                    "propagate `{header}` itself, or set `authentication.jwt.header` to the header that contains the token"
                ));
        }
    }
}
