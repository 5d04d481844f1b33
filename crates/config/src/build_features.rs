//! Settings that need a part which this build of the router lacks: the Kafka client, the profilers and the interpreter
//! of Rego are features of the build, because they would double its time.

use super::findings::{Findings, KeyPlaces};
use super::{Config, graphs};

/// The optional parts of a build that a configuration can ask for.
#[derive(Debug, Clone, Copy)]
pub(super) struct BuildFeatures {
    /// Signatures of AWS.
    pub(super) aws: bool,
    /// The Kafka client.
    pub(super) kafka: bool,
    /// The profilers of CPU and memory.
    pub(super) profiling: bool,
    /// The interpreter of Rego.
    pub(super) rego: bool,
}

impl BuildFeatures {
    /// The features of this build.
    pub(super) const THIS_BUILD: Self = Self {
        aws: upstream::HAS_AWS,
        kafka: ::events::HAS_KAFKA,
        profiling: profile::HAS_PROFILES,
        rego: ::policies::HAS_REGO,
    };
}

/// Reports each setting that needs a missing feature.
pub(super) fn check(
    config: &Config,
    features: BuildFeatures,
    places: &KeyPlaces,
    findings: &mut Findings,
) {
    let signed = config.subgraphs.iter().filter(|(_, it)| it.aws_sigv4.is_some());
    for (name, _) in signed.filter(|_| !features.aws) {
        let finding =
            findings.error("not-built", "this build of the router has no signatures of AWS");
        if let Some(place) = places.get(&format!("subgraphs.{name}.aws_sigv4")) {
            finding.at(place.key.clone(), "needs the feature `aws`");
        }
        finding.help(how_to_get("aws"));
    }
    for (section, source) in graphs::sources(config).filter(|_| !features.aws) {
        if source.url.as_ref().is_none_or(|it| it.aws_sigv4.is_none()) {
            continue;
        }
        let finding =
            findings.error("not-built", "this build of the router has no signatures of AWS");
        if let Some(place) = places.get(&format!("{section}.url.aws_sigv4")) {
            finding.at(place.key.clone(), "needs the feature `aws`");
        }
        finding.help(how_to_get("aws"));
    }
    if !features.kafka && !config.events.providers.kafka.is_empty() {
        let finding = findings
            .error("not-built", "this build of the router has no provider `kafka` for events");
        if let Some(place) = places.get("events.providers.kafka") {
            finding.at(place.key.clone(), "needs the feature `kafka`");
        }
        finding.help(how_to_get("kafka"));
    }
    // Other systems have no profiles in any build, and the endpoint says so.
    if cfg!(target_os = "linux") && !features.profiling && config.admin.profiling {
        let finding = findings
            .error("not-built", "this build of the router takes no profiles of CPU and memory");
        if let Some(place) = places.get("admin.profiling") {
            finding.at(place.key.clone(), "needs the feature `profiling`");
        }
        finding.help(how_to_get("profiling"));
    }
    if !features.rego && config.authorization.policies.rego.is_some() {
        let finding = findings
            .error("not-built", "this build of the router cannot evaluate policies in Rego");
        if let Some(place) = places.get("authorization.policies.rego") {
            finding.at(place.key.clone(), "needs the feature `rego`");
        }
        finding.help(how_to_get("rego"));
    }
}

/// Returns the advice for a missing feature.
fn how_to_get(feature: &str) -> String {
    format!(
        "build the router with `cargo build --release --features {feature}`, or as packages are built, with \
         `cargo build --profile dist --features full`"
    )
}
