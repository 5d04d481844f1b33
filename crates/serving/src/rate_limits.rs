//! The rate limits of the configuration: which operations count, under which key, and the error of those refused.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use config::diagnostic::Diagnostic;
use execute::{ErrorCode, GraphqlError, RateLimitState};
use expressions::{Expected, Program, RequestFacts};
use redis_store::Stores;
use telemetry::{Metric, read};

use crate::expression_stats::ExpressionStats;
use crate::gcra::{Exceeded, KeyedRate};
use crate::request_facts::compile;
use crate::shared_rates::{PendingLimits, SharedRate};

/// A rate limit.
#[derive(Debug)]
pub(crate) struct RateLimit {
    key: Option<Program>,
    when: Option<Program>,
    quota: u64,
    close_after: u32,
    state: Arc<LimitState>,
    /// The store in which all routers count together, if the limit is shared.
    pub(crate) shared: Option<SharedRate>,
}

/// The state of a rate limit, which all graphs of the process share.
#[derive(Debug)]
pub struct LimitState {
    /// The name of the limit.
    pub name: Box<str>,
    rate: KeyedRate,
    admitted: AtomicU64,
    refused: AtomicU64,
    /// Operations that were decided without the store, because it did not respond.
    pub(crate) undecided: AtomicU64,
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
    Metric::counter(
        "starling_rate_limit_store_failures",
        "Operations that a shared rate limit decided by on_failure, because its store did not respond",
        |it| read(&it.undecided),
    ),
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
        stores: &Stores,
        known: &[Arc<LimitState>],
    ) -> Result<Self, Box<Diagnostic>> {
        let key = settings
            .key
            .as_ref()
            .map(|key| compile(&format!("{path}.key"), key, settings.scope(), Expected::Text));
        let when = settings.when.as_ref().map(|when| {
            compile(&format!("{path}.when"), when, settings.scope(), Expected::Condition)
        });
        let state = known.iter().find(|it| *it.name == *settings.name).cloned();
        let state = state.unwrap_or_else(|| {
            let config::RateLimit { rate, per, max_keys, .. } = *settings;
            Arc::new(LimitState {
                name: settings.name.as_str().into(),
                rate: KeyedRate::new(rate, per, settings.burst(), max_keys),
                admitted: AtomicU64::new(0),
                refused: AtomicU64::new(0),
                undecided: AtomicU64::new(0),
            })
        });
        // The configuration was checked, so that the store exists.
        let store = settings.store.as_ref().and_then(|id| stores.find(id));
        Ok(Self {
            key: key.transpose()?,
            when: when.transpose()?,
            quota: settings.burst().into(),
            close_after: settings.close_after,
            state,
            shared: store.map(|store| SharedRate::new(settings, store)),
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

/// Units of a key that were taken from a limit.
#[derive(Debug)]
pub(crate) struct Taken<'a> {
    pub(crate) limit: &'a RateLimit,
    pub(crate) key: Cow<'static, str>,
    pub(crate) weight: u64,
}

impl Taken<'_> {
    /// Takes the units from the keys of this process.
    ///
    /// # Errors
    /// They are not available.
    pub(crate) fn take_local(&self, now: Instant) -> Result<(), GraphqlError> {
        let taken = self.limit.state.rate.take(&self.key, self.weight, now);
        taken.map_err(|exceeded| self.limit.refusal(exceeded))
    }

    /// Returns the units to the keys of this process.
    pub(crate) fn give_back_local(&self) {
        self.limit.state.rate.give_back(&self.key, self.weight);
    }

    /// Counts the operation as admitted.
    pub(crate) fn count_admitted(&self) {
        self.limit.state.admitted.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the operation as refused by this limit.
    pub(crate) fn count_refused(&self) {
        self.limit.state.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts an operation against all limits of this process with this weight: 1, or its cost. An operation without a
/// weight is not limited. Returns those that several routers share, with the units to be returned if one of those
/// refuses; `None` if there are none.
///
/// # Errors
/// A limit is reached, or the weight is above the burst of one. The operation counts against none of them.
pub(crate) fn admit<'a>(
    limits: &'a [RateLimit],
    facts: &RequestFacts<'_>,
    weight: u64,
    stats: &ExpressionStats,
) -> Result<Option<PendingLimits<'a>>, GraphqlError> {
    if weight == 0 {
        return Ok(None);
    }
    let now = Instant::now();
    let (mut local, mut shared): (Vec<Taken<'a>>, Vec<Taken<'a>>) = (Vec::new(), Vec::new());
    for limit in limits {
        let Some(key) = limit.key(facts, stats) else { continue };
        let taken = Taken { limit, key, weight };
        if weight > limit.quota {
            taken.count_refused();
            local.iter().for_each(Taken::give_back_local);
            return Err(limit.too_expensive(weight));
        }
        if limit.shared.is_some() {
            shared.push(taken);
            continue;
        }
        if let Err(refusal) = taken.take_local(now) {
            taken.count_refused();
            local.iter().for_each(Taken::give_back_local);
            return Err(refusal);
        }
        local.push(taken);
    }
    if !shared.is_empty() {
        return Ok(Some(PendingLimits { local, shared }));
    }
    local.iter().for_each(Taken::count_admitted);
    Ok(None)
}

impl RateLimit {
    /// Returns the error of an operation that no waiting would admit. Only costs are above a burst.
    fn too_expensive(&self, cost: u64) -> GraphqlError {
        let (name, quota) = (&self.state.name, self.quota);
        let is_cost = match cost {
            u64::MAX => "is too large to count".to_owned(),
            cost => format!("is {cost}"),
        };
        let message = format!(
            "the estimated cost of the operation {is_cost}, and the rate limit `{name}` admits at most {quota} at once"
        );
        let mut error = GraphqlError::new(ErrorCode::CostEstimatedTooExpensive, message);
        error.extensions = Some(format!(r#"{{"estimated":{cost},"maximum":{quota}}}"#).into());
        error
    }

    /// Returns the error of an operation that exceeds the limit.
    pub(crate) fn refusal(&self, exceeded: Exceeded) -> GraphqlError {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns limits with these bursts, each a unit per hour.
    fn limits(bursts: &[u32]) -> Vec<RateLimit> {
        let limit = |(index, &burst): (usize, &u32)| {
            let settings = config::RateLimit {
                name: format!("limit-{index}"),
                key: None,
                when: None,
                unit: config::RateUnit::Cost,
                rate: 1,
                per: std::time::Duration::from_secs(3600),
                burst: Some(burst),
                max_keys: 1000,
                store: None,
                on_failure: Default::default(),
                close_after: 0,
            };
            RateLimit::new(&settings, "limit", &Stores::default(), &[])
                .unwrap_or_else(|error| panic!("{error:?}"))
        };
        bursts.iter().enumerate().map(limit).collect()
    }

    fn outcome(limits: &[RateLimit], weight: u64) -> Result<(), (ErrorCode, String)> {
        let admitted = admit(limits, &RequestFacts::default(), weight, &ExpressionStats::default());
        let admitted = admitted.map(|pending| assert!(pending.is_none(), "no limit is shared"));
        admitted.map_err(|error| (error.code, error.message.to_string()))
    }

    fn refused(limit: &RateLimit) -> u64 {
        read(&limit.state.refused)
    }

    #[test]
    fn an_operation_takes_its_weight_from_all_limits_or_from_none() {
        let limits = limits(&[10, 6]);
        assert_eq!(outcome(&limits, 5), Ok(()));
        let (code, message) = outcome(&limits, 2).expect_err("the second limit has one unit left");
        assert_eq!(code, ErrorCode::RateLimited);
        assert!(
            message.starts_with("the rate limit `limit-1` is reached: try again in "),
            "{message}"
        );
        assert_eq!(outcome(&limits[..1], 5), Ok(()), "the first limit got its units back");
        assert_eq!((refused(&limits[0]), refused(&limits[1])), (0, 1));
    }

    #[test]
    fn a_cost_above_the_burst_is_refused_for_good_and_takes_nothing() {
        let limits = limits(&[10]);
        for (cost, is) in [
            (11, "is 11"),
            (u64::MAX - 1, "is 18446744073709551614"),
            (u64::MAX, "is too large to count"),
        ] {
            let message = format!(
                "the estimated cost of the operation {is}, and the rate limit `limit-0` admits at most 10 at once"
            );
            let expected = Err((ErrorCode::CostEstimatedTooExpensive, message));
            assert_eq!(outcome(&limits, cost), expected);
        }
        assert_eq!(outcome(&limits, 10), Ok(()));
    }

    #[test]
    fn an_operation_without_a_cost_is_not_limited_and_leaves_no_key() {
        let limits = limits(&[1]);
        for _ in 0..5 {
            assert_eq!(outcome(&limits, 0), Ok(()));
        }
        assert_eq!(limits[0].state.rate.keys(), 0);
        assert_eq!(outcome(&limits, 1), Ok(()));
        assert!(outcome(&limits, 1).is_err());
        assert_eq!(outcome(&limits, 0), Ok(()), "also when the limit is reached");
    }
}
