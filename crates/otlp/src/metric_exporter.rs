//! The task that sends the metrics to the collector.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use telemetry::MetricsExporter;
use tokio::time::MissedTickBehavior;
use upstream::TargetError;

use crate::collector::CollectorSettings;
use crate::collector_client::CollectorClient;
use crate::exporter_task::{ExporterTask, StopSignal};
use crate::message::RouterIdentity;
use crate::metric_message::{MetricRequest, read_metrics, read_refused};
use crate::metric_streams::{MetricStreams, Temporality};
use crate::transport::Signal;

/// The pause before the second and last attempt to send a request, and the longest one that a collector can ask for.
/// After that the next interval has newer values.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);

/// The settings of an exporter.
#[derive(Clone)]
pub struct MetricExporterSettings {
    /// The way to the collector.
    pub collector: CollectorSettings,
    /// The time between two readings of the metrics.
    pub interval: Duration,
    /// The meaning of the values of counters and histograms.
    pub temporality: Temporality,
    /// The attributes of the router.
    pub identity: RouterIdentity,
}

telemetry::counters! {
    /// The export of metrics.
    pub struct MetricExportStats;
    /// The metrics of the export of metrics.
    pub const METRIC_EXPORT_METRICS;
    {
        counter exports = "starling_metric_exports": "Requests with metrics that the collector has taken";
        counter points = "starling_metric_points_exported": "Values of metrics that the collector has accepted";
        counter refused = "starling_metric_points_refused": "Values of metrics that the collector has refused";
        counter failures = "starling_metric_export_failures": "Requests with metrics that the collector did not take";
    }
}

/// Sends metrics to a collector.
#[derive(Debug)]
pub struct MetricExporter {
    client: CollectorClient,
    interval: Duration,
    temporality: Temporality,
    identity: RouterIdentity,
    /// The counters.
    stats: Arc<MetricExportStats>,
    /// Nanoseconds since 1970.
    started: u64,
}

impl MetricExporter {
    /// Creates an exporter. It connects when it sends for the first time.
    ///
    /// # Errors
    /// The URL cannot be used.
    pub fn new(settings: MetricExporterSettings) -> Result<Self, TargetError> {
        let MetricExporterSettings { collector, interval, temporality, identity } = settings;
        Ok(Self {
            client: CollectorClient::new(Signal::Metrics, collector)?,
            interval,
            temporality,
            identity,
            stats: Arc::default(),
            started: unix_nanos(),
        })
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Arc<MetricExportStats> {
        &self.stats
    }

    /// Starts the task that exports `metrics`. Must be called inside a Tokio runtime.
    pub fn start(self, metrics: Arc<MetricsExporter>) -> ExporterTask {
        ExporterTask::start(Signal::Metrics, |stop| self.run(metrics, stop))
    }

    async fn run(self, metrics: Arc<MetricsExporter>, mut stop: StopSignal) {
        let mut streams = MetricStreams::new(self.temporality, self.started);
        let first = tokio::time::Instant::now() + self.interval;
        let mut ticks = tokio::time::interval_at(first, self.interval);
        // A collector that is slow does not get more requests afterwards.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_ending = tokio::select! {
                biased;
                () = stop.wait() => true,
                _ = ticks.tick() => false,
            };
            let now = unix_nanos();
            let (metrics, identity) = (Arc::clone(&metrics), self.identity.clone());
            // Some thousand values take milliseconds, which no request of a client waits for here.
            let read = tokio::task::spawn_blocking(move || {
                let requests = read_metrics(&metrics, &identity, &mut streams, now);
                (streams, requests)
            });
            // The task fails only if the runtime ends, or by a defect; later readings would be wrong then.
            let Ok((read_streams, requests)) = read.await else {
                self.stats.failures.fetch_add(1, Ordering::Relaxed);
                self.client.log_failure(
                    "they cannot be read because of a defect, and are not exported any more",
                );
                return;
            };
            streams = read_streams;
            for request in requests {
                if !self.export(&request, &mut stop).await {
                    // Further requests would have to wait for their timeouts, too.
                    break;
                }
                streams.note_taken(request.values, now);
            }
            if is_ending {
                return;
            }
        }
    }

    /// Sends one request. True if the collector has taken it.
    async fn export(
        &self,
        MetricRequest { body, points, .. }: &MetricRequest,
        stop: &mut StopSignal,
    ) -> bool {
        let mut attempts_left = 1;
        loop {
            let failure = match self.client.send(body.clone()).await {
                Ok(response) => {
                    let (refused, reason) = read_refused(&response);
                    self.count_taken(*points, refused.min(*points), &reason);
                    return true;
                }
                Err(failure) => failure,
            };
            self.stats.failures.fetch_add(1, Ordering::Relaxed);
            self.client.log_failure(&failure.reason);
            if !failure.is_temporary || attempts_left == 0 {
                return false;
            }
            attempts_left -= 1;
            let pause = failure.pause.unwrap_or_default().clamp(RETRY_PAUSE, RETRY_PAUSE_MAX);
            // At the end of the router there is no time for a pause.
            stop.wait_at_most(pause).await;
        }
    }

    fn count_taken(&self, points: u64, refused: u64, reason: &str) {
        self.stats.exports.fetch_add(1, Ordering::Relaxed);
        self.stats.points.fetch_add(points - refused, Ordering::Relaxed);
        self.stats.refused.fetch_add(refused, Ordering::Relaxed);
        match refused {
            0 => self.client.log_success(),
            _ => self.client.log_failure(&format!("it has refused {refused} values: {reason}")),
        }
    }
}

fn unix_nanos() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // 2^64 ns are 584 years.
    now.as_nanos() as u64
}
