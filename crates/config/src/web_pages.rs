//! Settings for web pages: the page that the router serves itself, and the protection against forged requests. Those
//! for pages of other origins are in `cors`.

use http::HeaderName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::HeaderNameText;
use super::headers::header_names;

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

/// Protection against requests that foreign pages make browsers send (cross-site request forgery).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Csrf {
    /// Refuses every request that a browser can send without a preflight and that does not prove where it comes from:
    /// a GET without one of `required_headers`, without a `content-type` that needs a preflight, and without headers of
    /// the browser that name an allowed page. If `false`, only requests are refused that name a foreign page.
    #[schemars(example = true)]
    pub enabled: bool,

    /// Headers that pages of other origins can send only after a preflight. One of them, with any value, proves that
    /// the request is not forged. File uploads need one even if `csrf.enabled` is `false`.
    #[serde(with = "header_names")]
    #[schemars(with = "Vec<HeaderNameText>", length(min = 1, max = 32), example = ["x-requested-with"])]
    pub required_headers: Vec<HeaderName>,
}

impl Default for Csrf {
    fn default() -> Self {
        let known =
            ["x-apollo-operation-name", "apollo-require-preflight", "graphql-require-preflight"];
        Self { enabled: false, required_headers: known.map(HeaderName::from_static).into() }
    }
}
