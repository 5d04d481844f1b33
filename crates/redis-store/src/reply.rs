//! Replies of a server, and the reasons why there is none.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

/// The reply to one command.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    /// There is no value.
    Nil,
    /// A number.
    Integer(i64),
    /// Bytes or a text, also the status `OK`.
    Bytes(Vec<u8>),
    /// Several values.
    List(Vec<Reply>),
}

impl Reply {
    /// Returns the number, if the reply is one.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the bytes, if the reply is bytes or a text.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the values, if the reply has several.
    pub fn list(&self) -> Option<&[Self]> {
        match self {
            Self::List(values) => Some(values),
            _ => None,
        }
    }

    /// Converts a value of the client library. Values that no command of this crate's users has are an error.
    pub(crate) fn from_value(value: Value) -> Result<Self, StoreError> {
        Ok(match value {
            Value::Nil => Self::Nil,
            Value::Int(number) => Self::Integer(number),
            Value::Boolean(is_true) => Self::Integer(is_true.into()),
            Value::BulkString(bytes) => Self::Bytes(bytes),
            Value::SimpleString(text) | Value::VerbatimString { text, .. } => {
                Self::Bytes(text.into_bytes())
            }
            Value::Okay => Self::Bytes(b"OK".to_vec()),
            Value::Array(values) | Value::Set(values) => {
                let values = values.into_iter().map(Self::from_value);
                Self::List(values.collect::<Result<_, _>>()?)
            }
            // A list of names and values in turn.
            Value::Map(pairs) => {
                let values = pairs.into_iter().flat_map(|(name, value)| [name, value]);
                Self::List(values.map(Self::from_value).collect::<Result<_, _>>()?)
            }
            _ => return Err(StoreError::UnexpectedReply),
        })
    }
}

/// The reason why a command has no reply. It contains neither keys nor values nor credentials. A command that failed in
/// another way than [`StoreError::Refused`] may have been executed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no connection: the server is away, or has been too slow.
    #[error("there is no connection: {0}")]
    Disconnected(ConnectionLoss),
    /// The server did not respond within the time limit.
    #[error("the server did not respond within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// The maximum number of commands is in flight.
    #[error("too many commands are in flight (`max_in_flight`)")]
    Overloaded,
    /// The server refused the command, with this code: `OOM`, `WRONGTYPE`, `NOPERM`.
    #[error("the server refused the command ({0})")]
    Refused(Box<str>),
    /// The reply has a form that the command cannot have.
    #[error("the reply has an unexpected form")]
    UnexpectedReply,
    /// The keys of the command are at several servers of the cluster.
    #[error("the keys of the command have different slots")]
    DifferentSlots,
}

impl StoreError {
    /// True if the server is late, or has too much to do: it may respond again in a moment. Otherwise it is away, or
    /// does not execute the command.
    pub fn is_late(&self) -> bool {
        match self {
            Self::Timeout(_) | Self::Overloaded => true,
            Self::Disconnected(loss) => *loss == ConnectionLoss::Late,
            Self::Refused(_) | Self::UnexpectedReply | Self::DifferentSlots => false,
        }
    }
}

/// The reason why there is no connection to a server.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConnectionLoss {
    /// The server has been late too often, or did not respond to a new connection in time.
    #[error("it did not respond in time")]
    Late,
    /// Another reason, which contains no credentials. Only people read it.
    #[error("{0}")]
    Other(Arc<str>),
}

impl ConnectionLoss {
    /// Returns another reason than a late server.
    pub(crate) fn other(reason: impl Into<Arc<str>>) -> Self {
        Self::Other(reason.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_server_is_recognised_by_the_kind_of_the_error_and_not_by_its_text() {
        let late = StoreError::Disconnected(ConnectionLoss::Late);
        let text = ConnectionLoss::Late.to_string();
        let same_text = StoreError::Disconnected(ConnectionLoss::other(text));
        assert_eq!(late.to_string(), "there is no connection: it did not respond in time");
        assert_eq!(same_text.to_string(), late.to_string());
        let timeout = StoreError::Timeout(Duration::from_millis(10));
        for error in [late, timeout, StoreError::Overloaded] {
            assert!(error.is_late(), "{error}");
        }
        let refused = StoreError::Refused("OOM".into());
        let others = [refused, StoreError::UnexpectedReply, StoreError::DifferentSlots];
        for error in others.into_iter().chain([same_text]) {
            assert!(!error.is_late(), "{error}");
        }
    }
}
