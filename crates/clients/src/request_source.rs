//! The source of a request: what the HTTP layer knows of it beside its headers. Expressions of the configuration read
//! it.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use prepare::StepRecorder;
use telemetry::spans::RequestSpans;

use crate::client_deadline::ClientDeadline;

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
    /// The trace of the operation, if it belongs to one.
    pub trace: Option<OperationTrace<'a>>,
    /// The end of the time for which the client waits, if it has named one.
    pub deadline: Option<ClientDeadline>,
}

/// The trace of an operation that is being prepared.
#[derive(Debug, Clone, Copy)]
pub struct OperationTrace<'a> {
    /// Keeps the steps of preparing the operation.
    pub steps: &'a StepRecorder,
    /// The spans of the request.
    pub request: &'a RequestSpans,
}

impl<'a> RequestSource<'a> {
    /// Returns the source of a request by HTTP.
    pub fn of_head(head: &'a http::request::Parts, origin: ConnectionOrigin) -> Self {
        let (method, path) = (head.method.as_str(), head.uri.path());
        let deadline = head.extensions.get().copied();
        Self { method, path, origin, is_new: true, trace: None, deadline }
    }

    /// Returns the source of a message over a WebSocket to the endpoint with this path.
    pub fn of_websocket(path: &'a str, origin: ConnectionOrigin) -> Self {
        Self { method: "GET", path, origin, is_new: true, trace: None, deadline: None }
    }

    /// Returns the deadline of work that begins at `now` and takes `time_max` at most: the client may have less time.
    pub fn deadline_within(&self, now: Instant, time_max: Duration) -> Instant {
        let own = now + time_max;
        self.deadline.map_or(own, |ClientDeadline(deadline)| deadline.min(own))
    }
}
