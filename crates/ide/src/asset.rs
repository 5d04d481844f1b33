//! One file of the page: its bytes, its headers, and the encoding that a client accepts.

use bytes::Bytes;
use std::hash::{DefaultHasher, Hasher};

pub(crate) const HTML: &str = "text/html; charset=utf-8";
pub(crate) const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
pub(crate) const CSS: &str = "text/css; charset=utf-8";
pub(crate) const SVG: &str = "image/svg+xml";
#[cfg(graphiql)]
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";

/// A file of the page. Cloning is cheap: the bytes are shared or part of the binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asset {
    content_type: &'static str,
    bytes: Bytes,
    gzip: Option<Bytes>,
    etag: Box<str>,
}

/// The body of an [`Asset`] for one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedBody {
    /// The body.
    pub bytes: Bytes,
    /// The value of `Content-Encoding`; `None` omits the header.
    pub content_encoding: Option<&'static str>,
}

impl Asset {
    /// Creates a file from text that was rendered at run time.
    pub(crate) fn rendered(content_type: &'static str, text: String) -> Self {
        let etag = etag(text.as_bytes());
        Self { content_type, bytes: Bytes::from(text), gzip: None, etag }
    }

    /// Creates a file that is part of the binary, with a compressed copy if the build made one.
    pub(crate) fn embedded(
        content_type: &'static str,
        bytes: &'static [u8],
        gzip: Option<&'static [u8]>,
    ) -> Self {
        Self {
            content_type,
            bytes: Bytes::from_static(bytes),
            gzip: gzip.map(Bytes::from_static),
            etag: etag(bytes),
        }
    }

    /// The value of `Content-Type`.
    pub fn content_type(&self) -> &'static str {
        self.content_type
    }

    /// The value of `ETag`, including quotes and the prefix of a weak tag: the tag is the same for every encoding (RFC
    /// 9110, section 8.8.3).
    pub fn etag(&self) -> &str {
        &self.etag
    }

    /// True if a client that sent `if_none_match` already has this asset, so that the response is 304 without a body
    /// (RFC 9110, section 13.1.2; weak comparison).
    pub fn is_known_to(&self, if_none_match: &str) -> bool {
        let opaque = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
        if_none_match.trim() == "*"
            || if_none_match.split(',').any(|tag| opaque(tag) == opaque(&self.etag))
    }

    /// Returns the body for a client that sent `accept_encoding`. `None` means no such header: it allows any encoding,
    /// and the body is sent without one (RFC 9110, section 12.5.3).
    pub fn encoded(&self, accept_encoding: Option<&str>) -> EncodedBody {
        match &self.gzip {
            Some(gzip) if accept_encoding.is_some_and(accepts_gzip) => {
                EncodedBody { bytes: gzip.clone(), content_encoding: Some("gzip") }
            }
            _ => EncodedBody { bytes: self.bytes.clone(), content_encoding: None },
        }
    }
}

/// True if the header allows gzip: `gzip`, `x-gzip` or `*` with a weight above zero. A named coding overrides `*`.
fn accepts_gzip(accept_encoding: &str) -> bool {
    let mut is_any_allowed = false;
    for element in accept_encoding.split(',') {
        let mut parts = element.split(';');
        let coding = parts.next().unwrap_or_default().trim();
        let weight = parts
            .filter_map(|parameter| parameter.trim().split_once('='))
            .find(|(name, _)| name.trim().eq_ignore_ascii_case("q"))
            .map_or(1.0, |(_, value)| value.trim().parse::<f32>().unwrap_or(0.0));
        if coding.eq_ignore_ascii_case("gzip") || coding.eq_ignore_ascii_case("x-gzip") {
            return weight > 0.0;
        }
        if coding == "*" {
            is_any_allowed = weight > 0.0;
        }
    }
    is_any_allowed
}

/// Returns a weak tag computed from the content. `DefaultHasher::new` has fixed keys, so instances of one build agree;
/// another release of Rust may hash differently, which costs one reload.
fn etag(bytes: &[u8]) -> Box<str> {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    format!("W/\"{:016x}\"", hasher.finish()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_gzip_only_if_it_takes_it() {
        let asset = Asset::embedded(CSS, b"plain", Some(b"packed"));
        for (accept, expected) in [
            (None, None),
            (Some(""), None),
            (Some("gzip, deflate, br"), Some("gzip")),
            (Some("br;q=1.0, GZIP;q=0.5"), Some("gzip")),
            (Some("gzip;q=0, *"), None),
            (Some("*;q=0.1"), Some("gzip")),
            (Some("br, identity"), None),
            (Some("gzip;q=much"), None),
        ] {
            let encoded = asset.encoded(accept);
            assert_eq!(encoded.content_encoding, expected, "{accept:?}");
            let bytes: &[u8] = if expected.is_some() { b"packed" } else { b"plain" };
            assert_eq!(encoded.bytes, bytes, "{accept:?}");
        }
    }

    #[test]
    fn an_asset_without_a_compressed_copy_goes_out_as_it_is() {
        let asset = Asset::rendered(HTML, "<p>".to_owned());
        assert_eq!(
            asset.encoded(Some("gzip")),
            EncodedBody { bytes: Bytes::from_static(b"<p>"), content_encoding: None }
        );
    }

    #[test]
    fn a_client_that_names_the_entity_tag_knows_the_asset() {
        let asset = Asset::rendered(HTML, "<p>".to_owned());
        let tag = asset.etag().to_owned();
        let strong = tag.trim_start_matches("W/").to_owned();
        for known in [tag.clone(), strong, format!("\"a\", {tag}"), " * ".to_owned()] {
            assert!(asset.is_known_to(&known), "{known}");
        }
        for unknown in ["", "\"a\"", "W/\"0\"", "W/"] {
            assert!(!asset.is_known_to(unknown), "{unknown}");
        }
    }
}
