//! The source of a request: what the HTTP layer knows of it beside its headers. Expressions of the configuration read
//! it.

use std::net::IpAddr;

use prepare::StepRecorder;

/// The origin of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ConnectionOrigin {
    /// The address of the peer; none for a unix socket.
    pub address: Option<IpAddr>,
    /// True if the connection uses TLS.
    pub is_tls: bool,
}

/// The source of a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestSource<'a> {
    /// The method; of a WebSocket, that of the handshake.
    pub method: &'a str,
    /// The path of the URL; of a WebSocket, that of the endpoint.
    pub path: &'a str,
    /// The origin of the connection.
    pub origin: ConnectionOrigin,
    /// True if the client has sent the operation now. False for a subscription that is prepared again, which does not
    /// count against rate limits.
    pub is_new: bool,
    /// Keeps the steps of preparing the operation, if it belongs to a trace.
    pub steps: Option<&'a StepRecorder>,
}

impl<'a> RequestSource<'a> {
    /// Returns the source of a request by HTTP.
    pub fn of_head(head: &'a http::request::Parts, origin: ConnectionOrigin) -> Self {
        let (method, path) = (head.method.as_str(), head.uri.path());
        Self { method, path, origin, is_new: true, steps: None }
    }

    /// Returns the source of a message over a WebSocket to the endpoint with this path.
    pub fn of_websocket(path: &'a str, origin: ConnectionOrigin) -> Self {
        Self { method: "GET", path, origin, is_new: true, steps: None }
    }
}
