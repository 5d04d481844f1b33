//! The formats of trace identities in headers, from the configuration.

use config::{TraceFormat, Tracing};
use telemetry::spans::{Propagation, PropagationFormat};

/// Returns the formats that the configuration lists.
pub fn propagation(settings: &Tracing) -> Propagation {
    Propagation::new(settings.propagation.iter().map(|format| match format {
        TraceFormat::TraceContext => PropagationFormat::TraceContext,
        TraceFormat::Baggage => PropagationFormat::Baggage,
        TraceFormat::B3 => PropagationFormat::B3,
        TraceFormat::B3Multi => PropagationFormat::B3Multi,
        TraceFormat::Jaeger => PropagationFormat::Jaeger,
        TraceFormat::Datadog => PropagationFormat::Datadog,
    }))
}
