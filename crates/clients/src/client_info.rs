//! The application behind a request: the name and the version that it states in headers. Anybody can state any name, so
//! they distinguish applications that behave, and prove nothing.

use config::ClientInfoHeaders;
use http::{HeaderMap, HeaderName};

/// The maximum length of a name or version. A longer one counts as absent.
const TEXT_BYTES_MAX: usize = 256;

/// The name and the version of an application; empty if it states none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientInfo<'a> {
    /// The name.
    pub name: &'a str,
    /// The version.
    pub version: &'a str,
}

impl<'a> ClientInfo<'a> {
    /// Reads the name and the version from the headers of a request, or of a WebSocket handshake with those of
    /// `connection_init`.
    pub fn of(settings: &ClientInfoHeaders, headers: &'a HeaderMap) -> Self {
        Self {
            name: first_text(&settings.name_headers, headers),
            version: first_text(&settings.version_headers, headers),
        }
    }
}

/// Returns the text of the first header that is present and valid.
fn first_text<'a>(names: &[HeaderName], headers: &'a HeaderMap) -> &'a str {
    let texts = names.iter().filter_map(|name| headers.get(name)?.to_str().ok());
    let mut valid = texts.filter(|text| !text.is_empty() && text.len() <= TEXT_BYTES_MAX);
    valid.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a value"))
        };
        list.iter().map(pair).collect()
    }

    #[test]
    fn the_first_header_that_is_present_names_the_application() {
        let settings = ClientInfoHeaders::default();
        let both = headers(&[
            ("apollographql-client-name", "old"),
            ("graphql-client-name", "web"),
            ("apollographql-client-version", "1.2"),
        ]);
        assert_eq!(ClientInfo::of(&settings, &both), ClientInfo { name: "web", version: "1.2" });
        assert_eq!(ClientInfo::of(&settings, &headers(&[])), ClientInfo::default());
    }

    #[test]
    fn a_name_that_is_too_long_counts_as_absent() {
        let settings = ClientInfoHeaders::default();
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        let long = headers(&[("graphql-client-name", long.as_str())]);
        assert_eq!(ClientInfo::of(&settings, &long).name, "");
    }
}
