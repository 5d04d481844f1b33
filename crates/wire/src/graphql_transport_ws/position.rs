//! The position of an operation, sent between its results as a `ping`, which the protocol allows to have a payload.
//! Client libraries respond to it by themselves, and pass the payload to an application that listens for pings.

use bytes::Bytes;

use crate::Chunks;
use crate::websocket::append_text_head;

/// The text before the id of the operation.
const BEFORE_ID: &[u8] = br#"{"type":"ping","payload":{"id":"#;
/// The text between the id and the cursor.
const BEFORE_CURSOR: &[u8] = br#","cursor":""#;
/// The text behind the cursor.
pub(crate) const POSITION_TAIL: &[u8] = b"\"}}";

/// Appends the frame header and the text before the cursor, `{"type":"ping","payload":{"id":…,"cursor":"`. It allocates
/// nothing when `out` has room.
pub(crate) fn append_position_head(id: &str, cursor_len: usize, out: &mut Vec<u8>) {
    let quotes = br#""""#.len();
    let prefix_len = BEFORE_ID.len() + quotes + id.len() + BEFORE_CURSOR.len();
    let rest_len = cursor_len + POSITION_TAIL.len();
    append_text_head(prefix_len, rest_len, out, |out| append_prefix(id, out));
}

/// Returns the whole message: `cursor`, text that needs no escapes, is shared and not copied.
pub(crate) fn position_message(id: &str, cursor: Bytes) -> Chunks {
    let mut head = Vec::new();
    append_prefix(id, &mut head);
    Chunks { head: head.into(), body: cursor, tail: POSITION_TAIL }
}

fn append_prefix(id: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(BEFORE_ID);
    astjson::print_string(id, out);
    out.extend_from_slice(BEFORE_CURSOR);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::websocket::{FrameHeader, Opcode};

    #[test]
    fn a_position_is_a_ping_that_names_operation_and_cursor() {
        let said = position_message("a\"1", "Abc-_9".into()).to_vec();
        let expected = r#"{"type":"ping","payload":{"id":"a\"1","cursor":"Abc-_9"}}"#;
        assert_eq!(String::from_utf8(said).unwrap(), expected);
    }

    #[test]
    fn a_frame_written_by_hand_equals_the_one_that_the_machines_write() {
        for id in ["1", "8f3c-\"quoted\"-\u{1}", &"x".repeat(90), &"\"".repeat(90)] {
            for cursor_len in [2, 60, 256, 70_000] {
                let cursor = Bytes::from(vec![b'7'; cursor_len]);
                let text = position_message(id, cursor.clone()).to_vec();
                let expected = [&*FrameHeader::new(Opcode::Text, text.len()), &text].concat();
                let mut frame = b"before".to_vec();
                append_position_head(id, cursor_len, &mut frame);
                frame.extend([&cursor[..], POSITION_TAIL].concat());
                assert_eq!(frame, [b"before", &expected[..]].concat());
            }
        }
    }
}
