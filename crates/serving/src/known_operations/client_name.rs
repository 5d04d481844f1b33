//! The name of the application that sent a request, for documents that belong to one application. An application states
//! it, so it distinguishes applications that behave, and proves nothing.

use http::HeaderMap;

/// The headers in which applications state their name: the first one that is present counts.
pub const CLIENT_NAME_HEADERS: [&str; 2] = ["graphql-client-name", "apollographql-client-name"];

/// The maximum length of a name. A longer one counts as absent.
const NAME_BYTES_MAX: usize = 256;

/// Returns the name in the headers of a request, or of a WebSocket handshake.
pub(super) fn client_name(headers: &HeaderMap) -> Option<&str> {
    let mut names = CLIENT_NAME_HEADERS.iter().filter_map(|name| headers.get(*name)?.to_str().ok());
    names.find(|name| !name.is_empty() && name.len() <= NAME_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn the_first_valid_header_has_the_name() {
        let name = |list: &[(usize, &str)]| {
            let pair = |(index, value): &(usize, &str)| {
                let value = HeaderValue::from_str(value).expect("a value");
                (HeaderName::from_static(CLIENT_NAME_HEADERS[*index]), value)
            };
            let headers: HeaderMap = list.iter().map(pair).collect();
            client_name(&headers).map(str::to_owned)
        };
        assert_eq!(name(&[]), None);
        assert_eq!(name(&[(1, "web")]).as_deref(), Some("web"));
        assert_eq!(name(&[(1, "web"), (0, "ios")]).as_deref(), Some("ios"));
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        assert_eq!(name(&[(1, "web"), (0, &long)]).as_deref(), Some("web"));
        assert_eq!(name(&[(0, "")]), None);
    }
}
