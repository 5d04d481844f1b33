//! The way to a collector, which traces and metrics have each for themselves.

use std::path::Path;
use std::time::Duration;

use http::HeaderMap;
use net::TlsClient;

/// The settings of the way to a collector.
#[derive(Clone)]
pub struct CollectorSettings {
    /// The way to the collector.
    pub protocol: ExportProtocol,
    /// The URL of the collector.
    pub url: Box<str>,
    /// The TLS of [`exporter_tls`], needed for https only.
    pub tls: Option<TlsClient>,
    /// The headers of each request.
    pub headers: HeaderMap,
    /// The time limit of one request.
    pub timeout: Duration,
}

/// The way to the collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ExportProtocol {
    /// A POST of Protocol Buffers to the URL.
    #[default]
    Http,
    /// A call of the collector's method over HTTP/2. The path of the URL does not count.
    Grpc,
}

/// Returns the TLS for a collector at `url`, as [`upstream::resource_tls`] does. Blocks.
///
/// # Errors
/// The certificate authorities cannot be read.
pub fn exporter_tls(
    protocol: ExportProtocol,
    url: &str,
    ca: Option<&Path>,
) -> Result<Option<TlsClient>, String> {
    match protocol {
        ExportProtocol::Http => upstream::server_tls(url, ca, b"http/1.1"),
        ExportProtocol::Grpc => upstream::server_tls(url, ca, b"h2"),
    }
}

impl CollectorSettings {
    /// Returns the URL for log lines: without its query, which may contain secrets.
    pub(crate) fn shown_url(&self) -> String {
        self.url.split(['?', '#']).next().unwrap_or_default().to_owned()
    }
}
