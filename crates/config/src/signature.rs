//! Settings of the signatures by which a subgraph knows that the router asked.

use http::HeaderName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::findings::{Findings, KeyPlaces};
use super::format::{HeaderNameText, SecretText};
use super::headers::header_name;
use super::secret::Secret;
use super::subgraph_subscription::QueryTransport;

/// The minimum length of a secret in bytes: that of the shortest hash (RFC 2104, section 3).
pub(super) const SECRET_BYTES_MIN: usize = 32;

/// Signatures of requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Signature {
    /// An HMAC of the body of each query and mutation, with a secret that the router and the subgraph share.
    pub hmac: Option<HmacSignature>,
}

/// An HMAC of the body of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HmacSignature {
    /// The secret, at least 32 bytes.
    #[schemars(with = "SecretText", example = &"${SIGNATURE_SECRET}")]
    pub secret: Secret,

    /// The name of the header. Its value is the name of the hash, `=`, and the signature in hexadecimal digits. A
    /// header of this name in the client's request is replaced.
    #[serde(default = "header_default", with = "header_name")]
    #[schemars(with = "HeaderNameText", example = &"x-router-signature")]
    pub header: HeaderName,

    /// The hash of the signature.
    #[serde(default)]
    #[schemars(example = &"sha512")]
    pub hash: HmacHash,
}

/// The hash of a signature.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HmacHash {
    /// HMAC with SHA-256.
    #[default]
    Sha256,
    /// HMAC with SHA-384.
    Sha384,
    /// HMAC with SHA-512.
    Sha512,
}

pub(super) fn header_default() -> HeaderName {
    HeaderName::from_static("x-starling-signature")
}

impl Signature {
    /// Reports a secret that is too short, and a transport of queries that carries no signatures. `path` is the key of
    /// the subgraph.
    pub(super) fn check(
        &self,
        path: &str,
        queries_over: QueryTransport,
        places: &KeyPlaces,
        findings: &mut Findings,
    ) {
        let Some(hmac) = &self.hmac else { return };
        let length = hmac.secret.expose().len();
        if length < SECRET_BYTES_MIN {
            let key = format!("{path}.signature.hmac.secret");
            findings
                .error(
                    "conflict",
                    format!("`{key}` has {length} bytes; {SECRET_BYTES_MIN} are needed"),
                )
                .at_place(places.get(&key), "can be guessed")
                .help("make a new one: `openssl rand -hex 32`");
        }
        if queries_over == QueryTransport::Websocket {
            let key = format!("{path}.signature.hmac");
            findings
                .error("conflict", format!("`{key}` signs requests over HTTP only"))
                .at_place(places.get(&key), "has no effect")
                .related_place(
                    places.get(&format!("{path}.queries_over")),
                    "messages have no headers",
                )
                .help("remove `queries_over`, or the signature");
        }
    }
}
