//! Metrics, traces and reports of Cosmo Router.

use crate::conversion::{Conversion, Members, is_turned_off};
use crate::form::Form;
use crate::otlp::{self, Signal};
use crate::rule::{Rule, absent, same, with};
use crate::setting::Setting;
use crate::target::Value;

const METRICS: &str = "the metrics have other names and labels (docs/metrics.md)";

pub(super) const RULES: &[Rule] = &[
    same("telemetry.service_name", "tracing.service_name", Form::Text),
    with("telemetry.resource_attributes", "tracing.resource.<name>", "", resource),
    absent(
        "telemetry.attributes",
        "spans and metrics have fixed attributes; `access_log.fields` has fields of your own",
    ),
    with(
        "telemetry.tracing",
        "tracing.enabled, tracing.sample.ratio, tracing.sample.parent, tracing.propagation, \
         tracing.otlp",
        "without an exporter, traces go to Cosmo Cloud there",
        tracing,
    ),
    with(
        "telemetry.metrics.otlp",
        "metrics.otlp.enabled, metrics.otlp.endpoint, metrics.otlp.protocol, \
         metrics.otlp.headers, metrics.otlp.temporality",
        METRICS,
        metrics,
    ),
    absent("telemetry.metrics.attributes", "metrics have fixed labels (docs/metrics.md)"),
    absent(
        "telemetry.metrics.(experiment_cardinality_limit|cardinality_limit)",
        "`metrics.operations.max` and `metrics.clients.max` bound what clients name",
    ),
    with("telemetry.metrics.prometheus", "admin.listen", METRICS, prometheus),
    absent(
        "graphql_metrics",
        "`metrics.fields` counts the use of fields, and `starling diff --usage` reads it \
         (docs/metrics.md)",
    ),
    absent(
        "pyroscope",
        "`admin.profiling` serves profiles at `/debug/pprof/`, which a collector can scrape \
         (docs/profiling.md)",
    ),
];

fn resource(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    for attribute in setting.items() {
        let mut members = Members::of(&attribute);
        let key = members.take("key");
        let value = members.take("value");
        members.finish(conversion);
        let (Some(key), Some(value)) = (key.as_ref().and_then(Setting::text), value) else {
            conversion.refuse(&attribute, "has no `key` or no `value`", "");
            continue;
        };
        let to = ["tracing", "resource", key].map(str::to_owned);
        match conversion.value(&value, Form::Text) {
            Ok(value) => conversion.write(&attribute, &to, value, ""),
            Err(reason) => conversion.refuse(&attribute, &reason, ""),
        }
    }
}

fn tracing(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let to = |key: &str| crate::conversion::with_names(&format!("tracing.{key}"), &[]);
    let enabled = members.take("enabled");
    let exporters = members.take("exporters");
    if enabled.as_ref().is_some_and(|it| it.truth() == Some(false)) {
        conversion.unneeded(setting, "it is turned off");
        return;
    }
    let exporter = first_exporter(conversion, exporters.as_ref());
    match (&exporter, enabled) {
        (Some(_), Some(enabled)) => conversion.set(&enabled, &to("enabled"), Form::Bool, ""),
        (Some(_), None) => conversion.put(setting, "tracing.enabled", Value::Bool(true)),
        (None, enabled) => conversion.not_converted(
            enabled.as_ref().unwrap_or(setting),
            "without an exporter, traces go to Cosmo Cloud there: name a collector in \
             `tracing.otlp`, and set `tracing.enabled`",
        ),
    }
    if let Some(rate) = members.take("sampling_rate") {
        conversion.set(&rate, &to("sample.ratio"), Form::Share, "");
    }
    if let Some(parent) = members.take("parent_based_sampler") {
        conversion.set(&parent, &to("sample.parent"), Form::Bool, "");
    }
    if let Some(timeout) = members.take("batch_timeout") {
        conversion.set(&timeout, &to("otlp.interval"), Form::Duration, "");
    }
    if let Some(propagation) = members.take("propagation") {
        let names = [
            ("trace_context", "tracecontext"),
            ("baggage", "baggage"),
            ("b3", "b3"),
            ("jaeger", "jaeger"),
            ("datadog", "datadog"),
        ];
        crate::apollo::formats(conversion, &propagation, &names, &|_, _| {});
    }
    members.absent(conversion, "export_graphql_variables", "spans contain no values of clients");
    members.absent(
        conversion,
        "operation_content_attributes",
        "spans contain no texts of clients; `operation_id` names the operation",
    );
    members.absent(
        conversion,
        "with_new_root",
        "set `tracing.sample.parent: false` if clients are not trusted",
    );
    members.absent(
        conversion,
        "response_trace_id",
        "`request_id` gives each request an id, in responses and in the access log",
    );
    members.absent(conversion, "attributes", "spans have fixed attributes (docs/tracing.md)");
    members.unneeded(conversion, "sanitize_utf8", "texts in spans are always valid");
    members.finish(conversion);
    if let Some(exporter) = exporter {
        export(conversion, &exporter, Signal::Traces);
    }
}

fn metrics(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let enabled = members.take("enabled");
    let exporters = members.take("exporters");
    if enabled.as_ref().is_some_and(|it| it.truth() == Some(false)) {
        conversion.unneeded(setting, "it is turned off");
        return;
    }
    let to = ["metrics", "otlp", "enabled"].map(str::to_owned);
    let exporter = first_exporter(conversion, exporters.as_ref());
    match (&exporter, enabled) {
        (Some(_), Some(enabled)) => conversion.set(&enabled, &to, Form::Bool, METRICS),
        (Some(_), None) => conversion.put(setting, "metrics.otlp.enabled", Value::Bool(true)),
        (None, enabled) => conversion.not_converted(
            enabled.as_ref().unwrap_or(setting),
            "without an exporter, metrics go to Cosmo Cloud there: name a collector in \
             `metrics.otlp`",
        ),
    }
    for name in [
        "router_runtime",
        "graphql_cache",
        "connection_stats",
        "engine_stats",
        "cost_stats",
        "circuit_breaker",
        "streams",
        "network",
        "resolver",
    ] {
        members.unneeded(conversion, name, "all metrics are exported");
    }
    for name in ["exclude_metrics", "exclude_metric_labels", "log_exporter", "exemplar_filter"] {
        members.absent(conversion, name, "let the collector drop what it does not need");
    }
    members.finish(conversion);
    if let Some(exporter) = exporter {
        export(conversion, &exporter, Signal::Metrics);
    }
}

/// Returns the first exporter that is on. Starling has one collector.
fn first_exporter<'s>(
    conversion: &mut Conversion<'_>,
    exporters: Option<&Setting<'s>>,
) -> Option<Setting<'s>> {
    let is_on = |it: &Setting<'_>| it.member("disabled").is_none_or(|it| it.truth() != Some(true));
    let mut first = None;
    for exporter in exporters.into_iter().flat_map(Setting::items) {
        match (is_on(&exporter), &first) {
            (false, _) => conversion.unneeded(&exporter, "it is turned off"),
            (true, None) => first = Some(exporter),
            (true, Some(_)) => conversion
                .not_converted(&exporter, "there is one collector: let it pass the data on"),
        }
    }
    first
}

fn export(conversion: &mut Conversion<'_>, setting: &Setting<'_>, signal: Signal) {
    let mut members = Members::of(setting);
    members.take("disabled");
    let section = signal.section();
    let to = |key: &str| crate::conversion::with_names(&format!("{section}.{key}"), &[]);
    let protocol = members.take("exporter");
    let is_grpc = protocol.as_ref().and_then(Setting::text) == Some("grpc");
    if let Some(protocol) = protocol {
        let words = Form::Words(&[("http", "http"), ("grpc", "grpc")]);
        conversion.set(&protocol, &to("protocol"), words, "");
    }
    let path = members.take("path");
    if let Some(endpoint) = members.take("endpoint") {
        match conversion.text(&endpoint) {
            Ok(text) => {
                let path_text = path.as_ref().and_then(Setting::text).filter(|it| !it.is_empty());
                let url = otlp::endpoint(&text, signal, is_grpc, path_text);
                conversion.write(&endpoint, &to("endpoint"), Value::Text(url), "");
            }
            Err(reason) => conversion.refuse(&endpoint, &reason, ""),
        }
    }
    if let Some(path) = path {
        conversion.done(&path, &to("endpoint").join("."), "");
    }
    if let Some(given) = members.take("headers") {
        match otlp::headers(conversion, &given) {
            Some(value) => conversion.write(&given, &to("headers"), value, ""),
            None => conversion.unneeded(&given, "it is empty"),
        }
    }
    if let Some(interval) = members.take("batch_timeout") {
        conversion.set(&interval, &to("interval"), Form::Duration, "");
    }
    if let Some(timeout) = members.take("export_timeout") {
        conversion.set(&timeout, &to("timeout"), Form::Duration, "");
    }
    if let Some(temporality) = members.take("temporality").filter(|it| !it.is_empty()) {
        let words = Form::Words(&[("cumulative", "cumulative"), ("delta", "delta")]);
        conversion.set(&temporality, &to("temporality"), words, "");
    }
    members.finish(conversion);
}

fn prometheus(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    members.unneeded(conversion, "enabled", "the admin listener always serves `/metrics`");
    if let Some(listen) = members.take("listen_addr") {
        let to = ["admin".to_owned(), "listen".to_owned()];
        conversion.set(&listen, &to, Form::Address, METRICS);
    }
    if let Some(path) = members.take("path") {
        match path.text() {
            Some("/metrics") => conversion.unneeded(&path, "it is the path"),
            _ => conversion.not_converted(
                &path,
                "the path is `/metrics` of the admin listener: change the scrape configuration",
            ),
        }
    }
    for name in [
        "graphql_cache",
        "connection_stats",
        "engine_stats",
        "cost_stats",
        "circuit_breaker",
        "streams",
        "network",
        "resolver",
        "exclude_scope_info",
        "exemplar_filter",
    ] {
        members.unneeded(conversion, name, "`/metrics` has all metrics");
    }
    for name in ["exclude_metrics", "exclude_metric_labels"] {
        members.absent(
            conversion,
            name,
            "drop them in the scrape configuration (`metric_relabel_configs`)",
        );
    }
    if let Some(usage) = members.take("schema_usage") {
        match is_turned_off(&usage) {
            true => conversion.unneeded(&usage, "it is turned off"),
            false => conversion.not_converted(
                &usage,
                "`/admin/usage` has the use of fields by application (`metrics.fields`)",
            ),
        }
    }
    members.finish(conversion);
}
