//! The count of one subscription or live query. Several parts of the router may refuse it: the limits of its client,
//! the hub, its source, and the connection that gets it. It counts once, when the last of them has decided.

use std::sync::Arc;
use std::time::Instant;

use clients::error_mapping::is_fault;
use clients::operation_metrics::OperationMetrics;
use execute::GraphqlError;
use plan::OperationKind;

use crate::figures::{FigureTables, RequestFigures};
use crate::serving::Serving;

/// A prepared subscription that is not counted yet. Dropping it counts nothing: its client has gone.
#[must_use = "a subscription counts when it has opened or failed"]
#[derive(Debug)]
pub struct SubscriptionCount {
    metrics: Arc<OperationMetrics>,
    figures: Option<(Arc<FigureTables>, RequestFigures)>,
    began: Instant,
}

impl SubscriptionCount {
    /// Begins to count a prepared subscription, with its identity in the metrics of single operations and clients.
    pub fn begin(serving: &Serving, request: Option<RequestFigures>) -> Self {
        Self {
            metrics: Arc::clone(&serving.metrics),
            figures: serving.figures.clone().zip(request),
            began: Instant::now(),
        }
    }

    /// Counts the subscription as opened.
    pub fn count_opened(self) {
        self.metrics.count(OperationKind::Subscription, false, self.began.elapsed(), None);
        if let Some((figures, request)) = self.figures {
            figures.count_without_response(request, None);
        }
    }

    /// Counts the subscription as one that did not open because of this error: as failed if that is a fault, and as
    /// refused otherwise.
    pub fn count_failed(self, error: &GraphqlError) {
        match is_fault(error.code) {
            true => {
                self.metrics.count(OperationKind::Subscription, true, self.began.elapsed(), None);
            }
            false => self.metrics.count_refusal(error.code),
        }
        if let Some((figures, request)) = self.figures {
            figures.count_without_response(request, Some(error.code));
        }
    }
}

#[cfg(test)]
mod tests {
    use clients::operation_metrics::{OPERATION_METRICS, OperationTotals};
    use config::Config;
    use execute::ErrorCode;
    use http::HeaderMap;
    use telemetry::{MetricsExporter, TextFormat};

    use super::*;

    /// Counts one subscription. Returns the totals of the process, and the lines of its counters that are not zero.
    fn count(outcome: Result<(), ErrorCode>) -> (OperationTotals, Vec<String>) {
        let metrics = Arc::new(OperationMetrics::default());
        let figures = Arc::new(FigureTables::new(&Config::default()).expect("they are wanted"));
        let request = figures.begin(&HeaderMap::new(), Instant::now());
        let count = SubscriptionCount {
            metrics: Arc::clone(&metrics),
            figures: Some((Arc::clone(&figures), request)),
            began: Instant::now(),
        };
        match outcome {
            Ok(()) => count.count_opened(),
            Err(code) => count.count_failed(&GraphqlError::new(code, "why")),
        }
        let totals = metrics.totals();
        let exporter = MetricsExporter::new(move |out| {
            out.write(OPERATION_METRICS, &*metrics)?;
            figures.write_metrics(out)
        });
        let text = exporter.text(TextFormat::Prometheus).expect("a text");
        let prefixes =
            ["starling_operations_", "starling_client_requests_", "starling_client_errors_"];
        let is_counter =
            |line: &&str| prefixes.iter().any(|it| line.starts_with(it)) && !line.ends_with(" 0");
        (totals, text.lines().filter(is_counter).map(str::to_owned).collect())
    }

    const CLIENT: &str = r#"starling_client_requests_total{client="unnamed",client_version=""} 1"#;

    #[test]
    fn an_opened_subscription_is_one_request_without_errors() {
        let (totals, lines) = count(Ok(()));
        assert_eq!(totals, OperationTotals { requests: 1, errors: 0 });
        let opened = r#"starling_operations_total{kind="subscription",outcome="ok"} 1"#;
        assert_eq!(lines, [opened, CLIENT]);
    }

    #[test]
    fn a_refused_subscription_is_one_request_and_one_error_with_its_code() {
        for code in [ErrorCode::Overloaded, ErrorCode::Forbidden, ErrorCode::CursorInvalid] {
            let (totals, lines) = count(Err(code));
            assert_eq!(totals, OperationTotals { requests: 1, errors: 1 });
            let code = code.as_str();
            let refused = format!(r#"starling_operations_refused_total{{code="{code}"}} 1"#);
            let labels = format!(r#"client="unnamed",client_version="",code="{code}""#);
            let of_client = format!("starling_client_errors_total{{{labels}}} 1");
            assert_eq!(lines, [refused, CLIENT.to_owned(), of_client]);
        }
    }

    #[test]
    fn a_subscription_that_its_source_fails_is_one_operation_with_errors() {
        let (totals, lines) = count(Err(ErrorCode::ProviderUnavailable));
        assert_eq!(totals, OperationTotals { requests: 1, errors: 1 });
        let failed = r#"starling_operations_total{kind="subscription",outcome="errors"} 1"#;
        let labels = r#"client="unnamed",client_version="",code="PROVIDER_UNAVAILABLE""#;
        let of_client = format!("starling_client_errors_total{{{labels}}} 1");
        assert_eq!(lines, [failed.to_owned(), CLIENT.to_owned(), of_client]);
    }
}
