//! The context of a connection's client, which its operations are prepared with.

use http::HeaderMap;

use crate::authentication::Identity;

/// The headers and the identity of a connection's client.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientContext {
    /// The headers of the handshake, replaced by those of `connection_init` where that is allowed.
    pub(crate) headers: HeaderMap,
    /// The identity of the latest token.
    pub(crate) identity: Identity,
}
