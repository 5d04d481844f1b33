//! The start of a router that takes load from others: it prepares the operations that are in use elsewhere before it is
//! ready, and then takes its full share of the load after a while.
//!
//! - `source` reads the operations from a file or from another router.
//! - `export` is the list of operations that a router offers to others.
//! - `metrics` has the metrics.

pub(crate) mod export;
pub(crate) mod metrics;
mod source;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use admission::Ramp;
use config::WarmingSource;
use prepare::{OperationRequest, PrepareError};
use serving::serving::Serving;
use tokio::sync::watch;

use crate::prepare_gently::prepare_gently;

/// The progress of a start, which the readiness check, load reports and metrics show.
#[derive(Debug)]
pub(crate) struct Warming {
    settings: config::Warming,
    started: Instant,
    is_over: AtomicBool,
    has_prepared_documents: watch::Sender<bool>,
    ramp: Mutex<Ramp>,
    counts: WarmingCounts,
}

/// Counts of the operations of the source.
#[derive(Debug, Default)]
struct WarmingCounts {
    wanted: AtomicU64,
    prepared: AtomicU64,
    invalid: AtomicU64,
    source_failures: AtomicU64,
    /// The time that warming took, in microseconds.
    micros: AtomicU64,
}

impl Warming {
    /// Creates the progress of a start that begins now.
    pub(crate) fn new(settings: &config::Warming) -> Self {
        Self {
            started: Instant::now(),
            is_over: AtomicBool::new(false),
            has_prepared_documents: watch::Sender::new(false),
            ramp: Mutex::new(Ramp::new(settings.ramp)),
            counts: WarmingCounts::default(),
            settings: settings.clone(),
        }
    }

    /// Returns the reason why the router is not ready yet, for the readiness check; `None` once it is.
    pub(crate) fn unready_reason(&self) -> Option<String> {
        if self.is_over.load(Relaxed) {
            return None;
        }
        let (wanted, prepared) = (self.counts.wanted.load(Relaxed), self.counts.handled());
        Some(format!("warming: {prepared} of {wanted} operations are prepared\n"))
    }

    /// Returns the share of the load that the router takes now, from a tenth to 1.
    pub(crate) fn share(&self) -> f64 {
        self.ramp().share(self.started.elapsed())
    }

    /// Notes that the persisted documents have been prepared for the first graph.
    pub(crate) fn note_documents_prepared(&self) {
        self.has_prepared_documents.send_replace(true);
    }

    /// Prepares what the configuration names, within its time limit. The router is ready when this returns.
    async fn run(&self, serving: &Serving, waits_for_documents: bool) {
        let prepare = async {
            if let Some(source) = &self.settings.operations {
                self.prepare_operations(serving, source).await;
            }
            if waits_for_documents {
                let mut prepared = self.has_prepared_documents.subscribe();
                // The sender lives as long as this.
                let _ = prepared.wait_for(|it| *it).await;
            }
        };
        let is_complete = tokio::time::timeout(self.settings.timeout, prepare).await.is_ok();
        self.log_end(is_complete);
        self.finish(serving);
    }

    /// Ends the warming, and begins the ramp.
    fn finish(&self, serving: &Serving) {
        let elapsed = self.started.elapsed();
        self.ramp().begin(elapsed);
        if let Some(overload) = &serving.overload {
            overload.begin_ramp();
        }
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.counts.micros.store(micros, Relaxed);
        self.is_over.store(true, Relaxed);
    }

    fn log_end(&self, is_complete: bool) {
        let counts = &self.counts;
        let (wanted, handled) = (counts.wanted.load(Relaxed), counts.handled());
        let (invalid, elapsed) = (counts.invalid.load(Relaxed), self.started.elapsed());
        if is_complete {
            tracing::info!(prepared = handled - invalid, invalid, ?elapsed, "the router is warm");
        } else {
            tracing::warn!(
                prepared = handled - invalid,
                invalid,
                left = wanted.saturating_sub(handled),
                ?elapsed,
                "the router is ready before all operations are prepared (`warming.timeout`)"
            );
        }
    }

    /// Reads the operations of a source, and prepares them. A source that cannot be used is logged.
    async fn prepare_operations(&self, serving: &Serving, source: &WarmingSource) {
        let (name, time_max) = (source::shown_name(source), self.settings.timeout);
        let operations = match source::read_operations(source, time_max).await {
            Ok(operations) => operations,
            Err(reason) => {
                self.counts.source_failures.fetch_add(1, Relaxed);
                tracing::warn!(
                    source = name,
                    reason,
                    "the operations of `warming.operations` cannot be read; the router starts without them"
                );
                return;
            }
        };
        let count = operations.len() as u64;
        self.counts.wanted.store(count, Relaxed);
        let graph = serving.current();
        let mut first_invalid = None;
        for document in operations {
            let request = OperationRequest {
                query: document.text,
                operation_name: document.name,
                ..OperationRequest::default()
            };
            match prepare_gently(&graph.preparer, &request).await {
                Ok(prepared) => {
                    // It is in use elsewhere, so the next graph and other routers get it from here, too.
                    prepared.credit_uses(1);
                    self.counts.prepared.fetch_add(1, Relaxed);
                }
                // Clients have priority.
                Err(PrepareError::Overloaded) => {}
                Err(error) => {
                    self.counts.invalid.fetch_add(1, Relaxed);
                    first_invalid.get_or_insert_with(|| error.to_string());
                }
            }
        }
        if let Some(reason) = first_invalid {
            tracing::info!(
                source = name,
                invalid = self.counts.invalid.load(Relaxed),
                of = count,
                reason,
                "operations of `warming.operations` are not valid on this graph"
            );
        }
    }

    fn ramp(&self) -> MutexGuard<'_, Ramp> {
        // Each change is one step.
        self.ramp.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WarmingCounts {
    /// The number of operations that were prepared or are not valid.
    fn handled(&self) -> u64 {
        self.prepared.load(Relaxed) + self.invalid.load(Relaxed)
    }
}

/// Warms the router, as a task of this runtime that ends with the shutdown. Without anything to prepare, the router is
/// ready when this returns. `has_documents` says whether persisted documents are prepared ahead.
pub(crate) fn start(
    warming: &Arc<Warming>,
    serving: &Arc<Serving>,
    has_documents: bool,
    mut stop: watch::Receiver<bool>,
) {
    let waits_for_documents = warming.settings.persisted_documents && has_documents;
    if warming.settings.operations.is_none() && !waits_for_documents {
        return warming.finish(serving);
    }
    let (warming, serving) = (Arc::clone(warming), Arc::clone(serving));
    tokio::spawn(async move {
        tokio::select! {
            () = warming.run(&serving, waits_for_documents) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    });
}
