//! JetStream: streams that the broker stores are read with a position, so that a lost connection loses no events.
//!
//! Each stream of the router has a [`JetStreamReader`]: a task that makes a consumer at the broker and pulls from it.
//! After any failure (of the connection, the broker, or the consumer) it makes a new consumer after the last position.
//! The consumer is ephemeral and nothing is acknowledged, unless a durable consumer is requested. A durable consumer
//! keeps the position at the broker, so that a restarted router continues there.

mod api;
mod consumer_error;
mod consumer_setup;
mod delivery;
mod durable_names;
mod pull;
mod reader;
mod stream_id;
mod subject_filter;

pub(super) use api::{check_acknowledgement, check_is_stored};
pub(super) use subject_filter::covers;

use crate::{EventStream, SourceError, StreamRequest};
pub(super) use durable_names::DurableNames;
use reader::JetStreamReader;
pub(super) use reader::ReaderSettings;

/// The opener of JetStream streams for one provider.
#[derive(Debug)]
pub(super) struct JetStream(ReaderSettings);

impl JetStream {
    pub(super) fn new(settings: ReaderSettings) -> Self {
        Self(settings)
    }

    /// Opens a stream. It is in force when this returns.
    pub(super) async fn open(&self, wanted: StreamRequest) -> Result<EventStream, SourceError> {
        let (mut reader, stream) = JetStreamReader::new(&self.0, wanted);
        let consumer = reader.open().await?;
        tokio::spawn(reader.run(consumer));
        Ok(stream)
    }
}
