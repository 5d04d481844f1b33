//! The task that sends finished traces to the collector.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use telemetry::spans::Tracer;
use upstream::TargetError;

use crate::collector::CollectorSettings;
use crate::collector_client::CollectorClient;
use crate::exporter_task::{ExporterTask, StopSignal};
use crate::message::{self, RouterIdentity};
use crate::transport::Signal;

/// The settings of an exporter.
#[derive(Clone)]
pub struct ExporterSettings {
    /// The way to the collector.
    pub collector: CollectorSettings,
    /// The longest time that a trace waits until it is sent with others.
    pub interval: Duration,
    /// The attributes of the router.
    pub identity: RouterIdentity,
    /// The repetition of requests.
    pub retry: RetryTimes,
}

/// The repetition of requests that a collector did not take. Others wait meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryTimes {
    /// The first pause; it doubles with each failure.
    pub pause_min: Duration,
    /// The longest pause. A collector that asks for a longer one (`retry-after`) gets this one.
    pub pause_max: Duration,
    /// The time after which the traces of a request are dropped.
    pub time_max: Duration,
}

impl Default for RetryTimes {
    fn default() -> Self {
        Self {
            pause_min: Duration::from_secs(1),
            pause_max: Duration::from_secs(30),
            // A restart of the collector.
            time_max: Duration::from_secs(60),
        }
    }
}

/// Sends traces to a collector.
#[derive(Debug)]
pub struct TraceExporter {
    client: CollectorClient,
    interval: Duration,
    identity: RouterIdentity,
    retry: RetryTimes,
}

impl TraceExporter {
    /// Creates an exporter. It connects when there is something to send.
    ///
    /// # Errors
    /// The URL cannot be used.
    pub fn new(settings: ExporterSettings) -> Result<Self, TargetError> {
        let ExporterSettings { collector, interval, identity, retry } = settings;
        let client = CollectorClient::new(Signal::Traces, collector)?;
        Ok(Self { client, interval, identity, retry })
    }

    /// Starts the task that exports the traces of `tracer`. Must be called inside a Tokio runtime.
    pub fn start(self, tracer: Arc<Tracer>) -> ExporterTask {
        ExporterTask::start(Signal::Traces, |stop| self.run(tracer, stop))
    }

    async fn run(self, tracer: Arc<Tracer>, mut stop: StopSignal) {
        loop {
            let is_ending = tokio::select! {
                biased;
                () = stop.wait() => true,
                () = tracer.wait_for_batch() => false,
                () = tokio::time::sleep(self.interval) => false,
            };
            loop {
                let traces = tracer.take_batch();
                if traces.is_empty() {
                    break;
                }
                let spans = traces.iter().map(|it| it.spans.len() as u64).sum();
                let body = message::encode(&self.identity, &traces);
                drop(traces);
                self.export(body, spans, &tracer, &mut stop).await;
            }
            if is_ending {
                return;
            }
        }
    }

    /// Sends one batch until the collector has taken it, refused it, or failed for too long.
    async fn export(&self, body: Bytes, spans: u64, tracer: &Tracer, stop: &mut StopSignal) {
        let stats = &tracer.stats;
        let times = &self.retry;
        let give_up_at = Instant::now() + times.time_max;
        let mut pause = times.pause_min;
        loop {
            let failure = match self.client.send(body.clone()).await {
                Ok(response) => {
                    let (refused, reason) = message::read_refused(&response);
                    stats.exports.fetch_add(1, Ordering::Relaxed);
                    let refused = refused.min(spans);
                    stats.exported.fetch_add(spans - refused, Ordering::Relaxed);
                    stats.lost.fetch_add(refused, Ordering::Relaxed);
                    match refused {
                        0 => self.client.log_success(),
                        _ => {
                            let reason = format!("it has refused {refused} spans: {reason}");
                            self.client.log_failure(&reason);
                        }
                    }
                    return;
                }
                Err(failure) => failure,
            };
            stats.failures.fetch_add(1, Ordering::Relaxed);
            self.client.log_failure(&failure.reason);
            // A collector that asks for no pause gets one all the same.
            let asked = failure.pause.map(|it| it.max(times.pause_min));
            let wanted = asked.unwrap_or_else(|| jittered(pause)).min(times.pause_max);
            let is_over =
                !failure.is_temporary || stop.is_given() || Instant::now() + wanted >= give_up_at;
            if is_over {
                stats.lost.fetch_add(spans, Ordering::Relaxed);
                return;
            }
            pause = (pause * 2).min(times.pause_max);
            // At the end of the router there is one more attempt without a pause.
            stop.wait_at_most(wanted).await;
        }
    }
}

/// Returns a pause of 50 to 100 % of `pause`, so that many routers do not come back at once.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64() / 2.0)
}
