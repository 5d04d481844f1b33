//! Settings of client authentication: tokens and their issuers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::{
    CookieNameText, DurationOrZeroText, DurationText, FileText, HeaderNameText, HttpUrlText,
    IssuerText, MemberPathText, SchemeText, SecretText, SizeText,
};
use super::headers::header_name;
use super::quantity;
use super::secret::Secret;
use super::token_introspection::TokenIntrospection;

/// Settings of client authentication.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Authentication {
    /// Tokens of clients: where they are, and the issuers of signed ones (JSON Web Tokens).
    pub jwt: Jwt,

    /// Verification of opaque tokens by a request to the identity provider (token introspection, RFC 7662). By default
    /// only signed tokens are accepted.
    pub introspection: Option<TokenIntrospection>,
}

/// Tokens of clients. If no issuer is configured, the router does not check tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Jwt {
    /// Refuses requests without a token. If `false`, such requests are anonymous. An invalid token is refused in any
    /// case, unless `on_error` is `continue`.
    #[schemars(example = true)]
    pub required: bool,

    /// The effect of a token that is not valid. Tokens that cannot be verified at present are refused in any case, with
    /// status 503.
    #[schemars(example = &"continue")]
    pub on_error: OnTokenError,

    /// The header that contains the token.
    pub header: JwtHeader,

    /// The places of the token, in the order in which the router looks for it. The first place that a request uses
    /// counts, and subgraphs never get the content of the others. If the list is not empty, `header` has no effect.
    #[schemars(with = "Vec<TokenPlaceKeys>", length(max = 8))]
    #[schemars(example = [serde_json::json!({"header": {}}), serde_json::json!({"cookie": {"name": "session"}})])]
    pub sources: Vec<TokenPlace>,

    /// The members of the `connection_init` payload in which the router looks for the token, because browsers cannot
    /// send headers with a WebSocket. A path consists of member names with points between them, in any letter case; the
    /// first path that exists is used. The token may have the prefix of the header or not.
    #[schemars(with = "Vec<MemberPathText>", length(max = 8), example = ["authorization", "headers.authorization"])]
    pub init_payload: Vec<String>,

    /// The maximum size of a token.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"16KiB", extend("x-minimum" = 256))]
    pub max_token_size: usize,

    /// The issuers of accepted tokens. A token that names its issuer (`iss`) is checked by the entries with that
    /// `issuer` and by the entries without one.
    #[schemars(length(max = 32))]
    pub issuers: Vec<JwtIssuer>,
}

impl Default for Jwt {
    fn default() -> Self {
        Self {
            required: false,
            on_error: OnTokenError::default(),
            header: JwtHeader::default(),
            sources: Vec::new(),
            init_payload: vec!["authorization".into()],
            // Twice the size of tokens that list many groups; proxies allow 8 KiB for all headers together.
            max_token_size: 8 << 10,
            issuers: Vec::new(),
        }
    }
}

impl Jwt {
    /// Returns the places of tokens, in order, with the default applied.
    pub fn places(&self) -> Vec<TokenPlace> {
        match &self.sources[..] {
            [] => vec![TokenPlace::Header(self.header.clone())],
            sources => sources.to_vec(),
        }
    }
}

/// The effect of a token that is not valid.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnTokenError {
    /// The request is refused with status 401.
    #[default]
    Reject,
    /// The client is anonymous, as without a token. Weaker than `reject`: a client whose token has expired is not told
    /// so by a status, and gets the view of an anonymous one.
    Continue,
}

/// A place of tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenPlace {
    /// A header.
    Header(JwtHeader),
    /// A cookie.
    Cookie(TokenCookie),
}

/// A place of tokens: exactly one of these keys.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("minProperties" = 1, "maxProperties" = 1))]
#[expect(dead_code, reason = "describes the shape for the schema; never built")]
struct TokenPlaceKeys {
    /// A header. A value without the prefix is refused.
    header: Option<JwtHeader>,
    /// A cookie. Browsers send cookies by themselves, so requests with one that pages of other origins can cause are
    /// refused.
    cookie: Option<TokenCookie>,
}

/// A cookie that contains the token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenCookie {
    /// The name of the cookie, case-sensitive.
    #[schemars(with = "CookieNameText", example = &"__Host-session")]
    pub name: String,
}

/// The header that contains the token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JwtHeader {
    /// The name of the header.
    #[serde(with = "header_name")]
    #[schemars(with = "HeaderNameText", example = &"x-token")]
    pub name: HeaderName,

    /// The word before the token. A value without it is refused. If empty, the whole value is the token.
    #[schemars(with = "SchemeText", example = &"")]
    pub prefix: String,
}

impl Default for JwtHeader {
    fn default() -> Self {
        Self { name: http::header::AUTHORIZATION, prefix: "Bearer".into() }
    }
}

/// One issuer of accepted tokens. Its keys come from exactly one of `jwks`, `public_key` and `secret`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-one-of" = ["jwks", "public_key", "secret"]))]
pub struct JwtIssuer {
    /// The exact value of the claim `iss` in the issuer's tokens. If absent, the entry checks tokens with any `iss`.
    #[serde(default)]
    #[schemars(with = "Option<IssuerText>", example = &"https://auth.example.com/")]
    pub issuer: Option<String>,

    /// The names of this router at the issuer. A token must have one of them in its claim `aud`. If the list is empty,
    /// tokens with an `aud` are refused, because they are meant for another recipient (RFC 7519, section 4.1.3).
    #[serde(default)]
    #[schemars(with = "Vec<IssuerText>", length(max = 32), example = ["starling"])]
    pub audiences: Vec<String>,

    /// The accepted signature algorithms. If the list is empty: `HS256` for a `secret`, and all other algorithms listed
    /// here for public keys.
    #[serde(default)]
    #[schemars(example = ["RS256"])]
    pub algorithms: Vec<JwtAlgorithm>,

    /// The tolerated difference between the clocks of the issuer and the router. A token stays valid for this time
    /// after it expires.
    #[serde(default = "leeway_default", with = "quantity::text")]
    #[schemars(with = "DurationOrZeroText", example = &"30s")]
    pub leeway: Duration,

    /// A set of public keys (JSON Web Key Set).
    #[serde(default)]
    pub jwks: Option<Jwks>,

    /// One public key in PEM (RSA, P-256, P-384 or Ed25519).
    #[serde(default)]
    #[schemars(with = "Option<SecretText>", example = &"${JWT_PUBLIC_KEY}")]
    pub public_key: Option<Secret>,

    /// A secret that issuer and router share (HMAC). It must be at least as long as the hash: 32 bytes for `HS256`.
    #[serde(default)]
    #[schemars(with = "Option<SecretText>", example = &"${JWT_SECRET}")]
    pub secret: Option<Secret>,
}

fn leeway_default() -> Duration {
    Duration::from_secs(5)
}

/// Signature algorithms of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum JwtAlgorithm {
    /// RSA, PKCS #1 v1.5, SHA-256.
    RS256,
    /// RSA, PKCS #1 v1.5, SHA-384.
    RS384,
    /// RSA, PKCS #1 v1.5, SHA-512.
    RS512,
    /// RSA, PSS, SHA-256.
    PS256,
    /// RSA, PSS, SHA-384.
    PS384,
    /// RSA, PSS, SHA-512.
    PS512,
    /// ECDSA with P-256 and SHA-256.
    ES256,
    /// ECDSA with P-384 and SHA-384.
    ES384,
    /// Ed25519.
    EdDSA,
    /// HMAC with SHA-256.
    HS256,
    /// HMAC with SHA-384.
    HS384,
    /// HMAC with SHA-512.
    HS512,
}

impl JwtAlgorithm {
    const PUBLIC: [Self; 9] = [
        Self::RS256,
        Self::RS384,
        Self::RS512,
        Self::PS256,
        Self::PS384,
        Self::PS512,
        Self::ES256,
        Self::ES384,
        Self::EdDSA,
    ];

    /// True if the key that verifies the signature is public.
    pub fn is_public(self) -> bool {
        Self::PUBLIC.contains(&self)
    }
}

impl JwtIssuer {
    /// Returns the accepted signature algorithms, with the default applied.
    pub fn algorithms(&self) -> Vec<JwtAlgorithm> {
        match (&self.algorithms[..], &self.secret) {
            ([], Some(_)) => vec![JwtAlgorithm::HS256],
            ([], None) => JwtAlgorithm::PUBLIC.to_vec(),
            (some, _) => some.to_vec(),
        }
    }
}

/// A set of public keys, from a `url` or a `file`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-one-of" = ["url", "file"]))]
#[schemars(extend("dependentRequired" = {"ca": ["url"], "timeout": ["url"]}))]
pub struct Jwks {
    /// The URL of the key set. Redirections are not followed.
    #[serde(default)]
    #[schemars(with = "Option<HttpUrlText>", example = &"https://auth.example.com/.well-known/jwks.json")]
    pub url: Option<String>,

    /// The file of the key set.
    #[serde(default)]
    #[schemars(with = "Option<FileText>", example = &"jwks.json")]
    pub file: Option<PathBuf>,

    /// The interval at which the set is read. If reading fails, the last set stays in use, and the router tries again
    /// after one second, then two, and so on. A token with an unknown key makes the router read the set at once, but at
    /// most every ten seconds.
    #[serde(default = "refresh_default", with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"1h", extend("x-minimum" = 1000))]
    pub refresh: Duration,

    /// The time for which keys stay in use if they cannot be read again, from the last successful read. After that,
    /// requests with tokens of the issuer get status 503, `AUTHENTICATION_UNAVAILABLE`, because the issuer may have
    /// revoked the keys. At least `refresh`.
    #[serde(default = "max_age_default", with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"4h", extend("x-minimum" = 1000))]
    pub max_age: Duration,

    /// The time limit of one fetch.
    #[serde(default = "timeout_default", with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"2s")]
    pub timeout: Duration,

    /// The maximum size of the key set.
    #[serde(default = "max_size_default", with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"1MiB")]
    pub max_size: usize,

    /// The certificate authorities that may have signed the server's certificate, in PEM. They replace those that the
    /// system trusts.
    #[serde(default)]
    #[schemars(with = "Option<FileText>", example = &"certificates/internal-ca.pem")]
    pub ca: Option<PathBuf>,
}

/// The default interval. Issuers announce a key long before they sign with it.
fn refresh_default() -> Duration {
    Duration::from_secs(600)
}

/// The default maximum age: longer than outages of identity providers, and short enough that a stolen key does not work
/// for weeks.
fn max_age_default() -> Duration {
    Duration::from_secs(24 * 3600)
}

fn timeout_default() -> Duration {
    Duration::from_secs(5)
}

/// The default maximum size. A key with its certificates has about four kilobytes, and a set has a handful of keys.
fn max_size_default() -> usize {
    256 << 10
}

impl Authentication {
    /// Resolves relative paths against `folder`.
    pub(super) fn resolve(&mut self, folder: &Path) {
        for jwks in self.jwt.issuers.iter_mut().filter_map(|it| it.jwks.as_mut()) {
            for path in [&mut jwks.file, &mut jwks.ca].into_iter().flatten() {
                *path = folder.join(&*path);
            }
        }
        for path in self.introspection.iter_mut().filter_map(|it| it.ca.as_mut()) {
            *path = folder.join(&*path);
        }
    }
}
