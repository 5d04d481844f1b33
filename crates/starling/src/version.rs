//! The text of `starling --version`: where this build comes from, and what it contains.

use std::sync::LazyLock;

use time::OffsetDateTime;

use crate::features;

/// The text after the name of the program. The parser of the command line takes static text only.
static LONG_VERSION: LazyLock<String> = LazyLock::new(|| {
    let (built, missing) = features::built_and_missing();
    let build = Build {
        version: env!("CARGO_PKG_VERSION"),
        commit: env!("STARLING_COMMIT"),
        seconds: env!("STARLING_BUILD_SECONDS"),
        built: &built,
        missing: &missing,
        licence: env!("CARGO_PKG_LICENSE"),
    };
    build.describe()
});

/// Returns the version of this build, and each of its properties on a line.
pub(crate) fn long_version() -> &'static str {
    &LONG_VERSION
}

/// The properties of a build. Text from the build script is empty if it is unknown.
struct Build<'a> {
    version: &'a str,
    commit: &'a str,
    /// Seconds since 1970.
    seconds: &'a str,
    /// Features.
    built: &'a [&'a str],
    missing: &'a [&'a str],
    licence: &'a str,
}

impl Build<'_> {
    fn describe(&self) -> String {
        let Self { version, licence, .. } = self;
        let commit = if self.commit.is_empty() { "unknown" } else { self.commit };
        let time =
            self.seconds.parse().ok().and_then(|it| OffsetDateTime::from_unix_timestamp(it).ok());
        let date = time.map_or_else(|| "unknown".to_owned(), |time| time.date().to_string());
        let mut features = match self.built {
            [] => "none".to_owned(),
            names => names.join(", "),
        };
        if !self.missing.is_empty() {
            features += &format!(" (not built: {})", self.missing.join(", "));
        }
        format!(
            "{version}\ncommit: {commit}\nbuilt: {date}\nfeatures: {features}\nlicence: {licence}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILD: Build<'_> = Build {
        version: "1.2.3",
        commit: "0123456789ab",
        seconds: "1700000000",
        built: &["a", "b"],
        missing: &[],
        licence: "MIT",
    };

    #[test]
    fn the_version_names_commit_date_features_and_licence() {
        let expected =
            "1.2.3\ncommit: 0123456789ab\nbuilt: 2023-11-14\nfeatures: a, b\nlicence: MIT";
        assert_eq!(BUILD.describe(), expected);
    }

    #[test]
    fn a_build_without_git_has_no_commit_and_no_date() {
        let text = Build { commit: "", seconds: "", ..BUILD }.describe();
        assert!(text.contains("\ncommit: unknown\nbuilt: unknown\n"), "{text}");
    }

    #[test]
    fn features_that_are_not_built_are_named() {
        for (built, missing, expected) in [
            (&["a"][..], &["b", "c"][..], "\nfeatures: a (not built: b, c)\n"),
            (&[], &["a"], "\nfeatures: none (not built: a)\n"),
        ] {
            let text = Build { built, missing, ..BUILD }.describe();
            assert!(text.contains(expected), "{text}");
        }
    }
}
