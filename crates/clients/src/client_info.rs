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
        let lengths = NameLengths::of(headers);
        Self {
            name: first_text(&settings.name_headers, headers, lengths),
            version: first_text(&settings.version_headers, headers, lengths),
        }
    }
}

/// The lengths of the names of headers. Most requests have no header with a name as long as those that are looked for,
/// and a look-up takes as long as a walk over all headers of a usual request, because it hashes the name.
#[derive(Clone, Copy)]
struct NameLengths(u64);

impl NameLengths {
    // hot path: some 20 ns for ten headers
    fn of(headers: &HeaderMap) -> Self {
        Self(headers.keys().fold(0, |lengths, name| lengths | Self::bit(name)))
    }

    /// False if none of the headers has this name.
    fn may_have(self, name: &HeaderName) -> bool {
        self.0 & Self::bit(name) != 0
    }

    /// Names with lengths that differ by 64 share a bit.
    fn bit(name: &HeaderName) -> u64 {
        1 << (name.as_str().len() % 64)
    }
}

/// Returns the text of the first header that is present and valid.
fn first_text<'a>(names: &[HeaderName], headers: &'a HeaderMap, lengths: NameLengths) -> &'a str {
    let names = names.iter().filter(|name| lengths.may_have(name));
    let texts = names.filter_map(|name| headers.get(name)?.to_str().ok());
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
    fn a_header_with_a_name_of_the_same_length_is_another_one() {
        let settings = ClientInfoHeaders::default();
        let other = headers(&[("graphql-client-nam3", "other"), ("graphql-client-versi0n", "3")]);
        assert_eq!(ClientInfo::of(&settings, &other), ClientInfo::default());
        let both = headers(&[
            ("graphql-client-nam3", "other"),
            ("apollographql-client-name", "web"),
            ("graphql-client-version", "1.2"),
        ]);
        assert_eq!(ClientInfo::of(&settings, &both), ClientInfo { name: "web", version: "1.2" });
        let long = HeaderName::from_static(
            "x-the-name-of-the-application-that-has-sent-this-request-to-the-router",
        );
        let settings = ClientInfoHeaders { name_headers: vec![long.clone()], ..settings };
        let sent = HeaderMap::from_iter([(long, HeaderValue::from_static("ios"))]);
        assert_eq!(ClientInfo::of(&settings, &sent), ClientInfo { name: "ios", version: "" });
    }

    #[test]
    fn a_name_that_is_too_long_counts_as_absent() {
        let settings = ClientInfoHeaders::default();
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        let long = headers(&[("graphql-client-name", long.as_str())]);
        assert_eq!(ClientInfo::of(&settings, &long).name, "");
    }
}
