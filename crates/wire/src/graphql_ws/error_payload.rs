//! The payloads of error messages.

use std::borrow::Cow;

use astjson::Document;
use bytes::Bytes;

/// Returns `{"message":…}`.
pub(super) fn error_payload(message: &str) -> Vec<u8> {
    let mut payload = br#"{"message":"#.to_vec();
    astjson::print_string(message, &mut payload);
    payload.push(b'}');
    payload
}

/// Returns the payload of an `error` message for a JSON list of GraphQL errors. The protocol has room for one error, an
/// object; the list goes beside its message, where the npm client looks for it.
pub(super) fn errors_payload(errors: &[u8]) -> Vec<u8> {
    let mut payload = error_payload(&first_message(errors));
    payload.pop();
    payload.extend_from_slice(br#","errors":"#);
    payload.extend_from_slice(errors);
    payload.push(b'}');
    payload
}

fn first_message(errors: &[u8]) -> String {
    let mut document = Document::new();
    let message = document.parse(Bytes::copy_from_slice(errors)).ok().and_then(|list| {
        let first = document.elements(list).next()?;
        document.as_str(document.get(first, "message")?).map(Cow::into_owned)
    });
    message.unwrap_or_else(|| "the operation failed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_gives_the_message_and_all_are_beside_it() {
        let text = |errors: &str| String::from_utf8(errors_payload(errors.as_bytes())).unwrap();
        assert_eq!(
            text(r#"[{"message":"a \"b\""},{"message":"c"}]"#),
            r#"{"message":"a \"b\"","errors":[{"message":"a \"b\""},{"message":"c"}]}"#
        );
        assert_eq!(text("[]"), r#"{"message":"the operation failed","errors":[]}"#);
    }
}
