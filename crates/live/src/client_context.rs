//! The context of a connection's client, which its operations are prepared with.

use clients::authentication::Identity;
use clients::request_source::ConnectionOrigin;
use config::{Config, CostMode, HeaderRule, HeaderRules};
use execute::Claims;
use http::{HeaderMap, HeaderName};
use serving::{cost_control, forwarding, trace};

/// The headers and the identity of the client of a new connection.
#[derive(Clone, Debug, Default)]
pub struct ClientContext {
    /// The headers of the handshake, replaced by those of `connection_init` where that is allowed.
    pub headers: HeaderMap,
    /// The identity of the token.
    pub identity: Identity,
    /// The origin of the connection.
    pub origin: ConnectionOrigin,
}

/// The part of a client's headers and identity that its operations may read. Connections with equal ones share it, so
/// it has nothing else: different tokens that mean the same to every rule are one context.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptContext {
    /// The needed headers of the handshake, replaced by those of `connection_init` where that is allowed.
    pub(crate) headers: HeaderMap,
    /// The claims that operations read, of the latest token; `None` without a token.
    pub(crate) claims: Option<Claims>,
    /// The origin of the connection, if an expression of the configuration reads it.
    pub(crate) origin: ConnectionOrigin,
}

/// Selects the headers that a rule or expression of the configuration may read, or that request a trace or costs where
/// that is allowed. The others are not kept, to save memory: a browser sends a kilobyte of them.
#[derive(Debug)]
pub struct NeededHeaders {
    rules: Vec<HeaderRule>,
    /// The headers that expressions read.
    read: Vec<HeaderName>,
    /// True if an expression reads the origin of connections.
    needs_origin: bool,
    has_traces: bool,
    shows_costs: bool,
}

impl NeededHeaders {
    /// Collects the rules of the configuration that read headers.
    pub fn new(config: &Config) -> Self {
        let rules = &config.headers;
        let all = std::iter::once(&rules.all).chain(rules.subgraphs.values());
        let all = all.flat_map(|HeaderRules { request, .. }| request);
        let reads = |rule: &&HeaderRule| matches!(rule, HeaderRule::Propagate(_));
        let mut needed = Self {
            rules: all.filter(reads).cloned().collect(),
            read: Vec::new(),
            needs_origin: false,
            has_traces: config.trace.enabled,
            shows_costs: config.cost.expose && config.cost.mode != CostMode::Off,
        };
        for (expression, scope, expected) in config.request_expressions() {
            // The configuration has been checked, so every expression compiles.
            let Ok(program) = expression.compile(scope, expected) else { continue };
            let references = program.references();
            needed.read.extend_from_slice(&references.headers);
            needed.needs_origin |= references.origin;
            if references.client {
                let info = &config.client_info;
                needed.read.extend(info.name_headers.iter().chain(&info.version_headers).cloned());
            }
        }
        let policies = &config.authorization.policies;
        if policies.has_engine() {
            needed.read.extend_from_slice(&policies.input.headers);
            let info = &config.client_info;
            needed.read.extend(info.name_headers.iter().chain(&info.version_headers).cloned());
        }
        if config.access_log.enabled || config.metrics.clients.max > 0 {
            let info = &config.client_info;
            needed.read.extend(info.name_headers.iter().chain(&info.version_headers).cloned());
        }
        if config.cache.enabled {
            needed.read.extend(config.cache.private_headers());
        }
        if !config.persisted_documents.manifests.is_empty() {
            // Documents may belong to one application.
            needed.read.extend_from_slice(&config.client_info.name_headers);
        }
        needed
    }

    /// Returns the origin of a connection, or an empty one if nothing reads it.
    pub(super) fn select_origin(&self, origin: ConnectionOrigin) -> ConnectionOrigin {
        if self.needs_origin { origin } else { ConnectionOrigin::default() }
    }

    /// Returns the needed ones of these headers.
    pub(super) fn select(&self, headers: &HeaderMap) -> HeaderMap {
        let is_needed = |name: &HeaderName| {
            let is_read =
                |rule: &HeaderRule| matches!(rule, HeaderRule::Propagate(it) if it.selects(name));
            self.rules.iter().any(is_read)
                || self.read.contains(name)
                || self.has_traces && *name == trace::HEADER
                || self.shows_costs && *name == cost_control::HEADER
        };
        // Reserves room for exactly as many: a map that grows by itself begins with room for six.
        let count = headers.keys().filter(|name| is_needed(name)).count();
        let mut needed = HeaderMap::with_capacity(count);
        for (name, value) in headers.iter().filter(|(name, _)| is_needed(name)) {
            needed.append(name, forwarding::copy_value(value));
        }
        needed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderValue;

    use super::*;
    use config::{BlockRule, DocumentManifest, Expression, Propagation, Rego};

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let list = list.iter();
        list.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    /// The default configuration without the metrics of applications, which read their names.
    fn uncounted() -> Config {
        let mut config = Config::default();
        config.metrics.clients.max = 0;
        config
    }

    #[test]
    fn only_headers_that_a_rule_reads_are_kept() {
        let propagate = |name| {
            let named = Some(HeaderName::from_static(name));
            HeaderRule::Propagate(Propagation { named, ..Propagation::default() })
        };
        let needed = |config: &Config, all: &HeaderMap| NeededHeaders::new(config).select(all);
        let mut config = uncounted();
        let all = headers(&[
            ("authorization", "1"),
            ("user-agent", "long"),
            ("x-b", "2"),
            ("connection", "upgrade, x-b"),
        ]);
        assert_eq!(needed(&config, &all), headers(&[]));
        config.headers.all.request.push(propagate("authorization"));
        let special = config.headers.subgraphs.entry("b".to_owned()).or_default();
        special.request.push(propagate("x-b"));
        // Headers that are named in `connection` are forwarded nevertheless.
        let expected = headers(&[("authorization", "1"), ("x-b", "2")]);
        assert_eq!(needed(&config, &all), expected);
        let all = headers(&[("starling-trace", "1")]);
        assert_eq!(needed(&config, &all), headers(&[]));
        config.trace.enabled = true;
        assert_eq!(needed(&config, &all), all);
        let all = headers(&[("graphql-client-name", "web")]);
        assert_eq!(needed(&config, &all), headers(&[]));
        assert_eq!(needed(&Config::default(), &all), all, "applications are counted");
        config.persisted_documents.manifests.push(DocumentManifest::default());
        assert_eq!(needed(&config, &all), all);
        let all = headers(&[("x-tenant", "a")]);
        config.cache.private_by.headers.push("x-tenant".to_owned());
        assert_eq!(needed(&config, &all), headers(&[]));
        config.cache.enabled = true;
        assert_eq!(needed(&config, &all), all);
    }

    #[test]
    fn headers_are_kept_if_policies_are_decided_by_them() {
        let all = headers(&[("x-a", "1"), ("graphql-client-name", "web"), ("x-b", "2")]);
        let mut config = uncounted();
        config.authorization.policies.input.headers = vec![HeaderName::from_static("x-b")];
        assert_eq!(NeededHeaders::new(&config).select(&all), headers(&[]));
        config.authorization.policies.rego = Some(Rego {
            files: Vec::new(),
            data: Vec::new(),
            query: "data.a.b".to_owned(),
            timeout: Duration::from_millis(1),
        });
        let kept = NeededHeaders::new(&config).select(&all);
        assert_eq!(kept, headers(&[("graphql-client-name", "web"), ("x-b", "2")]));
        let mut config = uncounted();
        let expression = Expression::new("request.headers['x-a'] == '1'");
        config.authorization.policies.expressions.insert("a".to_owned(), expression);
        assert_eq!(NeededHeaders::new(&config).select(&all), headers(&[("x-a", "1")]));
    }

    #[test]
    fn headers_and_the_origin_are_kept_if_an_expression_reads_them() {
        let origin = ConnectionOrigin { address: None, is_tls: true };
        let all = headers(&[("x-a", "1"), ("graphql-client-name", "web"), ("x-b", "2")]);
        let mut config = uncounted();
        let needed = NeededHeaders::new(&config);
        assert_eq!(needed.select_origin(origin), ConnectionOrigin::default());
        let when = Expression::new("request.headers['x-a'] == client.name && request.tls");
        config.block.rules.push(BlockRule { when, message: None });
        let needed = NeededHeaders::new(&config);
        assert_eq!(needed.select(&all), headers(&[("x-a", "1"), ("graphql-client-name", "web")]));
        assert_eq!(needed.select_origin(origin), origin);
    }
}
