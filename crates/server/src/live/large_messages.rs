//! The reading of large WebSocket messages: the blocking pool expands and parses them under the limit that HTTP bodies
//! have, in turns with those of other clients. Each connection waits for its message, so it has one at most.

use std::time::{Duration, Instant};

use bytes::Bytes;
use execute::ClientKey;
use wire::websocket::{LargeMessage, ReadMessage};

use crate::offload::{NotDone, Offload};

/// How long a connection waits when there is no place in the queue for its message. Nothing is read of it meanwhile.
const FULL_PAUSE: Duration = Duration::from_millis(50);

/// Reads a message when its turn comes, by `deadline`. `None`: its connection has ended meanwhile.
pub(super) async fn read<T: Send + 'static>(
    offload: &Offload,
    client: ClientKey,
    deadline: Instant,
    message: LargeMessage,
    parse: fn(Bytes) -> T,
) -> Option<ReadMessage<T>> {
    while message.is_wanted() {
        // Shares its bytes: the place in the queue may be refused, and the message is needed again.
        let (copy, until) = (message.clone(), deadline);
        match offload.run(client, message.len(), until, move || copy.read(parse)).await {
            Ok(read) => return Some(read),
            Err(NotDone::Failed) => return Some(ReadMessage::broken_off()),
            Err(NotDone::Overloaded) if deadline <= Instant::now() => {
                return Some(ReadMessage::too_late());
            }
            Err(NotDone::Overloaded) => tokio::time::sleep(FULL_PAUSE).await,
        }
    }
    None
}
