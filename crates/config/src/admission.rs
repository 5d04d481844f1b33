//! Settings of overload protection.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::expression::Expression;
use super::findings::{Findings, KeyPlaces};
use super::format::{DurationText, RequestConditionText, RequestKeyText};
use super::quantity;

/// Overload protection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Admission {
    /// Turns overload protection on.
    #[schemars(example = true)]
    pub enabled: bool,

    /// The bounds of the limit on the work in flight. Within them, the limit follows the latency of operations.
    pub limit: AdmissionLimit,

    /// The queue in front of the limit. Each class has its own.
    pub queue: AdmissionQueue,

    /// The classes of requests. The first condition that is true decides; without any, a request is `normal`.
    #[schemars(length(max = 32))]
    pub priority: Vec<PriorityRule>,

    /// The key of the client that has a request in its share. It may use `request`, `client` and `claims`. By default,
    /// and where it is null or cannot be evaluated, a client is the subject of a token or, without one, an address.
    #[schemars(extend("default" = null), with = "Option<RequestKeyText>", example = &"request.headers['x-tenant']")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_by: Option<Expression>,
}

/// The bounds of the limit, in operations of average cost that are in flight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdmissionLimit {
    /// The limit at the start.
    #[schemars(range(min = 1, max = 1_000_000), example = 200)]
    pub initial: u32,

    /// The lowest limit. So much work is always admitted, however slow it is.
    #[schemars(range(min = 1, max = 1_000_000), example = 16)]
    pub min: u32,

    /// The highest limit.
    #[schemars(range(min = 1, max = 1_000_000), example = 5000)]
    pub max: u32,
}

/// The queue in front of the limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdmissionQueue {
    /// The maximum number of requests of one class that wait. `0`: none waits.
    #[schemars(range(min = 0, max = 1_000_000), example = 200)]
    pub max_waiting: u32,

    /// The longest wait in a queue that was never empty for `interval`. Its newest requests are admitted first.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"20ms", extend("x-minimum" = 1))]
    pub target: Duration,

    /// The longest wait in other queues, such as in a short burst.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"200ms", extend("x-minimum" = 1))]
    pub interval: Duration,
}

/// A class for requests that fulfil a condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriorityRule {
    /// The condition. It may use `request`, `client` and `claims`. One that cannot be evaluated, for example because a
    /// claim is absent, is not true.
    #[schemars(with = "RequestConditionText", example = &"client.name == 'checkout'")]
    pub when: Expression,

    /// The class.
    #[schemars(example = &"critical")]
    pub class: RequestClass,
}

/// The importance of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RequestClass {
    /// Not refused while requests of other classes are in flight.
    Critical,
    /// As without a rule.
    Normal,
    /// Refused first: the last quarter of the limit is not for such requests.
    Sheddable,
}

impl Default for AdmissionLimit {
    fn default() -> Self {
        // 500 are 10,000 requests per second that take 50 ms. 32 in flight need no protection.
        Self { initial: 500, min: 32, max: 20_000 }
    }
}

impl Default for AdmissionQueue {
    fn default() -> Self {
        Self {
            max_waiting: 1000,
            target: Duration::from_millis(10),
            interval: Duration::from_millis(50),
        }
    }
}

impl Admission {
    /// Checks that the bounds of the limit are in order.
    pub(super) fn check(&self, places: &KeyPlaces, findings: &mut Findings) {
        let AdmissionLimit { initial, min, max } = self.limit;
        if min > max {
            findings
                .error("conflict", format!("`admission.limit.min` ({min}) is above `max` ({max})"))
                .at_place(places.get("admission.limit.min"), "above `max`")
                .help("lower `min`, or raise `max`");
        } else if !(min..=max).contains(&initial) {
            findings
                .error(
                    "conflict",
                    format!("`admission.limit.initial` ({initial}) is not between `min` ({min}) and `max` ({max})"),
                )
                .at_place(places.get("admission.limit.initial"), "outside of the bounds")
                .help("choose a number between both");
        }
    }
}
