//! The reasons why the schema of a subgraph cannot be loaded.

use config::diagnostic::Diagnostic;

/// The reason why the schema of one subgraph cannot be loaded. Its text contains no header and no credentials.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("subgraph `{subgraph}`: {kind}")]
pub struct LoadError {
    /// The name of the subgraph.
    pub subgraph: String,
    /// The reason.
    pub kind: LoadErrorKind,
    /// The message for people, with the place in the file and advice.
    pub diagnostic: Box<Diagnostic>,
}

/// The kinds of failures to load a schema.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadErrorKind {
    /// The file cannot be read.
    #[error("cannot read {path}: {reason}")]
    UnreadableFile {
        /// The path.
        path: String,
        /// The reason.
        reason: String,
    },
}
