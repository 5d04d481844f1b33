//! The headers of Datadog's tracers: decimal numbers of 64 bits. The upper half of a trace's id is a tag.

use std::borrow::Cow;

use super::context::{RemoteParent, TraceContext};
use super::hex_ids::hex;
use crate::spans::identity::{SpanId, TraceId};

const TRACE: &str = "x-datadog-trace-id";
const PARENT: &str = "x-datadog-parent-id";
const PRIORITY: &str = "x-datadog-sampling-priority";
const TAGS: &str = "x-datadog-tags";

pub(super) const HEADERS: [&str; 4] = [TRACE, PARENT, PRIORITY, TAGS];

/// The tag with the upper half of the trace's id.
const UPPER_HALF: &str = "_dd.p.tid=";

pub(super) fn read<'a>(
    header: &impl Fn(&'static str) -> Option<Cow<'a, str>>,
) -> Option<RemoteParent> {
    let lower = decimal(&header(TRACE)?)?;
    let span = SpanId::new(decimal(&header(PARENT)?)?)?;
    let tags = header(TAGS);
    let upper = tags.as_ref().and_then(|tags| {
        let tag = tags.split(',').find_map(|it| it.trim().strip_prefix(UPPER_HALF))?;
        u64::from_str_radix(hex(tag, 16)?, 16).ok()
    });
    let trace = TraceId::new(u128::from(upper.unwrap_or(0)) << 64 | u128::from(lower))?;
    // From -1, refused by the user, to 2, kept by the user.
    let priority = header(PRIORITY).and_then(|it| it.parse::<i8>().ok());
    Some(RemoteParent { trace, span, is_sampled: priority.map(|it| it > 0), state: None })
}

/// Parses a number without a sign.
fn decimal(text: &str) -> Option<u64> {
    text.bytes().all(|it| it.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

pub(super) fn write(
    context: &TraceContext,
    span: SpanId,
    write: &mut impl FnMut(&'static str, &str),
) {
    let trace = context.trace.get();
    write(TRACE, &(trace as u64).to_string());
    write(PARENT, &span.get().to_string());
    write(PRIORITY, if context.is_sampled { "1" } else { "0" });
    let upper = (trace >> 64) as u64;
    if upper != 0 {
        write(TAGS, &format!("{UPPER_HALF}{upper:016x}"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::PropagationFormat::Datadog;
    use super::super::testing::{check_round_trip, read};

    #[test]
    fn the_halves_of_an_id_are_joined() {
        check_round_trip(Datadog);
        let ids = [("x-datadog-trace-id", "7"), ("x-datadog-parent-id", "9")];
        let parse = |more: &[(&'static str, &'static str)]| {
            let parent = read(Datadog, &[&ids, more].concat()).parent.expect("a parent");
            (parent.trace.get(), parent.is_sampled)
        };
        assert_eq!(parse(&[]), (7, None));
        assert_eq!(parse(&[("x-datadog-sampling-priority", "-1")]), (7, Some(false)));
        assert_eq!(parse(&[("x-datadog-sampling-priority", "2")]), (7, Some(true)));
        let tags = "_dd.p.dm=-1,_dd.p.tid=640cfd8d00000000";
        assert_eq!(parse(&[("x-datadog-tags", tags)]).0, 0x640c_fd8d_0000_0000 << 64 | 7);
        for invalid in ["", "x", "-1", "18446744073709551616", "0"] {
            let headers = [("x-datadog-trace-id", invalid), ids[1]];
            assert_eq!(read(Datadog, &headers).parent, None, "{invalid}");
        }
    }
}
