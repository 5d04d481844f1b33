//! The counters of known operations, and of what each graph knows of them.

telemetry::counters! {
    /// Counts since the start.
    pub struct KnownOperationStats;
    /// The metrics of these counters.
    pub const KNOWN_OPERATION_COUNTERS;
    {
        counter documents_found = "starling_persisted_documents_found":
            "Requests for a persisted document by its id or hash that found it";
        counter documents_not_found = "starling_persisted_documents_not_found":
            "Requests for a persisted document by its id that did not find one for their client";
        counter unknown = "starling_persisted_documents_unknown_operations":
            "Operations sent as a text that is no persisted document, run or refused (persisted_documents.mode), exceptions not counted";
        counter excepted = "starling_persisted_documents_excepted":
            "Requests with an operation that is no persisted document, run because of persisted_documents.exceptions";
        counter texts_found = "starling_apq_found":
            "Requests with the hash of a text that found it (automatic persisted queries)";
        counter texts_not_found = "starling_apq_not_found":
            "Requests with the hash of a text that was not stored; clients then send the text";
        counter texts_stored = "starling_apq_stored": "Texts stored by their hash";
    }
}

telemetry::counters! {
    /// The validity of the persisted documents on one graph.
    pub struct DocumentValidity;
    /// The metrics of the validity of documents.
    pub const DOCUMENT_VALIDITY_METRICS;
    {
        /// Counted by the task that prepares documents ahead for the graph.
        gauge invalid = "starling_persisted_documents_invalid":
            "Persisted documents that are not valid on the graph that serves, among those prepared ahead";
    }
}
