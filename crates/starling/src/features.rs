//! The optional parts of this build, for `starling --version`.

use std::sync::LazyLock;

/// The version and the features of this build. The parser of the command line takes static text only.
static LONG_VERSION: LazyLock<String> = LazyLock::new(|| {
    let all = [
        ("aws", upstream::HAS_AWS),
        ("kafka", events::HAS_KAFKA),
        ("profiling", profile::HAS_PROFILES),
        ("rego", policies::HAS_REGO),
        ("zstd", coding::Coding::from_name("zstd").is_some()),
    ];
    let names = |wanted: bool| {
        let chosen = all.iter().filter(|(_, is_built)| *is_built == wanted).map(|(name, _)| *name);
        chosen.collect::<Vec<_>>().join(", ")
    };
    describe(env!("CARGO_PKG_VERSION"), &names(true), &names(false))
});

/// Returns the version and the features of this build.
pub(crate) fn long_version() -> &'static str {
    &LONG_VERSION
}

fn describe(version: &str, built: &str, missing: &str) -> String {
    let built = if built.is_empty() { "none" } else { built };
    match missing {
        "" => format!("{version}\nfeatures: {built}"),
        _ => format!("{version}\nfeatures: {built} (not built: {missing})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_names_the_features_that_are_built_and_those_that_are_not() {
        assert_eq!(describe("1.2.3", "a, b", ""), "1.2.3\nfeatures: a, b");
        assert_eq!(describe("1.2.3", "a", "b, c"), "1.2.3\nfeatures: a (not built: b, c)");
        assert_eq!(describe("1.2.3", "", "a"), "1.2.3\nfeatures: none (not built: a)");
    }
}
