//! Where a subgraph is, taken apart once from its URL.

use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Uri};
use net::TlsClient;

/// Why a URL cannot be used. The messages never repeat it: it may hold credentials.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TargetError {
    /// Not a URL at all.
    #[error("it is not a valid absolute URL; write http://host:port/path")]
    Malformed,
    /// Another scheme.
    #[error("only http and https are supported")]
    Scheme,
    /// `user:password@`
    #[error("it holds credentials; send them in a header instead (headers.subgraphs)")]
    Credentials,
    /// https, but TLS was not set up.
    #[error("it is https, but TLS is not available")]
    NoTls,
}

/// The server and how to trust it: connections to equal origins are interchangeable.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Origin {
    pub(crate) tls: Option<TlsClient>,
    pub(crate) host: Box<str>,
    pub(crate) port: u16,
}

/// A subgraph's URL.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) origin: Origin,
    /// Path and query, in the form that goes into the request line.
    pub(crate) path: Uri,
    /// Value of `host`.
    pub(crate) host: HeaderValue,
}

impl Target {
    /// Takes `url` apart. `tls` is for https only.
    pub(crate) fn parse(url: &str, tls: Option<TlsClient>) -> Result<Self, TargetError> {
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
        let port = authority.port_u16().unwrap_or(default_port);
        let path = uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        Ok(Self {
            origin: Origin { tls, host: authority.host().into(), port },
            path: Uri::from(path),
            host: HeaderValue::from_str(authority.as_str()).map_err(|_| TargetError::Malformed)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str) -> Result<(bool, String, u16, String, String), TargetError> {
        let tls = TlsClient::with_roots(include_bytes!("../../net/tests/certificates/ca.pem"), &[]);
        let it = Target::parse(url, tls.ok())?;
        Ok((
            it.origin.tls.is_some(),
            it.origin.host.into(),
            it.origin.port,
            it.path.to_string(),
            it.host.to_str().unwrap().into(),
        ))
    }

    #[test]
    fn urls_are_taken_apart() {
        let ok = |tls, host: &str, port, path: &str, header: &str| {
            Ok((tls, host.into(), port, path.into(), header.into()))
        };
        assert_eq!(
            check("http://127.0.0.1:4001/graphql?x=1"),
            ok(false, "127.0.0.1", 4001, "/graphql?x=1", "127.0.0.1:4001")
        );
        assert_eq!(check("https://a.example"), ok(true, "a.example", 443, "/", "a.example"));
        assert_eq!(check("http://[::1]:80/a"), ok(false, "[::1]", 80, "/a", "[::1]:80"));
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
        ];
        for (url, expected) in cases {
            assert_eq!(check(url), Err(expected), "{url}");
        }
    }
}
