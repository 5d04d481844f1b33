//! The headers that a message's own `connection` header names: they are meant for the next hop alone (RFC 9110, section
//! 7.6.1).

use std::collections::HashSet;

use http::header::CONNECTION;
use http::{HeaderMap, HeaderName};

/// The headers of one message that its `connection` header names. Created once for each message, in a time that grows
/// with the length of its head: a head of 64 KiB can name thousands of headers and have hundreds.
#[derive(Debug)]
pub(crate) struct ConnectionOptions(HashSet<HeaderName>);

impl ConnectionOptions {
    /// Reads the options of `message`. Names of headers that it does not have are left out.
    pub(crate) fn of(message: &HeaderMap) -> Self {
        let values = message.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
        let options = values.flat_map(|value| value.split(',')).map(str::trim);
        let names = options.filter_map(|option| HeaderName::from_bytes(option.as_bytes()).ok());
        Self(names.filter(|name| message.contains_key(name)).collect())
    }

    /// True if `name` is meant for the next hop alone.
    pub(crate) fn contains(&self, name: &HeaderName) -> bool {
        self.0.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn options_are_found_in_every_spelling_if_the_message_has_the_header() {
        let mut message = HeaderMap::new();
        for (name, value) in [("x-hop", "1"), ("x-end", "1"), ("x-also", "1")] {
            message.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        message.append(CONNECTION, HeaderValue::from_static("keep-alive, X-Hop , a b, ,x-missing"));
        message.append(CONNECTION, HeaderValue::from_static("x-also"));
        let options = ConnectionOptions::of(&message);
        let named = |name| options.contains(&HeaderName::from_static(name));
        assert_eq!(
            ["x-hop", "x-also", "x-end", "x-missing"].map(named),
            [true, true, false, false]
        );
    }
}
