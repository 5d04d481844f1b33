//! The identity of traces in headers: read from those of clients, written into those for subgraphs and brokers.
//!
//! Each format has a module, and `context` has what is read and written. The formats of the configuration are a
//! [`Propagation`]: of those that a client sends, the first one that is valid counts, and all of them are written.

mod b3;
mod context;
mod datadog;
mod hex_ids;
mod jaeger;
mod w3c;

use std::borrow::Cow;

pub use context::{IncomingContext, Propagation, PropagationFormat, RemoteParent, TraceContext};

use crate::spans::identity::SpanId;

impl PropagationFormat {
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

impl Propagation {
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

#[cfg(test)]
pub(crate) mod testing {
    use super::hex_ids::{span_id, trace_id};
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
