//! The identity of a client's trace, from the headers of a request or a handshake.

use std::borrow::Cow;

use http::HeaderMap;
use telemetry::spans::{IncomingContext, Propagation};

/// The headers that a request may have several times, as one list.
const LIST_HEADERS: [&str; 2] = ["tracestate", "baggage"];

/// Reads the headers of a request.
pub fn read_trace_context(formats: Propagation, headers: &HeaderMap) -> IncomingContext {
    formats.read(|name| trace_header(headers, name))
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
    use http::HeaderValue;

    use super::*;

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
