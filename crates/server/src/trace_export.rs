//! The traces of the configuration: the tracer that records, and the exporter that sends to the collector.

use std::sync::Arc;

use config::diagnostic::Diagnostic;
use config::{Config, OtlpProtocol, Tracing};
use otlp::{
    CollectorSettings, ExportProtocol, ExporterSettings, ExporterTask, RetryTimes, RouterIdentity,
    TraceExporter, exporter_tls,
};
use serving::trace_formats::propagation;
use telemetry::spans::{
    FlightRecorder, Propagation, RecorderSettings, SamplingRules, Tracer, TracerSettings,
};

/// The number of spans in one request to the collector, and that of waiting ones at which it is sent. It is what
/// OpenTelemetry's SDKs send at once.
const BATCH_SPANS: usize = 512;

/// The traces of a router that exports them or has a flight recorder.
#[derive(Debug)]
pub(crate) struct Traces {
    /// Records the traces.
    pub(crate) tracer: Arc<Tracer>,
    /// `None` if no traces are exported.
    exporter: Option<TraceExporter>,
}

impl Traces {
    /// Creates what the configuration describes; `None` if traces are neither exported nor recorded. Blocks, and connects
    /// to nothing.
    ///
    /// # Errors
    /// Settings that cannot be used.
    pub(crate) fn new(
        config: &Config,
        identity: &RouterIdentity,
    ) -> Result<Option<Self>, Vec<Diagnostic>> {
        let has_recorder = config.admin.console.has_recorder();
        let (exporter, settings) = match config.tracing.enabled {
            true => (Some(exporter(&config.tracing, identity)?), tracer_settings(&config.tracing)),
            false if has_recorder => (None, recorder_only(&config.tracing)),
            false => return Ok(None),
        };
        let tracer = Tracer::new(settings);
        let tracer = match has_recorder {
            true => tracer.with_recorder(flight_recorder(&config.admin.console.recorder)),
            false => tracer,
        };
        Ok(Some(Self { tracer: Arc::new(tracer), exporter }))
    }

    /// Starts the export, if traces are exported. Must be called inside a Tokio runtime.
    pub(crate) fn start(self) -> Option<ExporterTask> {
        self.exporter.map(|exporter| exporter.start(self.tracer))
    }
}

fn exporter(
    settings: &Tracing,
    identity: &RouterIdentity,
) -> Result<TraceExporter, Vec<Diagnostic>> {
    let refused = |reason: &dyn std::fmt::Display| {
        vec![Diagnostic::error("tracing", format!("`tracing.otlp`: {reason}"))]
    };
    let (url, ca) = (settings.otlp.url(), settings.otlp.ca.as_deref());
    let protocol = export_protocol(settings.otlp.protocol);
    let tls = exporter_tls(protocol, url, ca);
    let tls = tls.map_err(|reason| refused(&reason))?;
    let headers = settings.otlp.headers.iter();
    let exporter = TraceExporter::new(ExporterSettings {
        collector: CollectorSettings {
            protocol,
            url: url.into(),
            tls,
            headers: headers.map(|it| (it.name.clone(), it.value.clone())).collect(),
            timeout: settings.otlp.timeout,
        },
        interval: settings.otlp.interval,
        identity: identity.clone(),
        retry: RetryTimes::default(),
    });
    exporter.map_err(|error| refused(&error))
}

fn flight_recorder(settings: &config::FlightRecorder) -> FlightRecorder {
    FlightRecorder::new(RecorderSettings {
        slow: settings.slow,
        traces_max: settings.max as usize,
        bytes_max: settings.memory,
    })
}

/// The settings of a tracer for a flight recorder alone: no trace is exported, and the identities of traces are neither
/// read from clients nor passed on.
fn recorder_only(settings: &Tracing) -> TracerSettings {
    TracerSettings {
        sampling: SamplingRules {
            ratio: 0.0,
            follows_parent: false,
            slow: None,
            failed: false,
            has_conditions: false,
        },
        propagation: Propagation::new([]),
        ..tracer_settings(settings)
    }
}

fn tracer_settings(settings: &Tracing) -> TracerSettings {
    let sample = &settings.sample;
    TracerSettings {
        sampling: SamplingRules {
            ratio: sample.ratio.ratio(),
            follows_parent: sample.parent,
            slow: Some(sample.slow).filter(|it| !it.is_zero()),
            failed: sample.failed,
            has_conditions: !sample.rules.is_empty(),
        },
        propagation: propagation(settings),
        queue_bytes_max: settings.queue,
        spans_max: settings.max_spans as usize,
        batch_spans: BATCH_SPANS,
    }
}

pub(crate) fn export_protocol(protocol: OtlpProtocol) -> ExportProtocol {
    match protocol {
        OtlpProtocol::Http => ExportProtocol::Http,
        OtlpProtocol::Grpc => ExportProtocol::Grpc,
    }
}

/// Returns the attributes of this router in traces and metrics. Those of the configuration come last and replace
/// others.
pub(crate) fn router_identity(settings: &Tracing) -> RouterIdentity {
    let version = env!("CARGO_PKG_VERSION");
    // A router that is started again is another instance.
    let instance = format!("{:032x}", fastrand::u128(..));
    let mut attributes: Vec<(Box<str>, Box<str>)> = vec![
        ("service.name".into(), settings.service_name.as_str().into()),
        ("service.version".into(), version.into()),
        ("service.instance.id".into(), instance.into()),
    ];
    for (name, value) in &settings.resource {
        attributes.retain(|(known, _)| **known != **name);
        attributes.push((name.as_str().into(), value.as_str().into()));
    }
    RouterIdentity { attributes, version }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_the_configuration_replace_those_of_the_router() {
        let mut settings = Tracing { service_name: "shop".into(), ..Tracing::default() };
        settings.resource.insert("service.version".into(), "7".into());
        settings.resource.insert("region".into(), "eu".into());
        let mut attributes = router_identity(&settings).attributes;
        attributes.retain(|(name, _)| **name != *"service.instance.id");
        let attributes = attributes.iter().map(|(name, value)| format!("{name}={value}"));
        let attributes: Vec<_> = attributes.collect();
        assert_eq!(attributes, ["service.name=shop", "region=eu", "service.version=7"]);
    }

    #[test]
    fn settings_that_cannot_be_used_are_refused_with_their_key() {
        let mut config = Config::default();
        let identity = router_identity(&config.tracing);
        assert!(Traces::new(&config, &identity).expect("nothing to check").is_none());
        config.admin.console.recorder.enabled = true;
        let recording = Traces::new(&config, &identity).expect("no collector").expect("a recorder");
        assert!(recording.exporter.is_none() && recording.tracer.recorder().is_some());
        config.admin.console.enabled = false;
        assert!(
            Traces::new(&config, &identity).expect("nothing to check").is_none(),
            "without a page"
        );
        config.tracing.enabled = true;
        assert!(Traces::new(&config, &identity).expect("the defaults").is_some());
        config.tracing.otlp.endpoint = Some("https://collector/v1/traces".into());
        config.tracing.otlp.ca = Some("/nowhere/ca.pem".into());
        let problems = Traces::new(&config, &identity).expect_err("no such file");
        let message = &problems[0].message;
        assert!(message.starts_with("`tracing.otlp`: ca /nowhere/ca.pem: "), "{message}");
    }
}
