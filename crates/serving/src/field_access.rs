//! Decides which requirements of an operation its client meets (`@authenticated`, `@requiresScopes`, `@policy`).
//!
//! Only the requirements of the operation are decided, and only the outcome goes on: it selects the plan, and with it
//! the group of a subscription and the requests that are shared. Tokens with equal outcomes share everything.

use std::sync::Arc;

use clients::authentication::Identity;
use clients::operation_metrics::OperationMetrics;
use config::{Authorization, AuthorizationMode};
use execute::{ClaimPath, ClaimScalar, ClaimValues, Claims, ErrorCode, GraphqlError, PathSegment};
use graph::{Requirement, RequirementSet, Supergraph};
use plan::Variables;
use prepare::{DecidedRequirements, Prepared};

/// The maximum number of errors of a refused operation. Each names one place.
const ERRORS_MAX: usize = 20;

/// The rules of access to the fields and types of one graph.
#[derive(Debug)]
pub struct FieldAccess {
    graph: Arc<Supergraph>,
    mode: AuthorizationMode,
    is_dry_run: bool,
    scope_claims: Vec<ClaimPath>,
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
    /// Creates the rules of `graph`. `None` if it has no requirements.
    pub fn new(config: &Authorization, graph: &Arc<Supergraph>) -> Option<Self> {
        if graph.access.is_empty() {
            return None;
        }
        warn_of_policies(graph);
        Some(Self {
            graph: Arc::clone(graph),
            mode: config.mode,
            is_dry_run: config.dry_run,
            scope_claims: config.scope_claims(),
        })
    }

    /// Decides the requirements of an operation for a client.
    pub fn decide(
        &self,
        relevant: &RequirementSet,
        identity: &Identity,
        metrics: &OperationMetrics,
    ) -> AccessDecision {
        if relevant.is_empty() {
            return AccessDecision::default();
        }
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
                // A set without policies needs none; without a decision point no policy allows anything.
                Requirement::Policies(sets) => sets.iter().any(|set| set.is_empty()),
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

/// Warns that the policies of a graph allow nothing.
fn warn_of_policies(graph: &Supergraph) {
    let requirements = graph.access.requirements.iter();
    let policies = requirements.filter(|it| matches!(it, Requirement::Policies(_))).count();
    if policies > 0 {
        tracing::warn!(
            policies,
            "the supergraph has @policy, and nothing decides policies: what they protect is denied to every client"
        );
    }
}

#[cfg(test)]
mod tests {
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
}
