//! GraphQL on WebSockets (graphql-transport-ws and graphql-ws): messages of the protocols as the router's own types.

use bytes::Bytes;
use clients::authentication::TokenRefusal;
use prepare::OperationRequest;
use wire::graphql_transport_ws;
use wire::subprotocol::Subprotocol;
use wire::websocket::CloseCode;

use super::end_reasons::AUTHENTICATION_UNAVAILABLE;

/// Converts the operation of a `subscribe` message to the form that all transports share.
pub(super) fn operation_request(request: graphql_transport_ws::Request) -> OperationRequest {
    let graphql_transport_ws::Request { query, document_id, operation_name, variables, extensions } =
        request;
    OperationRequest {
        query: query.map(|it| Bytes::from(it.into_string())).unwrap_or_default(),
        document_id: document_id.map(Into::into),
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
