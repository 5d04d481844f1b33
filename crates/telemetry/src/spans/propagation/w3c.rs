//! W3C Trace Context (`traceparent`, `tracestate`; sections 3.2 and 3.3), and W3C Baggage.

use std::borrow::Cow;

use super::context::{RemoteParent, TraceContext};
use super::hex_ids::{span_id, trace_id};
use crate::HexDigits;
use crate::spans::identity::SpanId;

pub(super) const TRACE_PARENT: &str = "traceparent";
pub(super) const TRACE_STATE: &str = "tracestate";
pub(super) const BAGGAGE: &str = "baggage";

/// The length of `traceparent` in its first version.
const TRACE_PARENT_BYTES: usize = 55;

/// The maximum size of `tracestate` that is passed on (section 3.3.1.5). A longer one is dropped.
const TRACE_STATE_BYTES_MAX: usize = 512;

/// The maximum size of `baggage` that is passed on (W3C Baggage, section 3.2.1.3). A longer one is dropped.
const BAGGAGE_BYTES_MAX: usize = 8192;

/// Reads the headers. An invalid `traceparent` names nothing, and its `tracestate` has no meaning.
pub(super) fn read<'a>(
    header: &impl Fn(&'static str) -> Option<Cow<'a, str>>,
) -> Option<RemoteParent> {
    let text = header(TRACE_PARENT)?;
    let mut parts = text.split('-');
    // Upper case is not valid.
    let is_lower = |text: &str| text.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
    let mut next = |length| parts.next().filter(|it| it.len() == length && is_lower(it));
    let (version, trace, span, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
    // Later versions may append parts; the invalid version is `ff`.
    if version == "ff" || (version == "00" && text.len() != TRACE_PARENT_BYTES) {
        return None;
    }
    Some(RemoteParent {
        trace: trace_id(trace)?,
        span: span_id(span)?,
        is_sampled: Some(u8::from_str_radix(flags, 16).ok()? & 1 == 1),
        state: header(TRACE_STATE).and_then(|it| checked(&it, TRACE_STATE_BYTES_MAX)),
    })
}

pub(super) fn read_baggage<'a>(
    header: &impl Fn(&'static str) -> Option<Cow<'a, str>>,
) -> Option<Box<str>> {
    checked(&header(BAGGAGE)?, BAGGAGE_BYTES_MAX)
}

/// Returns a text in memory of its own; `None` if it is empty, too long or not printable.
fn checked(text: &str, bytes_max: usize) -> Option<Box<str>> {
    let text = text.trim();
    let is_printable = text.bytes().all(|it| (0x20..0x7F).contains(&it) || it == b'\t');
    (!text.is_empty() && text.len() <= bytes_max && is_printable).then(|| text.into())
}

pub(super) fn write(
    context: &TraceContext,
    span: SpanId,
    write: &mut impl FnMut(&'static str, &str),
) {
    // hot path: once per request to a subgraph.
    let mut parent = String::with_capacity(TRACE_PARENT_BYTES);
    parent.push_str("00-");
    parent.push_str(HexDigits::<32>::new(context.trace.get()).as_str());
    parent.push('-');
    parent.push_str(HexDigits::<16>::new(span.get().into()).as_str());
    parent.push_str(if context.is_sampled { "-01" } else { "-00" });
    write(TRACE_PARENT, &parent);
    if let Some(state) = &context.state {
        write(TRACE_STATE, state);
    }
}

#[cfg(test)]
mod tests {
    use super::super::PropagationFormat;
    use super::super::testing::{check_round_trip, read, written};
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn parse(parent: &str, state: &str) -> Option<RemoteParent> {
        read(PropagationFormat::TraceContext, &[("traceparent", parent), ("tracestate", state)])
            .parent
    }

    #[test]
    fn a_valid_header_names_the_parent() {
        check_round_trip(PropagationFormat::TraceContext);
        assert_eq!(parse(PARENT, "a=1,b=2").expect("valid").state.as_deref(), Some("a=1,b=2"));
        let unsampled = parse(&PARENT.replace("-01", "-02"), "").expect("valid");
        assert_eq!((unsampled.is_sampled, unsampled.state), (Some(false), None));
        let later = PARENT.replacen("00", "cc", 1);
        assert!(parse(&later, "").is_some());
        assert!(parse(&format!("{later}-what"), "").is_some());
    }

    #[test]
    fn an_invalid_header_names_none() {
        for invalid in [
            "",
            "00",
            &PARENT[..54],
            &format!("{PARENT}-00"),
            &format!("{PARENT}0"),
            &PARENT.to_uppercase(),
            &PARENT.replacen("00", "ff", 1),
            &PARENT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &PARENT.replace("b7ad6b7169203331", &"0".repeat(16)),
            &PARENT.replace("b7ad", "+7ad"),
        ] {
            assert_eq!(parse(invalid, ""), None, "{invalid}");
        }
    }

    #[test]
    fn a_state_that_is_too_long_or_not_printable_is_dropped() {
        let long = "x".repeat(TRACE_STATE_BYTES_MAX + 1);
        for state in [long.as_str(), "a=\u{1}", "a=\u{e9}", "", "  "] {
            assert_eq!(parse(PARENT, state).expect("valid").state, None, "{state}");
        }
    }

    #[test]
    fn baggage_is_passed_on_unless_it_is_too_long() {
        assert_eq!(written(PropagationFormat::Baggage, true), [("baggage", "a=1".to_owned())]);
        let passed = |text: &str| read(PropagationFormat::Baggage, &[("baggage", text)]).baggage;
        assert_eq!(passed("user=1;x,b=2").as_deref(), Some("user=1;x,b=2"));
        assert_eq!(passed(&"x".repeat(BAGGAGE_BYTES_MAX + 1)), None);
    }
}
