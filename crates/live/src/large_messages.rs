//! The reading of large WebSocket messages: the blocking pool expands and parses them under the limit of HTTP bodies,
//! in turn with those of other clients. Each connection waits for its message, so it has at most one.

use std::time::Instant;

use bytes::Bytes;
use clients::offload::{Offload, OffloadError};
use execute::ClientKey;
use wire::websocket::{LargeMessage, ReadMessage};

/// Reads a message when its turn comes, before `deadline`. The caller reads nothing more of its connection meanwhile.
pub(super) async fn read_large_message<T: Send + 'static>(
    offload: &Offload,
    client: ClientKey,
    deadline: Instant,
    message: LargeMessage,
    parse: fn(Bytes) -> T,
) -> ReadMessage<T> {
    let size = message.len();
    let read = offload.run_or_wait(client, size, deadline, move || message.read(parse));
    match read.await {
        Ok(message) => message,
        Err(OffloadError::Failed) => ReadMessage::broken_off(),
        Err(OffloadError::Overloaded) => ReadMessage::too_late(),
    }
}
