//! The client behind a connection, as its operations see it.

use http::HeaderMap;

use crate::authentication::Identity;

/// The headers and the identity that the operations of a connection are prepared with.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientContext {
    /// The headers of the handshake, and those that `connection_init` replaces where that is allowed.
    pub(crate) headers: HeaderMap,
    /// The identity of the latest token.
    pub(crate) identity: Identity,
}
