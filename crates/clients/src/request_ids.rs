//! Ids of requests: taken from clients, or made here.

use config::RequestId;
use http::{HeaderMap, HeaderName, HeaderValue};

/// The maximum length of an id that a client sends.
const ID_BYTES_MAX: usize = 128;

/// Gives requests their ids.
#[derive(Debug)]
pub struct RequestIds {
    header: HeaderName,
    /// True if clients may name the id.
    accepts: bool,
}

impl RequestIds {
    /// Creates the rules of the configuration; `None` if requests have no ids.
    pub fn new(settings: &RequestId) -> Option<Self> {
        let RequestId { enabled, header, accept } = settings;
        enabled.then(|| Self { header: header.clone(), accepts: *accept })
    }

    /// Returns the header with the id.
    pub fn header(&self) -> &HeaderName {
        &self.header
    }

    /// Returns the id of the request with these headers: that of the client, in memory of its own, or a new one.
    pub fn id_of(&self, headers: &HeaderMap) -> HeaderValue {
        let named = headers.get(&self.header).filter(|it| self.accepts && is_id(it));
        // The bytes come from a valid value, so the conversion succeeds.
        let named = named.and_then(|it| HeaderValue::from_bytes(it.as_bytes()).ok());
        named.unwrap_or_else(new_id)
    }

    /// Returns the header with a new id.
    pub fn new_header(&self) -> (HeaderName, HeaderValue) {
        (self.header.clone(), new_id())
    }
}

/// The header with the id of a request. A request carries it among its extensions.
#[derive(Clone, Debug)]
pub struct AssignedId(pub HeaderName, pub HeaderValue);

/// True if a log can show the value as it is.
fn is_id(value: &HeaderValue) -> bool {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:/+=@".contains(byte);
    let bytes = value.as_bytes();
    (1..=ID_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(is_allowed)
}

/// Returns 128 random bits in hexadecimal. They need not be secret.
fn new_id() -> HeaderValue {
    let text = format!("{:032x}", fastrand::u128(..));
    // Digits and letters are always a value.
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_client_counts_if_it_is_plain_and_clients_may_name_it() {
        let id_of = |accept, value: &str| {
            let settings = RequestId { enabled: true, accept, ..RequestId::default() };
            let mut headers = HeaderMap::new();
            headers.insert("x-request-id", HeaderValue::from_str(value).expect("a value"));
            let id = RequestIds::new(&settings).expect("enabled").id_of(&headers);
            id.to_str().expect("text").to_owned()
        };
        assert_eq!(id_of(true, "a/1-b.2:c"), "a/1-b.2:c");
        for (accept, value) in
            [(false, "a"), (true, ""), (true, "a b"), (true, "a\"b"), (true, &"x".repeat(129))]
        {
            let made = id_of(accept, value);
            assert!(made.len() == 32 && made.bytes().all(|it| it.is_ascii_hexdigit()), "{made}");
        }
        assert!(RequestIds::new(&RequestId::default()).is_none(), "off by default");
    }
}
