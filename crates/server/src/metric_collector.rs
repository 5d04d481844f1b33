//! The export of metrics to the collector of the configuration.

use config::diagnostic::Diagnostic;
use config::{Config, MetricTemporality};
use otlp::{
    CollectorSettings, MetricExporter, MetricExporterSettings, RouterIdentity, Temporality,
    exporter_tls,
};

use crate::trace_export::export_protocol;

/// Creates the exporter that the configuration describes; `None` if no metrics are exported. Blocks, and connects to
/// nothing.
///
/// # Errors
/// Settings that cannot be used.
pub(crate) fn metric_exporter(
    config: &Config,
    identity: &RouterIdentity,
) -> Result<Option<MetricExporter>, Vec<Diagnostic>> {
    let settings = &config.metrics.otlp;
    if !settings.enabled {
        return Ok(None);
    }
    let refused = |reason: &dyn std::fmt::Display| {
        vec![Diagnostic::error("metrics", format!("`metrics.otlp`: {reason}"))]
    };
    let protocol = export_protocol(settings.protocol);
    let tls = exporter_tls(protocol, settings.url(), settings.ca.as_deref());
    let headers = settings.headers.iter();
    let exporter = MetricExporter::new(MetricExporterSettings {
        collector: CollectorSettings {
            protocol,
            url: settings.url().into(),
            tls: tls.map_err(|reason| refused(&reason))?,
            headers: headers.map(|it| (it.name.clone(), it.value.clone())).collect(),
            timeout: settings.timeout,
        },
        interval: settings.interval,
        temporality: match settings.temporality {
            MetricTemporality::Cumulative => Temporality::Cumulative,
            MetricTemporality::Delta => Temporality::Delta,
        },
        identity: identity.clone(),
    });
    exporter.map(Some).map_err(|error| refused(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace_export::router_identity;

    #[test]
    fn settings_that_cannot_be_used_are_refused_with_their_key() {
        let mut config = Config::default();
        let identity = router_identity(&config.tracing);
        assert!(metric_exporter(&config, &identity).expect("nothing to check").is_none());
        config.metrics.otlp.enabled = true;
        assert!(metric_exporter(&config, &identity).expect("the defaults").is_some());
        config.metrics.otlp.endpoint = Some("https://collector/v1/metrics".into());
        config.metrics.otlp.ca = Some("/nowhere/ca.pem".into());
        let problems = metric_exporter(&config, &identity).expect_err("no such file");
        let message = &problems[0].message;
        assert!(message.starts_with("`metrics.otlp`: ca /nowhere/ca.pem: "), "{message}");
    }
}
