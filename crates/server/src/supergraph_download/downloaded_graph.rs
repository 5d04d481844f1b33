//! A supergraph that was read by URL, and where it comes from.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use config::diagnostic::SourceText;
use http::header::{HeaderMap, HeaderValue, LAST_MODIFIED};
use serving::generation;

use super::signature::Signatures;

/// A supergraph that was read by URL. Its signatures are right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct DownloadedGraph {
    /// The supergraph SDL.
    pub(super) text: Arc<SourceText>,
    /// The hash of the text.
    pub(super) id: u64,
    /// Where and when it was published.
    pub(super) provenance: Provenance,
}

/// Where and when a supergraph was published.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Provenance {
    /// The hash of the URL without its query.
    pub(super) source: u64,
    /// The name of the version at that URL.
    pub(super) etag: Option<HeaderValue>,
    /// The time of `last-modified`, in seconds since 1970.
    pub(super) modified: Option<u64>,
    /// The time in its signature, in seconds since 1970. Known once the signature has been verified.
    pub(super) signed: Option<u64>,
    /// The signatures that are required.
    pub(super) signatures: Signatures,
}

impl DownloadedGraph {
    /// Creates a graph. `name` is its name in messages.
    pub(super) fn new(name: &str, text: String, provenance: Provenance) -> Self {
        let id = generation::identity(&text);
        Self { text: Arc::new(SourceText { name: name.to_owned(), text }), id, provenance }
    }

    /// Returns the hashes of the text and of the URL.
    pub(super) fn key(&self) -> (u64, u64) {
        (self.id, self.provenance.source)
    }
}

impl Provenance {
    /// Returns the reason why this is older than `other`; `None` if it is not, or if that is not known.
    pub(super) fn older_than(&self, other: &Self) -> Option<&'static str> {
        // The time of a signature is certain, also if a server lags behind or repeats a response.
        if let (Some(this), Some(other)) = (self.signed, other.signed) {
            return (this < other).then_some("by the time in its signature");
        }
        let (this, other) = self.modified.zip(other.modified)?;
        (this < other).then_some("by its header `last-modified`")
    }
}

/// Returns the time of `last-modified`, in seconds since 1970.
pub(super) fn modification_time(headers: &HeaderMap) -> Option<u64> {
    let text = headers.get(LAST_MODIFIED)?.to_str().ok()?;
    let time = httpdate::parse_http_date(text).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_signature_is_more_certain_than_that_of_a_server() {
        let at = |modified, signed| Provenance { modified, signed, ..Provenance::default() };
        let older = |this: Provenance, other: Provenance| this.older_than(&other).is_some();
        assert!(older(at(Some(1), None), at(Some(2), None)));
        assert!(!older(at(Some(2), None), at(Some(2), None)));
        assert!(!older(at(None, None), at(Some(2), Some(2))));
        assert!(!older(at(Some(1), Some(3)), at(Some(2), Some(2))));
        assert!(older(at(Some(3), Some(1)), at(Some(2), Some(2))));
    }

    #[test]
    fn the_time_of_a_response_is_that_of_its_header() {
        let time = |text: &'static str| {
            let value = HeaderValue::from_static(text);
            modification_time(&HeaderMap::from_iter([(LAST_MODIFIED, value)]))
        };
        assert_eq!(time("Thu, 01 Jan 1970 00:01:00 GMT"), Some(60));
        assert_eq!(time("yesterday"), None);
    }
}
