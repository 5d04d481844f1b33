//! Counters of the requests for a supergraph by URL.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use telemetry::{LabelledCounters, Metric};

/// The counters of a supergraph that is read by URL.
#[derive(Debug)]
pub(crate) struct SupergraphDownloadMetrics {
    checks: LabelledCounters,
    failing_mirrors: AtomicU64,
    /// Seconds since 1970; 0: never.
    last_success: AtomicU64,
    /// 1 if the graph that serves comes from the copy on disk.
    serves_copy: AtomicU64,
    copy_failures: AtomicU64,
}

/// The metrics of a supergraph that is read by URL.
pub(crate) const SUPERGRAPH_DOWNLOAD_METRICS: &[Metric<SupergraphDownloadMetrics>] = &[
    Metric::counters(
        "starling_supergraph_downloads",
        "Requests for the supergraph by URL, by result: those to several servers until one responded count as one",
        |it, samples| it.checks.write("result", samples),
    ),
    Metric::gauge(
        "starling_supergraph_download_failing_servers",
        "Servers of the supergraph whose last response could not be used",
        |it| it.failing_mirrors.load(Relaxed),
    ),
    Metric::gauge(
        "starling_supergraph_download_success_time_seconds",
        "Time at which a server last sent or confirmed the supergraph, in seconds since 1970; 0: not since the start",
        |it| it.last_success.load(Relaxed),
    ),
    Metric::gauge(
        "starling_supergraph_download_serves_copy",
        "1 if the router has started with the copy on disk and no server has sent or confirmed the supergraph since",
        |it| it.serves_copy.load(Relaxed),
    ),
    Metric::counter(
        "starling_supergraph_download_copy_failures",
        "Supergraphs that could not be copied to disk (supergraph.url.copy)",
        |it| it.copy_failures.load(Relaxed),
    ),
];

/// The result of a request for the supergraph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum DownloadResult {
    /// There is a new supergraph.
    Changed,
    /// The supergraph is the last one that was read.
    Unchanged,
    /// No server can be reached, or none responds with a supergraph.
    Failed,
    /// A server has responded with a text that must not be used.
    Refused,
}

impl DownloadResult {
    const ALL: [Self; 4] = [Self::Changed, Self::Unchanged, Self::Failed, Self::Refused];

    fn name(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Failed => "failed",
            Self::Refused => "refused",
        }
    }
}

impl SupergraphDownloadMetrics {
    /// Creates the counters. All labels exist from the start, because an alert on a metric that does not exist yet
    /// never fires.
    pub(super) fn new() -> Self {
        Self {
            checks: LabelledCounters::with_values(DownloadResult::ALL.map(DownloadResult::name)),
            failing_mirrors: AtomicU64::new(0),
            last_success: AtomicU64::new(0),
            serves_copy: AtomicU64::new(0),
            copy_failures: AtomicU64::new(0),
        }
    }

    /// Counts a request, after which so many servers fail.
    pub(super) fn count(&self, result: DownloadResult, failing_mirrors: usize) {
        self.checks.add(result.name(), 1);
        self.failing_mirrors.store(failing_mirrors as u64, Relaxed);
        if matches!(result, DownloadResult::Changed | DownloadResult::Unchanged) {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            self.last_success.store(now.map_or(0, |it| it.as_secs()), Relaxed);
        }
    }

    /// Notes whether the copy on disk serves.
    pub(super) fn set_serves_copy(&self, serves_copy: bool) {
        self.serves_copy.store(u64::from(serves_copy), Relaxed);
    }

    /// True if the copy on disk serves.
    #[cfg(test)]
    pub(super) fn serves_copy(&self) -> bool {
        self.serves_copy.load(Relaxed) == 1
    }

    /// Counts a copy that could not be written.
    pub(super) fn count_copy_failure(&self) {
        self.copy_failures.fetch_add(1, Relaxed);
    }
}
