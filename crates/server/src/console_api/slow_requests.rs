//! The JSON of the flight recorder: its traces, and the spans of one.

use serde_json::{Map, Value, json};
use telemetry::spans::{Attribute, AttributeValue, FlightRecorder, RecordedTrace, Span, SpanKind};

/// Attributes that are left out: they may contain credentials or values of variables, or identify a person.
const HIDDEN: [&str; 4] =
    ["url.full", "client.address", "user_agent.original", "messaging.destination.name"];

/// The maximum number of traces in a list.
const LISTED_MAX: usize = 1_000;

/// Returns the JSON of `api/slow`. `recorder` is `None` if it is turned off.
pub(super) fn describe(recorder: Option<&FlightRecorder>) -> Value {
    let Some(recorder) = recorder else { return json!({"enabled": false, "traces": []}) };
    let traces = recorder.traces();
    let listed = traces.iter().take(LISTED_MAX).map(|it| summary(it));
    json!({"enabled": true, "traces": listed.collect::<Vec<_>>()})
}

/// Returns the JSON of `api/trace`: one trace by its number; `None` if it is not in the recorder.
pub(super) fn describe_trace(recorder: Option<&FlightRecorder>, number: u64) -> Option<Value> {
    let recorded = recorder?.trace(number)?;
    let began = root(&recorded)?.began;
    let spans = recorded.trace.spans.iter().map(|it| span(it, began));
    let mut trace = summary(&recorded);
    trace["spans"] = spans.collect();
    trace["spansLeftOut"] = recorded.left_out.into();
    Some(trace)
}

fn root(recorded: &RecordedTrace) -> Option<&Span> {
    recorded.trace.spans.first()
}

fn summary(recorded: &RecordedTrace) -> Value {
    let root = root(recorded);
    let text = |name| root.and_then(|it| text_of(it, name));
    let error = recorded.trace.spans.iter().find_map(|it| it.error.as_deref());
    json!({
        "number": recorded.number,
        "traceId": recorded.trace.context.trace.to_string(),
        "reason": recorded.reason.as_str(),
        "name": root.map(|it| &*it.name),
        "graph": text("starling.graph.name"),
        "operation": text("graphql.operation.name"),
        "kind": text("graphql.operation.type"),
        // Milliseconds since 1970, as browsers count.
        "beganAt": root.map(|it| it.began / 1_000_000),
        "micros": root.map(|it| micros(it.ended.saturating_sub(it.began))),
        "spanCount": recorded.trace.spans.len(),
        "error": error,
    })
}

fn text_of<'s>(span: &'s Span, name: &str) -> Option<&'s str> {
    let attribute = span.attributes.iter().find(|it| it.name == name)?;
    match &attribute.value {
        AttributeValue::Text(text) => Some(text),
        AttributeValue::Number(_) | AttributeValue::Flag(_) => None,
    }
}

fn span(span: &Span, began: u64) -> Value {
    let shown = span.attributes.iter().filter(|it| !HIDDEN.contains(&&*it.name));
    let attributes: Map<String, Value> =
        shown.map(|it| (it.name.to_string(), attribute_value(it))).collect();
    json!({
        "id": span.id.to_string(),
        "parent": span.parent.map(|it| it.to_string()),
        "name": &*span.name,
        "kind": kind_name(span.kind),
        "startMicros": micros(span.began.saturating_sub(began)),
        "micros": micros(span.ended.saturating_sub(span.began)),
        "attributes": attributes,
        "error": span.error.as_deref(),
    })
}

fn attribute_value(attribute: &Attribute) -> Value {
    match &attribute.value {
        AttributeValue::Text(text) => Value::from(&**text),
        AttributeValue::Number(number) => Value::from(*number),
        AttributeValue::Flag(flag) => Value::from(*flag),
    }
}

fn kind_name(kind: SpanKind) -> &'static str {
    match kind {
        SpanKind::Internal => "internal",
        SpanKind::Server => "server",
        SpanKind::Client => "client",
        SpanKind::Producer => "producer",
        SpanKind::Consumer => "consumer",
    }
}

fn micros(nanos: u64) -> Value {
    super::overview::compact(nanos as f64 / 1_000.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use telemetry::spans::{
        IncomingContext, Propagation, RecorderSettings, RequestSpans, RootSpan, SamplingRules,
        SpanId, SpanList, SpanSource, Tracer, TracerSettings,
    };

    use super::*;

    /// A fetch that takes as long as the whole request.
    struct Fetch(std::time::Instant);

    impl SpanSource for Fetch {
        fn write_spans(&self, root: SpanId, list: &mut SpanList) {
            let end = self.0 + Duration::from_millis(250);
            let span = list.internal(root, "POST products".into(), (self.0, end));
            let attributes = vec![
                Attribute::text("url.full", "http://user:hunter2@products/graphql?key=hunter2"),
                Attribute::text("starling.subgraph", "products"),
                Attribute::number("http.response.status_code", 503),
            ];
            list.push(Span { attributes, error: Some("HTTP status 503".into()), ..span });
        }
    }

    fn recorded() -> Arc<Tracer> {
        let sampling = SamplingRules {
            ratio: 0.0,
            follows_parent: false,
            slow: None,
            failed: false,
            has_conditions: false,
        };
        let tracer = Tracer::new(TracerSettings {
            sampling,
            propagation: Propagation::new([]),
            queue_bytes_max: 0,
            spans_max: 10,
            batch_spans: 1,
        });
        let slow = Duration::from_millis(100);
        let settings = RecorderSettings { slow, traces_max: 10, bytes_max: 1 << 20 };
        let tracer = Arc::new(tracer.with_recorder(FlightRecorder::new(settings)));
        let request = RequestSpans::start(&tracer, IncomingContext::default());
        request.add(Box::new(Fetch(request.began())));
        let end = request.began() + Duration::from_millis(250);
        request.finish_at(end, true, || RootSpan {
            name: "POST /graphql".into(),
            kind: SpanKind::Server,
            attributes: vec![
                Attribute::text("graphql.operation.name", "Shop"),
                Attribute::text("starling.graph.name", "beta"),
                Attribute::text("client.address", "192.0.2.7"),
            ],
            error: None,
        });
        drop(request);
        tracer
    }

    #[test]
    fn a_trace_is_shown_with_its_spans_and_without_secrets() {
        let tracer = recorded();
        let list = describe(tracer.recorder());
        let first = &list["traces"][0];
        assert_eq!((&first["operation"], &first["reason"]), (&json!("Shop"), &json!("failed")));
        assert_eq!(first["graph"], "beta");
        assert_eq!(
            (&first["micros"], &first["error"]),
            (&json!(250_000), &json!("HTTP status 503"))
        );
        let trace = describe_trace(tracer.recorder(), 1).expect("it is kept");
        let fetch = &trace["spans"][1];
        let attributes = json!({"starling.subgraph": "products", "http.response.status_code": 503});
        assert_eq!(fetch["attributes"], attributes);
        assert_eq!((&fetch["startMicros"], &fetch["micros"]), (&json!(0), &json!(250_000)));
        assert_eq!(fetch["parent"], trace["spans"][0]["id"]);
        let text = trace.to_string();
        assert!(!text.contains("hunter2") && !text.contains("192.0.2.7"), "{text}");
    }

    #[test]
    fn a_recorder_that_is_off_and_an_unknown_trace_are_no_mistakes() {
        assert_eq!(describe(None), json!({"enabled": false, "traces": []}));
        assert_eq!(describe_trace(None, 1), None);
        assert_eq!(describe_trace(recorded().recorder(), 2), None);
    }
}
