//! The messages of the protocol for traces, and what those for metrics have in common with them. `span_encoding` writes
//! the spans.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans};
use prost::Message;
use telemetry::spans::FinishedTrace;

use crate::span_encoding::{write_bytes, write_spans};

/// The version of the semantic conventions that attributes follow.
pub(crate) const SCHEMA: &str = "https://opentelemetry.io/schemas/1.37.0";

/// The name of the part that makes spans and metrics.
const SCOPE: &str = "starling";

/// The maximum length of the reason of a collector that refuses something, in the log.
const REASON_BYTES_MAX: usize = 512;

/// The numbers of the fields `ExportTraceServiceRequest.resource_spans`, `ResourceSpans.scope_spans` and
/// `ScopeSpans.spans`.
const RESOURCES_OF_REQUEST: u8 = 1;
const SCOPES_OF_RESOURCE: u8 = 2;
const SPANS_OF_SCOPE: u8 = 2;

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
    // The order of fields is free (Protocol Buffers, "Encoding", section "Field Order"), so that the spans of a scope
    // may follow its other fields.
    let scope =
        ScopeSpans { scope: Some(identity.scope()), spans: Vec::new(), schema_url: SCHEMA.into() };
    let mut scope = scope.encode_to_vec();
    write_spans(&mut scope, SPANS_OF_SCOPE, traces);
    let resource = ResourceSpans {
        resource: Some(identity.resource()),
        scope_spans: Vec::new(),
        schema_url: SCHEMA.into(),
    };
    let mut resource = resource.encode_to_vec();
    write_bytes(&mut resource, SCOPES_OF_RESOURCE, &scope);
    let mut request = Vec::with_capacity(resource.len() + 8);
    write_bytes(&mut request, RESOURCES_OF_REQUEST, &resource);
    request.into()
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

pub(crate) fn text(name: &str, value: &str) -> KeyValue {
    let value = any_value::Value::StringValue(value.into());
    KeyValue {
        key: name.into(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}
