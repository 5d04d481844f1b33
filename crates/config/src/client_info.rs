//! The headers in which applications state their name and version.

use http::HeaderName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::HeaderNameText;
use super::headers::header_names;

/// The headers in which applications state their name and version (`client.name` and `client.version` in
/// expressions).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClientInfoHeaders {
    /// The headers with the name of the application. The first one that is present counts. For clients that cannot set
    /// headers for a WebSocket, list the same names in `websocket.init_payload_headers`.
    #[serde(with = "header_names")]
    #[schemars(with = "Vec<HeaderNameText>", length(max = 16), example = ["x-client-name"])]
    pub name_headers: Vec<HeaderName>,

    /// The headers with the version of the application.
    #[serde(with = "header_names")]
    #[schemars(with = "Vec<HeaderNameText>", length(max = 16), example = ["x-client-version"])]
    pub version_headers: Vec<HeaderName>,
}

impl Default for ClientInfoHeaders {
    fn default() -> Self {
        let names = |names: [&'static str; 2]| names.map(HeaderName::from_static).to_vec();
        Self {
            name_headers: names(["graphql-client-name", "apollographql-client-name"]),
            version_headers: names(["graphql-client-version", "apollographql-client-version"]),
        }
    }
}
