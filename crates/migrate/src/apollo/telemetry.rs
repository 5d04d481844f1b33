//! Metrics, traces, logs and reports of Apollo Router.

use crate::conversion::{Conversion, Members, is_turned_off};
use crate::form::Form;
use crate::otlp::{self, Signal};
use crate::rule::{Rule, absent, changed, same, unneeded, with};
use crate::setting::Setting;
use crate::target::Value;

const METRICS: &str = "the metrics have other names and labels (docs/metrics.md)";

pub(super) const RULES: &[Rule] = &[
    same("telemetry.exporters.tracing.common.service_name", "tracing.service_name", Form::Text),
    absent(
        "telemetry.exporters.tracing.common.service_namespace",
        "write it as `service.namespace` in `tracing.resource`",
    ),
    with("telemetry.exporters.tracing.common.resource", "tracing.resource.<name>", "", resource),
    same("telemetry.exporters.tracing.common.sampler", "tracing.sample.ratio", Form::Share),
    same(
        "telemetry.exporters.tracing.common.parent_based_sampler",
        "tracing.sample.parent",
        Form::Bool,
    ),
    unneeded(
        "telemetry.exporters.tracing.common.(max_attributes_per_event|max_attributes_per_link|\
         max_attributes_per_span|max_events_per_span|max_links_per_span)",
        "spans have a fixed set of attributes; `tracing.max_spans` bounds a trace",
    ),
    absent(
        "telemetry.exporters.tracing.common.preview_datadog_agent_sampling",
        "`tracing.sample` selects traces before they are exported",
    ),
    with(
        "telemetry.exporters.tracing.otlp",
        "tracing.enabled, tracing.otlp.endpoint, tracing.otlp.protocol, tracing.otlp.headers, \
         tracing.otlp.interval",
        "",
        traces,
    ),
    absent(
        "telemetry.exporters.tracing.(datadog|zipkin|jaeger)",
        "send OTLP to an agent or a collector of that system (`tracing.otlp`)",
    ),
    with("telemetry.exporters.tracing.propagation", "tracing.propagation", "", propagation),
    absent(
        "telemetry.exporters.tracing.(response_trace_id|experimental_response_trace_id)",
        "`request_id` gives each request an id, in responses and in the access log",
    ),
    unneeded(
        "telemetry.exporters.metrics.prometheus.enabled",
        "the admin listener always serves `/metrics`",
    ),
    with(
        "telemetry.exporters.metrics.prometheus.listen",
        "admin.listen",
        METRICS,
        super::server::admin_listen,
    ),
    with(
        "telemetry.exporters.metrics.prometheus.path",
        "",
        "the path is `/metrics` of the admin listener: change the scrape configuration",
        super::server::metrics_path,
    ),
    unneeded(
        "telemetry.exporters.metrics.prometheus.resource_selector",
        "resources are not part of `/metrics`",
    ),
    with(
        "telemetry.exporters.metrics.otlp",
        "metrics.otlp.enabled, metrics.otlp.endpoint, metrics.otlp.protocol, \
         metrics.otlp.headers, metrics.otlp.temporality, metrics.otlp.interval",
        METRICS,
        metrics,
    ),
    changed(
        "telemetry.exporters.metrics.common.service_name",
        "tracing.service_name",
        Form::Text,
        "metrics and traces have one name",
    ),
    unneeded(
        "telemetry.exporters.metrics.common.service_namespace",
        "metrics and traces have one name and one set of attributes",
    ),
    with(
        "telemetry.exporters.metrics.common.resource",
        "tracing.resource.<name>",
        "metrics and traces have one set of attributes",
        resource,
    ),
    absent(
        "telemetry.exporters.metrics.common.(buckets|views)",
        "buckets and labels are fixed (docs/metrics.md)",
    ),
    with(
        "telemetry.exporters.logging.stdout.format",
        "log.format",
        "the members of a line are fixed",
        log_format,
    ),
    unneeded(
        "telemetry.exporters.logging.stdout.tty_format",
        "`log.format: auto` writes text in a terminal",
    ),
    unneeded("telemetry.exporters.logging.stdout.enabled", "the log always goes to standard error"),
    absent(
        "telemetry.exporters.logging.stdout.rate_limit",
        "repeated warnings are limited by the router",
    ),
    unneeded("telemetry.exporters.logging.common", "lines of the log have no resource"),
    absent(
        "telemetry.instrumentation.events",
        "`access_log` writes a line for each request, with fields and conditions of your own \
         (docs/access-log.md)",
    ),
    absent(
        "telemetry.instrumentation.instruments",
        "metrics are fixed: docs/metrics.md lists them; `metrics.operations` and \
         `metrics.clients` bound those by name",
    ),
    absent("telemetry.instrumentation.spans", "spans are fixed: docs/tracing.md lists them"),
    changed(
        "telemetry.apollo.client_name_header",
        "client_info.name_headers",
        Form::Texts,
        "it replaces the default names",
    ),
    changed(
        "telemetry.apollo.client_version_header",
        "client_info.version_headers",
        Form::Texts,
        "it replaces the default names",
    ),
    unneeded(
        "telemetry.apollo.(endpoint|otlp_endpoint|experimental_otlp_endpoint|batch_processor|\
         buffer_size|field_level_instrumentation_sampler|send_headers|send_variable_values|\
         errors|signature_normalization_algorithm|metrics_reference_mode|\
         experimental_local_field_metrics|experimental_otlp_tracing_sampler|\
         otlp_tracing_sampler|otlp_tracing_protocol|experimental_otlp_tracing_protocol|\
         experimental_apollo_signature_normalization_algorithm|\
         experimental_apollo_metrics_reference_mode|preview_subgraph_metrics|subgraph_metrics|\
         tracing|metrics)",
        "Starling reports nothing to GraphOS; `metrics.fields` counts the use of fields \
         (docs/metrics.md)",
    ),
];

fn resource(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    for (name, value) in setting.members() {
        let to = ["tracing".to_owned(), "resource".to_owned(), name.to_owned()];
        if name == "service.name" {
            let to = ["tracing".to_owned(), "service_name".to_owned()];
            conversion.set(&value, &to, Form::Text, "");
        } else {
            conversion.set(&value, &to, Form::Text, "");
        }
    }
}

fn traces(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    exporter(conversion, setting, Signal::Traces);
}

fn metrics(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    exporter(conversion, setting, Signal::Metrics);
}

fn exporter(conversion: &mut Conversion<'_>, setting: &Setting<'_>, signal: Signal) {
    let mut members = Members::of(setting);
    let section = signal.section();
    let to = |key: &str| crate::conversion::with_names(&format!("{section}.{key}"), &[]);
    let enabled = members.take("enabled");
    if enabled.as_ref().is_none_or(|it| it.truth() == Some(false)) {
        conversion.unneeded(setting, "it is turned off");
        return;
    }
    if let Some(enabled) = enabled {
        let switch = match signal {
            Signal::Traces => vec!["tracing".to_owned(), "enabled".to_owned()],
            Signal::Metrics => to("enabled"),
        };
        conversion.set(&enabled, &switch, Form::Bool, "");
    }
    let protocol = members.take("protocol");
    let is_grpc = protocol.as_ref().and_then(Setting::text) != Some("http");
    let reporter = protocol.unwrap_or_else(|| setting.clone());
    let name = Value::text(if is_grpc { "grpc" } else { "http" });
    conversion.write(&reporter, &to("protocol"), name, "");
    if let Some(endpoint) = members.take("endpoint") {
        match conversion.text(&endpoint) {
            Ok(text) if text == "default" => {
                conversion.unneeded(&endpoint, "the default is the same");
            }
            Ok(text) => {
                let url = otlp::endpoint(&text, signal, is_grpc, None);
                conversion.write(&endpoint, &to("endpoint"), Value::Text(url), "");
            }
            Err(reason) => conversion.refuse(&endpoint, &reason, ""),
        }
    }
    if let Some(temporality) = members.take("temporality") {
        let words = Form::Words(&[("cumulative", "cumulative"), ("delta", "delta")]);
        match signal {
            Signal::Traces => conversion.unneeded(&temporality, "traces have none"),
            Signal::Metrics => conversion.set(&temporality, &to("temporality"), words, ""),
        }
    }
    if let Some(http) = members.take("http") {
        let mut own = Members::of(&http);
        if let Some(given) = own.take("headers")
            && let Some(value) = otlp::headers(conversion, &given)
        {
            conversion.write(&given, &to("headers"), value, "");
        }
        own.finish(conversion);
    }
    if let Some(grpc) = members.take("grpc") {
        let mut own = Members::of(&grpc);
        if let Some(given) = own.take("metadata")
            && let Some(value) = otlp::headers(conversion, &given)
        {
            conversion.write(&given, &to("headers"), value, "");
        }
        if let Some(ca) = own.take("ca") {
            match ca.text().and_then(crate::variables::file_reference) {
                Some(path) => conversion.write(&ca, &to("ca"), Value::text(path), ""),
                None => conversion.refuse(
                    &ca,
                    "is no file (`${file.PATH}`)",
                    "Starling reads certificates from files",
                ),
            }
        }
        for name in ["cert", "key"] {
            own.absent(conversion, name, "the router has no certificate of its own for collectors");
        }
        own.unneeded(conversion, "domain_name", "the name in the URL is verified");
        own.finish(conversion);
    }
    if let Some(batch) = members.take("batch_processor") {
        batching(conversion, &batch, &to);
    }
    members.finish(conversion);
}

fn batching(
    conversion: &mut Conversion<'_>,
    setting: &Setting<'_>,
    to: &dyn Fn(&str) -> Vec<String>,
) {
    let mut members = Members::of(setting);
    if let Some(delay) = members.take("scheduled_delay") {
        conversion.set(&delay, &to("interval"), Form::Duration, "");
    }
    if let Some(timeout) = members.take("max_export_timeout") {
        conversion.set(&timeout, &to("timeout"), Form::Duration, "");
    }
    for name in ["max_concurrent_exports", "max_export_batch_size", "max_queue_size"] {
        members.unneeded(conversion, name, "`tracing.queue` bounds the memory of what waits");
    }
    members.finish(conversion);
}

fn propagation(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let names = [
        ("trace_context", "tracecontext"),
        ("baggage", "baggage"),
        ("zipkin", "b3"),
        ("jaeger", "jaeger"),
        ("datadog", "datadog"),
    ];
    formats(conversion, setting, &names, &|conversion, members| {
        members.absent(
            conversion,
            "aws_xray",
            "Starling has no format of X-Ray: let the collector convert",
        );
        if let Some(request) = members.take("request") {
            match is_turned_off(&request)
                || request.member("header_name").is_none_or(|it| it.is_empty())
            {
                true => conversion.unneeded(&request, "it is empty"),
                false => conversion.not_converted(
                    &request,
                    "`request_id.header` names a header with an id of the request",
                ),
            }
        }
    });
}

/// Converts the formats of propagation, each of which a truth value turns on.
pub(crate) fn formats(
    conversion: &mut Conversion<'_>,
    setting: &Setting<'_>,
    names: &[(&str, &str)],
    others: &dyn Fn(&mut Conversion<'_>, &mut Members<'_>),
) {
    let mut members = Members::of(setting);
    let to = ["tracing".to_owned(), "propagation".to_owned()];
    for (there, here) in names {
        let Some(member) = members.take(there) else { continue };
        match conversion.is_on(Some(&member)) {
            true => conversion.push(&member, &to, Value::text(*here), ""),
            false => conversion.unneeded(&member, "it is turned off"),
        }
    }
    others(conversion, &mut members);
    members.finish(conversion);
}

fn log_format(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let name = match setting.text() {
        Some(text) => Some(text),
        None => setting.members().first().map(|(name, _)| *name),
    };
    let to = ["log".to_owned(), "format".to_owned()];
    match name {
        Some("json") => {
            let note = if setting.is_mapping() { "the members of a line are fixed" } else { "" };
            conversion.write(setting, &to, Value::text("json"), note);
        }
        Some("text") => conversion.write(setting, &to, Value::text("text"), ""),
        _ => conversion.refuse(setting, "is no format of Starling", "it has `json` and `text`"),
    }
}
