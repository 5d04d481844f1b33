//! The decision about all policies of an operation: each by its expression or, if it has none, by the engine.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use execute::ClaimPath;
use expressions::{Expected, Program, RequestFacts, Scope};
use foldhash::fast::RandomState;
use http::HeaderName;
use telemetry::LogLimit;

use crate::answer::Decisions;
use crate::decision_point::DecisionPoint;
use crate::input::InputShape;
use crate::metrics::PolicyStats;
use crate::rego::RegoRules;
use crate::settings::{EngineSettings, PolicySettings, UnusablePolicies};

/// Decides about policies. The process has one.
#[derive(Debug)]
pub struct PolicyDecider {
    expressions: HashMap<Box<str>, Program, RandomState>,
    engine: Option<Engine>,
    failure_log: LogLimit,
    /// The counters of decisions.
    pub stats: PolicyStats,
}

/// The engine that decides about all policies without an expression.
#[derive(Debug)]
enum Engine {
    DecisionPoint(Arc<DecisionPoint>),
    Rego(Box<RegoRules>),
}

impl Engine {
    fn new(settings: &EngineSettings) -> Result<Self, UnusablePolicies> {
        Ok(match settings {
            EngineSettings::DecisionPoint(settings) => {
                Self::DecisionPoint(Arc::new(DecisionPoint::new(settings)?))
            }
            EngineSettings::Rego(settings) => Self::Rego(Box::new(RegoRules::new(settings)?)),
        })
    }

    /// Returns the facts that the engine gets.
    fn shape(&self) -> &InputShape {
        match self {
            Self::DecisionPoint(point) => point.shape(),
            Self::Rego(rules) => rules.shape(),
        }
    }

    /// Decides about `policies`, which are sorted. `None` if the engine does not work.
    async fn decide(&self, policies: &[&str], facts: &RequestFacts<'_>) -> Decisions {
        match self {
            Self::DecisionPoint(point) => point.decide(policies, facts).await,
            Self::Rego(rules) => rules.decide(policies, facts),
        }
    }
}

/// A decision about one policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Decision {
    Allowed,
    Denied,
    /// Nothing could decide, which denies.
    Undecided,
}

impl From<bool> for Decision {
    fn from(is_allowed: bool) -> Self {
        if is_allowed { Self::Allowed } else { Self::Denied }
    }
}

impl PolicyDecider {
    /// Compiles the expressions, and prepares the engine.
    ///
    /// # Errors
    /// All expressions with a mistake, and the reason why the engine cannot be used.
    pub fn new(settings: &PolicySettings) -> Result<Self, Vec<UnusablePolicies>> {
        let (mut expressions, mut problems) = (HashMap::default(), Vec::new());
        for (name, text) in &settings.expressions {
            match Program::compile(text, Scope::OPERATION, Expected::Condition) {
                Ok(program) => drop(expressions.insert(name.clone(), program)),
                Err(error) => {
                    problems.push(UnusablePolicies::Expression { policy: name.clone(), error });
                }
            }
        }
        let engine = settings.engine.as_ref().map(Engine::new).transpose();
        let engine = engine.unwrap_or_else(|problem| {
            problems.push(problem);
            None
        });
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            expressions,
            engine,
            failure_log: LogLimit::new(),
            stats: PolicyStats::default(),
        })
    }

    /// Returns the decision point, if one is configured.
    pub fn decision_point(&self) -> Option<&DecisionPoint> {
        match &self.engine {
            Some(Engine::DecisionPoint(point)) => Some(point),
            _ => None,
        }
    }

    /// Returns the Rego rules, if there are any.
    pub fn rego(&self) -> Option<&RegoRules> {
        match &self.engine {
            Some(Engine::Rego(rules)) => Some(rules),
            _ => None,
        }
    }

    /// True if an expression or the engine decides about this policy.
    pub fn has_policy(&self, name: &str) -> bool {
        self.engine.is_some() || self.expressions.contains_key(name)
    }

    /// Returns the claims that decisions may depend on, sorted. A caller that selects claims ahead must select these.
    pub fn claims(&self) -> Vec<ClaimPath> {
        let programs = self.expressions.values().flat_map(|it| &it.references().claims);
        let engine = self.engine.iter().flat_map(|it| it.shape().claims());
        let mut claims: Vec<_> = programs.chain(engine).cloned().collect();
        claims.sort_unstable();
        claims.dedup();
        claims
    }

    /// Returns the headers of the request that decisions may depend on, sorted.
    pub fn headers(&self) -> Vec<HeaderName> {
        let programs = self.expressions.values().flat_map(|it| &it.references().headers);
        let engine = self.engine.iter().flat_map(|it| it.shape().headers());
        let mut headers: Vec<_> = programs.chain(engine).cloned().collect();
        headers.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        headers.dedup();
        headers
    }

    /// True if decisions may depend on the operation, so that those for one operation do not hold for another.
    pub fn reads_operation(&self) -> bool {
        self.engine.as_ref().is_some_and(|it| it.shape().has_operation())
            || self.expressions.values().any(|it| it.references().operation)
    }

    /// True if decisions may depend on the name or the version of the application.
    pub fn reads_client(&self) -> bool {
        self.engine.is_some() || self.expressions.values().any(|it| it.references().client)
    }

    /// Decides about all of these policies: true for each that is allowed, in their order. Waits for the decision point
    /// only if one of them has no expression, and then for its timeout at most.
    ///
    /// Must be called inside a `tokio::task::LocalSet`: equal questions that are in flight are sent once. Dropping the
    /// future leaves the question to other callers that wait for it.
    pub async fn decide(&self, policies: &[&str], facts: &RequestFacts<'_>) -> Vec<bool> {
        let mut decisions: Vec<Option<Decision>> =
            policies.iter().map(|name| self.decide_by_expression(name, facts)).collect();
        if decisions.contains(&None) {
            self.decide_rest(policies, facts, &mut decisions).await;
        }
        let decisions = decisions.into_iter().map(|it| it.unwrap_or(Decision::Undecided));
        decisions.map(|decision| self.count(decision)).collect()
    }

    /// Returns the decision of a policy's expression; `None` if it has none.
    fn decide_by_expression(&self, name: &str, facts: &RequestFacts<'_>) -> Option<Decision> {
        let program = self.expressions.get(name)?;
        Some(match program.is_true(facts) {
            Ok(is_allowed) => is_allowed.into(),
            Err(error) => {
                if let Some(suppressed) = self.failure_log.admit(Instant::now()) {
                    tracing::warn!(
                        policy = name,
                        %error,
                        suppressed,
                        "the expression of a policy has no value, and the policy counts as denied"
                    );
                }
                Decision::Undecided
            }
        })
    }

    /// Asks the engine about all policies that have no decision.
    async fn decide_rest(
        &self,
        policies: &[&str],
        facts: &RequestFacts<'_>,
        decisions: &mut [Option<Decision>],
    ) {
        let Some(engine) = &self.engine else { return };
        let open = policies.iter().zip(&*decisions).filter(|(_, it)| it.is_none());
        let mut open: Vec<&str> = open.map(|(&name, _)| name).collect();
        // Equal inputs are equal texts.
        open.sort_unstable();
        open.dedup();
        let Some(answers) = engine.decide(&open, facts).await else { return };
        for (name, decision) in policies.iter().zip(decisions) {
            if decision.is_none()
                && let Ok(at) = open.binary_search(name)
            {
                *decision = answers.get(at).map(|&is_allowed| is_allowed.into());
            }
        }
    }

    fn count(&self, decision: Decision) -> bool {
        let counter = match decision {
            Decision::Allowed => &self.stats.allowed,
            Decision::Denied => &self.stats.denied,
            Decision::Undecided => &self.stats.undecided,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        decision == Decision::Allowed
    }
}
