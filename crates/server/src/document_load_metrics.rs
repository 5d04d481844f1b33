//! Counters of attempts to load persisted documents.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use telemetry::Metric;

/// Counters of attempts to load persisted documents.
#[derive(Debug)]
pub(crate) struct DocumentLoadMetrics {
    loads: Family<LoadLabel, Counter>,
    downloads: Family<DownloadLabel, Counter>,
}

/// The metrics of attempts to load persisted documents.
pub(crate) const DOCUMENT_LOAD_METRICS: &[Metric<DocumentLoadMetrics>] = &[
    Metric::handle(
        "starling_persisted_document_loads",
        "Attempts to load changed manifests of persisted documents, by result",
        |it| &it.loads,
    ),
    Metric::handle(
        "starling_persisted_document_downloads",
        "Requests for manifests by URL after the start, by result",
        |it| &it.downloads,
    ),
];

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct DownloadLabel {
    result: DownloadResult,
}

/// The result of a request for a manifest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "label values are lower case")]
pub(crate) enum DownloadResult {
    /// There is a new manifest.
    changed,
    /// The manifest is the one that is in use.
    unchanged,
    /// The manifest cannot be read or is not valid; the one before it stays.
    failed,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct LoadLabel {
    result: DocumentLoadResult,
}

/// The result of loading documents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "label values are lower case")]
pub(crate) enum DocumentLoadResult {
    /// The documents are in use now.
    loaded,
    /// A manifest has a mistake; the previous documents stay.
    refused,
}

impl DocumentLoadMetrics {
    /// Creates the counters. All labels exist from the start, because an alert on a metric that does not exist yet
    /// never fires.
    pub(crate) fn new() -> Self {
        let loads = Family::<LoadLabel, Counter>::default();
        for result in [DocumentLoadResult::loaded, DocumentLoadResult::refused] {
            drop(loads.get_or_create(&LoadLabel { result }));
        }
        let downloads = Family::<DownloadLabel, Counter>::default();
        for result in [DownloadResult::changed, DownloadResult::unchanged, DownloadResult::failed] {
            drop(downloads.get_or_create(&DownloadLabel { result }));
        }
        Self { loads, downloads }
    }

    /// Counts a request for a manifest.
    pub(crate) fn count_download(&self, result: DownloadResult) {
        self.downloads.get_or_create(&DownloadLabel { result }).inc();
    }

    /// Counts an attempt.
    pub(crate) fn count(&self, result: DocumentLoadResult) {
        self.loads.get_or_create(&LoadLabel { result }).inc();
    }
}
