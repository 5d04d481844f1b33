//! Who clients are: their tokens, and who may issue them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::{
    DurationOrZeroText, DurationText, FileText, HeaderNameText, HttpUrlText, IssuerText,
    MemberPathText, SchemeText, SecretText, SizeText,
};
use super::headers::header_name;
use super::secret::Secret;
use super::{duration, size};

/// Who clients are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Authentication {
    /// By signed tokens (JSON Web Tokens).
    pub jwt: Jwt,
}

/// Tokens of clients. Without an issuer nobody is asked for one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Jwt {
    /// Refuse requests without a token. Otherwise they are anonymous; a token that is wrong is refused in any case.
    #[schemars(example = true)]
    pub required: bool,

    /// The header that has the token.
    pub header: JwtHeader,

    /// Where in the payload of `connection_init` the token is looked for, since browsers send no header with a
    /// WebSocket: names of members with points between them, in any letter case, the first one that is there.
    /// With or without the prefix of the header.
    #[schemars(with = "Vec<MemberPathText>", length(max = 8), example = ["authorization", "headers.authorization"])]
    pub init_payload: Vec<String>,

    /// How long a token may be.
    #[serde(with = "size::text")]
    #[schemars(with = "SizeText", example = &"16KiB", extend("x-minimum" = 256))]
    pub max_token_size: usize,

    /// Whose tokens are accepted. One that says which issuer it is of (`iss`) is checked by those entries that have
    /// that `issuer`, and those that have none.
    #[schemars(length(max = 32))]
    pub issuers: Vec<JwtIssuer>,
}

impl Default for Jwt {
    fn default() -> Self {
        Self {
            required: false,
            header: JwtHeader::default(),
            init_payload: vec!["authorization".into()],
            // Twice what tokens with many groups in them have; proxies allow 8 KiB for all headers together.
            max_token_size: 8 << 10,
            issuers: Vec::new(),
        }
    }
}

/// The header that has the token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JwtHeader {
    /// Its name.
    #[serde(with = "header_name")]
    #[schemars(with = "HeaderNameText", example = &"x-token")]
    pub name: HeaderName,

    /// The word before the token. A value without it is refused. Empty: the whole value is the token.
    #[schemars(with = "SchemeText", example = &"")]
    pub prefix: String,
}

impl Default for JwtHeader {
    fn default() -> Self {
        Self { name: http::header::AUTHORIZATION, prefix: "Bearer".into() }
    }
}

/// Somebody whose tokens are accepted. Its keys come from one of `jwks`, `public_key` and `secret`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-one-of" = ["jwks", "public_key", "secret"]))]
pub struct JwtIssuer {
    /// What `iss` of its tokens is, letter by letter. Without it, tokens of any `iss` are tried.
    #[serde(default)]
    #[schemars(with = "Option<IssuerText>", example = &"https://auth.example.com/")]
    pub issuer: Option<String>,

    /// Who this router is for the issuer: one of them must be in `aud` of a token. Without any, tokens that have an
    /// `aud` are refused, since they are meant for somebody (RFC 7519, section 4.1.3).
    #[serde(default)]
    #[schemars(with = "Vec<IssuerText>", length(max = 32), example = ["starling"])]
    pub audiences: Vec<String>,

    /// What its tokens may be signed with. Without any: `HS256` for a `secret`, and for public keys all others that
    /// are listed here.
    #[serde(default)]
    #[schemars(example = ["RS256"])]
    pub algorithms: Vec<JwtAlgorithm>,

    /// How far its clock may differ from ours: so much longer a token counts.
    #[serde(default = "leeway_default", with = "duration::text")]
    #[schemars(with = "DurationOrZeroText", example = &"30s")]
    pub leeway: Duration,

    /// A set of public keys (JSON Web Key Set).
    #[serde(default)]
    pub jwks: Option<Jwks>,

    /// One public key in PEM (RSA, P-256, P-384 or Ed25519).
    #[serde(default)]
    #[schemars(with = "Option<SecretText>", example = &"${JWT_PUBLIC_KEY}")]
    pub public_key: Option<Secret>,

    /// A secret that issuer and router share (HMAC): at least as long as the hash, 32 bytes for `HS256`.
    #[serde(default)]
    #[schemars(with = "Option<SecretText>", example = &"${JWT_SECRET}")]
    pub secret: Option<Secret>,
}

fn leeway_default() -> Duration {
    Duration::from_secs(5)
}

/// What a token is signed with.
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

    /// Is the key that verifies it public?
    pub fn is_public(self) -> bool {
        Self::PUBLIC.contains(&self)
    }
}

impl JwtIssuer {
    /// What its tokens may be signed with.
    pub fn algorithms(&self) -> Vec<JwtAlgorithm> {
        match (&self.algorithms[..], &self.secret) {
            ([], Some(_)) => vec![JwtAlgorithm::HS256],
            ([], None) => JwtAlgorithm::PUBLIC.to_vec(),
            (some, _) => some.to_vec(),
        }
    }
}

/// A set of public keys: by `url` or in a `file`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-one-of" = ["url", "file"]))]
#[schemars(extend("dependentRequired" = {"ca": ["url"], "timeout": ["url"]}))]
pub struct Jwks {
    /// Where it is fetched. Redirections are not followed.
    #[serde(default)]
    #[schemars(with = "Option<HttpUrlText>", example = &"https://auth.example.com/.well-known/jwks.json")]
    pub url: Option<String>,

    /// Where it stands.
    #[serde(default)]
    #[schemars(with = "Option<FileText>", example = &"jwks.json")]
    pub file: Option<PathBuf>,

    /// How often it is read anew. If that fails, the last good one goes on, and it is tried again after a second, then
    /// two, and so on. A token that names a key which is not in it has it read at once, but not within ten
    /// seconds of the last time.
    #[serde(default = "refresh_default", with = "duration::text")]
    #[schemars(with = "DurationText", example = &"1h", extend("x-minimum" = 1000))]
    pub refresh: Duration,

    /// How long keys are used that cannot be read again: from the last time that reading succeeded. After that tokens
    /// of the issuer are answered with status 503, `AUTHENTICATION_UNAVAILABLE`, because the keys may have been taken
    /// back. At least `refresh`.
    #[serde(default = "max_age_default", with = "duration::text")]
    #[schemars(with = "DurationText", example = &"4h", extend("x-minimum" = 1000))]
    pub max_age: Duration,

    /// How long fetching may take.
    #[serde(default = "timeout_default", with = "duration::text")]
    #[schemars(with = "DurationText", example = &"2s")]
    pub timeout: Duration,

    /// How large it may be.
    #[serde(default = "max_size_default", with = "size::text")]
    #[schemars(with = "SizeText", example = &"1MiB")]
    pub max_size: usize,

    /// The authorities that the server's certificate may be signed by, in PEM, instead of those that the system
    /// trusts.
    #[serde(default)]
    #[schemars(with = "Option<FileText>", example = &"certificates/internal-ca.pem")]
    pub ca: Option<PathBuf>,
}

/// Issuers announce a key long before they sign with it.
fn refresh_default() -> Duration {
    Duration::from_secs(600)
}

/// Longer than an identity provider is away, and not so long that a stolen key works for weeks.
fn max_age_default() -> Duration {
    Duration::from_secs(24 * 3600)
}

fn timeout_default() -> Duration {
    Duration::from_secs(5)
}

/// A key with its certificates has some four kilobytes, and there are a handful.
fn max_size_default() -> usize {
    256 << 10
}

impl Authentication {
    /// Paths in the file are relative to it.
    pub(super) fn resolve(&mut self, folder: &Path) {
        for jwks in self.jwt.issuers.iter_mut().filter_map(|it| it.jwks.as_mut()) {
            for path in [&mut jwks.file, &mut jwks.ca].into_iter().flatten() {
                *path = folder.join(&*path);
            }
        }
    }
}
