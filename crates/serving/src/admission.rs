//! The admission of an operation: conditions that block it (`block`), and rate limits (`rate_limits`). Both are checked
//! once, when the operation is known and before its variables are read or anything is fetched.

use std::borrow::Cow;
use std::sync::Arc;

use clients::request_source::RequestSource;
use config::diagnostic::Diagnostic;
use config::{ClientInfoHeaders, Config, Expression};
use execute::{ClaimPath, Claims, ErrorCode, GraphqlError};
use expressions::{ClaimFacts, Expected, OperationFacts, Program, RequestFacts, Scope};
use http::HeaderMap;
use plan::OperationKind;
use prepare::Prepared;

use crate::expression_stats::ExpressionStats;
use crate::rate_limits::{self, LimitState, RateLimit};
use crate::request_facts::{compile, request_facts};

/// The conditions and limits of the configuration, compiled.
#[derive(Debug)]
pub struct Admission {
    blocks: Vec<BlockCondition>,
    limits: Vec<RateLimit>,
    /// The claims that any expression reads.
    claims: Vec<ClaimPath>,
    /// The headers with name and version of the application, if anything reads those.
    client_info: Option<ClientInfoHeaders>,
    needs_operation_id: bool,
    needs_depth: bool,
}

/// A condition under which operations are refused.
#[derive(Debug)]
struct BlockCondition {
    subject: BlockSubject,
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
    pub(crate) prepared: &'a Prepared,
    pub(crate) source: RequestSource<'a>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) claims: Option<&'a Claims>,
    /// The estimated cost of the operation, if it is known.
    pub(crate) cost: Option<u64>,
}

impl Admission {
    /// Compiles the conditions and limits of a configuration; `None` if there are none. Limits continue those of
    /// `previous` with the same name.
    ///
    /// # Errors
    /// The configuration was not checked, and an expression is not valid.
    pub(crate) fn new(
        config: &Config,
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
            blocks.push(BlockCondition { subject, setting: setting.into(), condition, message });
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
        let known: Vec<_> = previous.iter().flat_map(|it| it.limit_states()).cloned().collect();
        let limits = config.rate_limits.iter().enumerate();
        let limits = limits
            .map(|(index, it)| RateLimit::new(it, &format!("rate_limits[{index}]"), &known))
            .collect::<Result<Vec<_>, _>>()?;
        if blocks.is_empty() && limits.is_empty() {
            return Ok(None);
        }
        let programs = blocks.iter().map(|it| &it.condition);
        let read: Vec<_> = programs
            .chain(limits.iter().flat_map(RateLimit::programs))
            .map(Program::references)
            .collect();
        let reads_client = read.iter().any(|it| it.client)
            || blocks.iter().any(|it| it.subject == BlockSubject::UnknownClients);
        Ok(Some(Self {
            claims: read.iter().flat_map(|it| &it.claims).cloned().collect(),
            client_info: reads_client.then(|| config.client_info.clone()),
            needs_operation_id: read.iter().any(|it| it.operation_id),
            needs_depth: read.iter().any(|it| it.depth),
            blocks,
            limits,
        }))
    }

    /// Returns the states of the rate limits, for metrics.
    pub fn limit_states(&self) -> impl Iterator<Item = &Arc<LimitState>> {
        self.limits.iter().map(RateLimit::state)
    }

    /// Checks an operation. It counts against the rate limits only if `is_new` is true.
    ///
    /// # Errors
    /// The operation is blocked, or a rate limit is reached.
    // hot path: one evaluation for each condition that applies, and two for each limit; `expressions/benches`
    pub(crate) fn check(
        &self,
        request: AdmissionRequest<'_>,
        is_new: bool,
        stats: &ExpressionStats,
    ) -> Result<(), GraphqlError> {
        let AdmissionRequest { prepared, source, headers, claims, cost } = request;
        let claims = Claims::select(claims, &self.claims);
        let claims = ClaimFacts::Selected(&claims);
        let id = if self.needs_operation_id {
            format!("{:032x}", prepared.operation_id)
        } else {
            String::new()
        };
        let operation = OperationFacts {
            name: prepared.name.as_deref().unwrap_or_default(),
            kind: match prepared.kind {
                OperationKind::Query => "query",
                OperationKind::Mutation => "mutation",
                OperationKind::Subscription => "subscription",
            },
            id: &id,
            depth: self.needs_depth.then(|| prepared.depth()),
            cost,
        };
        let facts = RequestFacts {
            operation: Some(operation),
            ..request_facts(source, headers, claims, self.client_info.as_ref())
        };
        for block in &self.blocks {
            if block.applies(prepared, &facts) && block.is_met(&facts, stats) {
                let message = block.message.clone();
                return Err(GraphqlError::new(ErrorCode::OperationBlocked, message));
            }
        }
        if is_new { rate_limits::admit(&self.limits, &facts, cost, stats) } else { Ok(()) }
    }
}

impl BlockCondition {
    fn applies(&self, prepared: &Prepared, facts: &RequestFacts<'_>) -> bool {
        match self.subject {
            BlockSubject::Mutations => prepared.kind == OperationKind::Mutation,
            BlockSubject::Subscriptions => prepared.kind == OperationKind::Subscription,
            BlockSubject::Introspection => prepared.has_introspection(),
            BlockSubject::UnknownClients => facts.client.name.is_empty(),
            BlockSubject::All => true,
        }
    }

    /// True if the condition holds, or cannot be evaluated: a client must not evade it by leaving something out.
    fn is_met(&self, facts: &RequestFacts<'_>, stats: &ExpressionStats) -> bool {
        self.condition.is_true(facts).unwrap_or_else(|error| {
            stats.count_block_failure(&self.setting, &error);
            true
        })
    }
}
