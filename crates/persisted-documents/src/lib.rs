//! Persisted documents: operations that are known before a client sends them, by their ids.
//!
//! Invariant: knows nothing of files, sockets and graphs. Bytes of manifests go in, and documents come out.
//!
//! - `manifest` reads manifests as tools write them.
//! - `document_set` is the index of all documents: by id, by the hash of the text, and by the text.
//! - `normal_form` compares texts that differ in white space, commas and comments.
//! - `text_hash` is the SHA-256 of a text, as clients with automatic persisted queries send it.
//!
//! A new format of manifests is a variant of [`ManifestFormat`] with its reader in `manifest`.

mod document_set;
mod manifest;
mod normal_form;
mod text_hash;

pub use document_set::{DocumentConflict, DocumentSet, ID_BYTES_MAX, PersistedDocument};
pub use manifest::{ManifestError, ManifestFormat, parse_manifest};
pub use text_hash::TextHash;
