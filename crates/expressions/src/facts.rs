//! The facts about one request that expressions read. All of them are borrowed, and nothing is converted before a
//! program reads it.

use std::net::IpAddr;

use execute::{ClaimValues, Claims};
use http::HeaderMap;

/// The facts about a request, its operation and a response. A place of the configuration gives those that its
/// [`Scope`](crate::Scope) has; others are absent.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestFacts<'a> {
    /// The method of the HTTP request; of a WebSocket, that of the handshake.
    pub method: &'a str,
    /// The path of the URL, without the query.
    pub path: &'a str,
    /// The headers; of a WebSocket, those of the handshake.
    pub headers: Option<&'a HeaderMap>,
    /// The address of the client; none for a connection over a unix socket.
    pub client_address: Option<IpAddr>,
    /// True if the connection uses TLS.
    pub is_tls: bool,
    /// The application that sent the request.
    pub client: ClientFacts<'a>,
    /// The claims of the token.
    pub claims: ClaimFacts<'a>,
    /// The operation, once it is known.
    pub operation: Option<OperationFacts<'a>>,
    /// The name of the subgraph.
    pub subgraph: Option<&'a str>,
    /// The response of the subgraph.
    pub response: Option<ResponseFacts<'a>>,
    /// The outcome of the request, once it has ended.
    pub outcome: Option<OutcomeFacts>,
}

/// The name and the version that an application states. Empty if it states none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientFacts<'a> {
    /// The name of the application.
    pub name: &'a str,
    /// Its version.
    pub version: &'a str,
}

/// The claims of a token.
#[derive(Debug, Clone, Copy, Default)]
pub enum ClaimFacts<'a> {
    /// A client without a token.
    #[default]
    Anonymous,
    /// The whole token. A program selects the claims that it reads when it reads the first one.
    Token(&'a Claims),
    /// Claims that were selected before, for several programs. They must include
    /// [`References::claims`](crate::References::claims) of the program.
    Selected(&'a ClaimValues),
}

impl<'a> From<Option<&'a Claims>> for ClaimFacts<'a> {
    fn from(claims: Option<&'a Claims>) -> Self {
        claims.map_or(Self::Anonymous, Self::Token)
    }
}

/// An operation.
#[derive(Debug, Clone, Copy)]
pub struct OperationFacts<'a> {
    /// The name in its text; empty if it has none.
    pub name: &'a str,
    /// `query`, `mutation` or `subscription`.
    pub kind: &'a str,
    /// The hash of its normalised form.
    pub id: &'a str,
    /// The nesting of its fields.
    pub depth: Option<u32>,
    /// The estimated cost.
    pub cost: Option<u64>,
}

/// The response of a subgraph.
#[derive(Debug, Clone, Copy)]
pub struct ResponseFacts<'a> {
    /// The headers.
    pub headers: &'a HeaderMap,
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutcomeFacts {
    /// The HTTP status; none for an operation on a WebSocket.
    pub status: Option<u16>,
    /// The number of GraphQL errors.
    pub errors: u64,
    /// The size of the response's body; none for a stream.
    pub bytes: Option<u64>,
    /// The time from the head of the request to the head of the response, or of a subscription to its end.
    pub milliseconds: u64,
}
