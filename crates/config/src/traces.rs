//! Settings of traces and of their export to a collector.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::collector::{self, OtlpProtocol};
use super::expression::Expression;
use super::findings::{Findings, KeyPlaces};
use super::format::{
    DurationOrZeroText, DurationText, FileText, HttpUrlText, OperationConditionText, RatioText,
    ResourceValueText, SizeText,
};
use super::headers::{HeaderInsertion, HeaderInsertionKeys};
use super::override_labels::parse_percentage;
use super::quantity;

/// Traces of requests and of events, and their export.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tracing {
    /// Records traces and exports those that `sample` selects. Subgraphs and brokers get the identity of the trace,
    /// whether it is selected or not, in the headers of `propagation`; rules that forward these headers of clients have
    /// no effect then.
    #[schemars(example = true)]
    pub enabled: bool,

    /// The name of the router in traces (`service.name`).
    #[schemars(with = "ResourceValueText", example = &"shop-router")]
    pub service_name: String,

    /// Further attributes of the router, such as its environment. `service.version` and `service.instance.id` are set
    /// unless they are given here.
    #[schemars(with = "BTreeMap<String, ResourceValueText>")]
    #[schemars(example = serde_json::json!({"deployment.environment.name": "production"}))]
    pub resource: BTreeMap<String, String>,

    /// The selection of the traces that are exported.
    pub sample: TraceSampling,

    /// The collector.
    pub otlp: Otlp,

    /// The headers with the identity of a trace. Of those that a client sends, the first valid one of this list
    /// counts; subgraphs and brokers get all of them.
    #[schemars(length(min = 1, max = 6), example = ["tracecontext", "baggage", "b3"])]
    pub propagation: Vec<TraceFormat>,

    /// The maximum memory of traces that wait for the collector. Further ones are dropped and counted
    /// (`starling_traces_dropped_total`).
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"64MiB")]
    pub queue: usize,

    /// The maximum number of spans of one trace. Further ones are left out and counted
    /// (`starling_trace_spans_left_out_total`).
    #[schemars(range(min = 16, max = 10_000), example = 200)]
    pub max_spans: u32,
}

/// A way to write the identity of a trace into headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TraceFormat {
    /// `traceparent` and `tracestate`: W3C Trace Context.
    TraceContext,
    /// `baggage`: W3C Baggage. It is passed on unchanged.
    Baggage,
    /// `b3`: the single header of Zipkin.
    B3,
    /// `x-b3-traceid` and others: the several headers of Zipkin.
    B3Multi,
    /// `uber-trace-id`: Jaeger.
    Jaeger,
    /// `x-datadog-trace-id` and others: Datadog.
    Datadog,
}

/// The selection of traces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TraceSampling {
    /// The share of requests and of events with a trace. It is drawn when the request or event comes, and subgraphs are
    /// told the result.
    #[schemars(with = "RatioText", example = &"100%")]
    pub ratio: SampleRatio,

    /// Other shares of requests, in place of `ratio`. The first rule with a condition that is true counts. It is
    /// applied when the operation is known, before subgraphs get a request. Events have no rules.
    #[schemars(length(max = 100))]
    pub rules: Vec<TraceSamplingRule>,

    /// Follows the decision of a client that sends `traceparent`, in place of `ratio` and `rules`, and that of the
    /// publisher of an event. Turn it off if clients are not trusted: they could have all their requests exported.
    #[schemars(example = false)]
    pub parent: bool,

    /// The duration from which a request or an event is exported, whatever was decided when it came. `0s`: slow ones
    /// are not special.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationOrZeroText", example = &"500ms")]
    pub slow: Duration,

    /// Exports requests that have failed, whatever was decided when they came: with a status of 500 or more, or with
    /// GraphQL errors in the response of an operation that ran. Requests that the overload protection refuses are not
    /// among them. Events with GraphQL errors in the result for any of their subscribers are.
    #[schemars(example = false)]
    pub failed: bool,
}

/// A share of traces for requests that fulfil a condition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceSamplingRule {
    /// The condition. It may use `request`, `client`, `claims` and `operation`. One that cannot be evaluated, for
    /// example because a claim is absent, is not true.
    #[schemars(with = "OperationConditionText", example = &"operation.kind == 'mutation'")]
    pub when: Expression,

    /// The share of these requests with a trace.
    #[schemars(with = "RatioText", example = &"100%")]
    pub ratio: SampleRatio,
}

/// The collector of traces, and the way to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Otlp {
    /// The way to the collector.
    #[schemars(example = &"grpc")]
    pub protocol: OtlpProtocol,

    /// The URL that traces are sent to: by `http` with its path, by `grpc` without one. The default is
    /// `http://localhost:4318/v1/traces`, or for `grpc` `http://localhost:4317`. Redirections are not followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<HttpUrlText>", extend("default" = null), example = &"https://collector.internal:4318/v1/traces")]
    pub endpoint: Option<String>,

    /// Headers of each request, such as one with a token.
    #[schemars(with = "Vec<HeaderInsertionKeys>", length(max = 16))]
    #[schemars(example = [serde_json::json!({"name": "authorization", "value": "Bearer ${COLLECTOR_TOKEN}"})])]
    pub headers: Vec<HeaderInsertion>,

    /// The time limit of one request.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"5s")]
    pub timeout: Duration,

    /// The longest time that a trace waits until it is sent with others. Many traces are sent earlier.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"1s")]
    pub interval: Duration,

    /// The certificate authorities that may have signed the collector's certificate, in PEM. They replace those that
    /// the system trusts.
    #[schemars(with = "Option<FileText>", extend("default" = null), example = &"certificates/internal-ca.pem")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

/// A share of requests, as written in the file: `1%`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SampleRatio {
    text: String,
    ratio: f64,
}

impl SampleRatio {
    /// Returns the share, from 0 to 1.
    pub fn ratio(&self) -> f64 {
        self.ratio
    }

    /// Parses a percentage.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        Ok(Self { text: text.to_owned(), ratio: parse_percentage(text)? / 100.0 })
    }
}

impl TryFrom<String> for SampleRatio {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<SampleRatio> for String {
    fn from(ratio: SampleRatio) -> Self {
        ratio.text
    }
}

impl Default for Tracing {
    fn default() -> Self {
        Self {
            enabled: false,
            service_name: "starling".into(),
            resource: BTreeMap::new(),
            sample: TraceSampling::default(),
            otlp: Otlp::default(),
            propagation: vec![TraceFormat::TraceContext],
            // Some thousand traces of usual requests.
            queue: 16 << 20,
            max_spans: 1_000,
        }
    }
}

impl Default for TraceSampling {
    fn default() -> Self {
        Self {
            ratio: SampleRatio { text: "1%".into(), ratio: 0.01 },
            rules: Vec::new(),
            parent: true,
            slow: Duration::from_secs(1),
            failed: true,
        }
    }
}

impl Default for Otlp {
    fn default() -> Self {
        Self {
            protocol: OtlpProtocol::Http,
            endpoint: None,
            headers: Vec::new(),
            timeout: Duration::from_secs(10),
            interval: Duration::from_secs(2),
            ca: None,
        }
    }
}

impl Otlp {
    /// Returns the URL of the collector.
    pub fn url(&self) -> &str {
        let default = self.protocol.local_url("http://localhost:4318/v1/traces");
        self.endpoint.as_deref().unwrap_or(default)
    }
}

impl TraceSampling {
    /// Iterates over the conditions, each with its path in the file.
    pub fn conditions(&self) -> impl Iterator<Item = (String, &Expression)> {
        let rules = self.rules.iter().enumerate();
        rules.map(|(index, rule)| (format!("tracing.sample.rules[{index}].when"), &rule.when))
    }
}

impl Tracing {
    /// Resolves relative paths against `folder`.
    pub(super) fn resolve(&mut self, folder: &Path) {
        if let Some(path) = &mut self.otlp.ca {
            *path = folder.join(&*path);
        }
    }

    /// Reports settings that are not safe.
    pub(super) fn check(&self, places: &KeyPlaces, findings: &mut Findings) {
        if self.enabled {
            let (path, url) = ("tracing.otlp.endpoint", self.otlp.url());
            collector::check_headers(path, url, &self.otlp.headers, places, findings);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_a_percentage() {
        let ratio = |text: &str| SampleRatio::parse(text).map(|it| it.ratio());
        assert_eq!(ratio("0%"), Ok(0.0));
        assert_eq!(ratio("0.5%"), Ok(0.005));
        assert_eq!(ratio("100%"), Ok(1.0));
        for wrong in ["", "0.5", "true", "101%", "-1%"] {
            assert!(ratio(wrong).is_err(), "{wrong}");
        }
    }
}
