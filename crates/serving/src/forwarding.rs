//! Header rules for requests: the headers of the client that subgraphs get. The rules of the configuration are compiled
//! for one generation and applied once per request. Those for responses are in [`crate::response_forwarding`].

use std::sync::Arc;

use clients::request_source::RequestSource;
use config::diagnostic::Diagnostic;
use config::{Config, HeaderRule, Merge};
use execute::{ClaimPath, ClaimValues, Claims, ForwardedHeaders};
use expressions::{ClaimFacts, Expected, Program, RequestFacts, Scope};
use graph::{SubgraphId, Supergraph};
use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};
use upstream::belongs_to_connection;

use crate::expression_stats::ExpressionStats;
use crate::header_rules::{computed_value, replace_header, select_headers};
use crate::request_facts::{ComputedFacts, KnownOperation, NeededFacts, compile, request_facts};
use crate::trace_formats::propagation;

/// Rules for requests, by subgraph: for all subgraphs in the configuration, in its order, also those that the graph
/// does not have. So two clients that are equal on this graph are equal on every other one, and a group stays a group
/// when the graph is replaced.
#[derive(Debug)]
pub struct Forwarding {
    all: RequestRules,
    by_subgraph: Vec<(SubgraphId, RequestRules)>,
    /// The claims that any rule reads.
    claims: Vec<ClaimPath>,
    /// The expressions of all rules. Each is evaluated once for a request, also if its rule applies to several
    /// subgraphs.
    programs: Vec<Program>,
    /// The facts that the expressions read.
    needed: NeededFacts,
    /// The headers of clients that are not forwarded, because the router sends its own: with traces, the identity of a
    /// client's trace would only keep requests from being shared.
    own_headers: Vec<&'static str>,
}

/// The rules for requests to some subgraphs.
#[derive(Debug, Default)]
struct RequestRules {
    rules: Vec<HeaderRule>,
    /// The headers with computed values, each with the number of its program.
    computed: Vec<(HeaderName, usize)>,
}

/// The facts about a client's request that rules may use beside its headers.
#[derive(Clone, Copy, Debug)]
pub struct ForwardingFacts<'a> {
    /// The claims of the token.
    pub claims: Option<&'a Claims>,
    /// The source of the request.
    pub source: RequestSource<'a>,
    /// The operation. Without it, expressions that read it fail.
    pub operation: Option<KnownOperation<'a>>,
}

/// The id of subgraphs that the graph does not have; no subgraph has this number.
const UNKNOWN_SUBGRAPH: SubgraphId = SubgraphId(u16::MAX);

impl Forwarding {
    /// Compiles the rules of a configuration for the subgraphs of `graph`.
    ///
    /// # Errors
    /// The configuration was not checked, and an expression is not valid.
    pub fn new(config: &Config, graph: &Supergraph) -> Result<Self, Box<Diagnostic>> {
        let headers = &config.headers;
        let mut forwarding = Self {
            all: RequestRules::default(),
            by_subgraph: Vec::with_capacity(headers.subgraphs.len()),
            claims: Vec::new(),
            programs: Vec::new(),
            needed: NeededFacts::default(),
            own_headers: match config.tracing.enabled {
                true => {
                    let propagation = propagation(&config.tracing);
                    // A rule for `baggage` keeps apart the requests of clients with different values.
                    propagation.header_names().filter(|name| *name != "baggage").collect()
                }
                false => Vec::new(),
            },
        };
        forwarding.all = forwarding.add_rules("headers.all", &headers.all.request)?;
        for (name, rules) in &headers.subgraphs {
            let known = graph.subgraphs.iter().position(|it| *it.name == **name);
            let id = known.map_or(UNKNOWN_SUBGRAPH, |index| SubgraphId(index as u16));
            let special =
                forwarding.add_rules(&format!("headers.subgraphs.{name}"), &rules.request)?;
            let all = &forwarding.all;
            let rules = RequestRules {
                rules: all.rules.iter().cloned().chain(special.rules).collect(),
                computed: all.computed.iter().cloned().chain(special.computed).collect(),
            };
            forwarding.by_subgraph.push((id, rules));
        }
        let needed = NeededFacts::of(forwarding.programs.iter(), &config.client_info);
        forwarding.claims.extend(needed.claims.iter().cloned());
        forwarding.needed = needed;
        Ok(forwarding)
    }

    /// Compiles the expressions of the rules in one section, and notes the claims that the other rules read.
    fn add_rules(
        &mut self,
        section: &str,
        rules: &[HeaderRule],
    ) -> Result<RequestRules, Box<Diagnostic>> {
        let mut computed = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            match rule {
                HeaderRule::Claim(it) => self.claims.push(it.claim.clone()),
                HeaderRule::Set(it) => {
                    let setting = format!("{section}.request[{index}].set.expression");
                    let (scope, expected) = (Scope::COSTED_OPERATION, Expected::Text);
                    computed.push((it.name.clone(), self.programs.len()));
                    self.programs.push(compile(&setting, &it.expression, scope, expected)?);
                }
                HeaderRule::Propagate(_) | HeaderRule::Insert(_) | HeaderRule::Remove(_) => {}
            }
        }
        Ok(RequestRules { rules: rules.to_vec(), computed })
    }

    /// Returns the claims that the rules read.
    pub(crate) fn claims(&self) -> &[ClaimPath] {
        &self.claims
    }

    /// Converts the result of [`Forwarding::apply`] for another graph and the same configuration to this graph.
    pub(crate) fn renumbered(&self, headers: &Arc<ForwardedHeaders>) -> Arc<ForwardedHeaders> {
        let ids = || self.by_subgraph.iter().map(|(id, _)| *id);
        if ids().eq(headers.by_subgraph.iter().map(|(id, _)| *id)) {
            return Arc::clone(headers);
        }
        let by_subgraph = ids().zip(&headers.by_subgraph);
        Arc::new(ForwardedHeaders {
            all: headers.all.clone(),
            by_subgraph: by_subgraph.map(|(id, (_, headers))| (id, headers.clone())).collect(),
            request_id: headers.request_id.clone(),
        })
    }

    /// Selects the headers for each subgraph from `client`, the headers of the client's request, and computes those
    /// that depend on further facts.
    pub fn apply(
        &self,
        client: ClientHeaders<'_>,
        facts: ForwardingFacts<'_>,
        stats: &ExpressionStats,
    ) -> Arc<ForwardedHeaders> {
        let claims = Claims::select(facts.claims, &self.claims);
        let values = self.evaluate(client.map(), facts, &claims, stats);
        let by_subgraph = self.by_subgraph.iter();
        let forwarded = |rules: &RequestRules| {
            let mut headers = forwarded(rules, client, &claims, &values);
            if !self.own_headers.is_empty() {
                headers.retain(|(name, _)| !self.own_headers.contains(&name.as_str()));
            }
            headers
        };
        Arc::new(ForwardedHeaders {
            all: forwarded(&self.all),
            by_subgraph: by_subgraph.map(|(id, rules)| (*id, forwarded(rules))).collect(),
            request_id: None,
        })
    }

    /// Evaluates all expressions. `None`: the value is null, the evaluation failed, or the value cannot be sent.
    fn evaluate(
        &self,
        headers: &HeaderMap,
        ForwardingFacts { source, operation, .. }: ForwardingFacts<'_>,
        claims: &ClaimValues,
        stats: &ExpressionStats,
    ) -> Vec<Option<HeaderValue>> {
        if self.programs.is_empty() {
            return Vec::new();
        }
        let claims = ClaimFacts::Selected(claims);
        let operation = operation.map(|it| self.needed.of_operation(it));
        let facts = RequestFacts {
            operation: operation.as_ref().map(ComputedFacts::facts),
            ..request_facts(source, headers, claims, self.needed.client_info.as_ref())
        };
        let values = self.programs.iter().map(|it| computed_value(it, &facts, "headers", stats));
        values.collect()
    }
}

/// Returns the forwarded headers as one canonical string of bytes: equal for two requests if no subgraph can
/// distinguish them. Each text is preceded by its length, so that texts cannot run together. A long text is replaced by
/// its SHA-256, so that a token is not stored once more for each subscription.
pub fn partition(headers: &ForwardedHeaders) -> Vec<u8> {
    partition_for(headers, |_| true)
}

/// Returns the headers as [`partition`] does, without those that have rules for subgraphs that are not used.
pub(crate) fn partition_for(
    headers: &ForwardedHeaders,
    is_used: impl Fn(SubgraphId) -> bool,
) -> Vec<u8> {
    let mut out = Vec::new();
    let mut list = |headers: &[(HeaderName, HeaderValue)]| {
        out.extend_from_slice(&(headers.len() as u32).to_be_bytes());
        for (name, value) in headers {
            for text in [name.as_str().as_bytes(), value.as_bytes()] {
                // The length distinguishes a digest from a text that looks like one.
                out.extend_from_slice(&(text.len() as u32).to_be_bytes());
                match text.len() > DIGESTED_FROM {
                    true => out.extend_from_slice(&Sha256::digest(text)),
                    false => out.extend_from_slice(text),
                }
            }
        }
    };
    list(&headers.all);
    for (id, headers) in &headers.by_subgraph {
        if is_used(*id) {
            list(headers);
        }
    }
    out
}

/// The maximum length of a text that a [`partition`] contains unchanged: a digest of it would not be shorter.
const DIGESTED_FROM: usize = 32;

/// The headers of a client.
#[derive(Clone, Copy, Debug)]
pub enum ClientHeaders<'a> {
    /// Headers of a message: the values are slices of the data that was read from the connection.
    OfMessage(&'a HeaderMap),
    /// Headers kept with the connection: the values have memory of their own ([`copy_value`]), which requests may
    /// share.
    Kept(&'a HeaderMap),
}

impl<'a> ClientHeaders<'a> {
    /// Returns the headers from either source.
    pub fn map(self) -> &'a HeaderMap {
        match self {
            Self::OfMessage(map) | Self::Kept(map) => map,
        }
    }
}

fn forwarded(
    RequestRules { rules, computed }: &RequestRules,
    client: ClientHeaders<'_>,
    claims: &ClaimValues,
    values: &[Option<HeaderValue>],
) -> Vec<(HeaderName, HeaderValue)> {
    // Headers that `connection` names are meant for the next hop, which is the router: it may forward them. Otherwise a
    // client could remove headers that rules forward, such as its tenant.
    let mut taken = select_headers(rules, client.map(), belongs_to_connection, |_| false);
    // Claims and computed values come after all other rules, so that no header of the client can replace them.
    for rule in rules {
        let HeaderRule::Claim(it) = rule else { continue };
        let value = claims.text(&it.claim).and_then(|text| {
            let mut value = HeaderValue::from_bytes(text.as_bytes()).ok()?;
            value.set_sensitive(true);
            Some(value)
        });
        let values = value.or_else(|| it.default.clone()).into_iter().collect();
        if !belongs_to_connection(&it.name) {
            replace_header(&mut taken, &it.name, values, Merge::Last);
        }
    }
    for (name, program) in computed {
        if !belongs_to_connection(name) {
            let value = values.get(*program).cloned().flatten();
            replace_header(&mut taken, name, value.into_iter().collect(), Merge::Last);
        }
    }
    let kept = |value: HeaderValue| match client {
        ClientHeaders::OfMessage(_) => copy_value(&value),
        ClientHeaders::Kept(_) => value,
    };
    let mut headers: Vec<_> = taken.into_iter().map(|it| (it.name, kept(it.value))).collect();
    // The headers live as long as a subscription, and the iterator reused memory with a larger capacity and larger
    // elements.
    headers.shrink_to_fit();
    // The order is canonical, so that equal sets have equal partitions. The sort is stable, so repeated headers keep
    // their order.
    headers.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
    headers
}

/// Copies a value to memory of its own. A value of a message is a slice of the data that was read from its connection,
/// and would keep all of that alive for as long as the request or the subscription lives.
pub fn copy_value(value: &HeaderValue) -> HeaderValue {
    // The bytes come from a valid value, so the conversion succeeds.
    let mut own = HeaderValue::from_bytes(value.as_bytes()).unwrap_or_else(|_| value.clone());
    own.set_sensitive(value.is_sensitive());
    own
}

#[cfg(test)]
mod tests {
    use super::ClientHeaders::{Kept, OfMessage};
    use super::*;
    use crate::header_rules::testing::{
        everything, insert, matching, message, name, named, remove, set,
    };
    use crate::test_graphs::with_subgraphs;
    use clients::request_source::ConnectionOrigin;
    use config::{ClaimForwarding, Headers, Propagation};

    fn client() -> HeaderMap {
        message(&[
            ("x-tenant", "a"),
            ("authorization", "Bearer 1"),
            ("x-hop", "1"),
            ("connection", "keep-alive, X-Hop"),
            ("host", "example"),
            ("te", "trailers"),
            ("proxy-authorization", "Basic 1"),
            ("sec-websocket-key", "1"),
        ])
    }

    fn text(headers: &[(HeaderName, HeaderValue)]) -> Vec<String> {
        let text = headers.iter().map(|(n, v)| format!("{n}: {}", v.to_str().unwrap_or("?")));
        text.collect()
    }

    fn sent(rules: &[HeaderRule]) -> Vec<String> {
        text(&forwarded_all(rules, OfMessage(&client())))
    }

    fn forwarded_all(
        rules: &[HeaderRule],
        client: ClientHeaders<'_>,
    ) -> Vec<(HeaderName, HeaderValue)> {
        let rules = RequestRules { rules: rules.to_vec(), computed: Vec::new() };
        forwarded(&rules, client, &ClaimValues::default(), &[])
    }

    fn with_rules(headers: Headers, graph: &Supergraph) -> Forwarding {
        let config = Config { headers, ..Config::default() };
        Forwarding::new(&config, graph).unwrap_or_else(|error| panic!("{}", error.message))
    }

    fn applied(
        forwarding: &Forwarding,
        client: ClientHeaders<'_>,
        claims: Option<&Claims>,
    ) -> Arc<ForwardedHeaders> {
        let origin = ConnectionOrigin::default();
        let source =
            RequestSource { method: "POST", ..RequestSource::of_websocket("/graphql", origin) };
        let facts = ForwardingFacts { claims, source, operation: None };
        forwarding.apply(client, facts, &ExpressionStats::default())
    }

    #[test]
    fn hop_by_hop_headers_never_pass() {
        let all = ["authorization: Bearer 1", "x-hop: 1", "x-tenant: a"];
        assert_eq!(sent(&[everything()]), all);
        for header in ["host", "te", "connection", "proxy-authorization"] {
            assert_eq!(sent(&[HeaderRule::Propagate(named(header))]), [""; 0], "{header}");
            let renamed = Propagation { rename: Some(name("x-other")), ..named(header) };
            assert_eq!(sent(&[HeaderRule::Propagate(renamed)]), [""; 0], "{header}");
        }
    }

    #[test]
    fn a_client_cannot_remove_headers_that_rules_forward() {
        let client = message(&[
            ("x-tenant", "a"),
            ("authorization", "Bearer 1"),
            ("connection", "x-tenant, Authorization, keep-alive"),
            ("keep-alive", "timeout=5"),
        ]);
        for rules in [
            vec![everything()],
            vec![
                HeaderRule::Propagate(named("x-tenant")),
                HeaderRule::Propagate(named("authorization")),
                HeaderRule::Propagate(named("keep-alive")),
            ],
        ] {
            let sent = forwarded_all(&rules, OfMessage(&client));
            assert_eq!(text(&sent), ["authorization: Bearer 1", "x-tenant: a"]);
        }
    }

    #[test]
    fn rules_apply_in_order() {
        let rules = [everything(), remove("authorization"), insert("x-tenant", "fixed")];
        assert_eq!(sent(&rules), ["x-hop: 1", "x-tenant: fixed"]);
        let [everything, remove, insert] = rules;
        let all = ["authorization: Bearer 1", "x-hop: 1", "x-tenant: a"];
        assert_eq!(sent(&[insert, remove, everything]), all);
        assert_eq!(sent(&[]), [""; 0]);
    }

    #[test]
    fn a_header_is_renamed_and_has_a_default_if_the_client_sends_none() {
        let user = |default: Option<&'static str>| {
            HeaderRule::Propagate(Propagation {
                rename: Some(name("x-user")),
                default: default.map(HeaderValue::from_static),
                ..named("x-account")
            })
        };
        assert_eq!(sent(&[user(Some("nobody"))]), ["x-user: nobody"]);
        assert_eq!(sent(&[user(None)]), [""; 0]);
        let client = message(&[("x-account", "1"), ("x-account", "2")]);
        let sent = forwarded_all(&[user(Some("nobody"))], OfMessage(&client));
        assert_eq!(text(&sent), ["x-user: 1", "x-user: 2"]);
    }

    #[test]
    fn only_a_claim_can_set_the_header_of_a_claim() {
        let claim = |path: &str, default: Option<&'static str>| {
            HeaderRule::Claim(ClaimForwarding {
                claim: ClaimPath::parse(path).expect("a name"),
                name: name("x-tenant"),
                default: default.map(HeaderValue::from_static),
            })
        };
        let claims = Claims::new(r#"{"tenant":"b","roles":["x","y"],"evil":"a\r\nx: y"}"#.into());
        let sent = |rule: HeaderRule, claims: Option<&Claims>| {
            let mut headers = Headers::default();
            // A later rule that lets the client's own header through has no effect.
            headers.all.request = vec![rule, HeaderRule::Propagate(named("x-tenant"))];
            let forwarding = with_rules(headers.clone(), &with_subgraphs(&["a"]));
            text(&applied(&forwarding, OfMessage(&client()), claims).all)
        };
        assert_eq!(sent(claim("tenant", None), claims.as_ref()), ["x-tenant: b"]);
        assert_eq!(sent(claim("roles", None), claims.as_ref()), [r#"x-tenant: ["x","y"]"#]);
        for path in ["none", "evil", "tenant.x"] {
            assert_eq!(sent(claim(path, None), claims.as_ref()), [""; 0], "{path}");
            assert_eq!(sent(claim(path, Some("-")), claims.as_ref()), ["x-tenant: -"], "{path}");
        }
        assert_eq!(sent(claim("tenant", None), None), [""; 0]);
    }

    #[test]
    fn clients_that_differ_only_in_unread_claims_are_equal() {
        let mut headers = Headers::default();
        headers.all.request = vec![HeaderRule::Claim(ClaimForwarding {
            claim: ClaimPath::parse("tenant").expect("a name"),
            name: name("x-tenant"),
            default: None,
        })];
        let forwarding = with_rules(headers.clone(), &with_subgraphs(&["a"]));
        let of = |claims: &str| {
            let claims = Claims::new(claims.to_owned().into());
            partition(&applied(&forwarding, OfMessage(&HeaderMap::new()), claims.as_ref()))
        };
        let first = of(r#"{"tenant":"a","sub":"u1","exp":1}"#);
        assert_eq!(first, of(r#"{"exp":2,"sub":"u2","tenant":"a"}"#));
        assert_ne!(first, of(r#"{"tenant":"b","sub":"u1","exp":1}"#));
        assert_ne!(first, of("{}"));
    }

    #[test]
    fn a_client_cannot_add_values_to_an_inserted_header() {
        let rules = [HeaderRule::Propagate(named("x-tenant")), insert("x-tenant", "fixed")];
        assert_eq!(sent(&rules), ["x-tenant: fixed"]);
    }

    #[test]
    fn a_long_value_is_stored_once_for_all_requests_that_share_it() {
        let token = |last: char| format!("Bearer {}{last}", "x".repeat(2_000));
        let header = |token: &str| {
            HeaderMap::from_iter([(
                name("authorization"),
                HeaderValue::from_str(token).expect("a value"),
            )])
        };
        let mut rules = Headers::default();
        rules.all.request.push(HeaderRule::Propagate(named("authorization")));
        let forwarding = with_rules(rules.clone(), &with_subgraphs(&["first"]));
        let kept = header(&token('a'));
        let place = |headers: &ForwardedHeaders| headers.all[0].1.as_bytes().as_ptr();
        let of_kept = applied(&forwarding, Kept(&kept), None);
        assert_eq!(place(&of_kept), kept["authorization"].as_bytes().as_ptr());
        let of_message = applied(&forwarding, OfMessage(&kept), None);
        assert_ne!(place(&of_message), kept["authorization"].as_bytes().as_ptr());
        assert_eq!(partition(&of_kept), partition(&of_message));
        let other = applied(&forwarding, Kept(&header(&token('b'))), None);
        assert_ne!(partition(&of_kept), partition(&other));
        assert!(partition(&of_kept).len() < 100, "{}", partition(&of_kept).len());
    }

    #[test]
    fn clients_that_are_equal_on_one_graph_are_equal_on_the_next() {
        let mut rules = Headers::default();
        for subgraph in ["absent", "second"] {
            let special = rules.subgraphs.entry(subgraph.to_owned()).or_default();
            let header = if subgraph == "absent" { "x-tenant" } else { "authorization" };
            special.request.push(HeaderRule::Propagate(named(header)));
        }
        let old = with_rules(rules.clone(), &with_subgraphs(&["first", "second"]));
        let new = with_rules(rules.clone(), &with_subgraphs(&["absent", "first", "second"]));
        let headers = applied(&old, OfMessage(&client()), None);
        assert_eq!(text(headers.of(SubgraphId(0)).forwarded), [""; 0]);
        assert_eq!(text(headers.of(SubgraphId(1)).forwarded), ["authorization: Bearer 1"]);
        // Headers for a subgraph that the graph does not have yet already distinguish users.
        let mut other = client();
        other.insert(name("x-tenant"), HeaderValue::from_static("b"));
        assert_ne!(partition(&headers), partition(&applied(&old, OfMessage(&other), None)));
        let renumbered = new.renumbered(&headers);
        assert_eq!(renumbered, applied(&new, Kept(&client()), None));
        assert_eq!(text(renumbered.of(SubgraphId(0)).forwarded), ["x-tenant: a"]);
        assert_eq!(text(renumbered.of(SubgraphId(2)).forwarded), ["authorization: Bearer 1"]);
        assert_eq!(partition(&renumbered), partition(&headers));
    }

    #[test]
    fn two_users_are_one_partition_only_if_everything_forwarded_is_equal() {
        let partition_of = |headers: &[(&'static str, &'static str)]| {
            let rules = [HeaderRule::Propagate(matching("^x-"))];
            let all = forwarded_all(&rules, OfMessage(&message(headers)));
            partition(&ForwardedHeaders { all, ..ForwardedHeaders::default() })
        };
        let one = partition_of(&[("x-a", "1"), ("x-b", "2")]);
        assert_eq!(one, partition_of(&[("x-b", "2"), ("accept", "y"), ("x-a", "1")]));
        for other in [
            &[("x-a", "1"), ("x-b", "3")][..],
            &[("x-a", "1")],
            &[("x-a", "1"), ("x-a", "2")],
            &[("x-a", "1x-b2")],
            &[("x-a", "1"), ("x-b", "2"), ("x-b", "2")],
            &[],
        ] {
            assert_ne!(one, partition_of(other), "{other:?}");
        }
        // The subgraph that gets a header matters too.
        let header = vec![(name("x-a"), HeaderValue::from_static("1"))];
        let to = |all: &[_], special: &[_]| {
            let by_subgraph = vec![(SubgraphId(0), special.to_vec())];
            partition(&ForwardedHeaders {
                all: all.to_vec(),
                by_subgraph,
                ..ForwardedHeaders::default()
            })
        };
        assert_ne!(to(&header, &[]), to(&[], &header));
    }

    #[test]
    fn only_an_expression_can_set_its_header() {
        let claims = Claims::new(r#"{"tenant":"b","roles":["x","y"],"evil":"a\r\nx: y"}"#.into());
        let sent = |expression: &str| {
            let mut headers = Headers::default();
            let rule = set("x-tenant", expression);
            headers.all.request = vec![rule, HeaderRule::Propagate(named("x-tenant"))];
            let forwarding = with_rules(headers, &with_subgraphs(&["a"]));
            text(&applied(&forwarding, OfMessage(&client()), claims.as_ref()).all)
        };
        assert_eq!(sent("claims.tenant + '-' + request.method"), ["x-tenant: b-POST"]);
        assert_eq!(sent("claims.roles.join(',')"), ["x-tenant: x,y"]);
        assert_eq!(sent("request.headers['x-tenant'] == 'a'"), ["x-tenant: true"]);
        for failing in ["claims.none", "claims.?none", "claims.evil", "claims.roles"] {
            assert_eq!(sent(failing), [""; 0], "{failing}");
        }
    }

    #[test]
    fn the_trace_context_of_a_client_is_not_forwarded_while_the_router_has_traces() {
        let client = message(&[("traceparent", "00-1-2-01"), ("tracestate", "a=1"), ("x-a", "1")]);
        let mut headers = Headers::default();
        headers.all.request = vec![everything()];
        let sent = |enabled| {
            let mut config = Config { headers: headers.clone(), ..Config::default() };
            config.tracing.enabled = enabled;
            let forwarding = Forwarding::new(&config, &with_subgraphs(&["a"]));
            let forwarding = forwarding.unwrap_or_else(|error| panic!("{}", error.message));
            text(&applied(&forwarding, OfMessage(&client), None).all)
        };
        assert_eq!(sent(true), ["x-a: 1"]);
        assert_eq!(sent(false).len(), 3);
    }

    #[test]
    fn an_expression_is_evaluated_once_for_all_subgraphs_and_its_failures_are_counted() {
        let mut headers = Headers::default();
        headers.all.request = vec![set("x-tenant", "claims.tenant")];
        for subgraph in ["a", "b"] {
            let special = headers.subgraphs.entry(subgraph.to_owned()).or_default();
            special.request = vec![set("x-name", "client.name + '.'")];
        }
        let forwarding = with_rules(headers, &with_subgraphs(&["a", "b"]));
        let (stats, origin) = (ExpressionStats::default(), ConnectionOrigin::default());
        let source = RequestSource::of_websocket("/", origin);
        let client = message(&[("graphql-client-name", "web")]);
        let facts = ForwardingFacts { claims: None, source, operation: None };
        let sent = forwarding.apply(OfMessage(&client), facts, &stats);
        assert_eq!(text(&sent.all), [""; 0]);
        assert_eq!(text(sent.of(SubgraphId(1)).forwarded), ["x-name: web."]);
        assert_eq!(telemetry::read(&stats.header_failures), 1);
    }

    #[test]
    fn an_expression_reads_the_operation_and_its_cost() {
        let mut headers = Headers::default();
        let expression = "operation.name + ' ' + operation.kind + ' ' + string(operation.cost)";
        headers.all.request = vec![set("x-operation", expression)];
        let graph = with_subgraphs(&["a"]);
        let forwarding = with_rules(headers, &graph);
        let preparer = prepare::Preparer::new(Arc::new(graph), 0, Default::default());
        let prepared = preparer.prepare_now(b"query Q { __typename }", None).expect("valid");
        let (stats, origin) = (ExpressionStats::default(), ConnectionOrigin::default());
        let source = RequestSource::of_websocket("/", origin);
        let sent = |operation: Option<KnownOperation<'_>>| {
            let facts = ForwardingFacts { claims: None, source, operation };
            text(&forwarding.apply(OfMessage(&client()), facts, &stats).all)
        };
        let known = KnownOperation { prepared: &prepared, cost: Some(7) };
        assert_eq!(sent(Some(known)), ["x-operation: Q query 7"]);
        assert_eq!(sent(Some(KnownOperation { cost: None, ..known })), [""; 0]);
        assert_eq!(sent(None), [""; 0]);
        assert_eq!(telemetry::read(&stats.header_failures), 2);
    }

    #[test]
    fn clients_with_equal_computed_values_are_equal() {
        let mut headers = Headers::default();
        headers.all.request = vec![set("x-paying", "has(claims.plan) && claims.plan != 'free'")];
        let forwarding = with_rules(headers, &with_subgraphs(&["a"]));
        let of = |claims: &str| {
            let claims = Claims::new(claims.to_owned().into());
            partition(&applied(&forwarding, OfMessage(&HeaderMap::new()), claims.as_ref()))
        };
        assert_eq!(of(r#"{"plan":"gold","sub":"u1"}"#), of(r#"{"plan":"silver","sub":"u2"}"#));
        assert_eq!(of(r#"{"plan":"free"}"#), of("{}"));
        assert_ne!(of(r#"{"plan":"gold"}"#), of("{}"));
    }
}
