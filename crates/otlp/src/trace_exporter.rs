//! The task that sends finished traces to the collector.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join;
use futures_util::stream::{FuturesUnordered, StreamExt};
use telemetry::read;
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

/// The maximum number of requests that are sent at once at the end of the router, beside the one in flight. A collector
/// may need a second for each.
const LAST_REQUESTS_MAX: usize = 4;

/// A batch of traces. Its spans count as lost when it is dropped, unless the collector has accepted them.
struct TraceBatch<'a> {
    tracer: &'a Tracer,
    body: Bytes,
    spans: u64,
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
            tokio::select! {
                biased;
                () = stop.wait() => {
                    return self.finish(&tracer, &stop, std::future::ready(())).await;
                }
                () = tracer.wait_for_batch() => {}
                () = tokio::time::sleep(self.interval) => {}
            }
            while let Some(batch) = self.take_batch(&tracer) {
                let mut export = Box::pin(self.export(batch, stop.clone()));
                tokio::select! {
                    biased;
                    () = &mut export => {}
                    () = stop.wait() => return self.finish(&tracer, &stop, export).await,
                }
            }
        }
    }

    /// Sends the traces that wait, beside a request in flight, until the time of the end is over. The log has the
    /// number of spans that the collector has not taken.
    async fn finish(
        &self,
        tracer: &Tracer,
        stop: &StopSignal,
        in_flight: impl Future<Output = ()>,
    ) {
        let stats = &tracer.stats;
        let lost_before = read(&stats.lost);
        let rest = async {
            let mut requests = FuturesUnordered::new();
            loop {
                while requests.len() < LAST_REQUESTS_MAX
                    && let Some(batch) = self.take_batch(tracer)
                {
                    requests.push(self.export(batch, stop.clone()));
                }
                if requests.next().await.is_none() {
                    return;
                }
            }
        };
        let deadline = stop.deadline().unwrap_or_else(tokio::time::Instant::now);
        // The batches of requests without a response are dropped, and count as lost.
        let _ = tokio::time::timeout_at(deadline, join(in_flight, rest)).await;
        loop {
            let traces = tracer.take_batch();
            if traces.is_empty() {
                break;
            }
            let spans = traces.iter().map(|it| it.spans.len() as u64).sum();
            stats.lost.fetch_add(spans, Ordering::Relaxed);
        }
        let lost = read(&stats.lost) - lost_before;
        if lost > 0 {
            self.client.log_lost_spans(lost);
        }
    }

    /// Takes the traces of one request; `None` if none wait.
    fn take_batch<'a>(&self, tracer: &'a Tracer) -> Option<TraceBatch<'a>> {
        let traces = tracer.take_batch();
        if traces.is_empty() {
            return None;
        }
        let spans = traces.iter().map(|it| it.spans.len() as u64).sum();
        Some(TraceBatch { tracer, body: message::encode(&self.identity, &traces), spans })
    }

    /// Sends one batch until the collector has taken it, refused it, or failed for too long.
    async fn export(&self, mut batch: TraceBatch<'_>, mut stop: StopSignal) {
        let stats = &batch.tracer.stats;
        let times = &self.retry;
        let give_up_at = Instant::now() + times.time_max;
        let mut pause = times.pause_min;
        loop {
            let failure = match self.client.send(batch.body.clone()).await {
                Ok(response) => {
                    let (refused, reason) = message::read_refused(&response);
                    stats.exports.fetch_add(1, Ordering::Relaxed);
                    let refused = refused.min(batch.spans);
                    stats.exported.fetch_add(batch.spans - refused, Ordering::Relaxed);
                    batch.spans = refused;
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
                return;
            }
            pause = (pause * 2).min(times.pause_max);
            // At the end of the router there is one more attempt without a pause.
            stop.wait_at_most(wanted).await;
        }
    }
}

impl Drop for TraceBatch<'_> {
    fn drop(&mut self) {
        self.tracer.stats.lost.fetch_add(self.spans, Ordering::Relaxed);
    }
}

/// Returns a pause of 50 to 100 % of `pause`, so that many routers do not come back at once.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64() / 2.0)
}
