//! The headers of Zipkin, in one and in several headers (openzipkin/b3-propagation).

use std::borrow::Cow;

use super::context::{RemoteParent, TraceContext};
use super::hex_ids::{span_id, trace_id};
use crate::spans::identity::SpanId;

pub(super) const SINGLE: &str = "b3";

const TRACE: &str = "x-b3-traceid";
const SPAN: &str = "x-b3-spanid";
const SAMPLED: &str = "x-b3-sampled";
/// The parent of the client's span. It is read by nothing, and belongs to the set.
const PARENT: &str = "x-b3-parentspanid";
/// `1` demands that the trace is selected.
const FLAGS: &str = "x-b3-flags";

pub(super) const MULTI: [&str; 5] = [TRACE, SPAN, SAMPLED, PARENT, FLAGS];

/// Reads `TRACE-SPAN`, `TRACE-SPAN-SAMPLED` or `TRACE-SPAN-SAMPLED-PARENT`. A decision alone names no span.
pub(super) fn read_single<'a>(
    header: &impl Fn(&'static str) -> Option<Cow<'a, str>>,
) -> Option<RemoteParent> {
    let text = header(SINGLE)?;
    let mut parts = text.split('-');
    let (trace, span) = (trace_id(parts.next()?)?, span_id(parts.next()?)?);
    let is_sampled = match parts.next() {
        None => None,
        Some(decision) => Some(read_decision(decision)?),
    };
    // The parent of the client's span, if it has one.
    if parts.next().is_some_and(|it| span_id(it).is_none()) || parts.next().is_some() {
        return None;
    }
    Some(RemoteParent { trace, span, is_sampled, state: None })
}

pub(super) fn read_multi<'a>(
    header: &impl Fn(&'static str) -> Option<Cow<'a, str>>,
) -> Option<RemoteParent> {
    let (trace, span) = (trace_id(&header(TRACE)?)?, span_id(&header(SPAN)?)?);
    let is_debugged = header(FLAGS).is_some_and(|it| it == "1");
    let is_sampled = match is_debugged {
        true => Some(true),
        false => header(SAMPLED).and_then(|it| read_decision(&it)),
    };
    Some(RemoteParent { trace, span, is_sampled, state: None })
}

fn read_decision(text: &str) -> Option<bool> {
    match text {
        "1" | "d" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    }
}

pub(super) fn write_single(
    context: &TraceContext,
    span: SpanId,
    write: &mut impl FnMut(&'static str, &str),
) {
    let decision = u8::from(context.is_sampled);
    write(SINGLE, &format!("{}-{span}-{decision}", context.trace));
}

pub(super) fn write_multi(
    context: &TraceContext,
    span: SpanId,
    write: &mut impl FnMut(&'static str, &str),
) {
    write(TRACE, &context.trace.to_string());
    write(SPAN, &span.to_string());
    write(SAMPLED, if context.is_sampled { "1" } else { "0" });
}

#[cfg(test)]
mod tests {
    use super::super::PropagationFormat::{B3, B3Multi};
    use super::super::testing::{SPAN as SPAN_ID, TRACE as TRACE_ID, check_round_trip, read};

    #[test]
    fn both_forms_are_read_as_they_are_written() {
        check_round_trip(B3);
        check_round_trip(B3Multi);
    }

    #[test]
    fn a_single_header_may_leave_the_decision_open() {
        let parse = |text: &str| read(B3, &[("b3", text)]).parent;
        let sampled = |text: &str| parse(text).map(|it| it.is_sampled);
        let both = format!("{TRACE_ID}-{SPAN_ID}");
        assert_eq!(sampled(&both), Some(None));
        assert_eq!(sampled(&format!("{both}-d")), Some(Some(true)));
        assert_eq!(sampled(&format!("{both}-0-05e3ac9a4f6e3b90")), Some(Some(false)));
        let short = parse(&format!("{SPAN_ID}-{SPAN_ID}-1")).expect("a trace of 64 bits");
        assert_eq!(short.trace.get(), u128::from(short.span.get()));
        let wrong = ["-x", "-1-x", "-1-2-3"].map(|end| format!("{both}{end}"));
        for invalid in ["", "0", "1", TRACE_ID, &format!("{both}0")]
            .into_iter()
            .chain(wrong.iter().map(|it| &**it))
        {
            assert_eq!(parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn several_headers_may_leave_the_decision_open_or_demand_it() {
        let ids = [("x-b3-traceid", TRACE_ID), ("x-b3-spanid", SPAN_ID)];
        let sampled = |more: &[(&'static str, &'static str)]| {
            let headers = [ids.as_slice(), more].concat();
            read(B3Multi, &headers).parent.expect("a parent").is_sampled
        };
        assert_eq!(sampled(&[]), None);
        assert_eq!(sampled(&[("x-b3-sampled", "true")]), Some(true));
        assert_eq!(sampled(&[("x-b3-flags", "1")]), Some(true));
        assert_eq!(read(B3Multi, &ids[..1]).parent, None);
    }
}
