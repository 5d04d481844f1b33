//! The address of a subgraph, parsed once from its URL.

use std::path::Path;

use execute::SubgraphEndpoint;
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Uri};
use net::TlsClient;

/// Reason why a URL cannot be used. The messages never repeat the URL, which may hold credentials.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TargetError {
    /// Not a URL at all.
    #[error("it is not a valid absolute URL; write http://host:port/path")]
    Malformed,
    /// The port is 0, too large or not a number.
    #[error("the port is not a number from 1 to 65535")]
    Port,
    /// The scheme is not supported.
    #[error("only http, https and unix are supported")]
    Scheme,
    /// `user:password@`
    #[error("it contains credentials; send them in a header instead")]
    Credentials,
    /// https, but TLS was not set up.
    #[error("it is https, but TLS is not available")]
    NoTls,
    /// A unix socket without a path.
    #[error("it names no socket; write unix:///path/of/the.sock?path=/graphql")]
    Socket,
}

/// A server, and the trust in it: connections to equal origins are interchangeable.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Origin {
    pub(crate) tls: Option<TlsClient>,
    pub(crate) address: Address,
}

/// The address that a server listens on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Address {
    Tcp { host: Box<str>, port: u16 },
    Unix(Box<Path>),
}

/// A subgraph's URL, parsed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub(crate) origin: Origin,
    /// Path and query: the request target of HTTP/1.1.
    pub(crate) path: PathAndQuery,
    /// The whole URL: the request target of HTTP/2.
    pub(crate) absolute: Uri,
    /// The value of `host`.
    pub(crate) host: HeaderValue,
}

impl Target {
    /// Parses `url`. `tls` is for https only.
    ///
    /// # Errors
    /// The URL cannot be used.
    pub fn parse(url: &str, tls: Option<TlsClient>) -> Result<Self, TargetError> {
        if let Some(rest) = url.strip_prefix("unix:") {
            return Self::parse_unix(rest);
        }
        let uri: Uri = url.parse().map_err(|_| TargetError::Malformed)?;
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err(TargetError::Malformed);
        };
        let (tls, default_port) = if *scheme == Scheme::HTTPS {
            (Some(tls.ok_or(TargetError::NoTls)?), 443)
        } else if *scheme == Scheme::HTTP {
            (None, 80)
        } else {
            return Err(TargetError::Scheme);
        };
        if authority.as_str().contains('@') {
            return Err(TargetError::Credentials);
        }
        if authority.host().is_empty() {
            return Err(TargetError::Malformed);
        }
        // `http` also returns no port for one that is too large.
        let port = match authority.as_str().strip_prefix(authority.host()) {
            Some("" | ":") => default_port,
            Some(_) => authority.port_u16().filter(|it| *it > 0).ok_or(TargetError::Port)?,
            None => return Err(TargetError::Malformed),
        };
        let path = uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        Ok(Self {
            origin: Origin { tls, address: Address::Tcp { host: authority.host().into(), port } },
            path,
            host: HeaderValue::from_str(authority.as_str()).map_err(|_| TargetError::Malformed)?,
            absolute: uri,
        })
    }

    /// Returns the value of the `host` header.
    pub fn authority(&self) -> &str {
        self.host.to_str().unwrap_or_default()
    }

    /// Returns path and query: the request target of HTTP/1.1.
    pub fn path_and_query(&self) -> &str {
        self.path.as_str()
    }

    /// Returns the whole URL: the request target of HTTP/2.
    pub fn absolute_uri(&self) -> &Uri {
        &self.absolute
    }

    /// Returns the address for log lines, without the query, which may hold a key.
    pub fn address_text(&self) -> String {
        let path = self.path.path();
        match &self.origin.address {
            Address::Unix(socket) => format!("unix://{}?path={path}", socket.display()),
            Address::Tcp { .. } => {
                let scheme = if self.origin.tls.is_some() { "https" } else { "http" };
                format!("{scheme}://{}{path}", self.host.to_str().unwrap_or_default())
            }
        }
    }

    /// Returns the address for the spans of traces.
    pub(crate) fn endpoint(&self) -> SubgraphEndpoint {
        let (host, port) = match &self.origin.address {
            Address::Tcp { host, port } => (host.clone(), Some(*port)),
            Address::Unix(socket) => (socket.display().to_string().into(), None),
        };
        SubgraphEndpoint { url: self.address_text().into(), host, port }
    }

    /// Parses `unix:///run/reviews.sock?path=/graphql`: the socket, and the path of the request.
    /// The path of the socket is not decoded, so that `%` stands for itself.
    fn parse_unix(rest: &str) -> Result<Self, TargetError> {
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let (socket, query) = rest.split_once('?').unwrap_or((rest, "path=/"));
        if !socket.starts_with('/') || socket.ends_with('/') {
            return Err(TargetError::Socket);
        }
        let path = query.strip_prefix("path=").ok_or(TargetError::Malformed)?;
        let path: PathAndQuery = path.parse().map_err(|_| TargetError::Malformed)?;
        let absolute = Uri::builder()
            .scheme(Scheme::HTTP)
            .authority(UNIX_HOST)
            .path_and_query(path.clone())
            .build()
            .map_err(|_| TargetError::Malformed)?;
        Ok(Self {
            origin: Origin { tls: None, address: Address::Unix(Path::new(socket).into()) },
            path,
            absolute,
            host: HeaderValue::from_static(UNIX_HOST),
        })
    }
}

/// The host name that is sent to servers on a unix socket, which have no name of their own.
const UNIX_HOST: &str = "localhost";

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str) -> Result<(bool, String, String, String), TargetError> {
        let tls = TlsClient::with_roots(include_bytes!("../../net/tests/certificates/ca.pem"), &[]);
        let it = Target::parse(url, tls.ok())?;
        let address = match it.origin.address {
            Address::Tcp { host, port } => format!("{host} {port}"),
            Address::Unix(path) => path.display().to_string(),
        };
        assert_eq!(it.absolute.path_and_query().map_or("/", |it| it.as_str()), it.path.to_string());
        Ok((
            it.origin.tls.is_some(),
            address,
            it.path.to_string(),
            it.host.to_str().unwrap().into(),
        ))
    }

    #[test]
    fn urls_are_parsed() {
        let ok = |tls, address: &str, path: &str, header: &str| {
            Ok((tls, address.into(), path.into(), header.into()))
        };
        assert_eq!(
            check("http://127.0.0.1:4001/graphql?x=1"),
            ok(false, "127.0.0.1 4001", "/graphql?x=1", "127.0.0.1:4001")
        );
        assert_eq!(check("https://a.example"), ok(true, "a.example 443", "/", "a.example"));
        assert_eq!(check("http://[::1]:80/a"), ok(false, "[::1] 80", "/a", "[::1]:80"));
        assert_eq!(
            check("unix:///run/reviews.sock?path=/graphql?x=1"),
            ok(false, "/run/reviews.sock", "/graphql?x=1", "localhost")
        );
        assert_eq!(check("unix:/run/a.sock"), ok(false, "/run/a.sock", "/", "localhost"));
    }

    #[test]
    fn the_address_in_the_log_is_the_url_without_its_query() {
        for (url, text) in [
            ("http://127.0.0.1:4001/graphql?key=secret", "http://127.0.0.1:4001/graphql"),
            ("http://a.example", "http://a.example/"),
            ("unix:///run/a.sock?path=/graphql?key=secret", "unix:///run/a.sock?path=/graphql"),
        ] {
            let target = Target::parse(url, None).map(|it| it.address_text());
            assert_eq!(target, Ok(text.to_owned()));
        }
    }

    #[test]
    fn urls_that_cannot_be_used_are_refused() {
        let cases = [
            ("", TargetError::Malformed),
            ("/graphql", TargetError::Malformed),
            ("localhost:4001", TargetError::Malformed),
            ("http://", TargetError::Malformed),
            ("ws://a/", TargetError::Scheme),
            ("http://user:secret@a/", TargetError::Credentials),
            ("http://a:99999/", TargetError::Port),
            ("http://a:0/", TargetError::Port),
            ("unix:", TargetError::Socket),
            ("unix://run/a.sock", TargetError::Socket),
            ("unix:///run/", TargetError::Socket),
            ("unix:///run/a.sock?x=1", TargetError::Malformed),
        ];
        for (url, expected) in cases {
            assert_eq!(check(url), Err(expected), "{url}");
        }
    }
}
