//! Counters of failed evaluations, and their log.

use std::sync::atomic::Ordering;
use std::time::Instant;

use expressions::EvaluationError;
use telemetry::LogLimit;

telemetry::counters! {
    /// The failed evaluations of expressions.
    pub struct ExpressionStats;
    /// The metrics of expressions.
    pub const EXPRESSION_METRICS;
    {
        counter block_failures = "starling_expression_block_failures": "Operations blocked because a condition could not be evaluated";
        counter rate_limit_failures = "starling_expression_rate_limit_failures": "Evaluations of keys and conditions of rate limits that failed";
        counter exception_failures = "starling_expression_exception_failures": "Requests without an exception from persisted_documents.mode because its condition could not be evaluated";
        counter admission_failures = "starling_expression_admission_failures": "Evaluations of expressions of overload protection that failed";
        counter trace_failures = "starling_expression_trace_failures": "Evaluations of conditions of tracing.sample.rules, trace.when and admin.console.recorder.when that failed";
        counter header_failures = "starling_expression_header_failures": "Headers left out because their expression could not be evaluated";
    }
    log: LogLimit,
}

impl ExpressionStats {
    /// Counts and logs the condition of a block that could not be evaluated.
    pub(crate) fn count_block_failure(&self, setting: &str, error: &EvaluationError) {
        self.block_failures.fetch_add(1, Ordering::Relaxed);
        self.log_failure(setting, error);
    }

    /// Counts and logs the key or condition of a rate limit that could not be evaluated.
    pub(crate) fn count_rate_limit_failure(&self, limit: &str, error: &EvaluationError) {
        self.rate_limit_failures.fetch_add(1, Ordering::Relaxed);
        self.log_failure(limit, error);
    }

    /// Counts and logs the condition of an exception that could not be evaluated.
    pub(crate) fn count_exception_failure(&self, setting: &str, error: &EvaluationError) {
        self.exception_failures.fetch_add(1, Ordering::Relaxed);
        self.log_failure(setting, error);
    }

    /// Counts and logs an expression of overload protection that could not be evaluated.
    pub(crate) fn count_admission_failure(&self, setting: &str, error: &EvaluationError) {
        self.admission_failures.fetch_add(1, Ordering::Relaxed);
        self.log_failure(setting, error);
    }

    /// Counts and logs a condition of traces that could not be evaluated.
    pub(crate) fn count_trace_failure(&self, setting: &str, error: &EvaluationError) {
        self.trace_failures.fetch_add(1, Ordering::Relaxed);
        self.log_failure(setting, error);
    }

    /// Logs a failure, at most once in ten seconds. The error contains no values of the request.
    pub(crate) fn log_failure(&self, setting: &str, error: &EvaluationError) {
        if let Some(suppressed) = self.log.admit(Instant::now()) {
            tracing::warn!(setting, %error, suppressed, "an expression could not be evaluated");
        }
    }
}
