//! One rate limit of the configuration: which operations count, under which key, and the error of those refused.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use config::diagnostic::Diagnostic;
use execute::{ErrorCode, GraphqlError, RateLimitState};
use expressions::{Expected, Program, RequestFacts};
use redis_store::Stores;
use telemetry::{Metric, read};

use super::gcra::{Exceeded, KeyedRate};
use super::key_accounts::KeyAccounts;
use super::shared_rate::SharedRate;
use crate::expression_stats::ExpressionStats;
use crate::request_facts::compile;

/// A rate limit.
#[derive(Debug)]
pub(crate) struct RateLimit {
    key: Option<Program>,
    when: Option<Program>,
    pub(super) quota: u64,
    close_after: u32,
    state: Arc<LimitState>,
    /// The store in which all routers count together, if the limit is shared.
    pub(super) shared: Option<SharedRate>,
}

/// The state of a rate limit, which all graphs of the process share and which survives their reloads.
#[derive(Debug)]
pub struct LimitState {
    /// The name of the limit.
    pub name: Box<str>,
    pub(super) rate: KeyedRate,
    /// The accounts of the keys in the store. Empty if the limit is not shared.
    accounts: OnceLock<Arc<KeyAccounts>>,
    admitted: AtomicU64,
    pub(super) refused: AtomicU64,
    /// Operations that were decided without the store, because it did not respond.
    pub(super) undecided: AtomicU64,
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
    /// Compiles a limit. Its state is that of the limit with this name among `known`, if there is one. Such a limit has
    /// the same key, rate and store, because the configuration is read at the start only.
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
                accounts: OnceLock::new(),
                admitted: AtomicU64::new(0),
                refused: AtomicU64::new(0),
                undecided: AtomicU64::new(0),
            })
        });
        // The configuration was checked, so that the store exists.
        let store = settings.store.as_ref().and_then(|id| stores.find(id));
        let shared = store.map(|store| {
            let accounts = state.accounts.get_or_init(|| Arc::new(KeyAccounts::new()));
            SharedRate::new(settings, store, accounts)
        });
        Ok(Self {
            key: key.transpose()?,
            when: when.transpose()?,
            quota: settings.burst().into(),
            close_after: settings.close_after,
            state,
            shared,
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
    pub(super) fn key(
        &self,
        facts: &RequestFacts<'_>,
        stats: &ExpressionStats,
    ) -> Option<Cow<'static, str>> {
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

    /// Returns the error of an operation that no waiting would admit. Only costs are above a burst.
    pub(super) fn too_expensive(&self, cost: u64) -> GraphqlError {
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
    pub(super) fn refusal(&self, exceeded: Exceeded) -> GraphqlError {
        // Rounded up: a client that waits so long is admitted.
        let seconds = |duration: std::time::Duration| {
            duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
        };
        let retry_after_seconds = seconds(exceeded.retry_after).max(1);
        let name = &self.state.name;
        let message =
            format!("the rate limit `{name}` is reached: try again in {retry_after_seconds} s");
        let limit = RateLimitState {
            name: name.clone(),
            quota: self.quota,
            window_seconds: seconds(self.state.rate.window()).max(1),
            remaining: exceeded.remaining,
            retry_after_seconds,
            close_after: self.close_after,
        };
        GraphqlError::rate_limited(message, limit)
    }
}

/// Units of a key that were taken from a limit.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    pub(super) limit: &'a RateLimit,
    pub(super) key: Cow<'static, str>,
    pub(super) weight: u64,
}

impl Taken<'_> {
    /// Takes the units from the keys of this process.
    ///
    /// # Errors
    /// They are not available.
    pub(super) fn take_local(&self, now: Instant) -> Result<(), GraphqlError> {
        let taken = self.limit.state.rate.take(&self.key, self.weight, now);
        taken.map_err(|exceeded| self.limit.refusal(exceeded))
    }

    /// Returns the units to the keys of this process.
    pub(super) fn give_back_local(&self) {
        self.limit.state.rate.give_back(&self.key, self.weight);
    }

    /// Counts the operation as admitted.
    pub(super) fn count_admitted(&self) {
        self.limit.state.admitted.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the operation as refused by this limit.
    pub(super) fn count_refused(&self) {
        self.limit.state.refused.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use redis_store::StoreSettings;

    use super::*;

    /// Returns a shared limit, which continues the limit of its name among `known`.
    fn shared_limit(name: &str, stores: &Stores, known: &[Arc<LimitState>]) -> RateLimit {
        let settings = config::RateLimit {
            name: name.to_owned(),
            key: None,
            when: None,
            unit: config::RateUnit::Requests,
            rate: 1,
            per: std::time::Duration::from_secs(1),
            burst: None,
            max_keys: 1000,
            store: Some("shared".to_owned()),
            on_failure: config::OnStoreFailure::Local,
            close_after: 0,
        };
        RateLimit::new(&settings, "limit", stores, known).expect("there are no expressions")
    }

    fn accounts(limit: &RateLimit) -> &KeyAccounts {
        &limit.shared.as_ref().expect("the limit is shared").accounts
    }

    #[tokio::test]
    async fn a_reload_keeps_what_is_known_of_the_keys_of_a_shared_limit() {
        // Nothing has to listen there: the accounts need no connection.
        let settings = StoreSettings::new("shared", vec!["redis://127.0.0.1:1".to_owned()]);
        let stores = Stores::start(vec![settings]).expect("the settings are valid");
        let now = Instant::now();
        let before = shared_limit("each", &stores, &[]);
        let key = accounts(&before).key("client");
        for _ in 0..100 {
            accounts(&before).record(key, false, now);
        }
        // Admitted while the store was late.
        accounts(&before).note_late(key, -1, now);
        let known = [Arc::clone(before.state())];
        drop(before);

        let other = shared_limit("other", &stores, &known);
        let key = accounts(&other).key("client");
        assert!(accounts(&other).admits(key, 0, now), "it is another limit");

        let after = shared_limit("each", &stores, &known);
        let key = accounts(&after).key("client");
        assert!(!accounts(&after).admits(key, 0, now), "the store has refused the key lately");
        assert!(!accounts(&after).settle(key, 1, true, now), "its unit was admitted before");
    }
}
