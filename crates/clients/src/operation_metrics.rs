//! Counters of operations.

use std::time::Duration;

use execute::ErrorCode;
use plan::OperationKind;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use telemetry::Metric;

/// Counters of operations.
#[derive(Debug)]
pub struct OperationMetrics {
    operations: Family<OperationLabel, Counter>,
    seconds: Family<KindLabel, Histogram, fn() -> Histogram>,
    /// The counters of queries without errors in `operations` and `seconds`: looking them up takes a lock that all
    /// workers share.
    queries_ok: (Counter, Histogram),
    refused: Family<CodeLabel, Counter>,
    denied: Family<DenialLabel, Counter>,
}

/// The metrics of operations.
pub const OPERATION_METRICS: &[Metric<OperationMetrics>] = &[
    Metric::handle(
        "starling_operations",
        "Operations run, by kind and by whether the response had errors",
        |it| &it.operations,
    ),
    Metric::handle_in_seconds(
        "starling_operation_duration",
        "Time from the prepared operation to its printed response, or to the live subscription, by kind",
        |it| &it.seconds,
    ),
    Metric::handle(
        "starling_operations_refused",
        "Operations refused before they ran, by code of the first error",
        |it| &it.refused,
    ),
    Metric::handle(
        "starling_operations_denied",
        "Operations with fields or types that the client may not use, by whether this is enforced",
        |it| &it.denied,
    ),
];

/// Bucket bounds of durations, in seconds: 0.5 ms to 30 s.
const SECONDS: [f64; 15] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OperationLabel {
    kind: OperationType,
    outcome: OperationOutcome,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct KindLabel {
    kind: OperationType,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct CodeLabel {
    code: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct DenialLabel {
    enforced: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "label values are lower case")]
enum OperationType {
    query,
    mutation,
    subscription,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "label values are lower case")]
enum OperationOutcome {
    ok,
    errors,
}

impl Default for OperationMetrics {
    /// Creates the counters. Those with few labels exist from the start, because an alert on a metric that does not
    /// exist yet never fires.
    fn default() -> Self {
        let operations = Family::<OperationLabel, Counter>::default();
        let seconds: Family<KindLabel, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(SECONDS));
        for kind in [OperationType::query, OperationType::mutation, OperationType::subscription] {
            for outcome in [OperationOutcome::ok, OperationOutcome::errors] {
                drop(operations.get_or_create(&OperationLabel { kind, outcome }));
            }
            drop(seconds.get_or_create(&KindLabel { kind }));
        }
        let query_ok = OperationLabel { kind: OperationType::query, outcome: OperationOutcome::ok };
        Self {
            queries_ok: (
                operations.get_or_create_owned(&query_ok),
                seconds.get_or_create_owned(&KindLabel { kind: OperationType::query }),
            ),
            operations,
            seconds,
            refused: Family::default(),
            denied: Family::default(),
        }
    }
}

impl OperationMetrics {
    /// Counts a finished query or mutation, or a started subscription.
    pub fn count(&self, kind: OperationKind, errors: bool, took: Duration) {
        if kind == OperationKind::Query && !errors {
            self.queries_ok.0.inc();
            self.queries_ok.1.observe(took.as_secs_f64());
            return;
        }
        let kind = match kind {
            OperationKind::Query => OperationType::query,
            OperationKind::Mutation => OperationType::mutation,
            OperationKind::Subscription => OperationType::subscription,
        };
        let outcome = if errors { OperationOutcome::errors } else { OperationOutcome::ok };
        self.operations.get_or_create(&OperationLabel { kind, outcome }).inc();
        self.seconds.get_or_create(&KindLabel { kind }).observe(took.as_secs_f64());
    }

    /// Counts an operation with fields or types that its client may not use.
    pub fn count_denial(&self, is_dry_run: bool) {
        let enforced = if is_dry_run { "false" } else { "true" };
        self.denied.get_or_create(&DenialLabel { enforced }).inc();
    }

    /// Counts an operation that was refused before it ran.
    pub fn count_refusal(&self, code: ErrorCode) {
        self.refused.get_or_create(&CodeLabel { code: code.as_str() }).inc();
    }
}
