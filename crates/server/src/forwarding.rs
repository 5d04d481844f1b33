//! The headers that go along to subgraphs: configured rules, compiled for one generation and applied
//! once per request.

use std::sync::Arc;

use bytes::Bytes;
use execute::ForwardedHeaders;
use graph::{SubgraphId, Supergraph};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT,
    HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::config::{HeaderRule, Headers};

/// Rules by subgraph.
#[derive(Debug)]
pub(crate) struct Forwarding {
    all: Vec<HeaderRule>,
    by_subgraph: Vec<(SubgraphId, Vec<HeaderRule>)>,
}

/// Never copied from a client's request: they belong to one connection (RFC 9110, section 7.6.1) or
/// describe a body that is not the one we send.
static NEVER: [HeaderName; 14] = [
    ACCEPT,
    ACCEPT_ENCODING,
    CONNECTION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    EXPECT,
    HOST,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Further ones that have no constant, by name.
const NEVER_BY_NAME: [&str; 2] = ["keep-alive", "proxy-connection"];

impl Forwarding {
    /// The rules of `headers` for the subgraphs of `graph`.
    pub(crate) fn new(headers: &Headers, graph: &Supergraph) -> Self {
        let special = graph.subgraphs.iter().enumerate();
        let special = special.filter(|(_, it)| headers.subgraphs.contains_key(&*it.name));
        let by_subgraph = special.map(|(index, subgraph)| {
            let rules = headers.request_rules(&subgraph.name).cloned().collect();
            (SubgraphId(index as u16), rules)
        });
        Self { all: headers.all.request.clone(), by_subgraph: by_subgraph.collect() }
    }

    /// What of `client`, the headers of the client's request, goes where.
    pub(crate) fn apply(&self, client: &HeaderMap) -> Arc<ForwardedHeaders> {
        let by_subgraph = self.by_subgraph.iter();
        Arc::new(ForwardedHeaders {
            all: apply(&self.all, client),
            by_subgraph: by_subgraph.map(|(id, rules)| (*id, apply(rules, client))).collect(),
        })
    }
}

/// The forwarded headers in one canonical string of bytes: equal for two requests if no subgraph can
/// tell them apart. Lengths stand before texts, so that nothing runs together.
pub(crate) fn partition(headers: &ForwardedHeaders) -> Bytes {
    let mut out = Vec::new();
    let mut list = |headers: &[(HeaderName, HeaderValue)]| {
        out.extend_from_slice(&(headers.len() as u32).to_be_bytes());
        for (name, value) in headers {
            for text in [name.as_str().as_bytes(), value.as_bytes()] {
                out.extend_from_slice(&(text.len() as u32).to_be_bytes());
                out.extend_from_slice(text);
            }
        }
    };
    list(&headers.all);
    for (_, headers) in &headers.by_subgraph {
        list(headers);
    }
    out.into()
}

fn apply(rules: &[HeaderRule], client: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::new();
    for rule in rules {
        match rule {
            HeaderRule::Propagate(selection) => {
                for (name, value) in client {
                    if selection.selects(name) && may_pass(name, client) {
                        let known = headers.iter().any(|(n, v)| n == name && v == value);
                        if !known {
                            headers.push((name.clone(), value.clone()));
                        }
                    }
                }
            }
            HeaderRule::Insert(insertion) => {
                headers.retain(|(name, _)| *name != insertion.name);
                headers.push((insertion.name.clone(), insertion.value.clone()));
            }
            HeaderRule::Remove(selection) => headers.retain(|(name, _)| !selection.selects(name)),
        }
    }
    // Canonical order: equal sets are equal partitions. The sort is stable, so repeated headers keep
    // their order.
    headers.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
    headers
}

/// Also refuses what the client's own `connection` header names.
fn may_pass(name: &HeaderName, client: &HeaderMap) -> bool {
    !NEVER.contains(name)
        && !NEVER_BY_NAME.contains(&name.as_str())
        && !name.as_str().starts_with("sec-websocket-")
        && !client.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok()).any(|value| {
            value.split(',').any(|token| token.trim().eq_ignore_ascii_case(name.as_str()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{HeaderInsertion, HeaderPattern, HeaderSelection};

    fn client() -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-tenant", "a"),
            ("authorization", "Bearer 1"),
            ("x-hop", "1"),
            ("connection", "keep-alive, X-Hop"),
            ("host", "example"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    fn names(rules: &[HeaderRule]) -> Vec<String> {
        let headers = apply(rules, &client());
        let text = headers.iter().map(|(n, v)| format!("{n}: {}", v.to_str().unwrap_or("?")));
        text.collect()
    }

    fn everything() -> HeaderRule {
        let pattern = HeaderPattern::new(".*").expect("a valid pattern");
        HeaderRule::Propagate(HeaderSelection::Matching(pattern))
    }

    #[test]
    fn hop_by_hop_headers_never_pass() {
        assert_eq!(names(&[everything()]), ["authorization: Bearer 1", "x-tenant: a"]);
    }

    #[test]
    fn rules_apply_in_order() {
        let named = |name| HeaderSelection::Named(HeaderName::from_static(name));
        let insert = HeaderRule::Insert(HeaderInsertion {
            name: HeaderName::from_static("x-tenant"),
            value: HeaderValue::from_static("fixed"),
        });
        let rules = [everything(), HeaderRule::Remove(named("authorization")), insert];
        assert_eq!(names(&rules), ["x-tenant: fixed"]);
        assert_eq!(names(&[]), [""; 0]);
    }
}
