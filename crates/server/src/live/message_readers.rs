//! Where large WebSocket messages are expanded and parsed: on the blocking pool, a few at a time.
//!
//! Each connection has at most one such message at a time and waits for it, so the queue is bounded by the number of
//! connections and serves them in turn.

use bytes::Bytes;
use tokio::sync::Semaphore;
use wire::websocket::{LargeMessage, ReadMessage};

/// The permits to read large messages.
#[derive(Debug)]
pub(crate) struct MessageReaders {
    permits: Semaphore,
}

impl MessageReaders {
    /// At most `count` messages are read at the same time.
    pub(crate) fn new(count: usize) -> Self {
        Self { permits: Semaphore::new(count.max(1)) }
    }

    /// Reads a message when its turn comes. `None`: its connection has ended meanwhile.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        message: LargeMessage,
        parse: fn(Bytes) -> T,
    ) -> Option<ReadMessage<T>> {
        // Never closed, so there is always a permit in the end.
        let _permit = self.permits.acquire().await.ok()?;
        if !message.is_wanted() {
            return None;
        }
        let read = tokio::task::spawn_blocking(move || message.read(parse)).await;
        Some(read.unwrap_or_else(|_| ReadMessage::broken_off()))
    }
}
