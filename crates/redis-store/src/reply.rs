//! Replies of a server, and the reasons why there is none.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

/// The reason that is reported for a server that is late.
pub(crate) const LATE: &str = "it did not respond in time";

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
    Disconnected(Arc<str>),
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
            Self::Disconnected(reason) => **reason == *LATE,
            Self::Refused(_) | Self::UnexpectedReply | Self::DifferentSlots => false,
        }
    }
}
