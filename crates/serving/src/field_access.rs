//! Decides which requirements of an operation its client meets (`@authenticated`, `@requiresScopes`, `@policy`).
//!
//! Only the requirements of the operation are decided, and only the outcome goes on: it selects the plan, and with it
//! the group of a subscription and the requests that are shared. Tokens with equal outcomes share everything.

use std::sync::Arc;

use clients::authentication::Identity;
use clients::operation_metrics::OperationMetrics;
use config::{AuthorizationMode, Config};
use execute::{ClaimPath, ClaimScalar, ClaimValues, Claims, ErrorCode, GraphqlError, PathSegment};
use graph::{Alternatives, Requirement, RequirementSet, Supergraph};
use plan::Variables;
use policies::PolicyDecider;
use prepare::{AccessFacts, DecidedRequirements, Prepared};

pub use crate::policy_questions::AccessRequest;
use crate::policy_questions::{AllowedPolicies, PolicyQuestions};

/// The maximum number of errors of a refused operation. Each names one place.
const ERRORS_MAX: usize = 20;

/// The rules of access to the fields and types of one graph.
#[derive(Debug)]
pub struct FieldAccess {
    graph: Arc<Supergraph>,
    mode: AuthorizationMode,
    is_dry_run: bool,
    scope_claims: Vec<ClaimPath>,
    /// The decider of policies; `None` if nothing is configured.
    policies: Option<PolicyQuestions>,
}

/// The decision about the requirements of one operation.
#[derive(Clone, Debug, Default)]
pub struct AccessDecision {
    /// The requirements that the client does not meet, and that are enforced.
    pub unmet: RequirementSet,
    /// Every requirement of the operation with its decision, for subscriptions, which outlive the graph.
    pub decided: DecidedRequirements,
}

impl FieldAccess {
    /// Creates the rules of `graph`, with what decides about its policies. `None` if it has no requirements.
    pub fn new(
        config: &Config,
        graph: &Arc<Supergraph>,
        policies: Option<&Arc<PolicyDecider>>,
    ) -> Option<Self> {
        if graph.access.is_empty() {
            return None;
        }
        warn_of_undecided_policies(graph, policies.map(|it| &**it));
        let authorization = &config.authorization;
        Some(Self {
            graph: Arc::clone(graph),
            mode: authorization.mode,
            is_dry_run: authorization.dry_run,
            scope_claims: authorization.scope_claims(),
            policies: policies.map(|it| PolicyQuestions::new(it, &config.client_info)),
        })
    }

    /// Decides the requirements of an operation for a client. Asks once for all of its policies; without policies it
    /// waits for nothing.
    ///
    /// Must be called inside a `tokio::task::LocalSet`, see [`PolicyDecider::decide`].
    // hot path: an operation without policies costs a look at each of its requirements
    pub async fn decide(
        &self,
        request: AccessRequest<'_>,
        metrics: &OperationMetrics,
    ) -> AccessDecision {
        let AccessRequest { operation, identity, .. } = request;
        if operation.requirements.is_empty() {
            return AccessDecision::default();
        }
        let policies = match &self.policies {
            Some(questions) if self.policies_of(operation).next().is_some() => {
                // The future of a request to a decision point is large, and few operations need it.
                Box::pin(questions.ask(self.policies_of(operation), request)).await
            }
            _ => AllowedPolicies::default(),
        };
        let relevant = &operation.requirements;
        let mut scopes = None;
        let (mut unmet, mut decided) = (RequirementSet::default(), Vec::new());
        for index in relevant.iter() {
            // Indices come from the same graph.
            let Some(requirement) = self.graph.access.requirements.get(usize::from(index)) else {
                continue;
            };
            let is_met = match requirement {
                Requirement::Authenticated => !identity.is_anonymous(),
                Requirement::Scopes(sets) => {
                    let scopes = scopes.get_or_insert_with(|| self.scopes_of(identity));
                    sets.iter().any(|set| set.iter().all(|it| scopes.has(it)))
                }
                Requirement::Policies(sets) => {
                    sets.iter().any(|set| set.iter().all(|it| policies.allow(it)))
                }
            };
            decided.push((requirement.clone(), is_met));
            if !is_met {
                unmet.insert(index);
            }
        }
        if !unmet.is_empty() {
            metrics.count_denial(self.is_dry_run);
        }
        if self.is_dry_run {
            // The subscribers of a group need not have equal decisions then, so none is kept.
            return AccessDecision::default();
        }
        AccessDecision { unmet, decided: DecidedRequirements(decided.into()) }
    }

    /// Returns the policies that decide about an operation, as the graph groups them.
    fn policies_of<'a>(
        &'a self,
        operation: &'a AccessFacts,
    ) -> impl Iterator<Item = &'a Alternatives> {
        let requirements = &self.graph.access.requirements;
        let relevant = operation.requirements.iter();
        relevant.filter_map(move |index| match requirements.get(usize::from(index))? {
            // A set without policies is always met.
            Requirement::Policies(sets) if !sets.iter().any(|set| set.is_empty()) => Some(sets),
            _ => None,
        })
    }

    /// Decides the requirements of a subscription that moves to this graph from the decisions on its former graph.
    /// `None` if one of them was not decided there.
    pub fn decide_again(
        &self,
        relevant: &RequirementSet,
        decided: &DecidedRequirements,
    ) -> Option<RequirementSet> {
        if self.is_dry_run {
            return Some(RequirementSet::default());
        }
        decided.unmet_of(&self.graph, relevant)
    }

    /// Refuses an operation that selects what its client may not use, if the configuration says so.
    ///
    /// # Errors
    /// `UNAUTHORIZED_FIELD_OR_TYPE` with the path of each such place.
    pub fn check_prepared(
        &self,
        prepared: &Prepared,
        variables: &Variables,
    ) -> Result<(), Vec<GraphqlError>> {
        if self.mode == AuthorizationMode::Filter {
            return Ok(());
        }
        let denied = prepared.denied.iter().filter(|it| it.applies(variables));
        let error = |place: &prepare::DeniedSelection| {
            let path = place.path.iter().map(|key| PathSegment::Key(key.clone())).collect();
            GraphqlError::new(ErrorCode::UnauthorizedFieldOrType, DENIED).at(path)
        };
        let errors: Vec<_> = denied.map(error).take(ERRORS_MAX).collect();
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    fn scopes_of(&self, identity: &Identity) -> Scopes {
        let values = Claims::select(identity.claims(), &self.scope_claims);
        Scopes::of(&values, &self.scope_claims)
    }
}

/// The message of a refusal. It does not name the missing requirement.
const DENIED: &str = "Unauthorized field or type";

/// The scopes of a token.
#[derive(Debug, Default)]
struct Scopes(Vec<Box<str>>);

impl Scopes {
    /// Reads the scopes of claims: texts with spaces between scopes (RFC 8693, section 4.2), or lists of texts.
    fn of(values: &ClaimValues, paths: &[ClaimPath]) -> Self {
        let mut scopes = Vec::new();
        for scalar in paths.iter().filter_map(|path| values.scalars(path)).flatten() {
            if let ClaimScalar::Text(text) = scalar {
                scopes.extend(text.split_ascii_whitespace().map(Box::<str>::from));
            }
        }
        Self(scopes)
    }

    fn has(&self, wanted: &str) -> bool {
        self.0.iter().any(|it| **it == *wanted)
    }
}

/// The maximum number of policies that the warning about undecided ones names.
const WARNED_POLICIES_MAX: usize = 10;

/// Warns of the policies of a graph that nothing decides: what they protect is denied to every client.
fn warn_of_undecided_policies(graph: &Supergraph, decider: Option<&PolicyDecider>) {
    let undecided = undecided_policies(graph, decider);
    if !undecided.is_empty() {
        let shown = undecided.len().min(WARNED_POLICIES_MAX);
        tracing::warn!(
            policies = undecided.len(),
            names = undecided[..shown].join(", "),
            "nothing decides these policies of the supergraph (`authorization.policies`): what they protect is denied \
             to every client"
        );
    }
}

/// Returns the names of the policies of a graph that nothing decides, sorted.
pub fn undecided_policies<'a>(
    graph: &'a Supergraph,
    decider: Option<&PolicyDecider>,
) -> Vec<&'a str> {
    let sets = graph.access.requirements.iter().filter_map(|it| match it {
        Requirement::Policies(sets) => Some(sets),
        Requirement::Authenticated | Requirement::Scopes(_) => None,
    });
    let names = sets.flat_map(|sets| sets.iter().flatten()).map(|name| &**name);
    let is_undecided = |name: &&str| decider.is_none_or(|decider| !decider.has_policy(name));
    let mut undecided: Vec<_> = names.filter(is_undecided).collect();
    undecided.sort_unstable();
    undecided.dedup();
    undecided
}

#[cfg(test)]
mod tests {
    use clients::request_source::RequestSource;
    use http::HeaderMap;

    use super::*;

    #[test]
    fn scopes_are_the_words_of_texts_and_lists_in_any_of_the_claims() {
        let paths: Vec<_> =
            ["scope", "realm.roles"].into_iter().filter_map(ClaimPath::parse).collect();
        let scopes = |text: &'static str| {
            let claims = Claims::new(text.into());
            Scopes::of(&Claims::select(claims.as_ref(), &paths), &paths)
        };
        let found = scopes(r#"{"scope": " read:a  write ", "realm": {"roles": ["x", "y z"]}}"#);
        for wanted in ["read:a", "write", "x", "y", "z"] {
            assert!(found.has(wanted), "{wanted}");
        }
        assert!(!found.has("read") && !found.has("") && !found.has("read:a  write"));
        for text in [r#"{"scope": 7}"#, r#"{"scope": {"read": true}}"#, r#"{"scope": null}"#, "{}"]
        {
            assert!(scopes(text).0.is_empty(), "{text}");
        }
    }

    const GRAPH: &str = r#"
        schema @link(url: "https://specs.apollo.dev/link/v1.0")
          @link(url: "https://specs.apollo.dev/join/v0.5", for: EXECUTION)
          @link(url: "https://specs.apollo.dev/authenticated/v0.1", for: SECURITY)
          @link(url: "https://specs.apollo.dev/policy/v0.1", for: SECURITY) { query: Query }
        enum join__Graph { A @join__graph(name: "a", url: "http://127.0.0.1:1") }
        type Query @join__type(graph: A) {
          a: Int @authenticated
          b: Int @policy(policies: [["one", "two"], ["three"]])
          c: Int @policy(policies: [["two"], []])
          d: Int @policy(policies: [["three"]])
        }
    "#;

    /// Decides all requirements of the graph that `is_relevant` selects, for an anonymous client. `None` if the
    /// decision has to wait.
    fn decide(policies: &str, is_relevant: impl Fn(&Requirement) -> bool) -> Option<Vec<bool>> {
        let text = format!("authorization: {{policies: {policies}}}");
        let none = |_: &str| None;
        let flags = config::Overrides::default();
        let config = config::parse(&text, "a", std::path::Path::new(""), &flags, &none);
        let config = config.expect("a valid file").config;
        let decider = crate::policy_loading::load_policies(&config).expect("no mistake");
        let decider = decider.map(Arc::new);
        let graph = Arc::new(Supergraph::from_sdl(GRAPH, "a").expect("a valid graph"));
        let access = FieldAccess::new(&config, &graph, decider.as_ref()).expect("requirements");
        let all = graph.access.requirements.iter().enumerate();
        let relevant = all.filter(|(_, it)| is_relevant(it)).map(|(index, _)| index as u16);
        let operation = AccessFacts {
            requirements: relevant.collect(),
            kind: plan::OperationKind::Query,
            name: None,
            operation_id: 1,
            depth: 1,
        };
        let headers = HeaderMap::new();
        let request = AccessRequest {
            operation: &operation,
            identity: &Identity::ANONYMOUS,
            headers: &headers,
            source: RequestSource::of_websocket("/graphql", Default::default()),
        };
        let metrics = OperationMetrics::default();
        let mut deciding = std::pin::pin!(access.decide(request, &metrics));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match deciding.as_mut().poll(&mut context) {
            std::task::Poll::Ready(decision) => {
                Some(decision.decided.0.iter().map(|(_, is_met)| *is_met).collect())
            }
            std::task::Poll::Pending => None,
        }
    }

    fn is_policy(requirement: &Requirement) -> bool {
        matches!(requirement, Requirement::Policies(_))
    }

    #[test]
    fn a_set_of_policies_is_met_if_all_of_it_are_allowed() {
        let all = |policies| decide(policies, is_policy).expect("no waiting");
        // A set without policies is always met.
        assert_eq!(all("{}"), [false, true, false]);
        assert_eq!(all("{expressions: {three: 'true'}}"), [true, true, true]);
        assert_eq!(
            all("{expressions: {one: 'true', two: 'true', three: 'false'}}"),
            [true, true, false]
        );
        assert_eq!(all("{expressions: {one: 'true'}}"), [false, true, false]);
        let of_operation =
            "{expressions: {three: 'operation.depth == 1 && operation.kind == \"query\"'}}";
        assert_eq!(all(of_operation), [true, true, true]);
        assert_eq!(decide("{}", |_| true).expect("no waiting"), [false, false, true, false]);
    }

    #[test]
    fn only_a_policy_without_an_expression_waits_for_the_decision_point() {
        let point = "decision_point: {url: 'http://127.0.0.1:1/'}";
        let only = |policies: &str, is_relevant: &dyn Fn(&Requirement) -> bool| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime");
            let local = tokio::task::LocalSet::new();
            let _entered = (runtime.enter(), local.enter());
            decide(policies, is_relevant)
        };
        let point_only = format!("{{{point}}}");
        assert_eq!(only(&point_only, &|it| !is_policy(it)), Some(vec![false]));
        assert_eq!(only(&point_only, &is_policy), None);
        let with_expressions =
            format!("{{{point}, expressions: {{one: 'true', two: 'true', three: 'true'}}}}");
        assert_eq!(only(&with_expressions, &is_policy), Some(vec![true; 3]));
    }

    #[test]
    fn policies_that_nothing_decides_are_listed_once() {
        let graph = Supergraph::from_sdl(GRAPH, "a").expect("a valid graph");
        assert_eq!(undecided_policies(&graph, None), ["one", "three", "two"]);
    }
}
