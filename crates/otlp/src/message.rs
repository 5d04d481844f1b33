//! The messages of the protocol.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Link, SpanKind as ProtoKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as ProtoSpan, Status};
use prost::Message;
use telemetry::spans::{Attribute, AttributeValue, FinishedTrace, RemoteParent, Span, SpanKind};

/// The version of the semantic conventions that attributes follow.
pub(crate) const SCHEMA: &str = "https://opentelemetry.io/schemas/1.37.0";

/// The name of the part that makes spans and metrics.
const SCOPE: &str = "starling";

/// The maximum length of the reason of a collector that refuses something, in the log.
const REASON_BYTES_MAX: usize = 512;

/// The flag of a span with a sampled trace (W3C Trace Context, section 3.2.2.5).
const FLAG_SAMPLED: u32 = 1;

/// The attributes of the router itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouterIdentity {
    /// Names and values, each name once.
    pub attributes: Vec<(Box<str>, Box<str>)>,
    /// The version of the router.
    pub version: &'static str,
}

impl RouterIdentity {
    pub(crate) fn resource(&self) -> Resource {
        let attributes = self.attributes.iter().map(|(name, value)| text(name, value));
        Resource { attributes: attributes.collect(), ..Resource::default() }
    }

    pub(crate) fn scope(&self) -> InstrumentationScope {
        InstrumentationScope {
            name: SCOPE.into(),
            version: self.version.into(),
            ..InstrumentationScope::default()
        }
    }
}

/// Returns the message that exports `traces`.
pub(crate) fn encode(identity: &RouterIdentity, traces: &[FinishedTrace]) -> Bytes {
    let spans = traces.iter().flat_map(|trace| trace.spans.iter().map(|it| proto_span(trace, it)));
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(identity.resource()),
            scope_spans: vec![ScopeSpans {
                scope: Some(identity.scope()),
                spans: spans.collect(),
                schema_url: SCHEMA.into(),
            }],
            schema_url: SCHEMA.into(),
        }],
    };
    request.encode_to_vec().into()
}

/// Reads a response of success: the number of spans that the collector has refused, and its reason. A body that cannot
/// be read says nothing.
pub(crate) fn read_refused(body: &[u8]) -> (u64, String) {
    let response = ExportTraceServiceResponse::decode(body).unwrap_or_default();
    let partial = response.partial_success.unwrap_or_default();
    let refused = u64::try_from(partial.rejected_spans).unwrap_or_default();
    (refused, shown_reason(&partial.error_message))
}

/// Returns the reason of a collector for the log.
pub(crate) fn shown_reason(reason: &str) -> String {
    reason[..reason.floor_char_boundary(REASON_BYTES_MAX)].escape_debug().to_string()
}

fn proto_span(trace: &FinishedTrace, span: &Span) -> ProtoSpan {
    let context = &trace.context;
    let kind = match span.kind {
        SpanKind::Internal => ProtoKind::Internal,
        SpanKind::Server => ProtoKind::Server,
        SpanKind::Client => ProtoKind::Client,
        SpanKind::Producer => ProtoKind::Producer,
        SpanKind::Consumer => ProtoKind::Consumer,
    };
    let status = span
        .error
        .as_ref()
        .map(|reason| Status { message: reason.to_string(), code: StatusCode::Error.into() });
    ProtoSpan {
        trace_id: context.trace.get().to_be_bytes().into(),
        span_id: span.id.get().to_be_bytes().into(),
        trace_state: context.state.as_deref().unwrap_or_default().into(),
        parent_span_id: span.parent.map_or_else(Vec::new, |it| it.get().to_be_bytes().into()),
        flags: if context.is_sampled { FLAG_SAMPLED } else { 0 },
        name: span.name.to_string(),
        kind: kind.into(),
        start_time_unix_nano: span.began,
        end_time_unix_nano: span.ended,
        attributes: span.attributes.iter().map(key_value).collect(),
        links: span.link.iter().map(|link| proto_link(link)).collect(),
        status,
        ..ProtoSpan::default()
    }
}

fn proto_link(link: &RemoteParent) -> Link {
    Link {
        trace_id: link.trace.get().to_be_bytes().into(),
        span_id: link.span.get().to_be_bytes().into(),
        trace_state: link.state.as_deref().unwrap_or_default().into(),
        flags: if link.is_sampled == Some(true) { FLAG_SAMPLED } else { 0 },
        ..Link::default()
    }
}

fn key_value(attribute: &Attribute) -> KeyValue {
    let value = match &attribute.value {
        AttributeValue::Text(value) => any_value::Value::StringValue(value.to_string()),
        AttributeValue::Number(value) => any_value::Value::IntValue(*value),
        AttributeValue::Flag(value) => any_value::Value::BoolValue(*value),
    };
    KeyValue {
        key: attribute.name.to_string(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

pub(crate) fn text(name: &str, value: &str) -> KeyValue {
    let value = any_value::Value::StringValue(value.into());
    KeyValue {
        key: name.into(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}
