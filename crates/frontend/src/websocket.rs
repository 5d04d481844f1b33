//! The WebSocket handshake of GraphQL (RFC 6455, section 4.2). After it the connection leaves HTTP.

use clients::access_log::{ConnectionId, LoggedHandshake, OperationNote};
use clients::authentication::Identity;
use clients::request_ids::AssignedId;
use clients::request_source::ConnectionOrigin;
use http::header::{HeaderName, HeaderValue, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{HeaderMap, Request, StatusCode, Version};
use http_body::Body;
use wire::subprotocol::SUPPORTED;
use wire::websocket::handshake;

use super::response::{self, Response, ResponseBody};
use super::service::{AcceptedHandshake, GraphqlService};

/// True if a request is a WebSocket handshake, even a malformed one. Upgrades to other protocols (curl asks for `h2c`)
/// may be ignored (RFC 9110, section 7.8).
pub(super) fn is_requested(headers: &HeaderMap) -> bool {
    headers.contains_key(SEC_WEBSOCKET_KEY)
        || headers.contains_key(SEC_WEBSOCKET_VERSION)
        || headers.get_all(UPGRADE).iter().any(|value| {
            let mut protocols = value.as_bytes().split(|byte| *byte == b',');
            protocols.any(|it| it.trim_ascii().eq_ignore_ascii_case(b"websocket"))
        })
}

/// Responds to a WebSocket handshake. If it is accepted, the connection leaves HTTP.
pub(super) fn upgrade<B: Body>(
    service: &dyn GraphqlService,
    has_compression: bool,
    request: &Request<B>,
    (identity, origin): (Identity, ConnectionOrigin),
) -> Response {
    if request.version() == Version::HTTP_2 {
        let text = "WebSocket connections are not available over HTTP/2: open them over HTTP/1.1\n";
        return response::text(StatusCode::BAD_REQUEST, text);
    }
    if !request.body().is_end_stream() {
        // The bytes of a body would be taken for frames.
        return response::text(StatusCode::BAD_REQUEST, "a WebSocket handshake has no body\n");
    }
    let headers = request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let method = request.method().as_str();
    let mut accept = match handshake::accept(method, headers, &SUPPORTED) {
        Ok(accept) => accept,
        Err(rejection) => {
            let status =
                StatusCode::from_u16(rejection.status()).unwrap_or(StatusCode::BAD_REQUEST);
            let mut response = response::text(status, format!("{rejection}\n"));
            for (name, value) in rejection.headers() {
                let (name, value) =
                    (HeaderName::from_static(name), HeaderValue::from_static(value));
                response.headers_mut().insert(name, value);
            }
            return response;
        }
    };
    if !has_compression {
        accept.deflate = None;
    }
    let mut response = response::empty(StatusCode::SWITCHING_PROTOCOLS);
    for (name, value) in accept.headers() {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    let logged = request.extensions().get::<OperationNote>().map(|_| LoggedHandshake {
        connection: ConnectionId::random(),
        request_id: request.extensions().get::<AssignedId>().map(|it| it.1.clone()),
    });
    if let Some(logged) = &logged {
        // The line of the handshake shows it.
        response.extensions_mut().insert(logged.connection);
    }
    let takeover = service.open_websocket(AcceptedHandshake {
        subprotocol: accept.subprotocol,
        accepts_compression: accept.deflate.is_some(),
        headers: request.headers().clone(),
        identity,
        origin,
        logged,
    });
    *response.body_mut() = ResponseBody::Takeover(takeover);
    response
}
