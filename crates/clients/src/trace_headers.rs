//! The identity of a client's trace, from the headers of a request, or from the `extensions` of an operation on a
//! WebSocket.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use telemetry::spans::{IncomingContext, Propagation};

use crate::request_extensions::string_of;

/// The longest text of extensions that is read: as much as the headers of a request may be. Longer ones have no
/// identity.
const EXTENSIONS_BYTES_MAX: usize = 16 * 1024;

/// The headers that a request may have several times, as one list.
const LIST_HEADERS: [&str; 2] = ["tracestate", "baggage"];

/// Reads the headers of a request.
pub fn read_trace_context(formats: Propagation, headers: &HeaderMap) -> IncomingContext {
    formats.read(|name| trace_header(headers, name))
}

/// Reads the members of `extensions`, the text of an object, that are named after headers in any case. Of several
/// members for one header, the last one counts. Values that could not be a header are left out, because the router
/// passes some of them on as such.
pub fn read_trace_extensions(formats: Propagation, extensions: &Bytes) -> IncomingContext {
    let mut found: Vec<(&'static str, String)> = Vec::new();
    if extensions.is_empty() || extensions.len() > EXTENSIONS_BYTES_MAX {
        return IncomingContext::default();
    }
    let read = astjson::outline_members(extensions, |key, value| {
        let header = formats.header_names().find(|name| key.eq_ignore_ascii_case(name));
        let text = header.and_then(|_| string_of(value).ok()).filter(|it| is_header_text(it));
        found.extend(header.zip(text));
    });
    if read.is_err() {
        return IncomingContext::default();
    }
    formats.read(|name| {
        let member = found.iter().rev().find(|(header, _)| *header == name);
        member.map(|(_, value)| Cow::Borrowed(value.as_str()))
    })
}

/// True for a text that the header of a request may have.
fn is_header_text(text: &str) -> bool {
    HeaderValue::from_str(text).is_ok_and(|it| it.to_str().is_ok())
}

/// Returns a header with an identity. Of several ones the values are joined if they are lists; others are as good as
/// none.
fn trace_header<'a>(headers: &'a HeaderMap, name: &'static str) -> Option<Cow<'a, str>> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().ok()?;
    let Some(second) = values.next() else { return Some(first.into()) };
    if !LIST_HEADERS.contains(&name) {
        return None;
    }
    let mut joined = first.to_owned();
    for value in std::iter::once(second).chain(values) {
        joined.push(',');
        joined.push_str(value.to_str().ok()?);
    }
    Some(joined.into())
}

#[cfg(test)]
mod tests {
    use telemetry::spans::PropagationFormat;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    /// Reads extensions with the formats of W3C and B3.
    fn read(extensions: &str) -> IncomingContext {
        let formats =
            [PropagationFormat::TraceContext, PropagationFormat::Baggage, PropagationFormat::B3];
        let extensions = Bytes::copy_from_slice(extensions.as_bytes());
        read_trace_extensions(Propagation::new(formats), &extensions)
    }

    #[test]
    fn extensions_have_members_that_are_named_after_headers() {
        let w3c = format!(
            r#"{{"other":[{{}}],"TraceParent":"{PARENT}","tracestate":"a=1","baggage":"b=2"}}"#
        );
        let incoming = read(&w3c);
        let parent = incoming.parent.expect("a parent");
        assert_eq!(parent.span.to_string(), "b7ad6b7169203331");
        assert_eq!((parent.is_sampled, parent.state.as_deref()), (Some(true), Some("a=1")));
        assert_eq!(incoming.baggage.as_deref(), Some("b=2"));
        let b3 = read(r#"{"traceparent":null,"b3":"1-2-0"}"#).parent.expect("a parent");
        assert_eq!((b3.trace.get(), b3.is_sampled), (1, Some(false)));
        let last = read(&format!(r#"{{"traceparent":"nonsense","traceparent":"{PARENT}"}}"#));
        assert!(last.parent.is_some());
    }

    #[test]
    fn extensions_without_an_identity_have_none() {
        let long =
            format!(r#"{{"a":"{}","traceparent":"{PARENT}"}}"#, "x".repeat(EXTENSIONS_BYTES_MAX));
        let broken = format!(r#"{{"traceparent":"{PARENT}""#);
        let other = format!(r#"{{"x-parent":"{PARENT}","traceparent":["{PARENT}"],"b3":1}}"#);
        let injected = r#"{"baggage":"a=1\r\nauthorization: Bearer x","tracestate":"\u0000"}"#;
        for extensions in ["", "{}", "[]", "null", &long, &broken, &other, injected] {
            assert_eq!(read(extensions), IncomingContext::default(), "{extensions}");
        }
    }

    #[test]
    fn several_headers_with_lists_are_one() {
        let mut headers = HeaderMap::new();
        for value in ["a=1", "b=2"] {
            headers.append("tracestate", HeaderValue::from_static(value));
            headers.append("b3", HeaderValue::from_static(value));
        }
        assert_eq!(trace_header(&headers, "tracestate").as_deref(), Some("a=1,b=2"));
        assert_eq!(trace_header(&headers, "b3"), None);
        assert_eq!(trace_header(&headers, "baggage"), None);
    }
}
