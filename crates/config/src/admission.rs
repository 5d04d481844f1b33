//! Settings of overload protection.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::expression::Expression;
use super::findings::{Findings, KeyPlaces};
use super::format::{DurationText, RequestConditionText, RequestKeyText};
use super::quantity;

/// Overload protection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Admission {
    /// Turns overload protection on.
    #[schemars(example = false)]
    pub enabled: bool,

    /// The bounds of the limit on the work in flight. Within them, the limit follows the latency of operations.
    pub limit: AdmissionLimit,

    /// The queues in front of the limit. Each class has one, and `normal` and `sheddable` have a second one for
    /// requests that open streams: new subscriptions, live queries and WebSocket handshakes.
    pub queue: AdmissionQueue,

    /// The number of refusals that the router sends at once, each second for each core. Each further one is held for
    /// two to nine seconds, the longer the more are held: to refuse all requests at once would take the CPU time of
    /// those that could be served. `0`: none is held. This holds also if `enabled` is `false`, for what the memory
    /// budget refuses.
    #[schemars(range(min = 0, max = 1_000_000), example = 500)]
    pub refusals_per_core: u32,

    /// The number of WebSocket handshakes that the router accepts each second for each core, so that queries keep their
    /// latency when all clients return at once; a quarter of it while operations wait for admission or 35 % more of
    /// them than usual are in flight, and the rest while a worker has nothing else to do. Further ones wait for up to
    /// ten seconds, in at most an eighth of what the memory budget (`limits.memory`) leaves for work, where each counts
    /// 32 KiB. Before that, the handshakes of ten seconds are parked as plain connections for up to 20 seconds. The
    /// rest is refused at once with status 503. `0`: no bound.
    #[schemars(range(min = 0, max = 1_000_000), example = 500)]
    pub handshakes_per_core: u32,

    /// The readiness check (`/health/ready` of the admin listener) of a router that refuses many requests.
    pub readiness: AdmissionReadiness,

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

/// The queues in front of the limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdmissionQueue {
    /// The maximum number of waiting requests in each queue. `0`: none waits.
    #[schemars(range(min = 0, max = 1_000_000), example = 200)]
    pub max_waiting: u32,

    /// The longest wait in a queue that was never empty for `interval`. Its newest requests are admitted first. In
    /// the queues for requests that open streams, it is a hundred times as long, and so is `interval`.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"20ms", extend("x-minimum" = 1))]
    pub target: Duration,

    /// The longest wait in other queues, such as in a short burst. It is a hundred times as long for requests that
    /// open streams.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"200ms", extend("x-minimum" = 1))]
    pub interval: Duration,
}

/// The readiness check of a router that refuses many requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdmissionReadiness {
    /// Fails the readiness check while the router refuses much, so that load balancers send new clients to others. The
    /// router serves as before meanwhile. Turn it on only if the load balancer continues to use routers when most of
    /// them are not ready, as Envoy does (panic threshold): in an overload of all routers, Kubernetes would remove all
    /// of them from the service.
    #[schemars(example = true)]
    pub enabled: bool,

    /// The share of refused requests, in percent, from which the router is not ready. Requests of the class `sheddable`
    /// and requests that are refused because of the share of their client do not count. The router becomes ready again
    /// when it refuses less than half of that.
    #[schemars(range(min = 1, max = 100), example = 80)]
    pub refused_percent: u32,

    /// The time for which so much must be refused before the router is not ready, and for which little must be refused
    /// before it is ready again.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"10s", extend("x-minimum" = 1000))]
    pub unready_after: Duration,

    /// The time for which the router stays not ready at least, lengthened at random by up to half. It doubles, up to
    /// eight times its length, if the router becomes not ready again soon.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"30s", extend("x-minimum" = 1000))]
    pub ready_after: Duration,
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

impl Default for Admission {
    fn default() -> Self {
        Self {
            enabled: true,
            limit: AdmissionLimit::default(),
            queue: AdmissionQueue::default(),
            // A refusal takes some 25 µs of CPU time, so these take a hundredth of each core. With fewer, one client
            // that sends too much would occupy the connections of a load balancer with refusals that are held.
            refusals_per_core: 400,
            // Without a bound, 10,000 clients returned at 3,800 a second to one core, and the p99 of queries at 70 % of
            // the capacity was 6.6 times as high meanwhile (`cargo xtask bench overload --filter reconnects`).
            handshakes_per_core: 1300,
            readiness: AdmissionReadiness::default(),
            priority: Vec::new(),
            fair_by: None,
        }
    }
}

impl Default for AdmissionLimit {
    fn default() -> Self {
        // 500 are 10,000 requests per second that take 50 ms. 32 in flight need no protection.
        Self { initial: 500, min: 32, max: 20_000 }
    }
}

impl Default for AdmissionReadiness {
    fn default() -> Self {
        Self {
            enabled: false,
            refused_percent: 50,
            // Longer than a burst, and than the adaptive limit needs to follow a change of the load.
            unready_after: Duration::from_secs(5),
            ready_after: Duration::from_secs(10),
        }
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
    /// Checks that the bounds of the limit are in order, and that the readiness has an effect.
    pub(super) fn check(&self, places: &KeyPlaces, findings: &mut Findings) {
        if self.readiness.enabled && !self.enabled {
            findings
                .warning(
                    "no-effect",
                    "`admission.readiness.enabled` has no effect with `admission.enabled: false`",
                )
                .at_place(places.get("admission.readiness.enabled"), "not used")
                .help("remove `admission.enabled: false`: with it, nothing is refused");
        }
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
