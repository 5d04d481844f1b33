//! Limits on the rate of operations.

use std::time::Duration;

use expressions::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::expression::Expression;
use super::format::{
    DurationText, LimitConditionText, LimitKeyText, ProviderIdText, RateLimitNameText,
};
use super::quantity;

/// A limit on the rate of operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// The name of the limit, in messages, headers and metrics.
    #[schemars(with = "RateLimitNameText", example = &"per-user")]
    pub name: String,

    /// The key: operations with equal keys share the rate. It may use `request`, `client`, `claims` and `operation`. An
    /// operation for which it is null is not limited. Without a key, all operations share the rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = null), with = "Option<LimitKeyText>", example = &"claims.?sub.orValue(request.client_address)")]
    pub key: Option<Expression>,

    /// The condition under which an operation counts. By default each one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = null), with = "Option<LimitConditionText>", example = &"operation.kind == 'mutation'")]
    pub when: Option<Expression>,

    /// The unit of `rate` and `burst`: operations, or their estimated cost (`docs/cost.md`). `cost` needs `cost.mode`,
    /// and is checked after the estimate; `key` and `when` may then read `operation.cost`. An operation that costs more
    /// than `burst` is refused with `COST_ESTIMATED_TOO_EXPENSIVE`.
    #[serde(default)]
    #[schemars(example = &"requests")]
    pub unit: RateUnit,

    /// The number of operations, or the cost, in each period (`per`).
    #[schemars(range(min = 1, max = 1_000_000_000), example = 100)]
    pub rate: u32,

    /// The period of `rate`.
    #[serde(default = "per_default", with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"1m", extend("x-minimum" = 1))]
    pub per: Duration,

    /// The number of operations, or the cost, that may come at once after a pause. The default is `rate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = null), range(min = 1, max = 1_000_000_000), example = 20)]
    pub burst: Option<u32>,

    /// The maximum number of keys that are kept. With more, the keys that were not used for the longest time start
    /// again.
    #[serde(default = "keys_max_default")]
    #[schemars(range(min = 1000, max = 10_000_000), example = 100_000)]
    pub max_keys: u32,

    /// The store in which all routers count together: the id of a Redis in `storage_providers`. By default each router
    /// counts by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = null), with = "Option<ProviderIdText>", example = &"shared")]
    pub store: Option<String>,

    /// The decision about operations while the store does not respond in time. With `local` and `allow`, a key at its
    /// limit gets the share that the store admitted before while the store is late, for at most two seconds.
    #[serde(default)]
    #[schemars(example = &"deny")]
    pub on_failure: OnStoreFailure,

    /// The number of refused operations after which a WebSocket is closed with code 4429. 0: it stays open.
    #[serde(default = "close_after_default")]
    #[schemars(range(min = 0, max = 1_000_000), example = 100)]
    pub close_after: u32,
}

/// The unit of a rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RateUnit {
    /// Each operation counts once.
    #[default]
    Requests,
    /// Each operation counts as its estimated cost.
    Cost,
}

/// The decision of a rate limit without its store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnStoreFailure {
    /// Each router counts by itself meanwhile, with the whole rate.
    #[default]
    Local,
    /// The limit admits every operation.
    Allow,
    /// The limit refuses every operation.
    Deny,
}

impl RateLimit {
    /// Returns the time in which one unit becomes available, in microseconds, as a store counts it: rounded, and at
    /// least 1.
    pub fn interval_micros(&self) -> u128 {
        let rate = u128::from(self.rate.max(1));
        ((self.per.as_micros() + rate / 2) / rate).max(1)
    }

    /// Returns the units that may come at once.
    pub fn burst(&self) -> u32 {
        self.burst.unwrap_or(self.rate)
    }

    /// Returns the variables that `key` and `when` may read.
    pub fn scope(&self) -> Scope {
        match self.unit {
            RateUnit::Requests => Scope::OPERATION,
            RateUnit::Cost => Scope::COSTED_OPERATION,
        }
    }
}

fn per_default() -> Duration {
    Duration::from_secs(1)
}

/// 3 MiB of memory for each limit.
fn keys_max_default() -> u32 {
    100_000
}

fn close_after_default() -> u32 {
    100
}
