//! The members of `extensions` that the router adds to the request of an operation. No I/O.

use astjson::outline_members;
use bytes::Bytes;
use events::SubgraphSubscription;

/// Returns the request of an operation on a WebSocket. All operations of a connection share the headers of its
/// handshake, so the headers of a trace are members of `extensions`, by their names.
pub(crate) fn with_trace(wanted: &SubgraphSubscription) -> Bytes {
    if wanted.trace.is_empty() {
        return wanted.request.clone();
    }
    let printed = wanted.trace.iter().filter_map(|(name, value)| {
        let mut text = Vec::new();
        astjson::print_string(value.to_str().ok()?, &mut text);
        Some((name.as_str(), text))
    });
    let with_extensions = add_extensions(&wanted.request, &printed.collect::<Vec<_>>());
    // A trace is no reason to refuse an operation.
    with_extensions.unwrap_or_else(|| wanted.request.clone())
}

/// Returns a request, a JSON object, with further members in its `extensions`: names with values in JSON. They replace
/// members with their names. `None` if the request is nested too deep to be read.
pub(crate) fn add_extensions(request: &Bytes, added: &[(&str, Vec<u8>)]) -> Option<Bytes> {
    let is_added = |key: &str| added.iter().any(|(name, _)| *name == key);
    let mut text = vec![b'{'];
    let mut extensions = vec![b'{'];
    let outlined = outline_members(request, |key, member| match &*key {
        "extensions" => {
            // The text was read as a part of the request.
            let _ = outline_members(&member, |key, member| {
                if !is_added(&key) {
                    append_member(&mut extensions, &key, &member);
                }
            });
        }
        key => append_member(&mut text, key, &member),
    });
    outlined.ok()?;
    for (name, value) in added {
        append_member(&mut extensions, name, value);
    }
    extensions.push(b'}');
    append_member(&mut text, "extensions", &extensions);
    text.push(b'}');
    Some(text.into())
}

/// Appends a member to an object that was opened.
fn append_member(object: &mut Vec<u8>, name: &str, value: &[u8]) {
    if object.len() > 1 {
        object.push(b',');
    }
    astjson::print_string(name, object);
    object.push(b':');
    object.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn extensions_are_added_to_those_of_the_client_and_replace_those_with_their_names() {
        for (request, expected) in [
            (r#"{"query":"a"}"#, r#"{"query":"a","extensions":{"s":{"x":1}}}"#),
            (
                r#"{"query":"a","extensions":{"t":"u","s":2},"variables":{}}"#,
                r#"{"query":"a","variables":{},"extensions":{"t":"u","s":{"x":1}}}"#,
            ),
        ] {
            let added = [("s", br#"{"x":1}"#.to_vec())];
            let request = add_extensions(&Bytes::from(request), &added);
            assert_eq!(request.as_deref(), Some(expected.as_bytes()));
        }
    }

    #[test]
    fn the_headers_of_a_trace_are_extensions_of_the_request() {
        let header = |name, value| (HeaderName::from_static(name), HeaderValue::from_static(value));
        let request = |trace: &[(HeaderName, HeaderValue)]| {
            with_trace(&SubgraphSubscription {
                field: "Subscription.n".into(),
                request: r#"{"query":"a","extensions":{"t":1}}"#.into(),
                headers: [header("x-token", "secret")].into(),
                trace: trace.into(),
                partition: Box::default(),
            })
        };
        assert_eq!(request(&[]), r#"{"query":"a","extensions":{"t":1}}"#);
        let trace = [header("traceparent", "00-1-2-01"), header("baggage", "a=\"b\"")];
        let expected =
            r#"{"query":"a","extensions":{"t":1,"traceparent":"00-1-2-01","baggage":"a=\"b\""}}"#;
        assert_eq!(request(&trace), expected);
    }
}
