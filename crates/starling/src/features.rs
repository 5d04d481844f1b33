//! The optional parts of this build.

/// Returns the names of the features, those that are built first.
pub(crate) fn built_and_missing() -> (Vec<&'static str>, Vec<&'static str>) {
    let all = [
        ("aws", upstream::HAS_AWS),
        ("kafka", events::HAS_KAFKA),
        ("profiling", profile::HAS_PROFILES),
        ("rego", policies::HAS_REGO),
        ("zstd", coding::Coding::from_name("zstd").is_some()),
    ];
    let names = |wanted: bool| {
        let chosen = all.iter().filter(|(_, is_built)| *is_built == wanted);
        chosen.map(|(name, _)| *name).collect()
    };
    (names(true), names(false))
}
