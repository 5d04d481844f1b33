//! The beginning and the end of an operation by HTTP, whatever its transport is.

use bytes::Bytes;
use wire::upstream::OperationError;

/// The result of the request that begins an operation.
pub(crate) enum Begun<T> {
    /// The operation is in progress.
    Open(T),
    /// The subgraph refuses it with these errors, a JSON list.
    Refused(Bytes),
}

/// The end of an operation in progress.
pub(crate) enum OperationOutcome {
    /// The subgraph has ended the operation.
    Ended(Result<(), OperationError>),
    /// The connection was lost, or the subgraph sent no sign of life.
    Lost(String),
}

impl<T> Begun<T> {
    /// Converts the operation in progress.
    pub(crate) fn map<U>(self, convert: impl FnOnce(T) -> U) -> Begun<U> {
        match self {
            Self::Open(operation) => Begun::Open(convert(operation)),
            Self::Refused(errors) => Begun::Refused(errors),
        }
    }
}

impl OperationOutcome {
    /// Returns whether this error ends the operation, or only the connection.
    pub(crate) fn of_error(error: OperationError) -> Self {
        match error {
            OperationError::EndedEarly | OperationError::Silent(_) => Self::Lost(error.to_string()),
            OperationError::Errors(_)
            | OperationError::InvalidResult(_)
            | OperationError::ResultTooBig { .. } => Self::Ended(Err(error)),
        }
    }
}
