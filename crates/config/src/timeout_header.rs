//! Headers that contain the time for which a sender waits.

use http::HeaderName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::HeaderNameText;
use super::headers::header_name;

/// A header that contains the time for which its sender waits for the response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimeoutHeader {
    /// The name of the header.
    #[serde(with = "header_name")]
    #[schemars(with = "HeaderNameText", example = &"x-request-timeout-ms")]
    pub name: HeaderName,

    /// The form of the value.
    #[serde(default)]
    #[schemars(example = &"seconds")]
    pub format: TimeoutFormat,
}

/// The form of a time in a header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TimeoutFormat {
    /// A whole number of milliseconds: `1500`.
    #[default]
    Milliseconds,
    /// A number of seconds, which may have decimals: `1.5`.
    Seconds,
    /// That of `grpc-timeout`, a whole number and a unit (`H`, `M`, `S`, `m` for milliseconds, `u`, `n`): `1500m`.
    Grpc,
}
