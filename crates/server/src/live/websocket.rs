//! The WebSocket handshake of GraphQL (graphql-transport-ws and graphql-ws). A reactor serves the connection after it.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{HeaderMap, Request, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use prepare::OperationRequest;
use wire::graphql_transport_ws;
use wire::subprotocol::{SUPPORTED, Subprotocol};
use wire::websocket::CloseCode;
use wire::websocket::handshake;

use super::client_context::ClientContext;
use super::end_reasons::AUTHENTICATION_UNAVAILABLE;
use super::negotiated_protocol::NegotiatedProtocol;
use super::takeover::{AcceptedWebSocket, LiveConnection};
use crate::authentication::{Identity, TokenRefusal};
use crate::http::response::{self, Response};
use crate::router::Router;

/// True if a request is a WebSocket handshake, even a malformed one. Upgrades to other protocols (curl asks for `h2c`)
/// may be ignored (RFC 9110, section 7.8).
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    headers.contains_key(SEC_WEBSOCKET_KEY)
        || headers.contains_key(SEC_WEBSOCKET_VERSION)
        || headers.get_all(UPGRADE).iter().any(|value| {
            let mut protocols = value.as_bytes().split(|byte| *byte == b',');
            protocols.any(|it| it.trim_ascii().eq_ignore_ascii_case(b"websocket"))
        })
}

/// Responds to a WebSocket handshake. If it is accepted, the connection leaves HTTP.
pub(crate) fn upgrade(
    router: &Arc<Router>,
    request: &Request<Incoming>,
    identity: Identity,
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
            let mut answer = response::text(status, format!("{rejection}\n"));
            for (name, value) in rejection.headers() {
                let (name, value) =
                    (HeaderName::from_static(name), HeaderValue::from_static(value));
                answer.headers_mut().insert(name, value);
            }
            return answer;
        }
    };
    if !router.config.websocket.compression.enabled {
        accept.deflate = None;
    }
    let mut answer = response::empty(StatusCode::SWITCHING_PROTOCOLS);
    for (name, value) in accept.headers() {
        if let Ok(value) = HeaderValue::from_str(value) {
            answer.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    let negotiated =
        NegotiatedProtocol { subprotocol: accept.subprotocol, deflates: accept.deflate.is_some() };
    let accepted = AcceptedWebSocket {
        negotiated,
        context: ClientContext { headers: request.headers().clone(), identity },
    };
    *answer.body_mut() = LiveConnection::WebSocket(accepted).into_body(router);
    answer
}

/// Converts the operation of a `subscribe` message to the form that all transports share.
pub(super) fn operation_request(request: graphql_transport_ws::Request) -> OperationRequest {
    let graphql_transport_ws::Request { query, operation_name, variables, extensions } = request;
    OperationRequest {
        query: query.map(|it| Bytes::from(it.into_string())).unwrap_or_default(),
        operation_name,
        variables: variables.unwrap_or_default(),
        extensions: extensions.unwrap_or_default(),
    }
}

/// Accepts a `connection_init`, or closes the connection if its client is refused.
pub(super) fn finish_init(protocol: &mut Subprotocol, refusal: Option<&TokenRefusal>) {
    match refusal {
        None => protocol.accept_init(None),
        Some(refusal) if refusal.is_temporary() => {
            protocol.close(CloseCode::TRY_AGAIN_LATER, AUTHENTICATION_UNAVAILABLE);
        }
        Some(_) => protocol.forbid(),
    }
}
