//! A request as the overload protection sees it.

use clients::authentication::Identity;
use clients::request_source::RequestSource;
use execute::ClientKey;
use http::HeaderMap;

/// The facts about a request that are known before its operation is parsed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivingRequest<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) headers: &'a HeaderMap,
    /// The key of the client's address.
    pub(crate) address: ClientKey,
    pub(crate) source: RequestSource<'a>,
    /// True for a WebSocket handshake. It comes after operations, as new subscriptions do.
    pub(crate) is_handshake: bool,
}
