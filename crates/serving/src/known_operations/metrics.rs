//! The metrics of known operations that are not plain counters.

use telemetry::Metric;

use super::stored_texts::StoredTexts;
use super::table::KnownOperations;

/// The metrics that are read from the known operations themselves.
pub const KNOWN_OPERATION_METRICS: &[Metric<KnownOperations>] = &[
    Metric::gauge("starling_persisted_documents", "Persisted documents of all manifests", |it| {
        it.documents().len() as u64
    }),
    Metric::gauge("starling_apq_entries", "Texts that are stored by their hash", |it| {
        it.stored_texts.as_ref().map_or(0, |it| it.len() as u64)
    }),
    Metric::counter(
        "starling_apq_evicted",
        "Texts removed because others needed the room (apq.max_size, apq.max_entries)",
        |it| it.stored_texts.as_ref().map_or(0, StoredTexts::evicted),
    ),
];
