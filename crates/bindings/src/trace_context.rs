//! The identity of a trace in the headers of messages: written to those that a request publishes, and read from those
//! of events. Without traces of its own the router copies W3C trace context (`traceparent`, `tracestate`) from a
//! request to the message that it publishes, and from an event to the requests that it causes.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use events::{Event, Headers};
use execute::{EventRequest, ForwardedHeaders};
use http::{HeaderName, HeaderValue};
use telemetry::spans::{IncomingContext, Propagation};

/// The maximum size of one header of an event that is read, in bytes: a `baggage` has at most that much (W3C Baggage,
/// section 3.3.2).
const HEADER_BYTES_MAX: usize = 8192;

/// The headers, and the maximum size of each in bytes: `traceparent` has 55 in its first version, and routers forward
/// `tracestate` up to 512 (W3C Trace Context, sections 3.2 and 3.3).
const NAMES: [(&str, usize); 2] = [("traceparent", 128), ("tracestate", 512)];

/// Returns the trace context for the message of a request: that of its span, or else that among the forwarded headers.
pub(crate) fn message_context(request: &EventRequest<'_>) -> Headers {
    let Some(span) = request.span else { return read_request_context(request.headers) };
    let mut headers = Headers::new();
    span.write_headers(|name, value| {
        headers.push((name.into(), Bytes::copy_from_slice(value.as_bytes())));
    });
    headers
}

/// Returns the trace context of a request as headers of a message.
fn read_request_context(headers: &[(HeaderName, HeaderValue)]) -> Headers {
    let found = NAMES.iter().filter_map(|&(name, most)| {
        let (_, value) = headers.iter().find(|(known, _)| known.as_str() == name)?;
        let bytes = value.as_bytes();
        (bytes.len() <= most).then(|| (name.into(), Bytes::copy_from_slice(bytes)))
    });
    found.collect()
}

/// Returns the identity of the trace that published an event, from headers in one of `formats`. A header that is too
/// long or comes twice is ignored.
pub fn read_event_trace(formats: Propagation, event: &Event) -> IncomingContext {
    let Some(headers) = &event.headers else { return IncomingContext::default() };
    formats.read(|name| {
        let mut values = headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        let (_, value) = values.next()?;
        let is_single = values.next().is_none();
        let text = std::str::from_utf8(value).ok().map(Cow::Borrowed);
        text.filter(|text| is_single && text.len() <= HEADER_BYTES_MAX)
    })
}

/// Returns `headers` with the trace context of `event`, or unchanged if the event has none.
pub fn with_event_trace_context(
    event: &Event,
    headers: &Arc<ForwardedHeaders>,
) -> Arc<ForwardedHeaders> {
    let Some(sent) = &event.headers else { return Arc::clone(headers) };
    let context: Vec<_> = NAMES
        .iter()
        .filter_map(|&(name, most)| {
            let (_, value) = sent.iter().find(|(known, _)| known.eq_ignore_ascii_case(name))?;
            let value = Some(value).filter(|value| value.len() <= most)?;
            let value = HeaderValue::from_bytes(value).ok()?;
            Some((HeaderName::from_static(name), value))
        })
        .collect();
    // `tracestate` without `traceparent` has no meaning.
    if context.first().is_none_or(|(name, _)| name.as_str() != "traceparent") {
        return Arc::clone(headers);
    }
    let mut changed = ForwardedHeaders::clone(headers);
    let lists = changed.by_subgraph.iter_mut().map(|(_, list)| list);
    for list in std::iter::once(&mut changed.all).chain(lists) {
        list.retain(|(name, _)| NAMES.iter().all(|(known, _)| name.as_str() != *known));
        list.extend(context.iter().cloned());
        // Requests are compared by the order of their headers too.
        list.sort_by(|(one, _), (other, _)| one.as_str().cmp(other.as_str()));
    }
    Arc::new(changed)
}

#[cfg(test)]
mod tests {
    use telemetry::spans::{OutgoingSpan, PropagationFormat, SpanId, TraceContext, TraceId};

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    /// Each format that names a trace, with the headers of a message. `TRACE`, `SPAN` and `DECIMAL` are replaced by the
    /// ids of the trace and the span. Datadog has the halves of [`TRACE`] in two headers.
    const FORMATS: [(PropagationFormat, &[(&str, &str)]); 5] = [
        (PropagationFormat::TraceContext, &[("traceparent", "00-TRACE-SPAN-01")]),
        (PropagationFormat::B3, &[("b3", "TRACE-SPAN-1")]),
        (
            PropagationFormat::B3Multi,
            &[("x-b3-traceid", "TRACE"), ("x-b3-spanid", "SPAN"), ("x-b3-sampled", "1")],
        ),
        (PropagationFormat::Jaeger, &[("uber-trace-id", "TRACE:SPAN:0:1")]),
        (
            PropagationFormat::Datadog,
            &[
                ("x-datadog-trace-id", "178"),
                ("x-datadog-parent-id", "DECIMAL"),
                ("x-datadog-sampling-priority", "1"),
                ("x-datadog-tags", "_dd.p.tid=00000000000000a1"),
            ],
        ),
    ];

    /// The id of the trace in the headers of [`FORMATS`].
    const TRACE: u128 = 0xa1 << 64 | 0xb2;

    /// Returns the headers of a format in [`FORMATS`] for the trace and a span.
    fn format_headers(headers: &[(&str, &str)], span: SpanId) -> Headers {
        let fill = |value: &str| {
            let value = value.replace("TRACE", &format!("{TRACE:032x}"));
            let value = value.replace("SPAN", &span.to_string());
            value.replace("DECIMAL", &span.get().to_string())
        };
        headers.iter().map(|&(name, value)| (name.into(), fill(value).into())).collect()
    }

    fn header(name: &'static str, value: &'static str) -> (HeaderName, HeaderValue) {
        (HeaderName::from_static(name), HeaderValue::from_static(value))
    }

    fn event(headers: &[(&str, &'static str)]) -> Event {
        let headers = headers.iter().map(|&(name, value)| (name.into(), value.into())).collect();
        Event { headers: Some(Arc::new(headers)), ..Event::new("t", "{}") }
    }

    #[test]
    fn only_the_trace_context_of_a_request_is_copied() {
        let headers = [
            header("authorization", "secret"),
            header("traceparent", PARENT),
            header("tracestate", "a=1"),
        ];
        let given: Headers =
            vec![("traceparent".into(), PARENT.into()), ("tracestate".into(), "a=1".into())];
        assert_eq!(read_request_context(&headers), given);
        assert_eq!(read_request_context(&headers[..1]), Headers::new());
    }

    #[test]
    fn the_trace_of_a_publisher_is_read_from_the_headers_of_its_event() {
        let formats = Propagation::new([PropagationFormat::TraceContext, PropagationFormat::B3]);
        let read = |headers: &[(&str, &'static str)]| {
            let parent = read_event_trace(formats, &event(headers)).parent;
            parent.map(|it| (it.span.to_string(), it.is_sampled))
        };
        let span = "b7ad6b7169203331";
        assert_eq!(read(&[("Traceparent", PARENT), ("x", "y")]), Some((span.into(), Some(true))));
        assert_eq!(read(&[("b3", "1-2-0")]), Some((format!("{:016x}", 2), Some(false))));
        for unusable in [&[][..], &[("traceparent", "00-old")], &[("traceparent", PARENT); 2]] {
            assert_eq!(read(unusable), None, "{unusable:?}");
        }
        assert_eq!(read_event_trace(formats, &Event::new("t", "{}")), IncomingContext::default());
    }

    /// Returns the request of a message, with a span if it has one.
    fn message(span: Option<&OutgoingSpan>) -> EventRequest<'_> {
        EventRequest {
            field: graph::FieldId(0),
            arguments: Bytes::new(),
            headers: &[],
            claims: None,
            deadline: std::time::Instant::now(),
            span,
        }
    }

    #[test]
    fn the_span_of_a_message_takes_the_place_of_the_context_among_the_headers() {
        let trace = TraceId::new(0x0af7).expect("an id");
        let context = Arc::new(TraceContext {
            trace,
            is_sampled: true,
            state: Some("b=2".into()),
            baggage: None,
            propagation: Propagation::default(),
        });
        let span = OutgoingSpan::new(&context);
        let forwarded = [header("traceparent", PARENT), header("tracestate", "a=1")];
        let request = |span| EventRequest { headers: &forwarded, ..message(span) };
        let own = format!("00-{trace}-{}-01", span.id);
        let sent: Headers =
            vec![("traceparent".into(), own.into()), ("tracestate".into(), "b=2".into())];
        assert_eq!(message_context(&request(Some(&span))), sent);
        assert_eq!(message_context(&request(None)), read_request_context(&forwarded));
    }

    #[test]
    fn every_format_is_read_from_events_and_written_into_messages() {
        for (format, headers) in FORMATS {
            let propagation = Propagation::new([format]);
            let context = Arc::new(TraceContext {
                trace: TraceId::new(TRACE).expect("an id"),
                is_sampled: true,
                state: None,
                baggage: Some("user=1".into()),
                propagation,
            });
            let span = OutgoingSpan::new(&context);
            let expected = format_headers(headers, span.id);
            assert_eq!(message_context(&message(Some(&span))), expected, "{format:?}");

            let event = Event { headers: Some(Arc::new(expected)), ..Event::new("t", "{}") };
            let read = read_event_trace(propagation, &event).parent.expect("a parent");
            let found = (read.trace, read.span, read.is_sampled);
            assert_eq!(found, (context.trace, span.id, Some(true)), "{format:?}");
            // Headers of a format that is not configured are ignored.
            for (other, _) in FORMATS.into_iter().filter(|(other, _)| *other != format) {
                let found = read_event_trace(Propagation::new([other]), &event);
                assert_eq!(found, IncomingContext::default(), "{format:?} read as {other:?}");
            }
        }
    }

    #[test]
    fn baggage_is_read_from_events_and_written_into_messages() {
        let formats =
            Propagation::new([PropagationFormat::TraceContext, PropagationFormat::Baggage]);
        let event = event(&[("traceparent", PARENT), ("Baggage", "user=1")]);
        let read = read_event_trace(formats, &event);
        assert_eq!(read.baggage.as_deref(), Some("user=1"));
        let context = Arc::new(TraceContext {
            trace: read.parent.expect("a parent").trace,
            is_sampled: true,
            state: None,
            baggage: read.baggage,
            propagation: formats,
        });
        let span = OutgoingSpan::new(&context);
        let parent = format!("00-{}-{}-01", context.trace, span.id);
        let sent: Headers =
            vec![("traceparent".into(), parent.into()), ("baggage".into(), "user=1".into())];
        assert_eq!(message_context(&message(Some(&span))), sent);
    }

    #[test]
    fn the_trace_context_of_an_event_is_sent_to_every_subgraph() {
        let own = vec![header("traceparent", "00-old"), header("x-tenant", "7")];
        let headers = Arc::new(ForwardedHeaders {
            all: vec![header("authorization", "a")],
            by_subgraph: vec![(graph::SubgraphId(1), own)],
            ..ForwardedHeaders::default()
        });
        let changed =
            with_event_trace_context(&event(&[("Traceparent", PARENT), ("x", "y")]), &headers);
        assert_eq!(changed.all, [header("authorization", "a"), header("traceparent", PARENT)]);
        let own = [header("traceparent", PARENT), header("x-tenant", "7")];
        assert_eq!(changed.by_subgraph, [(graph::SubgraphId(1), own.to_vec())]);
        for without in
            [event(&[("tracestate", "a=1")]), event(&[("traceparent", "\n")]), Event::new("t", "")]
        {
            assert!(Arc::ptr_eq(&with_event_trace_context(&without, &headers), &headers));
        }
    }
}
