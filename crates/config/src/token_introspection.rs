//! Settings of token introspection (RFC 7662): opaque tokens that the identity provider is asked about.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::{
    DurationText, FileText, HttpUrlText, IssuerText, SecretText, SizeText, UserNameText,
};
use super::quantity;
use super::secret::Secret;

/// Token introspection (RFC 7662).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenIntrospection {
    /// The URL of the introspection endpoint. Redirections are not followed.
    #[schemars(with = "HttpUrlText", example = &"https://auth.example.com/introspect")]
    pub url: String,

    /// The name of the router at the identity provider.
    #[schemars(with = "UserNameText", example = &"starling")]
    pub client_id: String,

    /// The secret of the router at the identity provider.
    #[schemars(with = "SecretText", example = &"${INTROSPECTION_SECRET}")]
    pub client_secret: Secret,

    /// The way in which the router sends name and secret.
    #[serde(default)]
    #[schemars(example = &"post")]
    pub auth: IntrospectionAuth,

    /// The tokens that are introspected.
    #[serde(default)]
    #[schemars(example = &"all")]
    pub tokens: IntrospectedTokens,

    /// The value that the claim `iss` of the response must have. By default it is not checked: the endpoint speaks for
    /// its own tokens.
    #[serde(default)]
    #[schemars(with = "Option<IssuerText>", example = &"https://auth.example.com/")]
    pub issuer: Option<String>,

    /// The names of this router at the identity provider. If the list is not empty, one of them must be in the claim
    /// `aud` of the response.
    #[serde(default)]
    #[schemars(with = "Vec<IssuerText>", length(max = 32), example = ["starling"])]
    pub audiences: Vec<String>,

    /// The time limit of one introspection, and of the wait for its turn before it. After it the request gets status
    /// 503, `AUTHENTICATION_UNAVAILABLE`.
    #[serde(default = "timeout_default", with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"1s")]
    pub timeout: Duration,

    /// The maximum size of a response.
    #[serde(default = "max_size_default", with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"16KiB")]
    pub max_size: usize,

    /// The maximum number of introspections at the same time. Further ones wait, for `timeout` at most.
    #[serde(default = "max_concurrent_default")]
    #[schemars(range(min = 1, max = 10_000), example = 8)]
    pub max_concurrent: u32,

    /// The time after which a live connection needs a new token, if the identity provider names no expiry (`exp`) of
    /// the token.
    #[serde(default = "max_lifetime_default", with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"15m", extend("x-minimum" = 1000))]
    pub max_lifetime: Duration,

    /// The cache of results.
    #[serde(default)]
    pub cache: IntrospectionCache,

    /// The certificate authorities that may have signed the server's certificate, in PEM. They replace those that the
    /// system trusts.
    #[serde(default)]
    #[schemars(with = "Option<FileText>", example = &"certificates/internal-ca.pem")]
    pub ca: Option<PathBuf>,
}

/// The way in which the router authenticates at the introspection endpoint (RFC 6749, section 2.3.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IntrospectionAuth {
    /// The header `authorization`, scheme `Basic`.
    #[default]
    Basic,
    /// The parameters `client_id` and `client_secret` of the body.
    Post,
}

/// The tokens that are introspected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IntrospectedTokens {
    /// Tokens that are no JSON Web Tokens, and all tokens if `authentication.jwt.issuers` is empty.
    #[default]
    Opaque,
    /// All tokens: `authentication.jwt.issuers` must be empty.
    All,
}

/// The cache of introspected tokens. Its keys are hashes of tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IntrospectionCache {
    /// The maximum time for which a valid token counts as valid without another introspection; the expiry of the token
    /// bounds it as well. A token that the identity provider revokes is accepted for this time.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"10s")]
    pub ttl: Duration,

    /// The time for which an invalid token counts as invalid without another introspection.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"1s")]
    pub negative_ttl: Duration,

    /// The maximum number of cached tokens, at about a kilobyte each.
    #[schemars(range(min = 16, max = 10_000_000), example = 100_000)]
    pub entries: usize,
}

impl Default for IntrospectionCache {
    fn default() -> Self {
        Self {
            // Long enough that a busy client causes one introspection a minute, short enough for revocation.
            ttl: Duration::from_secs(60),
            negative_ttl: Duration::from_secs(10),
            entries: 16_384,
        }
    }
}

fn timeout_default() -> Duration {
    Duration::from_secs(2)
}

/// The default maximum size: some hundred groups of a user fit in.
fn max_size_default() -> usize {
    64 << 10
}

/// The default number of introspections at the same time: 3,000 new tokens a second at ten milliseconds each.
fn max_concurrent_default() -> u32 {
    32
}

fn max_lifetime_default() -> Duration {
    Duration::from_secs(3600)
}
