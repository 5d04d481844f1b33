//! The parts that the collectors of traces and of metrics have in common. Each has a section of its own, because their
//! defaults and times differ.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::findings::{Findings, KeyPlaces};
use super::headers::HeaderInsertion;
use super::token_consistency::is_remote_without_tls;

/// The way to a collector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OtlpProtocol {
    /// Protocol Buffers over HTTP/1.1.
    #[default]
    Http,
    /// gRPC over HTTP/2.
    Grpc,
}

impl OtlpProtocol {
    /// Returns the URL of a collector on this machine. Over HTTP each kind of data has a path of its own, so
    /// `url_by_http` is that URL.
    pub(super) fn local_url(self, url_by_http: &'static str) -> &'static str {
        match self {
            Self::Http => url_by_http,
            Self::Grpc => "http://localhost:4317",
        }
    }
}

/// Reports the collector at `url` if `headers` are sent to it without TLS. `path` is the key of the URL.
pub(super) fn check_headers(
    path: &str,
    url: &str,
    headers: &[HeaderInsertion],
    places: &KeyPlaces,
    findings: &mut Findings,
) {
    if !headers.is_empty() && is_remote_without_tls(url) {
        findings
            .warning("not-secure", format!("`{path}` is requested without TLS"))
            .at_place(places.get(path), "an attacker on the network can read the headers")
            .help("write `https://`");
    }
}
