//! The headers of a request to a subgraph.

use std::time::{Instant, SystemTime};

use execute::{FetchError, SubgraphRequest};
use http::Uri;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use telemetry::spans::{SpanId, TraceContext};

use crate::UpstreamSettings;
use crate::decode::ACCEPT_ENCODING;
use crate::request_body::RequestBody;

/// The accepted content types, the proper type first (GraphQL over HTTP, section 5.2.1).
const ACCEPT: HeaderValue =
    HeaderValue::from_static("application/graphql-response+json, application/json;q=0.9");

const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/json");

/// True for headers that are never forwarded from one message to another, in either direction:
/// those of one connection (RFC 9110, section 7.6.1) and of a WebSocket handshake, and those that
/// describe the bytes of a body, because the router writes its own.
///
/// Headers that the `connection` header of a message names belong to the connection too; callers
/// must check that.
pub fn belongs_to_connection(name: &HeaderName) -> bool {
    const KNOWN: [HeaderName; 14] = [
        header::ACCEPT,
        header::ACCEPT_ENCODING,
        header::CONNECTION,
        header::CONTENT_ENCODING,
        header::CONTENT_LENGTH,
        header::CONTENT_TYPE,
        header::EXPECT,
        header::HOST,
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ];
    let text = name.as_str();
    KNOWN.contains(name)
        || matches!(text, "keep-alive" | "proxy-connection" | "http2-settings")
        || text.starts_with("sec-websocket-")
}

/// Calls `write` with each header with which a subgraph continues a trace, with `span` as the parent.
pub fn write_trace_headers(
    context: &TraceContext,
    span: SpanId,
    mut write: impl FnMut(HeaderName, HeaderValue),
) {
    context.write_headers(span, |name, value| {
        // The values are printable.
        if let Ok(value) = HeaderValue::from_str(value) {
            write(HeaderName::from_static(name), value);
        }
    });
}

/// Builds the headers for `request`. `host` is for HTTP/1.1; in HTTP/2 the request target contains
/// it. `target` is the whole URL.
///
/// # Errors
/// The request cannot be signed.
pub(crate) fn headers(
    host: Option<&HeaderValue>,
    settings: &UpstreamSettings,
    request: &SubgraphRequest<'_>,
    (target, body): (&Uri, &RequestBody),
) -> Result<HeaderMap, FetchError> {
    let mut headers = HeaderMap::with_capacity(5 + request.headers.forwarded.len());
    if let Some(host) = host {
        headers.insert(header::HOST, host.clone());
    }
    headers.insert(header::ACCEPT, ACCEPT);
    let form = request.form.as_ref().map(|form| form.content_type.clone());
    headers.insert(header::CONTENT_TYPE, form.unwrap_or(CONTENT_TYPE));
    if settings.compression {
        headers.insert(header::ACCEPT_ENCODING, ACCEPT_ENCODING);
    }
    for (name, value) in request.headers.forwarded {
        // The forwarding rules exclude these already; a mistake there must not break the framing.
        if !belongs_to_connection(name) {
            headers.append(name, value.clone());
        }
    }
    if let Some((name, value)) = request.headers.request_id {
        // Replaces the one of a client, which a rule may have forwarded.
        headers.insert(name, value.clone());
    }
    if let Some(span) = request.headers.span {
        write_trace_headers(&span.context, span.id, |name, value| {
            // Replaces that of the client.
            headers.insert(name, value);
        });
    }
    if let Some(header) = &settings.deadline_header {
        // Replaces that of the client, which does not know the time that is used up.
        let left = request.deadline.saturating_duration_since(Instant::now());
        headers.insert(&header.name, header.format.value(left));
    }
    // The body of a subgraph with a signature is always whole.
    if let (Some(signer), RequestBody::Whole(body)) = (&settings.signer, body) {
        // Replaces the header of a client.
        headers.insert(signer.header().clone(), signer.sign(body));
    }
    if let (Some(signer), RequestBody::Whole(body)) = (&settings.aws, body) {
        signer.sign(target, &mut headers, body, SystemTime::now())?;
    }
    Ok(headers)
}
