//! The exports to collectors: traces and metrics, each to the collector that the configuration names for it.

use std::sync::Arc;

use config::Config;
use config::diagnostic::Diagnostic;
use otlp::{ExporterTask, MetricExportStats, MetricExporter};
use telemetry::MetricsExporter;
use telemetry::spans::Tracer;

use crate::metric_collector::metric_exporter;
use crate::trace_export::{Traces, router_identity};

/// The exports of a router.
#[derive(Debug)]
pub(crate) struct CollectorExports {
    traces: Option<Traces>,
    metrics: Option<MetricExporter>,
}

/// The tasks of the exports.
#[derive(Debug)]
pub(crate) struct ExportTasks {
    traces: Option<ExporterTask>,
    metrics: Option<ExporterTask>,
}

impl CollectorExports {
    /// Creates what the configuration describes. Blocks, and connects to nothing.
    ///
    /// # Errors
    /// Settings that cannot be used.
    pub(crate) fn new(config: &Config) -> Result<Self, Vec<Diagnostic>> {
        let identity = router_identity(&config.tracing);
        match (Traces::new(config, &identity), metric_exporter(config, &identity)) {
            (Ok(traces), Ok(metrics)) => Ok(Self { traces, metrics }),
            (traces, metrics) => {
                Err(traces.err().into_iter().chain(metrics.err()).flatten().collect())
            }
        }
    }

    /// Returns the tracer, if traces are exported or recorded.
    pub(crate) fn tracer(&self) -> Option<Arc<Tracer>> {
        self.traces.as_ref().map(|it| Arc::clone(&it.tracer))
    }

    /// Returns the counters of the export of metrics, if they are exported.
    pub(crate) fn metric_stats(&self) -> Option<Arc<MetricExportStats>> {
        self.metrics.as_ref().map(|it| Arc::clone(it.stats()))
    }

    /// Starts the exports. Must be called inside a Tokio runtime.
    pub(crate) fn start(self, metrics: &Arc<MetricsExporter>) -> ExportTasks {
        ExportTasks {
            traces: self.traces.and_then(Traces::start),
            metrics: self.metrics.map(|it| it.start(Arc::clone(metrics))),
        }
    }
}

impl ExportTasks {
    /// Exports what is left, at the same time to both collectors, for a few seconds at most.
    pub(crate) async fn end(self) {
        let traces = async {
            if let Some(traces) = self.traces {
                traces.end().await;
            }
        };
        let metrics = async {
            if let Some(metrics) = self.metrics {
                metrics.end().await;
            }
        };
        tokio::join!(traces, metrics);
    }
}
