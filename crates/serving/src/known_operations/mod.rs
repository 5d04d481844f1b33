//! Operations that clients name by an id or a hash, and the rule about operations that are not known. All transports
//! meet at `operation`, which resolves a request before it is prepared.
//!
//! A request names its operation in one of three ways: by its text, by the id of a persisted document (`documentId`),
//! or by the SHA-256 of a text (`extensions.persistedQuery`), which is looked up among the persisted documents first
//! and then among the texts that clients have sent with their hashes, to this router (`stored_texts`) or to any other
//! (`shared_texts`). The result is a request with a text. `persisted_documents.mode` decides which texts run, and
//! `exceptions` for which requests others do.

mod exceptions;
mod lookup;
mod metrics;
mod shared_texts;
mod stats;
mod stored_texts;
mod table;

pub use exceptions::DocumentExceptions;
pub(crate) use lookup::{NamedOperation, not_found};
pub use metrics::KNOWN_OPERATION_METRICS;
pub use shared_texts::{SHARED_TEXT_COUNTERS, SharedTextStats};
pub use stats::{
    DOCUMENT_VALIDITY_METRICS, DocumentValidity, KNOWN_OPERATION_COUNTERS, KnownOperationStats,
};
pub use table::KnownOperations;
pub(crate) use table::ResolvedRequest;
