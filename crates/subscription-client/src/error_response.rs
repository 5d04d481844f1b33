//! The end of a stream with the errors of the subgraph.

use std::sync::Arc;

use bytes::Bytes;
use events::{Event, EventSender, SendOutcome, StreamEnd};

/// Returns a GraphQL response with these errors, a JSON list.
pub(crate) fn error_response(errors: &Bytes) -> Bytes {
    [b"{\"errors\":", &**errors, b"}"].concat().into()
}

/// Ends a stream with these errors, a JSON list, as its last result. If there is no room for them, the end reports that
/// there were some.
pub(crate) fn end_with_errors(mut sender: EventSender, topic: Arc<str>, errors: &Bytes) {
    let end = match sender.try_send(Event::new(topic, error_response(errors))) {
        SendOutcome::Queued | SendOutcome::Closed => StreamEnd::Complete,
        SendOutcome::Dropped { .. } => {
            StreamEnd::Failed("the subgraph ended the operation with errors".into())
        }
    };
    sender.end(end);
}

#[cfg(test)]
mod tests {
    use events::SourceMessage;

    use super::*;

    #[test]
    fn errors_without_room_in_the_stream_are_an_error_of_the_end() {
        let errors = Bytes::from_static(br#"[{"message":"no"}]"#);
        for (room, expected) in [
            (2, StreamEnd::Complete),
            (1, StreamEnd::Failed("the subgraph ended the operation with errors".into())),
        ] {
            let (mut sender, mut stream) = EventSender::new(room);
            sender.try_send(Event::new("a", "{}"));
            end_with_errors(sender, "a".into(), &errors);
            let mut last = None;
            while let Ok(message) = stream.messages.try_recv() {
                last = Some(message);
            }
            assert_eq!(last, Some(SourceMessage::End(expected)));
        }
    }
}
