//! Header rules for responses: the headers of subgraphs that the client gets. The rules of the configuration are
//! compiled for one generation and applied once per response of a subgraph.

use std::sync::Arc;

use clients::cache_control;
use config::diagnostic::Diagnostic;
use config::{HeaderRule, Headers, Merge};
use execute::ResponseHeaders;
use expressions::{Expected, Program, RequestFacts, ResponseFacts, Scope};
use graph::{SubgraphId, Supergraph};
use http::header::{self, CACHE_CONTROL, DATE, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue};
use upstream::belongs_to_connection;

use crate::connection_options::ConnectionOptions;
use crate::expression_stats::ExpressionStats;
use crate::header_rules::{computed_value, select_headers};
use crate::request_facts::compile;

/// Rules for responses, by subgraph.
#[derive(Debug)]
pub struct ResponseForwarding {
    all: ResponseRules,
    by_subgraph: Vec<(SubgraphId, ResponseRules)>,
    /// The names of the subgraphs, by their ids.
    names: Vec<Box<str>>,
    stats: Arc<ExpressionStats>,
}

/// The rules for responses of some subgraphs.
#[derive(Debug, Default)]
struct ResponseRules {
    rules: Vec<HeaderRule>,
    /// The headers with computed values.
    computed: Vec<(HeaderName, Program)>,
}

impl ResponseRules {
    /// Compiles rules.
    ///
    /// # Errors
    /// The configuration was not checked, and an expression is not valid.
    fn new<'a>(rules: impl Iterator<Item = &'a HeaderRule>) -> Result<Self, Box<Diagnostic>> {
        let rules: Vec<_> = rules.cloned().collect();
        let mut computed = Vec::new();
        for rule in &rules {
            let HeaderRule::Set(it) = rule else { continue };
            let setting = "headers: response: set.expression";
            let program = compile(setting, &it.expression, Scope::RESPONSE, Expected::Text)?;
            computed.push((it.name.clone(), program));
        }
        Ok(Self { rules, computed })
    }
}

impl ResponseForwarding {
    /// Compiles the rules of `headers` for the subgraphs of `graph`. `None` if there are no rules.
    ///
    /// # Errors
    /// The configuration was not checked, and an expression is not valid.
    pub fn new(
        headers: &Headers,
        graph: &Supergraph,
        stats: &Arc<ExpressionStats>,
    ) -> Result<Option<Self>, Box<Diagnostic>> {
        let by_subgraph = special(headers, graph)
            .map(|(id, name)| Ok((id, ResponseRules::new(headers.response_rules(name))?)));
        let by_subgraph: Vec<_> = by_subgraph.collect::<Result<_, Box<Diagnostic>>>()?;
        let all = ResponseRules::new(headers.all.response.iter())?;
        let mut lists = std::iter::once(&all).chain(by_subgraph.iter().map(|(_, rules)| rules));
        if lists.all(|it| it.rules.is_empty()) {
            return Ok(None);
        }
        let names = graph.subgraphs.iter().map(|it| (*it.name).into()).collect();
        Ok(Some(Self { all, by_subgraph, names, stats: Arc::clone(stats) }))
    }

    fn of(&self, subgraph: SubgraphId) -> &ResponseRules {
        let special = self.by_subgraph.iter().find(|(id, _)| *id == subgraph);
        special.map_or(&self.all, |(_, rules)| rules)
    }

    /// True if responses of `subgraph` may contain a cookie for the client. Such a response is meant for one client.
    pub fn is_personal(&self, subgraph: SubgraphId) -> bool {
        let mut response = HeaderMap::new();
        response.insert(SET_COOKIE, HeaderValue::from_static("a=b"));
        let rules = &self.of(subgraph).rules;
        rules.iter().any(|rule| match rule {
            HeaderRule::Propagate(it) => it.rename.as_ref() == Some(&SET_COOKIE),
            HeaderRule::Set(it) => it.name == SET_COOKIE,
            _ => false,
        }) || select_headers(rules, &response, is_set_by_router, is_taken_by_name_only)
            .iter()
            .any(|it| it.name == SET_COOKIE)
    }
}

impl ResponseHeaders for ResponseForwarding {
    fn collect(&self, subgraph: SubgraphId, response: &HeaderMap, collected: &mut HeaderMap) {
        let options = ConnectionOptions::of(response);
        let stays = |name: &HeaderName| is_set_by_router(name) || options.contains(name);
        let taken =
            select_headers(&self.of(subgraph).rules, response, stays, is_taken_by_name_only);
        // `taken` belongs to one response, so all values of one name are merged with other responses as a unit.
        let mut settled: Vec<&HeaderName> = Vec::new();
        for it in &taken {
            let is_first_here = !settled.contains(&&it.name);
            let is_known = collected.contains_key(&it.name);
            if it.name == CACHE_CONTROL {
                // The merge rule does not apply: the response contains data of each subgraph, so the strictest value
                // wins.
                let known = collected.get(CACHE_CONTROL);
                if known.is_none_or(|known| cache_control::is_stricter(&it.value, known)) {
                    collected.insert(CACHE_CONTROL, it.value.clone());
                }
                continue;
            }
            // Cookies are distinguished by more than the name of their header (RFC 6265, section 3).
            let merge = if it.name == SET_COOKIE { Merge::Append } else { it.merge };
            match merge {
                Merge::First if is_first_here && is_known => continue,
                Merge::Last if is_first_here => {
                    collected.insert(it.name.clone(), it.value.clone());
                }
                _ => {
                    collected.append(it.name.clone(), it.value.clone());
                }
            }
            if is_first_here {
                settled.push(&it.name);
            }
        }
        self.compute(subgraph, response, collected);
    }
}

impl ResponseForwarding {
    /// Sets the headers with computed values.
    fn compute(&self, subgraph: SubgraphId, response: &HeaderMap, collected: &mut HeaderMap) {
        let computed = &self.of(subgraph).computed;
        if computed.is_empty() {
            return;
        }
        let facts = RequestFacts {
            subgraph: self.names.get(usize::from(subgraph.0)).map(|name| &**name),
            response: Some(ResponseFacts { headers: response }),
            ..RequestFacts::default()
        };
        for (name, program) in computed.iter().filter(|(name, _)| !is_set_by_router(name)) {
            if let Some(value) = computed_value(program, &facts, "headers: response", &self.stats) {
                collected.insert(name.clone(), value);
            }
        }
    }
}

/// True for headers of a response that describe the message itself, or restrict which pages may read it: the router
/// writes its own.
fn is_set_by_router(name: &HeaderName) -> bool {
    belongs_to_connection(name) || *name == DATE || name.as_str().starts_with("access-control-")
}

/// True for headers of a response that only a rule with `named` takes, never one with `matching`: they control caches
/// and cookies, and the interpretation of a body's bytes.
fn is_taken_by_name_only(name: &HeaderName) -> bool {
    const KNOWN: [HeaderName; 10] = [
        header::AGE,
        CACHE_CONTROL,
        header::ETAG,
        header::EXPIRES,
        header::LAST_MODIFIED,
        header::PRAGMA,
        SET_COOKIE,
        header::STRICT_TRANSPORT_SECURITY,
        header::VARY,
        header::WWW_AUTHENTICATE,
    ];
    KNOWN.contains(name) || name.as_str().starts_with("content-")
}

/// Returns the subgraphs of `graph` that have rules of their own.
fn special<'a>(
    headers: &'a Headers,
    graph: &'a Supergraph,
) -> impl Iterator<Item = (SubgraphId, &'a str)> {
    let subgraphs = graph.subgraphs.iter().enumerate();
    let special = subgraphs.filter(|(_, it)| headers.subgraphs.contains_key(&*it.name));
    special.map(|(index, subgraph)| (SubgraphId(index as u16), &*subgraph.name))
}

#[cfg(test)]
mod tests {
    use config::Propagation;

    use super::*;
    use crate::header_rules::testing::{everything, message, named, remove, set};

    fn response_forwarding(rules: Vec<HeaderRule>) -> ResponseForwarding {
        let all = ResponseRules::new(rules.iter()).expect("valid expressions");
        ResponseForwarding {
            all,
            by_subgraph: Vec::new(),
            names: vec!["reviews".into()],
            stats: Arc::default(),
        }
    }

    /// Returns the headers that the client gets for these responses, in this order.
    fn returned(rules: Vec<HeaderRule>, responses: &[HeaderMap]) -> Vec<String> {
        let response_forwarding = response_forwarding(rules);
        let mut collected = HeaderMap::new();
        for response in responses {
            response_forwarding.collect(SubgraphId(0), response, &mut collected);
        }
        let mut lines: Vec<_> = collected
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap_or("?")))
            .collect();
        lines.sort();
        lines
    }

    #[test]
    fn headers_of_several_responses_are_merged_by_the_rule_and_all_cookies_are_kept() {
        let responses = [
            message(&[("x-cost", "1"), ("x-cost", "2"), ("set-cookie", "a=1")]),
            message(&[("x-other", "1")]),
            message(&[("x-cost", "3"), ("set-cookie", "a=2")]),
        ];
        for (merge, expected) in [
            (Merge::First, &["x-cost: 1", "x-cost: 2"][..]),
            (Merge::Last, &["x-cost: 3"]),
            (Merge::Append, &["x-cost: 1", "x-cost: 2", "x-cost: 3"]),
        ] {
            let rule = |header| HeaderRule::Propagate(Propagation { merge, ..named(header) });
            assert_eq!(returned(vec![rule("x-cost")], &responses), expected, "{merge:?}");
            let cookies = returned(vec![rule("set-cookie")], &responses);
            assert_eq!(cookies, ["set-cookie: a=1", "set-cookie: a=2"], "{merge:?}");
        }
    }

    #[test]
    fn headers_that_the_router_sets_never_come_from_a_subgraph() {
        let response = message(&[
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("content-type", "text/html"),
            ("content-encoding", "gzip"),
            ("content-length", "7"),
            ("transfer-encoding", "chunked"),
            ("access-control-allow-origin", "*"),
            ("date", "today"),
            ("x-cost", "1"),
        ]);
        assert_eq!(returned(vec![everything()], &[response]), ["x-cost: 1"]);
    }

    #[test]
    fn a_pattern_takes_no_header_that_controls_caches_or_cookies() {
        let headers = [
            ("cache-control", "public, max-age=60"),
            ("set-cookie", "a=1"),
            ("vary", "x-region"),
            ("etag", "1"),
            ("expires", "never"),
            ("content-language", "en"),
        ];
        let mut all = headers.to_vec();
        all.push(("x-cost", "1"));
        assert_eq!(returned(vec![everything()], &[message(&all)]), ["x-cost: 1"]);
        for (name, value) in headers {
            let rule = HeaderRule::Propagate(named(name));
            let taken = returned(vec![everything(), rule], &[message(&[(name, value)])]);
            assert_eq!(taken, [format!("{name}: {value}")]);
        }
    }

    #[test]
    fn the_strictest_cache_control_of_several_subgraphs_wins() {
        let responses =
            ["max-age=60", "no-store", "public"].map(|value| message(&[("cache-control", value)]));
        for merge in [Merge::First, Merge::Last, Merge::Append] {
            let rule = Propagation { merge, ..named("cache-control") };
            let taken = returned(vec![HeaderRule::Propagate(rule)], &responses);
            assert_eq!(taken, ["cache-control: no-store"], "{merge:?}");
        }
    }

    #[test]
    fn responses_that_may_set_cookies_are_personal() {
        let is_personal = |rules| response_forwarding(rules).is_personal(SubgraphId(0));
        let rename = Propagation { rename: Some(SET_COOKIE), ..named("x-cookie") };
        assert!(!is_personal(vec![everything()]), "patterns take no cookies");
        assert!(is_personal(vec![HeaderRule::Propagate(named("set-cookie"))]));
        assert!(is_personal(vec![HeaderRule::Propagate(rename)]));
        assert!(!is_personal(vec![HeaderRule::Propagate(named("x-cost"))]));
        let taken = HeaderRule::Propagate(named("set-cookie"));
        assert!(!is_personal(vec![taken, remove("set-cookie")]));
    }

    #[test]
    fn a_response_header_can_be_computed() {
        let rules = || {
            vec![
                HeaderRule::Propagate(named("x-cost")),
                set("x-cost", "response.headers['x-cost'] + ';' + subgraph.name"),
                set("x-none", "response.headers['x-none']"),
                set("date", "'today'"),
            ]
        };
        let response = message(&[("x-cost", "3")]);
        assert_eq!(returned(rules(), std::slice::from_ref(&response)), ["x-cost: 3;reviews"]);
        let cookie = response_forwarding(vec![set("set-cookie", "subgraph.name")]);
        assert!(cookie.is_personal(SubgraphId(0)));
    }
}
