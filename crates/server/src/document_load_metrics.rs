//! Counters of attempts to load persisted documents.

use telemetry::{LabelledCounters, Metric};

/// Counters of attempts to load persisted documents.
#[derive(Debug)]
pub(crate) struct DocumentLoadMetrics {
    loads: LabelledCounters,
    downloads: LabelledCounters,
}

/// The metrics of attempts to load persisted documents.
pub(crate) const DOCUMENT_LOAD_METRICS: &[Metric<DocumentLoadMetrics>] = &[
    Metric::counters(
        "starling_persisted_document_loads",
        "Attempts to load changed manifests of persisted documents, by result",
        |it, samples| it.loads.write("result", samples),
    ),
    Metric::counters(
        "starling_persisted_document_downloads",
        "Requests for manifests by URL after the start, by result",
        |it, samples| it.downloads.write("result", samples),
    ),
];

/// The result of a request for a manifest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum DownloadResult {
    /// There is a new manifest.
    Changed,
    /// The manifest is the one that is in use.
    Unchanged,
    /// The manifest cannot be read or is not valid; the one before it stays.
    Failed,
}

impl DownloadResult {
    const ALL: [Self; 3] = [Self::Changed, Self::Unchanged, Self::Failed];

    fn name(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Failed => "failed",
        }
    }
}

/// The result of loading documents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum DocumentLoadResult {
    /// The documents are in use now.
    Loaded,
    /// A manifest has a mistake; the previous documents stay.
    Refused,
}

impl DocumentLoadResult {
    const ALL: [Self; 2] = [Self::Loaded, Self::Refused];

    fn name(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::Refused => "refused",
        }
    }
}

impl DocumentLoadMetrics {
    /// Creates the counters. All labels exist from the start, because an alert on a metric that does not exist yet
    /// never fires.
    pub(crate) fn new() -> Self {
        Self {
            loads: LabelledCounters::with_values(
                DocumentLoadResult::ALL.map(DocumentLoadResult::name),
            ),
            downloads: LabelledCounters::with_values(DownloadResult::ALL.map(DownloadResult::name)),
        }
    }

    /// Counts a request for a manifest.
    pub(crate) fn count_download(&self, result: DownloadResult) {
        self.downloads.add(result.name(), 1);
    }

    /// Counts an attempt.
    pub(crate) fn count(&self, result: DocumentLoadResult) {
        self.loads.add(result.name(), 1);
    }
}
