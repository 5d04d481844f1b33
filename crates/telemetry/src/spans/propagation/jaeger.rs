//! The header of Jaeger's clients (Jaeger documentation, "Propagation Format"). Its headers for baggage, `uberctx-…`,
//! are neither read nor written.

use std::borrow::Cow;

use super::context::{RemoteParent, TraceContext};
use super::hex_ids::{span_id, trace_id};
use crate::spans::identity::SpanId;

pub(super) const TRACE: &str = "uber-trace-id";

/// The flag of a trace that is selected.
const FLAG_SAMPLED: u8 = 1;

/// Reads `TRACE:SPAN:PARENT:FLAGS`. Leading zeros may be left out, and the colons may be encoded as in a URL.
pub(super) fn read<'a>(
    header: &impl Fn(&'static str) -> Option<Cow<'a, str>>,
) -> Option<RemoteParent> {
    let text = header(TRACE)?;
    let text = text.replace("%3A", ":").replace("%3a", ":");
    let mut parts = text.split(':');
    let (trace, span) = (trace_id(parts.next()?)?, span_id(parts.next()?)?);
    // The parent of the client's span is deprecated, and 0 without one.
    let (_, flags) = (parts.next()?, parts.next()?);
    let is_sampled = u8::from_str_radix(flags, 16).ok()? & FLAG_SAMPLED != 0;
    let is_whole = parts.next().is_none();
    is_whole.then_some(RemoteParent { trace, span, is_sampled: Some(is_sampled), state: None })
}

pub(super) fn write(
    context: &TraceContext,
    span: SpanId,
    write: &mut impl FnMut(&'static str, &str),
) {
    let flags = u8::from(context.is_sampled);
    write(TRACE, &format!("{}:{span}:0:{flags}", context.trace));
}

#[cfg(test)]
mod tests {
    use super::super::PropagationFormat::Jaeger;
    use super::super::testing::{check_round_trip, read};

    #[test]
    fn the_header_is_read_with_short_ids_and_encoded_colons() {
        check_round_trip(Jaeger);
        let parse = |text: &str| {
            let parent = read(Jaeger, &[("uber-trace-id", text)]).parent?;
            Some((parent.trace.get(), parent.span.get(), parent.is_sampled))
        };
        assert_eq!(parse("a1:b2:0:1"), Some((0xa1, 0xb2, Some(true))));
        assert_eq!(parse("a1%3Ab2%3a7%3A2"), Some((0xa1, 0xb2, Some(false))));
        for invalid in ["", "a1", "a1:b2:0", "0:b2:0:1", "a1:0:0:1", "a1:b2:0:x", "a1:b2:0:1:1"] {
            assert_eq!(parse(invalid), None, "{invalid}");
        }
    }
}
