//! The rate limits of the configuration: which operations count, under which key, and the error of those refused.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use config::RateUnit;
use config::diagnostic::Diagnostic;
use execute::{ErrorCode, GraphqlError, RateLimitState};
use expressions::{Expected, Program, RequestFacts, Scope};
use telemetry::{Metric, read};

use crate::expression_stats::ExpressionStats;
use crate::gcra::{Exceeded, KeyedRate};
use crate::request_facts::compile;

/// A rate limit.
#[derive(Debug)]
pub(crate) struct RateLimit {
    key: Option<Program>,
    when: Option<Program>,
    unit: RateUnit,
    quota: u64,
    close_after: u32,
    state: Arc<LimitState>,
}

/// The state of a rate limit, which all graphs of the process share.
#[derive(Debug)]
pub struct LimitState {
    /// The name of the limit.
    pub name: Box<str>,
    rate: KeyedRate,
    admitted: AtomicU64,
    refused: AtomicU64,
}

/// The metrics of a rate limit.
pub const RATE_LIMIT_METRICS: &[Metric<LimitState>] = &[
    Metric::counter(
        "starling_rate_limit_admitted",
        "Operations that a rate limit admitted",
        |it| read(&it.admitted),
    ),
    Metric::counter("starling_rate_limit_refused", "Operations that a rate limit refused", |it| {
        read(&it.refused)
    }),
    Metric::gauge("starling_rate_limit_keys", "Keys that a rate limit knows", |it| it.rate.keys()),
    Metric::counter(
        "starling_rate_limit_keys_evicted",
        "Keys in use that a rate limit forgot because there were more than max_keys",
        |it| read(&it.rate.evicted),
    ),
];

impl RateLimit {
    /// Compiles a limit. Its state is that of the limit with this name among `known`, if there is one.
    ///
    /// # Errors
    /// The configuration was not checked, and an expression is not valid.
    pub(crate) fn new(
        settings: &config::RateLimit,
        path: &str,
        known: &[Arc<LimitState>],
    ) -> Result<Self, Box<Diagnostic>> {
        let key = settings
            .key
            .as_ref()
            .map(|key| compile(&format!("{path}.key"), key, Scope::OPERATION, Expected::Text));
        let when = settings.when.as_ref().map(|when| {
            compile(&format!("{path}.when"), when, Scope::OPERATION, Expected::Condition)
        });
        let state = known.iter().find(|it| *it.name == *settings.name).cloned();
        let state = state.unwrap_or_else(|| {
            let config::RateLimit { rate, per, max_keys, .. } = *settings;
            Arc::new(LimitState {
                name: settings.name.as_str().into(),
                rate: KeyedRate::new(rate, per, settings.burst(), max_keys),
                admitted: AtomicU64::new(0),
                refused: AtomicU64::new(0),
            })
        });
        Ok(Self {
            key: key.transpose()?,
            when: when.transpose()?,
            unit: settings.unit,
            quota: settings.burst().into(),
            close_after: settings.close_after,
            state,
        })
    }

    /// Returns the state of the limit.
    pub(crate) fn state(&self) -> &Arc<LimitState> {
        &self.state
    }

    /// Returns the expressions of the limit.
    pub(crate) fn programs(&self) -> impl Iterator<Item = &Program> {
        self.key.iter().chain(&self.when)
    }

    /// Returns the weight of an operation, with its estimated cost if that is known.
    fn weight(&self, cost: Option<u64>) -> u64 {
        match self.unit {
            RateUnit::Requests => 1,
            // An operation without any cost is not limited.
            RateUnit::Cost => cost.unwrap_or(0),
        }
    }

    /// Returns the key of an operation; `None` if the limit does not apply to it. If an expression cannot be evaluated,
    /// the operation counts under a key that all such operations share, so that no client evades the limit.
    fn key(&self, facts: &RequestFacts<'_>, stats: &ExpressionStats) -> Option<Cow<'static, str>> {
        if let Some(when) = &self.when {
            match when.is_true(facts) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => stats.count_rate_limit_failure(&self.state.name, &error),
            }
        }
        let Some(key) = &self.key else { return Some(Cow::Borrowed("")) };
        match key.evaluate(facts) {
            Ok(value) => value.text().map(|text| Cow::Owned(text.into_owned())),
            Err(error) => {
                stats.count_rate_limit_failure(&self.state.name, &error);
                Some(Cow::Borrowed(""))
            }
        }
    }
}

/// Counts an operation against all limits.
///
/// # Errors
/// A limit is reached. The operation counts against none of them.
pub(crate) fn admit(
    limits: &[RateLimit],
    facts: &RequestFacts<'_>,
    cost: Option<u64>,
    stats: &ExpressionStats,
) -> Result<(), GraphqlError> {
    let now = Instant::now();
    let mut taken: Vec<(&RateLimit, Cow<'static, str>)> = Vec::new();
    for limit in limits {
        let Some(key) = limit.key(facts, stats) else { continue };
        if let Err(exceeded) = limit.state.rate.take(&key, limit.weight(cost), now) {
            limit.state.refused.fetch_add(1, Ordering::Relaxed);
            for (earlier, key) in taken {
                earlier.state.rate.give_back(&key, earlier.weight(cost));
            }
            return Err(limit.refusal(exceeded));
        }
        taken.push((limit, key));
    }
    for (limit, _) in taken {
        limit.state.admitted.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

impl RateLimit {
    fn refusal(&self, exceeded: Exceeded) -> GraphqlError {
        // Rounded up: a client that waits so long is admitted.
        let seconds = |duration: std::time::Duration| {
            duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
        };
        let retry_after_seconds = seconds(exceeded.retry_after).max(1);
        let name = &self.state.name;
        let message =
            format!("the rate limit `{name}` is reached: try again in {retry_after_seconds} s");
        let mut error = GraphqlError::new(ErrorCode::RateLimited, message);
        error.extensions = Some(format!(r#"{{"retryAfter":{retry_after_seconds}}}"#).into());
        error.rate_limit = Some(Box::new(RateLimitState {
            name: name.clone(),
            quota: self.quota,
            window_seconds: seconds(self.state.rate.window()).max(1),
            remaining: exceeded.remaining,
            retry_after_seconds,
            close_after: self.close_after,
        }));
        error
    }
}
