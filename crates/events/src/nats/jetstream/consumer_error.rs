//! The reasons why a reader has no consumer.

use super::api::ApiError;

/// The reason why a consumer could not be made.
#[derive(Debug)]
pub(super) enum ConsumerError {
    /// The stream does not exist, or was deleted and made again.
    NoStream(Box<str>),
    /// The broker has deleted messages behind the wanted position.
    PositionGone,
    /// The broker refuses the consumer. Another attempt will fail, too.
    Refused(String),
    /// The broker did not respond. Another attempt may succeed.
    Unanswered(String),
}

impl From<ApiError> for ConsumerError {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::Unanswered(reason) => Self::Unanswered(reason),
            ApiError::Refused(reason) => Self::Refused(format!("JetStream: {reason}")),
            // Callers handle these three where the object may be missing. Here it was deleted a moment ago.
            ApiError::NoStream | ApiError::NoConsumer | ApiError::NoMessage => {
                Self::Unanswered("JetStream: the object was deleted a moment ago".into())
            }
        }
    }
}
