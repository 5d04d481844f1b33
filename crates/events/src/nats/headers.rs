//! Conversion of event headers to those of NATS and back.

use std::str::FromStr;
use std::sync::Arc;

use async_nats::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;

use crate::Headers;

/// The prefix of headers that are commands to JetStream: to purge a stream (`Nats-Rollup`), to publish only under a
/// condition, to let messages expire.
const COMMANDS: &str = "Nats-";

/// The only header with that prefix that an event may have: JetStream does not store an event again whose id it knows.
const MESSAGE_ID: &str = "Nats-Msg-Id";

/// Checks that published events may have a header of that name.
pub(super) fn check_name(name: &str) -> Result<(), &'static str> {
    let is_command =
        name.get(..COMMANDS.len()).is_some_and(|start| start.eq_ignore_ascii_case(COMMANDS));
    if is_command && name != MESSAGE_ID {
        Err("headers that begin with Nats- are commands to JetStream; only Nats-Msg-Id may be sent")
    } else {
        Ok(())
    }
}

/// Converts headers to NATS. The error is the rule that one of them breaks.
pub(super) fn to_nats(headers: &Headers) -> Result<HeaderMap, &'static str> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        if name.is_empty() {
            return Err("a header has no name");
        }
        check_name(name)?;
        let name = HeaderName::from_str(name)
            .map_err(|_| "the name of a header has a character that NATS does not carry")?;
        let value = std::str::from_utf8(value)
            .ok()
            .and_then(|value| HeaderValue::from_str(value).ok())
            .ok_or("the value of a header is not a single line of text")?;
        map.append(name, value);
    }
    Ok(map)
}

/// Converts headers from NATS. Returns `None` if there are none. They are in the order of their names, because NATS
/// keeps no order of its own.
pub(super) fn from_nats(map: Option<&HeaderMap>) -> Option<Arc<Headers>> {
    let map = map.filter(|map| !map.is_empty())?;
    let mut headers: Headers = Vec::with_capacity(map.len());
    for (name, values) in map.iter() {
        let name: &str = name.as_ref();
        headers.extend(
            values
                .iter()
                .map(|value| (name.into(), Bytes::copy_from_slice(value.as_str().as_bytes()))),
        );
    }
    // The sort is stable, so values of one name stay in order.
    headers.sort_by(|a, b| a.0.cmp(&b.0));
    Some(Arc::new(headers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&str, &str)]) -> Headers {
        list.iter().map(|&(name, value)| (name.into(), value.to_owned().into())).collect()
    }

    #[test]
    fn headers_are_received_in_the_order_of_their_names_with_all_their_values() {
        let sent = headers(&[("x-b", "2"), ("traceparent", "00-ü"), ("x-b", "1")]);
        let map = to_nats(&sent).unwrap();
        let expected = headers(&[("traceparent", "00-ü"), ("x-b", "2"), ("x-b", "1")]);
        assert_eq!(from_nats(Some(&map)).as_deref(), Some(&expected));
        assert_eq!(from_nats(Some(&HeaderMap::new())), None);
        assert_eq!(from_nats(None), None);
    }

    #[test]
    fn a_header_cannot_be_a_command_to_jetstream() {
        for name in [
            "Nats-Rollup",
            "nats-rollup",
            "NATS-TTL",
            "Nats-Expected-Stream",
            "nats-msg-id",
            "Nats-",
        ] {
            assert!(check_name(name).is_err(), "{name}");
            assert!(to_nats(&headers(&[(name, "all")])).is_err(), "{name}");
        }
        for name in ["Nats-Msg-Id", "Nats", "x-Nats-Rollup", "traceparent", "ä"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn a_header_never_becomes_two() {
        for (name, value) in
            [("a b", "x"), ("a:b", "x"), ("", "x"), ("a", "x\r\nb: y"), ("a\r\nb", "")]
        {
            assert!(to_nats(&headers(&[(name, value)])).is_err(), "{name:?} {value:?}");
        }
        let binary: Headers = vec![("a".into(), Bytes::from_static(b"\xff"))];
        assert!(to_nats(&binary).is_err());
    }
}
