//! The context of a connection's client, which its operations are prepared with.

use clients::authentication::Identity;
use config::{Config, HeaderRule, HeaderRules};
use http::{HeaderMap, HeaderName};
use serving::known_operations::CLIENT_NAME_HEADERS;
use serving::{forwarding, trace};

/// The headers and the identity of a connection's client.
#[derive(Clone, Debug, Default)]
pub struct ClientContext {
    /// The headers of the handshake, replaced by those of `connection_init` where that is allowed.
    pub headers: HeaderMap,
    /// The identity of the latest token.
    pub identity: Identity,
}

/// Selects the headers that a rule of the configuration may copy, that name the client where documents are for some
/// clients, or that request a trace where that is allowed. The others are not kept, to save memory: a browser sends a kilobyte of them.
#[derive(Debug)]
pub struct NeededHeaders {
    rules: Vec<HeaderRule>,
    has_client_names: bool,
    has_traces: bool,
}

impl NeededHeaders {
    /// Collects the rules of the configuration that read headers.
    pub fn new(config: &Config) -> Self {
        let rules = &config.headers;
        let all = std::iter::once(&rules.all).chain(rules.subgraphs.values());
        let all = all.flat_map(|HeaderRules { request, .. }| request);
        let reads = |rule: &&HeaderRule| matches!(rule, HeaderRule::Propagate(_));
        Self {
            rules: all.filter(reads).cloned().collect(),
            has_client_names: !config.persisted_documents.manifests.is_empty(),
            has_traces: config.trace.enabled,
        }
    }

    /// Returns the needed ones of these headers.
    pub(super) fn select(&self, headers: &HeaderMap) -> HeaderMap {
        let is_needed = |name: &HeaderName| {
            let is_read =
                |rule: &HeaderRule| matches!(rule, HeaderRule::Propagate(it) if it.selects(name));
            self.rules.iter().any(is_read)
                || self.has_client_names && CLIENT_NAME_HEADERS.contains(&name.as_str())
                || self.has_traces && *name == trace::HEADER
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
    use http::HeaderValue;

    use super::*;
    use config::{DocumentManifest, Propagation};

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let list = list.iter();
        list.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn only_headers_that_a_rule_reads_are_kept() {
        let propagate = |name| {
            let named = Some(HeaderName::from_static(name));
            HeaderRule::Propagate(Propagation { named, ..Propagation::default() })
        };
        let needed = |config: &Config, all: &HeaderMap| NeededHeaders::new(config).select(all);
        let mut config = Config::default();
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
        config.persisted_documents.manifests.push(DocumentManifest::default());
        assert_eq!(needed(&config, &all), all);
    }
}
