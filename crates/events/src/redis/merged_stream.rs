//! Merging several streams into one, for keys or channels on different servers. Each part keeps its order; there is no
//! order between parts. No event is dropped here: if the reader is slow, the queues of the parts fill up.

use futures_util::StreamExt;
use futures_util::stream::select_all;
use tokio::sync::mpsc;

use crate::{EventStream, SourceMessage};

/// The number of messages that wait between the parts and the reader, in addition to those that begin the stream. The
/// parts have queues of their own.
const MESSAGES_MAX: usize = 16;

/// Merges the parts. With `only_latest`, only the latest of the events that the parts begin with is delivered.
pub(super) fn merge_streams(
    mut parts: Vec<EventStream>,
    only_latest: bool,
    runtime: &tokio::runtime::Handle,
) -> EventStream {
    // A stream begins with its position, which each part has reported when it was opened.
    let (mut begin, mut events) = (Vec::new(), Vec::new());
    for part in &mut parts {
        while let Ok(message) = part.messages.try_recv() {
            match message {
                SourceMessage::Progress(_) => begin.push(message),
                other => {
                    events.push(other);
                    break;
                }
            }
        }
    }
    if only_latest {
        let time = |message: &SourceMessage| match message {
            SourceMessage::Event(event) => event
                .partition_offset
                .map(|partition_offset| (partition_offset.offset, partition_offset.part)),
            _ => None,
        };
        let latest = events.iter().filter_map(time).max();
        for message in &mut events {
            if let SourceMessage::Event(event) = &message
                && let Some(partition_offset) = event.partition_offset
                && time(message) != latest
            {
                *message = SourceMessage::Progress(partition_offset);
            }
        }
    }
    begin.extend(events);
    let (sender, messages) = mpsc::channel(begin.len() + MESSAGES_MAX);
    for message in begin {
        // The queue has a slot for each of them.
        let _ = sender.try_send(message);
    }
    runtime.spawn(async move {
        let streams = parts.into_iter().map(|mut part| {
            futures_util::stream::poll_fn(move |context| part.messages.poll_recv(context))
        });
        let mut all = select_all(streams);
        loop {
            let message = tokio::select! {
                message = all.next() => message,
                () = sender.closed() => return,
            };
            let Some(message) = message else { return };
            let is_end = matches!(message, SourceMessage::End(_));
            if sender.send(message).await.is_err() || is_end {
                return;
            }
        }
    });
    EventStream { messages }
}
