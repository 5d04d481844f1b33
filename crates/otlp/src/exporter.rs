//! The task that sends finished traces to the collector.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;
use net::TlsClient;
use telemetry::LogLimit;
use telemetry::spans::Tracer;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use upstream::TargetError;

use crate::message::{self, RouterIdentity};
use crate::transport::{ExportFailure, ExportProtocol, Transport};

/// The time that the end of the router waits for the last traces.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(5);

/// The settings of an exporter.
#[derive(Clone)]
pub struct ExporterSettings {
    /// The way to the collector.
    pub protocol: ExportProtocol,
    /// The URL of the collector.
    pub url: Box<str>,
    /// The TLS of [`crate::exporter_tls`], needed for https only.
    pub tls: Option<TlsClient>,
    /// The headers of each request.
    pub headers: HeaderMap,
    /// The time limit of one request.
    pub timeout: Duration,
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
pub struct TraceExporter {
    transport: Transport,
    /// The URL for log lines: without its query, which may contain secrets.
    shown_url: String,
    settings: ExporterSettings,
    failure_log: LogLimit,
}

/// Prints nothing secret.
impl std::fmt::Debug for TraceExporter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("TraceExporter").field("url", &self.shown_url).finish_non_exhaustive()
    }
}

/// The task of an exporter.
#[derive(Debug)]
pub struct ExporterTask {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl TraceExporter {
    /// Creates an exporter. It connects when there is something to send.
    ///
    /// # Errors
    /// The URL cannot be used.
    pub fn new(settings: ExporterSettings) -> Result<Self, TargetError> {
        let tls = settings.tls.clone();
        let transport = Transport::new(settings.protocol, &settings.url, tls, settings.timeout)?;
        let shown_url = settings.url.split(['?', '#']).next().unwrap_or_default().to_owned();
        Ok(Self { transport, shown_url, settings, failure_log: LogLimit::new() })
    }

    /// Starts the task that exports the traces of `tracer`. Must be called inside a Tokio runtime.
    pub fn start(self, tracer: Arc<Tracer>) -> ExporterTask {
        let (stop, stopped) = watch::channel(false);
        ExporterTask { stop, task: tokio::spawn(self.run(tracer, stopped)) }
    }

    async fn run(self, tracer: Arc<Tracer>, mut stop: watch::Receiver<bool>) {
        loop {
            let is_ending = tokio::select! {
                biased;
                () = wait_for_stop(&mut stop) => true,
                () = tracer.wait_for_batch() => false,
                () = tokio::time::sleep(self.settings.interval) => false,
            };
            loop {
                let traces = tracer.take_batch();
                if traces.is_empty() {
                    break;
                }
                let spans = traces.iter().map(|it| it.spans.len() as u64).sum();
                let body = message::encode(&self.settings.identity, &traces);
                drop(traces);
                self.export(body, spans, &tracer, &mut stop).await;
            }
            if is_ending {
                return;
            }
        }
    }

    /// Sends one batch until the collector has taken it, refused it, or failed for too long.
    async fn export(
        &self,
        body: Bytes,
        spans: u64,
        tracer: &Tracer,
        stop: &mut watch::Receiver<bool>,
    ) {
        let stats = &tracer.stats;
        let times = &self.settings.retry;
        let give_up_at = Instant::now() + times.time_max;
        let mut pause = times.pause_min;
        loop {
            let failure = match self.send(body.clone()).await {
                Ok((refused, reason)) => {
                    stats.exports.fetch_add(1, Ordering::Relaxed);
                    let refused = refused.min(spans);
                    stats.exported.fetch_add(spans - refused, Ordering::Relaxed);
                    stats.lost.fetch_add(refused, Ordering::Relaxed);
                    match refused {
                        0 => self.log_success(),
                        _ => self.log_failure(&format!("it has refused {refused} spans: {reason}")),
                    }
                    return;
                }
                Err(failure) => failure,
            };
            stats.failures.fetch_add(1, Ordering::Relaxed);
            self.log_failure(&failure.reason);
            let wanted = failure.pause.unwrap_or_else(|| jittered(pause)).min(times.pause_max);
            let is_over =
                !failure.is_temporary || *stop.borrow() || Instant::now() + wanted >= give_up_at;
            if is_over {
                stats.lost.fetch_add(spans, Ordering::Relaxed);
                return;
            }
            pause = (pause * 2).min(times.pause_max);
            // At the end of the router there is one more attempt without a pause.
            tokio::select! {
                () = tokio::time::sleep(wanted) => {}
                () = wait_for_stop(stop) => {}
            }
        }
    }

    /// Sends one request. Returns the number of spans that the collector has refused, and its reason.
    async fn send(&self, body: Bytes) -> Result<(u64, String), ExportFailure> {
        let response = self.transport.send(body, self.settings.headers.clone()).await?;
        Ok(message::read_refused(&response))
    }

    fn log_failure(&self, reason: &str) {
        if let Some(failures) = self.failure_log.record(1, Instant::now()) {
            tracing::warn!(
                collector = self.shown_url,
                reason,
                failures,
                "traces cannot be exported: the collector does not take them"
            );
        }
    }

    fn log_success(&self) {
        if let Some(failures) = self.failure_log.record_success(Instant::now) {
            tracing::info!(
                collector = self.shown_url,
                failures,
                "traces are exported again: the collector has recovered"
            );
        }
    }
}

impl ExporterTask {
    /// Exports the traces that wait, and ends the task. Waits for a few seconds at most: what the collector has not
    /// taken then is lost, and the log says so.
    pub async fn end(mut self) {
        let _ = self.stop.send(true);
        if tokio::time::timeout(FLUSH_TIME_MAX, &mut self.task).await.is_err() {
            self.task.abort();
            tracing::warn!("the last traces are lost: the collector did not take them in time");
        }
    }
}

/// A task without an owner ends.
impl Drop for ExporterTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns a pause of 50 to 100 % of `pause`, so that many routers do not come back at once.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64() / 2.0)
}

async fn wait_for_stop(stop: &mut watch::Receiver<bool>) {
    // The wait fails without a sender: the task is about to be aborted.
    let _ = stop.wait_for(|stop| *stop).await;
}
