//! Settings that need a part which this build of the router lacks: the Kafka client and the heap profiler are features of
//! the build, because their C libraries take most of its time.

use super::Config;
use super::findings::{Findings, KeyPlaces};

/// The optional parts of a build that a configuration can ask for.
#[derive(Debug, Clone, Copy)]
pub(super) struct BuildFeatures {
    /// The Kafka client.
    pub(super) kafka: bool,
    /// The heap profiler.
    pub(super) heap_profiles: bool,
}

impl BuildFeatures {
    /// The features of this build.
    pub(super) const THIS_BUILD: Self =
        Self { kafka: ::events::HAS_KAFKA, heap_profiles: profile::HAS_HEAP_PROFILES };
}

/// Reports each setting that needs a missing feature: an error if the router could not do what is asked, a warning if
/// it can do the rest.
pub(super) fn check(
    config: &Config,
    features: BuildFeatures,
    places: &KeyPlaces,
    findings: &mut Findings,
) {
    if !features.kafka && !config.events.providers.kafka.is_empty() {
        let finding = findings
            .error("not-built", "this build of the router has no provider `kafka` for events");
        if let Some(place) = places.get("events.providers.kafka") {
            finding.at(place.key.clone(), "needs the feature `kafka`");
        }
        finding.help(how_to_get("kafka"));
    }
    // Other systems have no heap profiles in any build, and the endpoint says so.
    if cfg!(target_os = "linux") && !features.heap_profiles && config.admin.profiling {
        let finding = findings.warning(
            "not-built",
            "`admin.profiling` serves no heap profiles: this build of the router has no heap profiler",
        );
        if let Some(place) = places.get("admin.profiling") {
            finding.at(place.key.clone(), "heap profiles need the feature `jemalloc`");
        }
        finding.help(how_to_get("jemalloc"));
    }
}

/// Returns the advice for a missing feature.
fn how_to_get(feature: &str) -> String {
    format!(
        "build the router with `cargo build --release --features {feature}`, or use a package, which has every feature"
    )
}
