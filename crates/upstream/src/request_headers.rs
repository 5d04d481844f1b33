//! The headers of a request to a subgraph.

use execute::SubgraphRequest;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// What we can read, the proper type first (GraphQL over HTTP, section 5.2.1).
const ACCEPT: HeaderValue =
    HeaderValue::from_static("application/graphql-response+json, application/json;q=0.9");

const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/json");

/// Never passed on: those that describe one connection (RFC 9110, section 7.6.1), and those that
/// belong to the body that we write and the answer that we read.
fn is_passed_on(name: &HeaderName) -> bool {
    let ours = [
        header::ACCEPT,
        header::ACCEPT_ENCODING,
        header::CONNECTION,
        header::CONTENT_ENCODING,
        header::CONTENT_LENGTH,
        header::CONTENT_TYPE,
        header::EXPECT,
        header::HOST,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ];
    !ours.contains(name) && !matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

/// Builds the headers for `request`.
pub(crate) fn headers(host: &HeaderValue, request: &SubgraphRequest<'_>) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(4 + request.headers.len());
    headers.insert(header::HOST, host.clone());
    headers.insert(header::ACCEPT, ACCEPT);
    headers.insert(header::CONTENT_TYPE, CONTENT_TYPE);
    for (name, value) in request.headers {
        if is_passed_on(name) {
            headers.append(name, value.clone());
        }
    }
    headers
}
