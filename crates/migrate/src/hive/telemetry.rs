//! Metrics, traces and reports of Hive Router.

use crate::conversion::{Conversion, Members};
use crate::form::Form;
use crate::otlp::{self, Signal};
use crate::rule::{Rule, absent, changed, same, unneeded, with};
use crate::setting::Setting;
use crate::target::Value;

const METRICS: &str = "the metrics have other names and labels (docs/metrics.md)";

pub(super) const RULES: &[Rule] = &[
    with(
        "telemetry.resource.attributes",
        "tracing.service_name, tracing.resource.<name>",
        "",
        resource,
    ),
    same("telemetry.service.name", "tracing.service_name", Form::Text),
    changed(
        "telemetry.client_identification.name_header",
        "client_info.name_headers",
        Form::Texts,
        "it replaces the default names",
    ),
    changed(
        "telemetry.client_identification.version_header",
        "client_info.version_headers",
        Form::Texts,
        "it replaces the default names",
    ),
    absent("telemetry.client_identification.ip_header", "the address is that of the peer"),
    absent(
        "telemetry.hive",
        "Starling reports nothing to Hive Console; `metrics.fields` counts the use of fields, \
         and `starling diff --usage` reads it (docs/metrics.md)",
    ),
    absent(
        "usage_reporting",
        "Starling reports nothing to Hive Console; `metrics.fields` counts the use of fields, \
         and `starling diff --usage` reads it (docs/metrics.md)",
    ),
    same("telemetry.tracing.collect.sampling", "tracing.sample.ratio", Form::Share),
    same("telemetry.tracing.collect.parent_based_sampler", "tracing.sample.parent", Form::Bool),
    unneeded(
        "telemetry.tracing.collect.(max_events_per_span|max_attributes_per_span|\
         max_attributes_per_event|max_attributes_per_link)",
        "spans have a fixed set of attributes; `tracing.max_spans` bounds a trace",
    ),
    with("telemetry.tracing.propagation", "tracing.propagation", "", propagation),
    unneeded(
        "telemetry.tracing.instrumentation",
        "spans have the stable attributes of OpenTelemetry",
    ),
    with(
        "telemetry.tracing.exporters",
        "tracing.enabled, tracing.otlp",
        "there is one collector",
        trace_exporters,
    ),
    with("telemetry.metrics.exporters", "metrics.otlp, admin.listen", METRICS, metric_exporters),
    absent("telemetry.metrics.instrumentation", "buckets and labels are fixed (docs/metrics.md)"),
];

fn resource(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    for (name, value) in setting.members() {
        let to = match name {
            "service.name" => vec!["tracing".to_owned(), "service_name".to_owned()],
            name => vec!["tracing".to_owned(), "resource".to_owned(), name.to_owned()],
        };
        conversion.set(&value, &to, Form::Text, "");
    }
}

fn propagation(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let names = [
        ("trace_context", "tracecontext"),
        ("baggage", "baggage"),
        ("b3", "b3"),
        ("jaeger", "jaeger"),
    ];
    crate::apollo::formats(conversion, setting, &names, &|_, _| {});
}

fn trace_exporters(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut has_one = false;
    for exporter in setting.items() {
        export(conversion, &exporter, Signal::Traces, &mut has_one);
    }
}

fn metric_exporters(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut has_one = false;
    for exporter in setting.items() {
        match exporter.member("kind").as_ref().and_then(Setting::text) {
            Some("prometheus") => prometheus(conversion, &exporter),
            _ => export(conversion, &exporter, Signal::Metrics, &mut has_one),
        }
    }
}

fn prometheus(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    members.take("kind");
    if members.take("enabled").is_some_and(|it| it.truth() == Some(false)) {
        conversion
            .unneeded(setting, "it is turned off; the admin listener always serves `/metrics`");
        return;
    }
    let port = members.take("port");
    if let Some(path) = members.take("path") {
        match path.text() {
            Some("/metrics") => conversion.unneeded(&path, "it is the path"),
            _ => conversion.not_converted(
                &path,
                "the path is `/metrics` of the admin listener: change the scrape configuration",
            ),
        }
    }
    members.finish(conversion);
    match port {
        Some(port) => {
            let to = ["admin".to_owned(), "listen".to_owned()];
            match conversion.text(&port) {
                Ok(text) => {
                    let note = "the admin listener also has health checks: clients must not reach it; names of other \
                                hosts belong in `admin.allowed_hosts`";
                    conversion.write(&port, &to, Value::text(format!("0.0.0.0:{text}")), note);
                }
                Err(reason) => conversion.refuse(&port, &reason, ""),
            }
        }
        None => conversion.done(
            setting,
            "admin.listen",
            "`/metrics` is on the admin listener: `127.0.0.1:8088` by default",
        ),
    }
}

fn export(
    conversion: &mut Conversion<'_>,
    setting: &Setting<'_>,
    signal: Signal,
    has_one: &mut bool,
) {
    let mut members = Members::of(setting);
    members.take("kind");
    if members.take("enabled").is_some_and(|it| it.truth() == Some(false)) {
        conversion.unneeded(setting, "it is turned off");
        return;
    }
    if std::mem::replace(has_one, true) {
        conversion.not_converted(setting, "there is one collector: let it pass the data on");
        return;
    }
    let section = signal.section();
    let to = |key: &str| crate::conversion::with_names(&format!("{section}.{key}"), &[]);
    match signal {
        Signal::Traces => conversion.put(setting, "tracing.enabled", Value::Bool(true)),
        Signal::Metrics => conversion.put(setting, "metrics.otlp.enabled", Value::Bool(true)),
    }
    let protocol = members.take("protocol");
    let is_grpc = protocol.as_ref().and_then(Setting::text) == Some("grpc");
    if let Some(protocol) = protocol {
        let words = Form::Words(&[("http", "http"), ("grpc", "grpc")]);
        conversion.set(&protocol, &to("protocol"), words, "");
    }
    if let Some(endpoint) = members.take("endpoint") {
        match conversion.text(&endpoint) {
            Ok(text) => {
                let url = otlp::endpoint(&text, signal, is_grpc, None);
                conversion.write(&endpoint, &to("endpoint"), Value::Text(url), "");
            }
            Err(reason) => conversion.refuse(&endpoint, &reason, ""),
        }
    }
    for (section, list) in [("http", "headers"), ("grpc", "metadata")] {
        let Some(transport) = members.take(section) else { continue };
        let mut own = Members::of(&transport);
        if let Some(given) = own.take(list)
            && let Some(value) = otlp::headers(conversion, &given)
        {
            conversion.write(&given, &to("headers"), value, "");
        }
        if let Some(tls) = own.take("tls") {
            let mut files = Members::of(&tls);
            if let Some(ca) = files.take("ca") {
                conversion.set(&ca, &to("ca"), Form::Text, "");
            }
            for name in ["cert", "key"] {
                files.absent(
                    conversion,
                    name,
                    "the router has no certificate of its own for collectors",
                );
            }
            files.unneeded(conversion, "domain_name", "the name in the URL is verified");
            files.finish(conversion);
        }
        own.finish(conversion);
    }
    let forms = [
        ("interval", "interval", Form::Duration),
        ("max_export_timeout", "timeout", Form::Duration),
        (
            "temporality",
            "temporality",
            Form::Words(&[("cumulative", "cumulative"), ("delta", "delta")]),
        ),
    ];
    for (there, here, form) in forms {
        if let Some(value) = members.take(there) {
            conversion.set(&value, &to(here), form, "");
        }
    }
    if let Some(batch) = members.take("batch_processor") {
        let mut own = Members::of(&batch);
        if let Some(delay) = own.take("scheduled_delay") {
            conversion.set(&delay, &to("interval"), Form::Duration, "");
        }
        if let Some(timeout) = own.take("max_export_timeout") {
            conversion.set(&timeout, &to("timeout"), Form::Duration, "");
        }
        for name in ["max_concurrent_exports", "max_export_batch_size", "max_queue_size"] {
            own.unneeded(conversion, name, "`tracing.queue` bounds the memory of what waits");
        }
        own.finish(conversion);
    }
    members.finish(conversion);
}
