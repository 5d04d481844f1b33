//! Regular expressions of the configuration: how they are compiled, and what the types for them share.

use regex::{Regex, RegexBuilder};

/// The maximum memory of a compiled pattern, far more than patterns for names, origins and messages need.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Compiles a pattern in the syntax of the `regex` crate: matching takes linear time.
///
/// # Errors
/// Describes in one line what is wrong with the pattern.
pub(super) fn compile(builder: &mut RegexBuilder) -> Result<Regex, String> {
    builder.size_limit(PATTERN_BYTES_MAX).build().map_err(|error| reason(&error))
}

fn reason(error: &regex::Error) -> String {
    // The library prints the pattern over several lines and the reason last.
    let text = error.to_string();
    let reason = text.lines().last().unwrap_or_default();
    reason.trim().trim_start_matches("error: ").to_owned()
}

/// Implements the traits of a type for patterns by its methods `new` and `text`: it is written, read and compared as
/// its text.
macro_rules! pattern_traits {
    ($pattern:ty) => {
        impl std::fmt::Debug for $pattern {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(out, "/{}/", self.text())
            }
        }

        impl PartialEq for $pattern {
            fn eq(&self, other: &Self) -> bool {
                self.text() == other.text()
            }
        }

        impl Eq for $pattern {}

        impl serde::Serialize for $pattern {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.text())
            }
        }

        impl<'de> serde::Deserialize<'de> for $pattern {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                Self::new(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(super) use pattern_traits;
