//! The spans of a message, written field by field in the binary form of Protocol Buffers.
//!
//! The types of `opentelemetry-proto` own every text, so that a span with a dozen attributes would cost some forty
//! allocations only to be written once. With all requests traced that was more than the rest of tracing. The tests
//! decode what is written here with those types.

use telemetry::spans::{Attribute, AttributeValue, FinishedTrace, RemoteParent, Span, SpanKind};

/// The wire types (Protocol Buffers, "Encoding", section "Message Structure").
const VARINT: u8 = 0;
const FIXED_64: u8 = 1;
const DELIMITED: u8 = 2;
const FIXED_32: u8 = 5;

/// The flag of a span with a sampled trace (W3C Trace Context, section 3.2.2.5).
const FLAG_SAMPLED: u32 = 1;

/// The value of `Status.code` for a failure.
const STATUS_ERROR: u64 = 2;

/// Writes the spans of traces as fields of `ScopeSpans`. `field` is the number of the field.
pub(crate) fn write_spans(out: &mut Vec<u8>, field: u8, traces: &[FinishedTrace]) {
    let mut content = Vec::new();
    for trace in traces {
        for span in &trace.spans {
            content.clear();
            write_span(&mut content, trace, span);
            write_bytes(out, field, &content);
        }
    }
}

/// Writes a field of bytes, a text or a message.
pub(crate) fn write_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    write_head(out, field, bytes.len());
    out.extend_from_slice(bytes);
}

/// Writes the fields of `Span`. Fields with their default values are left out.
fn write_span(out: &mut Vec<u8>, trace: &FinishedTrace, span: &Span) {
    let context = &trace.context;
    write_bytes(out, 1, &context.trace.get().to_be_bytes());
    write_bytes(out, 2, &span.id.get().to_be_bytes());
    write_text(out, 3, context.state.as_deref().unwrap_or_default());
    if let Some(parent) = span.parent {
        write_bytes(out, 4, &parent.get().to_be_bytes());
    }
    write_text(out, 5, &span.name);
    write_number(out, 6, kind_number(span.kind));
    write_time(out, 7, span.began);
    write_time(out, 8, span.ended);
    for attribute in &span.attributes {
        write_attribute(out, 9, attribute);
    }
    if let Some(link) = &span.link {
        let mut content = Vec::new();
        write_link(&mut content, link);
        write_bytes(out, 13, &content);
    }
    if let Some(reason) = &span.error {
        let code = 1 + varint_len(STATUS_ERROR);
        let message = if reason.is_empty() { 0 } else { delimited_len(reason.len()) };
        write_head(out, 15, message + code);
        write_text(out, 2, reason);
        write_number(out, 3, STATUS_ERROR);
    }
    write_flags(out, 16, context.is_sampled);
}

fn write_link(out: &mut Vec<u8>, link: &RemoteParent) {
    write_bytes(out, 1, &link.trace.get().to_be_bytes());
    write_bytes(out, 2, &link.span.get().to_be_bytes());
    write_text(out, 3, link.state.as_deref().unwrap_or_default());
    write_flags(out, 6, link.is_sampled == Some(true));
}

/// Writes a `KeyValue` with its `AnyValue`. A value is never left out: the kind of it is a part of the message.
fn write_attribute(out: &mut Vec<u8>, field: u8, attribute: &Attribute) {
    let name = attribute.name.as_bytes();
    let value_len = match &attribute.value {
        AttributeValue::Text(text) => delimited_len(text.len()),
        AttributeValue::Number(number) => 1 + varint_len(*number as u64),
        AttributeValue::Flag(_) => 2,
    };
    write_head(out, field, delimited_len(name.len()) + delimited_len(value_len));
    write_bytes(out, 1, name);
    write_head(out, 2, value_len);
    match &attribute.value {
        AttributeValue::Text(text) => write_bytes(out, 1, text.as_bytes()),
        AttributeValue::Number(number) => write_varint_field(out, 3, *number as u64),
        AttributeValue::Flag(flag) => write_varint_field(out, 2, u64::from(*flag)),
    }
}

fn kind_number(kind: SpanKind) -> u64 {
    match kind {
        SpanKind::Internal => 1,
        SpanKind::Server => 2,
        SpanKind::Client => 3,
        SpanKind::Producer => 4,
        SpanKind::Consumer => 5,
    }
}

/// Writes a text, unless it is empty.
fn write_text(out: &mut Vec<u8>, field: u8, text: &str) {
    if !text.is_empty() {
        write_bytes(out, field, text.as_bytes());
    }
}

/// Writes a number, unless it is zero.
fn write_number(out: &mut Vec<u8>, field: u8, number: u64) {
    if number != 0 {
        write_varint_field(out, field, number);
    }
}

fn write_varint_field(out: &mut Vec<u8>, field: u8, number: u64) {
    write_tag(out, field, VARINT);
    write_varint(out, number);
}

/// Writes a time in nanoseconds, unless it is zero.
fn write_time(out: &mut Vec<u8>, field: u8, nanos: u64) {
    if nanos != 0 {
        write_tag(out, field, FIXED_64);
        out.extend_from_slice(&nanos.to_le_bytes());
    }
}

fn write_flags(out: &mut Vec<u8>, field: u8, is_sampled: bool) {
    if is_sampled {
        write_tag(out, field, FIXED_32);
        out.extend_from_slice(&FLAG_SAMPLED.to_le_bytes());
    }
}

/// Writes the tag and the length of a field; its content follows.
fn write_head(out: &mut Vec<u8>, field: u8, len: usize) {
    write_tag(out, field, DELIMITED);
    write_varint(out, len as u64);
}

fn write_tag(out: &mut Vec<u8>, field: u8, wire_type: u8) {
    write_varint(out, u64::from(field) << 3 | u64::from(wire_type));
}

fn write_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Returns the length of a field of bytes with a number below 16.
fn delimited_len(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}

fn varint_len(number: u64) -> usize {
    // Seven bits in each byte; zero takes one.
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
    use opentelemetry_proto::tonic::trace::v1::span::{Link, SpanKind as ProtoKind};
    use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
    use opentelemetry_proto::tonic::trace::v1::{ScopeSpans, Span as ProtoSpan, Status};
    use prost::Message;
    use telemetry::spans::{Propagation, SpanId, TraceContext, TraceId};

    use super::*;

    fn trace(is_sampled: bool, state: Option<&str>, spans: Vec<Span>) -> FinishedTrace {
        let context = TraceContext {
            trace: TraceId::new(0x0102_0304).expect("an id"),
            is_sampled,
            state: state.map(Into::into),
            baggage: None,
            propagation: Propagation::default(),
        };
        FinishedTrace { context: Arc::new(context), spans }
    }

    fn span(attributes: Vec<Attribute>) -> Span {
        Span {
            id: SpanId::new(7).expect("an id"),
            parent: None,
            name: "query".to_owned().into(),
            kind: SpanKind::Server,
            began: 1_700_000_000_000_000_000,
            ended: 1_700_000_000_000_000_001,
            attributes,
            error: None,
            link: None,
        }
    }

    /// Encodes spans, and decodes them with the types of the protocol.
    fn decoded(trace: FinishedTrace) -> Vec<ProtoSpan> {
        let mut bytes = Vec::new();
        write_spans(&mut bytes, 2, &[trace]);
        let scope = ScopeSpans::decode(&*bytes).expect("a valid message");
        // The library leaves out the same fields.
        assert_eq!(scope.encode_to_vec(), bytes);
        scope.spans
    }

    fn proto_span() -> ProtoSpan {
        ProtoSpan {
            trace_id: 0x0102_0304_u128.to_be_bytes().into(),
            span_id: 7_u64.to_be_bytes().into(),
            name: "query".into(),
            kind: ProtoKind::Server.into(),
            start_time_unix_nano: 1_700_000_000_000_000_000,
            end_time_unix_nano: 1_700_000_000_000_000_001,
            ..ProtoSpan::default()
        }
    }

    #[test]
    fn a_span_without_more_than_it_must_have_has_no_other_field() {
        assert_eq!(decoded(trace(false, None, vec![span(Vec::new())])), [proto_span()]);
    }

    #[test]
    fn values_of_all_kinds_and_sizes_are_kept() {
        let long = "ü".repeat(10_000);
        let numbers = [0, 1, 127, 128, 16_383, 16_384, i64::MAX, -1, i64::MIN];
        let texts = ["", "short", &long[..254], &long[..256], &long];
        let number = |it| any_value::Value::IntValue(it);
        let text = |it: &str| any_value::Value::StringValue(it.into());
        let mut attributes: Vec<_> = numbers.map(|it| Attribute::number("a.number", it)).into();
        attributes.extend(texts.map(|it| Attribute::text("a.text", it.to_owned())));
        attributes.extend([true, false].map(|it| Attribute::flag("a.flag", it)));
        let named = |name: &str, value| KeyValue {
            key: name.into(),
            value: Some(AnyValue { value: Some(value) }),
            ..KeyValue::default()
        };
        let mut expected: Vec<_> = numbers.map(|it| named("a.number", number(it))).into();
        expected.extend(texts.map(|it| named("a.text", text(it))));
        let flag = |it| named("a.flag", any_value::Value::BoolValue(it));
        expected.extend([true, false].map(flag));
        let spans = decoded(trace(false, None, vec![span(attributes)]));
        assert_eq!(spans[0].attributes, expected);
    }

    #[test]
    fn parents_states_links_failures_and_flags_are_kept() {
        let link = RemoteParent {
            trace: TraceId::new(9).expect("an id"),
            span: SpanId::new(8).expect("an id"),
            is_sampled: Some(true),
            state: Some("b=2".into()),
        };
        let failed = |reason: &str| Span {
            parent: SpanId::new(6),
            kind: SpanKind::Consumer,
            error: Some(reason.into()),
            link: Some(Box::new(link.clone())),
            ..span(Vec::new())
        };
        let expected = |reason: &str| ProtoSpan {
            parent_span_id: 6_u64.to_be_bytes().into(),
            kind: ProtoKind::Consumer.into(),
            trace_state: "a=1".into(),
            status: Some(Status { message: reason.into(), code: StatusCode::Error.into() }),
            links: vec![Link {
                trace_id: 9_u128.to_be_bytes().into(),
                span_id: 8_u64.to_be_bytes().into(),
                trace_state: "b=2".into(),
                flags: FLAG_SAMPLED,
                ..Link::default()
            }],
            flags: FLAG_SAMPLED,
            ..proto_span()
        };
        let spans = decoded(trace(true, Some("a=1"), vec![failed("HTTP status 500"), failed("")]));
        assert_eq!(spans, [expected("HTTP status 500"), expected("")]);
    }

    #[test]
    fn kinds_have_the_numbers_of_the_protocol() {
        let kinds = [
            (SpanKind::Internal, ProtoKind::Internal),
            (SpanKind::Server, ProtoKind::Server),
            (SpanKind::Client, ProtoKind::Client),
            (SpanKind::Producer, ProtoKind::Producer),
            (SpanKind::Consumer, ProtoKind::Consumer),
        ];
        for (kind, proto) in kinds {
            assert_eq!(kind_number(kind), proto as u64);
        }
    }
}
