//! A file that is read by URL, again and again: a manifest of persisted documents, a supergraph. When it is read, and
//! what its text means, is decided by `manifest_downloads` and `supergraph_download`.

use std::time::Duration;

use config::HeaderInsertion;
use execute::FetchError;
use http::header::{ETAG, HeaderMap, HeaderValue};
use net::TlsClient;
use upstream::{AwsSigner, Resource, Revision};

/// The part of an interval by which it may be shorter or longer, so that routers that started together do not request
/// a file together: one in this many.
const JITTER_PART: u32 = 10;

/// The settings of a file that is read by URL.
pub(crate) struct RemoteSettings<'a> {
    /// The URL.
    pub(crate) url: &'a str,
    /// Further headers of the requests.
    pub(crate) headers: &'a [HeaderInsertion],
    /// The settings of TLS, for https only.
    pub(crate) tls: Option<TlsClient>,
    /// The media types that are requested.
    pub(crate) accept: &'static str,
    /// The maximum size of the file.
    pub(crate) bytes_max: usize,
    /// The time limit of one request.
    pub(crate) timeout: Duration,
    /// Signs the requests for AWS.
    pub(crate) signer: Option<AwsSigner>,
}

/// A file that is read by URL.
pub(crate) struct RemoteFile {
    /// The URL for messages.
    pub(crate) name: String,
    resource: Resource,
    headers: HeaderMap,
}

impl RemoteFile {
    /// Prepares the requests. Connects to nothing.
    ///
    /// # Errors
    /// The URL cannot be used.
    pub(crate) fn new(settings: RemoteSettings<'_>) -> Result<Self, String> {
        let RemoteSettings { url, tls, accept, bytes_max, timeout, .. } = settings;
        let resource = Resource::new(url, tls, accept, bytes_max, timeout);
        let resource = resource.map_err(|error| error.to_string())?;
        let resource = match settings.signer {
            Some(signer) => resource.signed_by(signer),
            None => resource,
        };
        let headers = settings.headers.iter().map(|it| (it.name.clone(), it.value.clone()));
        Ok(Self { name: shown_url(Some(url)), resource, headers: headers.collect() })
    }

    /// Reads the file, unless its version is still `etag`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) async fn get(&self, etag: Option<&HeaderValue>) -> Result<Revision, FetchError> {
        self.resource.get_changed(self.headers.clone(), etag).await
    }
}

/// Returns the name of the version in the headers of a response.
pub(crate) fn version_of(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get(ETAG).cloned()
}

/// Returns a URL without credentials and query, for messages.
pub(crate) fn shown_url(url: Option<&str>) -> String {
    let url = url.unwrap_or_default();
    let url = url.split(['?', '#']).next().unwrap_or_default();
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    }
}

/// Returns an interval with jitter.
pub(crate) fn jittered(interval: Duration) -> Duration {
    let jitter = interval / JITTER_PART;
    interval - jitter + (2 * jitter).mul_f64(fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_urls_without_secrets() {
        let shown = |url| shown_url(Some(url));
        assert_eq!(shown("https://h/a.graphql?sig=hunter2#x"), "https://h/a.graphql");
        assert_eq!(shown("https://me:hunter2@h/a"), "https://h/a");
    }

    #[test]
    fn an_interval_changes_by_a_tenth_at_most() {
        let bounds = Duration::from_secs(9)..=Duration::from_secs(11);
        assert!((0..1000).all(|_| bounds.contains(&jittered(Duration::from_secs(10)))));
    }
}
