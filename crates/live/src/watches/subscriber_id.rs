//! The names of subscribers for operators.

use std::fmt;
use std::str::FromStr;

/// The name of one subscriber, for as long as the process runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SubscriberId {
    /// An operation of a connection of a reactor.
    Reactor {
        /// The number of the reactor.
        reactor: u32,
        /// The connection there.
        connection: u64,
        /// The operation of the connection.
        operation: u32,
    },
    /// An operation of a stream over HTTP/2, or of a stream that many requests share.
    Stream {
        /// The number of the stream.
        stream: u64,
        /// The operation of the stream.
        operation: u32,
    },
}

/// The text names no subscriber.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidSubscriberId;

impl fmt::Display for SubscriberId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reactor { reactor, connection, operation } => {
                write!(out, "r{reactor}-{connection}-{operation}")
            }
            Self::Stream { stream, operation } => write!(out, "s{stream}-{operation}"),
        }
    }
}

impl FromStr for SubscriberId {
    type Err = InvalidSubscriberId;

    fn from_str(text: &str) -> Result<Self, InvalidSubscriberId> {
        let parse = || {
            let mut parts = text.get(1..)?.split('-');
            let mut number = || parts.next()?.parse::<u64>().ok();
            let id = match text.as_bytes().first()? {
                b'r' => Self::Reactor {
                    reactor: number()?.try_into().ok()?,
                    connection: number()?,
                    operation: number()?.try_into().ok()?,
                },
                b's' => Self::Stream { stream: number()?, operation: number()?.try_into().ok()? },
                _ => return None,
            };
            parts.next().is_none().then_some(id)
        };
        parse().ok_or(InvalidSubscriberId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        for id in [
            SubscriberId::Reactor { reactor: 1, connection: u64::MAX, operation: 3 },
            SubscriberId::Stream { stream: 7, operation: 0 },
        ] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for text in [
            "",
            "r",
            "r1-2",
            "r1-2-3-4",
            "s1",
            "s1-2-3",
            "x1-2",
            "r-1-2-3",
            "s1-99999999999",
            "ü1-2",
        ] {
            assert_eq!(text.parse::<SubscriberId>(), Err(InvalidSubscriberId), "{text}");
        }
    }
}
