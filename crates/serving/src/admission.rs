//! The admission of an operation: conditions that block it (`block`, `introspection.when`), and rate limits
//! (`rate_limits`), in two steps. Conditions and limits of requests are checked when the operation is known, before its
//! variables are read; limits of costs when its cost is estimated, before anything is fetched.

use std::borrow::Cow;
use std::sync::Arc;

use clients::request_source::RequestSource;
use config::diagnostic::Diagnostic;
use config::{Config, Expression, RateUnit};
use execute::{ClaimPath, Claims, ErrorCode, GraphqlError};
use expressions::{ClaimFacts, Expected, Program, RequestFacts, Scope};
use http::HeaderMap;
use plan::OperationKind;
use prepare::Prepared;
use redis_store::Stores;

use crate::expression_stats::ExpressionStats;
use crate::rate_limits::{self, LimitState, PendingLimits, RateLimit};
use crate::request_facts::{KnownOperation, NeededFacts, compile, request_facts};

/// The conditions and limits of the configuration, compiled.
#[derive(Debug)]
pub struct Admission {
    blocks: Vec<BlockCondition>,
    /// The limits of requests.
    limits: Vec<RateLimit>,
    /// The facts that conditions and limits of requests read.
    needed: NeededFacts,
    /// The limits of costs.
    cost_limits: Vec<RateLimit>,
    /// The facts that limits of costs read.
    needed_for_costs: NeededFacts,
}

/// A condition under which operations are refused.
#[derive(Debug)]
struct BlockCondition {
    subject: BlockSubject,
    /// The value of the condition that refuses.
    refuses_if: bool,
    /// The path of the condition in the configuration.
    setting: Box<str>,
    condition: Program,
    message: Cow<'static, str>,
}

/// The operations to which a condition applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockSubject {
    Mutations,
    Subscriptions,
    Introspection,
    UnknownClients,
    All,
}

/// A request with a known operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmissionRequest<'a> {
    pub(crate) operation: KnownOperation<'a>,
    pub(crate) source: RequestSource<'a>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) claims: Option<&'a Claims>,
}

impl Admission {
    /// Compiles the conditions and limits of a configuration; `None` if there are none. Limits continue those of
    /// `previous` with the same name.
    ///
    /// # Errors
    /// The configuration was not checked, and an expression is not valid.
    pub(crate) fn new(
        config: &Config,
        stores: &Stores,
        previous: Option<&Self>,
    ) -> Result<Option<Self>, Box<Diagnostic>> {
        let block = &config.block;
        let named: [(_, &Option<Expression>, _, _); 4] = [
            ("mutations", &block.mutations, BlockSubject::Mutations, "mutations are refused"),
            (
                "subscriptions",
                &block.subscriptions,
                BlockSubject::Subscriptions,
                "subscriptions are refused",
            ),
            (
                "introspection",
                &block.introspection,
                BlockSubject::Introspection,
                "introspection is refused",
            ),
            (
                "unknown_clients",
                &block.unknown_clients,
                BlockSubject::UnknownClients,
                "operations of applications that do not state their name are refused",
            ),
        ];
        let mut blocks = Vec::new();
        let mut add = |setting: String, condition: &Expression, subject, message| {
            let condition = compile(&setting, condition, Scope::OPERATION, Expected::Condition)?;
            let setting = setting.into();
            blocks.push(BlockCondition { subject, refuses_if: true, setting, condition, message });
            Ok::<(), Box<Diagnostic>>(())
        };
        for (key, condition, subject, message) in named {
            if let Some(condition) = condition {
                add(format!("block.{key}"), condition, subject, Cow::Borrowed(message))?;
            }
        }
        for (index, rule) in block.rules.iter().enumerate() {
            let message = match &rule.message {
                Some(message) => Cow::Owned(message.clone()),
                None => Cow::Borrowed("this operation is refused"),
            };
            add(format!("block.rules[{index}].when"), &rule.when, BlockSubject::All, message)?;
        }
        if let Some(condition) = &config.introspection.when {
            let setting = "introspection.when";
            blocks.push(BlockCondition {
                subject: BlockSubject::Introspection,
                refuses_if: false,
                setting: setting.into(),
                condition: compile(setting, condition, Scope::OPERATION, Expected::Condition)?,
                message: Cow::Borrowed("introspection is refused"),
            });
        }
        let known: Vec<_> = previous.iter().flat_map(|it| it.limit_states()).cloned().collect();
        let (mut limits, mut cost_limits) = (Vec::new(), Vec::new());
        for (index, settings) in config.rate_limits.iter().enumerate() {
            let limit = RateLimit::new(settings, &format!("rate_limits[{index}]"), stores, &known)?;
            match settings.unit {
                RateUnit::Requests => limits.push(limit),
                RateUnit::Cost => cost_limits.push(limit),
            }
        }
        if blocks.is_empty() && limits.is_empty() && cost_limits.is_empty() {
            return Ok(None);
        }
        let conditions = blocks.iter().map(|it| &it.condition);
        let programs = conditions.chain(limits.iter().flat_map(RateLimit::programs));
        let mut needed = NeededFacts::of(programs, &config.client_info);
        if blocks.iter().any(|it| it.subject == BlockSubject::UnknownClients) {
            needed.client_info = Some(config.client_info.clone());
        }
        let programs = cost_limits.iter().flat_map(RateLimit::programs);
        Ok(Some(Self {
            needed,
            needed_for_costs: NeededFacts::of(programs, &config.client_info),
            blocks,
            limits,
            cost_limits,
        }))
    }

    /// Returns the claims that the conditions and limits read.
    pub(crate) fn claims(&self) -> impl Iterator<Item = &ClaimPath> {
        self.needed.claims.iter().chain(&self.needed_for_costs.claims)
    }

    /// Returns the states of the rate limits, for metrics.
    pub fn limit_states(&self) -> impl Iterator<Item = &Arc<LimitState>> {
        self.limits.iter().chain(&self.cost_limits).map(RateLimit::state)
    }

    /// Checks an operation against conditions and limits of requests. It counts only if it is new. Limits that several
    /// routers share are returned: they are decided by [`PendingLimits::decide`].
    ///
    /// # Errors
    /// The operation is blocked, or a rate limit of this process is reached.
    // hot path: one evaluation for each condition that applies, and two for each limit; `expressions/benches`
    pub(crate) fn check(
        &self,
        request: AdmissionRequest<'_>,
        stats: &ExpressionStats,
    ) -> Result<Option<PendingLimits<'_>>, GraphqlError> {
        let prepared = request.operation.prepared;
        request.with_facts(&self.needed, |facts| {
            for block in &self.blocks {
                if block.applies(prepared, facts) && block.is_met(facts, stats) {
                    let message = block.message.clone();
                    return Err(GraphqlError::new(ErrorCode::OperationBlocked, message));
                }
            }
            match request.source.is_new {
                true => rate_limits::admit(&self.limits, facts, 1, stats),
                false => Ok(None),
            }
        })
    }

    /// Checks an operation with an estimated cost against limits of costs. It counts only if it is new. Limits that
    /// several routers share are returned, as by [`Admission::check`].
    ///
    /// # Errors
    /// A rate limit is reached, or the operation costs more than one admits at once.
    pub(crate) fn check_cost(
        &self,
        request: AdmissionRequest<'_>,
        stats: &ExpressionStats,
    ) -> Result<Option<PendingLimits<'_>>, GraphqlError> {
        // Without an estimate there are no such limits: `config::consistency` requires it.
        let Some(cost) = request.operation.cost else { return Ok(None) };
        if self.cost_limits.is_empty() || !request.source.is_new {
            return Ok(None);
        }
        request.with_facts(&self.needed_for_costs, |facts| {
            rate_limits::admit(&self.cost_limits, facts, cost, stats)
        })
    }
}

impl AdmissionRequest<'_> {
    /// Calls `check` with the facts about the request.
    pub(crate) fn with_facts<T>(
        &self,
        needed: &NeededFacts,
        check: impl FnOnce(&RequestFacts<'_>) -> T,
    ) -> T {
        let claims = Claims::select(self.claims, &needed.claims);
        let claims = ClaimFacts::Selected(&claims);
        let operation = needed.of_operation(self.operation);
        let client_info = needed.client_info.as_ref();
        check(&RequestFacts {
            operation: Some(operation.facts()),
            ..request_facts(self.source, self.headers, claims, client_info)
        })
    }
}

impl BlockCondition {
    fn applies(&self, prepared: &Prepared, facts: &RequestFacts<'_>) -> bool {
        match self.subject {
            BlockSubject::Mutations => prepared.kind == OperationKind::Mutation,
            BlockSubject::Subscriptions => prepared.has_stream(),
            BlockSubject::Introspection => prepared.has_introspection(),
            BlockSubject::UnknownClients => facts.client.name.is_empty(),
            BlockSubject::All => true,
        }
    }

    /// True if the condition refuses, or cannot be evaluated: a client must not evade it by leaving something out.
    fn is_met(&self, facts: &RequestFacts<'_>, stats: &ExpressionStats) -> bool {
        match self.condition.is_true(facts) {
            Ok(value) => value == self.refuses_if,
            Err(error) => {
                stats.count_block_failure(&self.setting, &error);
                true
            }
        }
    }
}
