//! Settings for web pages: the page that the router serves itself, and pages of other origins.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::OriginText;

/// The page for trying out queries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ide {
    /// Serves the page at `/`. If `false`, `/` returns 404.
    #[schemars(example = false)]
    pub enabled: bool,
}

impl Default for Ide {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// Cross-origin resource sharing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cors {
    /// The origins of web pages that may send requests from a browser, such as `https://app.example.com`. `"*"` allows
    /// every origin, but only without credentials: pages that send cookies, and WebSockets opened with cookies, need
    /// their origin in this list. If the list is empty, browsers allow only pages that the router itself serves.
    /// Browsers let pages of other origins open WebSockets and send GET requests nevertheless; the router refuses these
    /// with status 403.
    #[schemars(with = "Vec<OriginText>", example = ["https://app.example.com"])]
    pub origins: Vec<String>,
}
