//! Settings that providers of several kinds have: credentials, and the waiting times between attempts to connect.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::{DurationText, SecretText, UserNameText};
use super::quantity;
use super::secret::Secret;

/// Splits a URL into the credentials between `://` and `@`, and the URL without them.
pub(super) fn split_credentials(url: &str) -> Option<(&str, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let (credentials, host) = rest.rsplit_once('@')?;
    Some((credentials, format!("{scheme}://{host}")))
}

/// Decodes `%20` and the like.
pub(super) fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// A user name and a password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserInfo {
    /// The user name.
    #[schemars(with = "UserNameText", example = &"starling")]
    pub username: String,
    /// The password. Messages and logs never show it.
    #[schemars(with = "SecretText", example = &"${NATS_PASSWORD}")]
    pub password: Secret,
}

/// Waiting times between attempts; each is about twice the previous one, with jitter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// The first waiting time.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"250ms")]
    pub initial: Duration,
    /// The longest waiting time.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"30s")]
    pub max: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { initial: Duration::from_millis(100), max: Duration::from_secs(5) }
    }
}
