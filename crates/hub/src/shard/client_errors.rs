//! Errors that subscribers get from a shard.

use events::{SourceError, StreamEnd};
use execute::{ErrorCode, GraphqlError};

pub(crate) fn shutting_down() -> GraphqlError {
    GraphqlError::new(
        ErrorCode::ShuttingDown,
        "The server is shutting down; subscribe again in a moment.",
    )
}

/// Returns the error that clients get if a source cannot be opened. The log has the details.
pub(super) fn source_error(error: &SourceError) -> GraphqlError {
    match error {
        SourceError::Unavailable { provider, .. } => GraphqlError::new(
            ErrorCode::ProviderUnavailable,
            format!("The event provider {provider} is not connected at present; try again later."),
        ),
        SourceError::InvalidTopic { provider, .. } => GraphqlError::new(
            ErrorCode::ProviderUnavailable,
            format!(
                "The event provider {provider} does not accept the topic of this subscription."
            ),
        ),
        SourceError::Refused { provider, .. } => GraphqlError::new(
            ErrorCode::ProviderUnavailable,
            format!("The event provider {provider} refuses this subscription."),
        ),
        SourceError::Subgraph { source_name, reason } => GraphqlError::new(
            ErrorCode::SubgraphRequestFailed,
            format!("Subscribing to {} failed: {reason}.", subgraph(source_name)),
        ),
        SourceError::Gone { provider } => GraphqlError::new(
            ErrorCode::CursorExpired,
            format!(
                "The event provider {provider} no longer stores the events that follow that cursor."
            ),
        ),
    }
}

/// Returns the error that clients get if a source ends.
pub(super) fn source_end(provider: &str, end: &StreamEnd) -> GraphqlError {
    let message = match end {
        StreamEnd::Closed => format!("The event provider {provider} was closed."),
        StreamEnd::Complete => format!("The events of {provider} are complete."),
        StreamEnd::Refused(_) => {
            format!("The event provider {provider} refuses the topic of this subscription.")
        }
        StreamEnd::Failed(reason) => {
            let message = format!("The subscription at {} ended: {reason}.", subgraph(provider));
            return GraphqlError::new(ErrorCode::SubgraphRequestFailed, message);
        }
        StreamEnd::Gone(_) => {
            let message = format!("The stream of this subscription at {provider} was deleted.");
            return GraphqlError::new(ErrorCode::SourceGone, message);
        }
    };
    GraphqlError::new(ErrorCode::ProviderUnavailable, message)
}

/// Returns the name of a source of the kind `subgraph` as errors write it.
fn subgraph(source_name: &str) -> String {
    format!("subgraph \"{}\"", source_name.strip_prefix("subgraph/").unwrap_or(source_name))
}
