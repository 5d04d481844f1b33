//! JetStream: what streams of the broker store is read with a position, so nothing is lost while a connection is.
//!
//! Each of our streams has a [`Reader`](reader::Reader), a task that makes a consumer at the broker, pulls from it and
//! makes a new one after the last position whenever anything happens to it: connection, broker, consumer. Without a
//! wish for a durable consumer it is ephemeral and nothing is acknowledged. A durable one is a bookmark at the broker:
//! it says where a router goes on that was started again.

mod api;
mod bookmark;
mod delivery;
mod failure;
mod filter;
mod pull;
mod reader;
mod source;
mod stream_id;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

pub(super) use api::{acknowledged, stores};
pub(super) use filter::covers;

use super::connection::Link;
use crate::{EventStream, ProviderStats, Retry, SourceError, Wanted};
use bookmark::Bookmarks;
use reader::Reader;

/// What all readers of one provider share.
#[derive(Debug)]
pub(super) struct JetStream {
    provider: Box<str>,
    link: watch::Receiver<Link>,
    stats: Arc<ProviderStats>,
    retry: Retry,
    queue_events: usize,
    idle: Duration,
    bookmarks: Arc<Bookmarks>,
}

impl JetStream {
    pub(super) fn new(
        provider: Box<str>,
        link: watch::Receiver<Link>,
        stats: Arc<ProviderStats>,
        retry: Retry,
        queue_events: usize,
        idle: Duration,
        instance: Option<Box<str>>,
    ) -> Self {
        let bookmarks = Arc::new(Bookmarks::new(instance));
        Self { provider, link, stats, retry, queue_events, idle, bookmarks }
    }

    /// Opens a stream; it is in force when this returns.
    pub(super) async fn open(&self, wanted: Wanted) -> Result<EventStream, SourceError> {
        let (mut reader, stream) = Reader::new(self, wanted);
        let consumer = reader.open().await?;
        tokio::spawn(reader.run(consumer));
        Ok(stream)
    }
}
