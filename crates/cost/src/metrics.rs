//! The metrics of the costs of operations.

use telemetry::{Metric, read};

use crate::CostStats;

/// The metrics of the costs of operations.
pub const COST_METRICS: &[Metric<CostStats>] = &[
    Metric::histogram(
        "starling_operation_cost_estimated",
        "Estimated costs of operations, by request",
        |it| it.estimated.read(),
    ),
    Metric::histogram(
        "starling_operation_cost_actual",
        "Costs of responses and events, by execution",
        |it| it.actual.read(),
    ),
    Metric::histogram(
        "starling_operation_cost_ratio",
        "Estimated cost divided by the cost of the response, by execution; 1 is exact",
        |it| it.ratio.read(),
    ),
    Metric::counter(
        "starling_operation_cost_exceeded",
        "Operations with an estimated cost above a maximum (cost.max, cost.subgraphs), refused in the mode enforce",
        |it| read(&it.exceeded),
    ),
];
