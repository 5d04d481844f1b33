//! Settings of metrics: those of single operations and clients, and their export.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::metric_export::MetricExport;

/// The metrics of single operations and clients, and the export of all metrics.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// The metrics of operations by name and kind.
    pub operations: OperationFigures,

    /// The metrics of applications by the name and version that they state (`client_info`).
    pub clients: ClientFigures,

    /// The use of fields and arguments by application, for `starling diff --usage`.
    pub fields: FieldUsage,

    /// The export of all metrics to a collector by OTLP.
    pub otlp: MetricExport,
}

/// The metrics of operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OperationFigures {
    /// The maximum number of operations with metrics of their own: those that are used most. All others are counted
    /// together as `other`. An operation has up to fifteen lines of metrics, and one more for each code of errors. `0`
    /// turns these metrics off.
    #[schemars(range(min = 0, max = 5_000), example = 100)]
    pub max: u32,
}

/// The metrics of applications.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClientFigures {
    /// The maximum number of applications, each version by itself, with metrics of their own: those that are used most.
    /// All others are counted together as `other`. `0` turns these metrics off.
    #[schemars(range(min = 0, max = 5_000), example = 50)]
    pub max: u32,
}

/// The use of fields and arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FieldUsage {
    /// The maximum number of counters, one for each field or argument of each application, on the admin listener
    /// (`/admin/usage`). A further application of a field is counted as `other`; no field is left out. `0` turns the
    /// counters off.
    #[schemars(range(min = 0, max = 2_000_000), example = 20_000)]
    pub max: u32,
}

impl Default for FieldUsage {
    fn default() -> Self {
        // About 10 MB.
        Self { max: 100_000 }
    }
}

impl Default for OperationFigures {
    fn default() -> Self {
        // About 1 MB of text.
        Self { max: 500 }
    }
}

impl Default for ClientFigures {
    fn default() -> Self {
        Self { max: 200 }
    }
}
