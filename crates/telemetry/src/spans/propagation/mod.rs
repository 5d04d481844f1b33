//! The identity of traces in headers: read from those of clients, written into those for subgraphs and brokers.
//!
//! Each format has a module. The formats of the configuration are a [`Propagation`]: of those that a client sends, the
//! first one that is valid counts, and all of them are written.

mod b3;
mod datadog;
mod jaeger;
mod w3c;

use std::borrow::Cow;

use crate::spans::identity::{SpanId, TraceId};

/// A way to write the identity of a trace into headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PropagationFormat {
    /// `traceparent` and `tracestate` (W3C Trace Context).
    TraceContext,
    /// `baggage` (W3C Baggage): no identity, but values that are passed on unchanged.
    Baggage,
    /// `b3`, the single header of Zipkin.
    B3,
    /// `x-b3-traceid`, `x-b3-spanid` and `x-b3-sampled`, the several headers of Zipkin.
    B3Multi,
    /// `uber-trace-id` of Jaeger.
    Jaeger,
    /// `x-datadog-trace-id`, `x-datadog-parent-id`, `x-datadog-sampling-priority` and `x-datadog-tags`.
    Datadog,
}

impl PropagationFormat {
    const ALL: [Self; 6] =
        [Self::TraceContext, Self::Baggage, Self::B3, Self::B3Multi, Self::Jaeger, Self::Datadog];

    /// Returns the names of the headers, in lower case.
    pub fn headers(self) -> &'static [&'static str] {
        match self {
            Self::TraceContext => &[w3c::TRACE_PARENT, w3c::TRACE_STATE],
            Self::Baggage => &[w3c::BAGGAGE],
            Self::B3 => &[b3::SINGLE],
            Self::B3Multi => &b3::MULTI,
            Self::Jaeger => &[jaeger::TRACE],
            Self::Datadog => &datadog::HEADERS,
        }
    }
}

/// The formats that a router reads and writes, each at most once, the preferred ones first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Propagation {
    formats: [Option<PropagationFormat>; PropagationFormat::ALL.len()],
}

/// The part of a trace's identity that all its spans share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceContext {
    /// The id of the trace.
    pub trace: TraceId,
    /// True if the trace was selected at its beginning. The headers for other servers contain it.
    pub is_sampled: bool,
    /// The header `tracestate`, which is passed on unchanged.
    pub state: Option<Box<str>>,
    /// The header `baggage`, which is passed on unchanged.
    pub baggage: Option<Box<str>>,
    /// The headers in which other servers get this identity.
    pub propagation: Propagation,
}

/// The span of a client that a request belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteParent {
    /// The id of its trace.
    pub trace: TraceId,
    /// Its own id.
    pub span: SpanId,
    /// True if the client has selected the trace, false if not; `None` if it leaves that to the router.
    pub is_sampled: Option<bool>,
    /// The value of `tracestate`.
    pub state: Option<Box<str>>,
}

/// The facts about traces in the headers of a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IncomingContext {
    /// The span of the client.
    pub parent: Option<RemoteParent>,
    /// The value of `baggage`.
    pub baggage: Option<Box<str>>,
}

impl Default for Propagation {
    /// W3C Trace Context only.
    fn default() -> Self {
        Self::new([PropagationFormat::TraceContext])
    }
}

impl Propagation {
    /// Creates a list of formats. Repetitions are left out.
    pub fn new(formats: impl IntoIterator<Item = PropagationFormat>) -> Self {
        let mut list = [None; PropagationFormat::ALL.len()];
        for format in formats {
            if !list.contains(&Some(format))
                && let Some(free) = list.iter_mut().find(|it| it.is_none())
            {
                *free = Some(format);
            }
        }
        Self { formats: list }
    }

    /// Iterates over the formats.
    pub fn formats(&self) -> impl Iterator<Item = PropagationFormat> + '_ {
        self.formats.iter().flatten().copied()
    }

    /// Iterates over the names of all headers, in lower case.
    pub fn header_names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.formats().flat_map(PropagationFormat::headers).copied()
    }

    /// Reads the headers of a request. `header` returns the value of a header: `None` if it is absent or not text; of
    /// several headers `tracestate` or `baggage` the values with commas between them, and `None` if another one is
    /// there several times.
    pub fn read<'a>(
        &self,
        header: impl Fn(&'static str) -> Option<Cow<'a, str>>,
    ) -> IncomingContext {
        let mut incoming = IncomingContext::default();
        for format in self.formats() {
            if format == PropagationFormat::Baggage {
                incoming.baggage = w3c::read_baggage(&header);
            } else if incoming.parent.is_none() {
                incoming.parent = match format {
                    PropagationFormat::TraceContext => w3c::read(&header),
                    PropagationFormat::B3 => b3::read_single(&header),
                    PropagationFormat::B3Multi => b3::read_multi(&header),
                    PropagationFormat::Jaeger => jaeger::read(&header),
                    PropagationFormat::Datadog => datadog::read(&header),
                    PropagationFormat::Baggage => None,
                };
            }
        }
        incoming
    }
}

impl TraceContext {
    /// Calls `write` with each header, by name and value, for a server with spans that are children of `span`.
    pub fn write_headers(&self, span: SpanId, mut write: impl FnMut(&'static str, &str)) {
        for format in self.propagation.formats() {
            match format {
                PropagationFormat::TraceContext => w3c::write(self, span, &mut write),
                PropagationFormat::Baggage => {
                    if let Some(baggage) = &self.baggage {
                        write(w3c::BAGGAGE, baggage);
                    }
                }
                PropagationFormat::B3 => b3::write_single(self, span, &mut write),
                PropagationFormat::B3Multi => b3::write_multi(self, span, &mut write),
                PropagationFormat::Jaeger => jaeger::write(self, span, &mut write),
                PropagationFormat::Datadog => datadog::write(self, span, &mut write),
            }
        }
    }
}

/// Parses a trace id of up to 32 hexadecimal digits.
fn trace_id(text: &str) -> Option<TraceId> {
    TraceId::new(u128::from_str_radix(hex(text, 32)?, 16).ok()?)
}

/// Parses a span id of up to 16 hexadecimal digits.
fn span_id(text: &str) -> Option<SpanId> {
    SpanId::new(u64::from_str_radix(hex(text, 16)?, 16).ok()?)
}

/// Signs, which the standard library accepts, are no digits.
fn hex(text: &str, length_max: usize) -> Option<&str> {
    let is_hex = !text.is_empty() && text.bytes().all(|it| it.is_ascii_hexdigit());
    Some(text).filter(|it| is_hex && it.len() <= length_max)
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    pub(crate) const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    pub(crate) const SPAN: &str = "b7ad6b7169203331";

    /// Reads headers in one format.
    pub(crate) fn read(format: PropagationFormat, headers: &[(&str, &str)]) -> IncomingContext {
        let value = |name: &'static str| {
            let found = headers.iter().find(|(known, _)| *known == name)?;
            Some(Cow::Borrowed(found.1))
        };
        Propagation::new([format]).read(value)
    }

    /// Writes the headers of one format for the trace and the span above.
    pub(crate) fn written(
        format: PropagationFormat,
        is_sampled: bool,
    ) -> Vec<(&'static str, String)> {
        let context = TraceContext {
            trace: trace_id(TRACE).expect("an id"),
            is_sampled,
            state: None,
            baggage: Some("a=1".into()),
            propagation: Propagation::new([format]),
        };
        let mut headers = Vec::new();
        let span = span_id(SPAN).expect("an id");
        context.write_headers(span, |name, value| headers.push((name, value.to_owned())));
        headers
    }

    /// Checks that each format is read as it was written.
    pub(crate) fn check_round_trip(format: PropagationFormat) {
        for is_sampled in [false, true] {
            let headers = written(format, is_sampled);
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
            let parent = read(format, &headers).parent.expect("a parent");
            assert_eq!(
                (parent.trace.to_string(), parent.span.to_string()),
                (TRACE.into(), SPAN.into())
            );
            assert_eq!(parent.is_sampled, Some(is_sampled));
            let names: Vec<_> = headers.iter().map(|(name, _)| *name).collect();
            assert!(names.iter().all(|it| format.headers().contains(it)), "{names:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{SPAN, TRACE};
    use super::*;

    #[test]
    fn the_first_valid_format_counts_and_all_are_written() {
        let formats = Propagation::new([
            PropagationFormat::B3,
            PropagationFormat::TraceContext,
            PropagationFormat::B3,
            PropagationFormat::Baggage,
        ]);
        let read = |b3: &'static str| {
            let value = |name| match name {
                "b3" => Some(Cow::Borrowed(b3)),
                "traceparent" => Some(Cow::Owned(format!("00-{TRACE}-{SPAN}-00"))),
                "baggage" => Some(Cow::Borrowed("a=1")),
                _ => None,
            };
            formats.read(value)
        };
        assert_eq!(read("1-2-1").parent.map(|it| it.trace.get()), Some(1));
        let incoming = read("nonsense");
        assert_eq!(incoming.parent.map(|it| it.trace.to_string()).as_deref(), Some(TRACE));
        assert_eq!(incoming.baggage.as_deref(), Some("a=1"));
        assert_eq!(formats.formats().count(), 3);
    }
}
