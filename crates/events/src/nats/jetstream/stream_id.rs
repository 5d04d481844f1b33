//! The identity of a stream of the broker.

use async_nats::jetstream::stream;

use crate::StreamEnd;

/// The identity of a stream of the broker. A stream that was deleted and created again under the same name has a
/// different identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StreamId {
    pub(super) name: Box<str>,
    /// The time at which the stream was created, in nanoseconds since 1970. It is the second part of all its offsets.
    pub(super) created: u64,
}

impl StreamId {
    /// Returns the identity of a stream from its state.
    pub(super) fn of(name: &str, info: &stream::Info) -> Self {
        let created = u64::try_from(info.created.unix_timestamp_nanos()).unwrap_or_default();
        Self { name: name.into(), created }
    }

    /// Returns the end of streams of the router when this stream was deleted.
    pub(super) fn deleted(&self) -> StreamEnd {
        Self::deleted_by_name(&self.name)
    }

    /// Returns the end of streams of the router when the stream with that name was deleted.
    pub(super) fn deleted_by_name(name: &str) -> StreamEnd {
        StreamEnd::Gone(format!("stream {name:?} of JetStream"))
    }
}
