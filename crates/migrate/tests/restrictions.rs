//! What keeps clients out in the configuration of another router keeps them out after the migration, whatever form its
//! values have.

#![allow(clippy::unwrap_used)] // a source that cannot be migrated fails the test

use migrate::{Migration, Outcome, Router, migrate};

fn migrated(router: Router, text: &str) -> Migration {
    migrate(router, text, "input.yaml").unwrap()
}

/// Returns the lines of a result that are no comments.
fn lines(migration: &Migration) -> Vec<&str> {
    migration.yaml.lines().map(str::trim).filter(|it| !it.starts_with('#')).collect()
}

/// Checks that the result has a line, and that a finding about a key says that it was not converted.
fn check(router: Router, text: &str, line: &str, key: Option<&str>) {
    let migration = migrated(router, text);
    let lines = lines(&migration);
    assert!(lines.contains(&line), "no `{line}` for\n{text}\n{}", migration.yaml);
    if let Some(key) = key {
        let is_reported =
            |it: &migrate::Finding| it.outcome == Outcome::NotConverted && it.key == key;
        let findings = &migration.findings;
        assert!(findings.iter().any(is_reported), "`{key}`: {findings:#?}");
    }
}

const ALL_REFUSED: &str = "- when: true";

#[test]
fn restrictions_with_an_unknown_value_take_their_strictest_form() {
    use Router::{Apollo, Cosmo, Hive};
    let cases = [
        (
            Cosmo,
            "introspection_enabled: sometimes",
            "introspection: false",
            "introspection_enabled",
        ),
        (Hive, "introspection: [a]", "introspection: false", "introspection"),
        (Apollo, "forbid_mutations: 'yes'", "mutations: true", "forbid_mutations"),
        (
            Cosmo,
            "introspection_enabled: true\nintrospection: {enabled: false}",
            "introspection: false",
            "introspection.enabled",
        ),
        (
            Cosmo,
            "authorization: {require_authentication: 'yes'}",
            ALL_REFUSED,
            "authorization.require_authentication",
        ),
        (
            Cosmo,
            "security: {block_mutations: {enabled: true, condition: 'nobody == 1'}}",
            "mutations: true",
            "security.block_mutations.condition",
        ),
        (
            Apollo,
            "authorization: {require_authentication: true}",
            ALL_REFUSED,
            "authorization.require_authentication",
        ),
        (
            Apollo,
            "persisted_queries: {enabled: true, local_manifests: [{a: b}], \
             safelist: {enabled: true}}",
            ALL_REFUSED,
            "persisted_queries.local_manifests[0]",
        ),
    ];
    for (router, text, line, key) in cases {
        check(router, text, line, Some(key));
    }
}

#[test]
fn switches_that_are_variables_count_as_on() {
    use Router::{Apollo, Cosmo, Hive};
    let cases = [
        (
            Apollo,
            "persisted_queries: {enabled: '${env.A}', safelist: {enabled: '${env.B}'}, \
             local_manifests: [a.json]}",
            "mode: require_known",
        ),
        (
            Apollo,
            "persisted_queries: {enabled: '${env.A:-true}', safelist: {enabled: true}}",
            ALL_REFUSED,
        ),
        (Apollo, "subscription: {enabled: '${env.A}'}", "subscriptions: \"!${A}\""),
        (Apollo, "forbid_mutations: '${env.A}'", "mutations: ${A}"),
        (Apollo, "demand_control: {enabled: '${env.A}', mode: measure}", "mode: measure"),
        (Apollo, "include_subgraph_errors: {all: {redact_message: '${env.A}'}}", "all: false"),
        (Cosmo, "rate_limit: {enabled: $A, simple_strategy: {rate: 5, period: 1s}}", "rate: 5"),
        (Cosmo, "subgraph_error_propagation: {enabled: $A, mode: pass-through}", "all: ${A}"),
        (Cosmo, "security: {block_mutations: {enabled: $A}}", "mutations: true"),
        (
            Cosmo,
            "tls: {server: {enabled: $A, cert_file: c, key_file: k, \
             client_auth: {required: $B, cert_file: a}}}",
            "client_ca: a",
        ),
        (
            Hive,
            "persisted_documents: {enabled: true, require_id: {expression: 'true'}, \
             storage: {type: file, path: a}}",
            "mode: require_id",
        ),
    ];
    for (router, text, line) in cases {
        check(router, text, line, None);
    }
}

#[test]
fn an_issuer_is_converted_as_a_whole_or_left_out() {
    use Router::{Apollo, Cosmo, Hive};
    let apollo = |keys: &str| {
        format!(
            "authentication: {{router: {{jwt: {{jwks: [{{{keys}}}]}}}}}}\n\
             authorization: {{require_authentication: true}}\n"
        )
    };
    let left_out = [
        (Apollo, apollo("url: '${file./run/url}'"), "authentication.router.jwt.jwks[0]"),
        (Apollo, apollo("issuer: a"), "authentication.router.jwt.jwks[0]"),
        (
            Apollo,
            apollo("url: 'https://a/k', issuers: [b, {c: d}]"),
            "authentication.router.jwt.jwks[0]",
        ),
        (
            Apollo,
            apollo("url: 'https://a/k', audiences: [{c: d}]"),
            "authentication.router.jwt.jwks[0]",
        ),
        (
            Apollo,
            apollo("url: 'https://a/k', algorithms: [HS256]"),
            "authentication.router.jwt.jwks[0]",
        ),
        (
            Cosmo,
            "authentication: {jwt: {jwks: [{url: '$$A'}]}}".to_owned(),
            "authentication.jwt.jwks[0]",
        ),
        (
            Cosmo,
            "authentication: {jwt: {jwks: [{secret: $S, symmetric_algorithm: [a]}]}}".to_owned(),
            "authentication.jwt.jwks[0]",
        ),
        (
            Hive,
            "jwt: {issuers: [{a: b}], jwks_providers: [{source: remote, url: 'https://a/k'}]}"
                .to_owned(),
            "jwt.jwks_providers[0]",
        ),
        (Hive, "jwt: {jwks_providers: [{source: remote}]}".to_owned(), "jwt.jwks_providers[0]"),
    ];
    for (router, text, key) in left_out {
        let migration = migrated(router, &text);
        assert!(!migration.yaml.contains("issuers:"), "{text}\n{}", migration.yaml);
        check(router, &text, ALL_REFUSED, Some(key));
        let rules = lines(&migration).iter().filter(|it| **it == ALL_REFUSED).count();
        assert_eq!(rules, 1, "{}", migration.yaml);
    }
    let mixed = "authentication: {router: {jwt: {jwks: [\
                 {url: 'https://a/k', issuers: [a]}, {issuer: b}]}}}";
    let migration = migrated(Apollo, mixed);
    let lines = lines(&migration);
    assert!(lines.contains(&"- issuer: a") && !lines.contains(&ALL_REFUSED), "{}", migration.yaml);
}

#[test]
fn a_prefix_of_tokens_that_starling_cannot_have_is_reported_and_leaves_the_default() {
    use Router::{Apollo, Cosmo, Hive};
    let cases = [
        (
            Apollo,
            "authentication: {router: {jwt: {header_value_prefix: 'Token:'}}}",
            "authentication.router.jwt.header_value_prefix",
        ),
        (
            Apollo,
            "authentication: {router: {jwt: {header_value_prefix: '${file./run/p}'}}}",
            "authentication.router.jwt.header_value_prefix",
        ),
        (
            Cosmo,
            "authentication: {jwt: {header_value_prefix: JWT-}}",
            "authentication.jwt.header_value_prefix",
        ),
        (
            Cosmo,
            "authentication: {providers: [{jwks: {header_value_prefixes: ['a b']}}]}",
            "authentication.providers[0].jwks.header_value_prefixes[0]",
        ),
        (
            Hive,
            "jwt: {lookup_locations: [{source: header, name: authorization, prefix: 'a:'}]}",
            "jwt.lookup_locations[0].prefix",
        ),
    ];
    for (router, text, key) in cases {
        let migration = migrated(router, text);
        let finding = migration.findings.iter().find(|it| it.key == key).unwrap();
        assert_eq!(finding.outcome, Outcome::NotConverted, "{finding}");
        let has_prefix = lines(&migration).iter().any(|it| it.starts_with("prefix:"));
        assert!(!has_prefix, "{text}\n{}", migration.yaml);
    }
    let exact = [
        (Apollo, "authentication: {router: {jwt: {header_value_prefix: '${env.P}'}}}", "${P}"),
        (Apollo, "authentication: {router: {jwt: {header_value_prefix: JWT-}}}", "\"JWT-\""),
        (Cosmo, "authentication: {jwt: {header_value_prefix: 'Token '}}", "Token"),
        (
            Cosmo,
            "authentication: {providers: [{jwks: {header_value_prefixes: ['Token ']}}]}",
            "Token",
        ),
        (Hive, "jwt: {lookup_locations: [{source: header, name: a, prefix: 'Token '}]}", "Token"),
        (Hive, "jwt: {lookup_locations: [{source: header, name: a}]}", "\"\""),
    ];
    for (router, text, prefix) in exact {
        check(router, text, &format!("prefix: {prefix}"), None);
    }
}

#[test]
fn half_of_a_certificate_is_reported_and_clients_without_certificates_stay_out() {
    use Router::{Apollo, Cosmo, Hive};
    let cases = [
        (Apollo, "tls: {supergraph: {certificate: '${file./c}'}}", "tls.supergraph.certificate"),
        (Apollo, "tls: {supergraph: {key: '${file./k}'}}", "tls.supergraph.key"),
        (Cosmo, "tls: {server: {enabled: true, cert_file: c}}", "tls.server.cert_file"),
        (
            Hive,
            "traffic_shaping: {router: {tls: {key_file: k}}}",
            "traffic_shaping.router.tls.key_file",
        ),
    ];
    for (router, text, key) in cases {
        let migration = migrated(router, text);
        let finding = migration.findings.iter().find(|it| it.key == key).unwrap();
        assert_eq!(finding.outcome, Outcome::NotConverted, "{finding}");
        assert!(!migration.yaml.contains("  - address:"), "{}", migration.yaml);
    }
    let clients = [
        (
            Cosmo,
            "tls: {server: {enabled: true, cert_file: c, \
             client_auth: {required: true, cert_file: a}}}",
        ),
        (
            Hive,
            "traffic_shaping: {router: {tls: {cert_file: c, key_file: k, \
             client_auth: {cert_file: ['$${A}']}}}}",
        ),
    ];
    for (router, text) in clients {
        check(router, text, ALL_REFUSED, None);
    }
}

#[test]
fn the_cdn_of_hive_is_a_url() {
    let text = "supergraph:\n  source: hive\n  \
                endpoint: [https://cdn.example.com/a, https://mirror.example.com/supergraph]\n  \
                key: ${HIVE_CDN_KEY}\n  poll_interval: 20s\n  request_timeout: 5s\n";
    let migration = migrated(Router::Hive, text);
    let expected = "supergraph:\n  url:\n    urls:\n      \
                    - https://cdn.example.com/a/supergraph\n      \
                    - https://mirror.example.com/supergraph\n    headers:\n      \
                    - name: X-Hive-CDN-Key\n        value: ${HIVE_CDN_KEY}\n    \
                    refresh: 20s\n    timeout: 5s\n";
    assert!(migration.yaml.contains(expected), "{}", migration.yaml);
    // The variables of Hive Router are the defaults.
    let text = "supergraph: {source: hive}";
    check(Router::Hive, text, "- ${HIVE_CDN_ENDPOINT}/supergraph", None);
    check(Router::Hive, text, "value: ${HIVE_CDN_KEY}", None);
    let half = migrated(Router::Hive, "supergraph: {source: hive, key: {expression: 'a + b'}}");
    assert!(!lines(&half).contains(&"url:"), "{}", half.yaml);
}

#[test]
fn numbers_and_switches_are_one_variable_or_none() {
    for value in ["1${env.A}", "${env.A}${env.B}", "${env.A:-much}"] {
        let migration = migrated(Router::Apollo, &format!("limits: {{max_depth: '{value}'}}"));
        let has_limit = lines(&migration).contains(&"limits:");
        assert!(!has_limit, "{value}: {}", migration.yaml);
    }
    check(Router::Apollo, "limits: {max_depth: '${env.A}'}", "depth: ${A}", None);
    check(Router::Apollo, "limits: {max_depth: '${env.A:-20}'}", "depth: \"${A:-20}\"", None);
}
