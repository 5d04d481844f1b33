//! Parser of the socket addresses in a configuration.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The reason why a text is not an address to listen on. It never contains the text itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The text is empty.
    #[error("it is empty")]
    Empty,
    /// The text is a host without a port.
    #[error("the port is missing")]
    NoPort,
    /// The text is a port without a host.
    #[error("the IP address before the port is missing")]
    NoHost,
    /// The port is not a number from 0 to 65535.
    #[error("the port is not a number from 0 to 65535")]
    BadPort,
    /// The host is not an IP address. Names are not resolved, because their addresses may change while the router runs.
    #[error("the host is not an IP address")]
    BadHost,
    /// The text is an IPv6 address without brackets, so the end of the address is ambiguous.
    #[error("an IPv6 address must be in brackets")]
    Unbracketed,
    /// The text is a URL, such as `http://…`.
    #[error("it is a URL")]
    Url,
}

/// Reads `IP:PORT`, `[IPv6]:PORT` or `localhost:PORT` (which is `127.0.0.1`).
///
/// # Errors
/// Names the part that is wrong, without repeating the text.
pub fn parse_address(text: &str) -> Result<SocketAddr, AddressError> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if text.is_empty() {
        return Err(AddressError::Empty);
    }
    if text.contains("://") {
        return Err(AddressError::Url);
    }
    if text.parse::<std::net::Ipv6Addr>().is_ok() {
        return Err(AddressError::Unbracketed);
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        let is_port = text.bytes().all(|byte| byte.is_ascii_digit());
        return Err(if is_port { AddressError::NoHost } else { AddressError::NoPort });
    };
    let port = port.parse().map_err(|_| AddressError::BadPort)?;
    match host {
        "" => Err(AddressError::NoHost),
        "localhost" => Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
        _ if host.contains(':') && !host.starts_with('[') => Err(AddressError::Unbracketed),
        _ => Err(AddressError::BadHost),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_ip_and_port_are_read() {
        for (text, meaning) in [
            ("127.0.0.1:4000", "127.0.0.1:4000"),
            ("localhost:0", "127.0.0.1:0"),
            ("[::1]:4000", "[::1]:4000"),
        ] {
            assert_eq!(parse_address(text).map(|address| address.to_string()), Ok(meaning.into()));
        }
    }

    #[test]
    fn an_error_names_the_part_that_is_missing_or_wrong() {
        for (text, error) in [
            ("", AddressError::Empty),
            ("127.0.0.1", AddressError::NoPort),
            ("4000", AddressError::NoHost),
            (":4000", AddressError::NoHost),
            ("127.0.0.1:http", AddressError::BadPort),
            ("127.0.0.1:65536", AddressError::BadPort),
            ("example.com:80", AddressError::BadHost),
            ("256.0.0.1:80", AddressError::BadHost),
            ("::1", AddressError::Unbracketed),
            ("fe80::1:zz:80", AddressError::Unbracketed),
            ("http://127.0.0.1:4000", AddressError::Url),
        ] {
            assert_eq!(parse_address(text), Err(error), "{text}");
        }
    }
}
