//! Requests of single connection mode (GraphQL over SSE), the least used transport: one event stream carries several
//! operations, each started by a request of its own. [`crate::live::sse_single_connection`] holds the streams.

use std::sync::Arc;

use http::Request;
use hyper::body::Incoming;

use super::batch;
use super::client_connection::ClientRequest;
use super::received_request::{ReceivedRequest, receive_request};
use super::request::ParsedRequest;
use super::response::Response;
use super::transport::StreamRequest;

use crate::authentication::Identity;
use crate::live::sse_single_connection;
use crate::router::Router;

/// Responds to a request of single connection mode.
pub(super) async fn respond(
    router: &Arc<Router>,
    client: &ClientRequest,
    stream_request: StreamRequest,
    request: Request<Incoming>,
    identity: Identity,
) -> Response {
    match stream_request {
        StreamRequest::Reserve => {
            let client = identity.client_key().unwrap_or(client.connection().client());
            sse_single_connection::reserve(router, client)
        }
        StreamRequest::Open(token) => {
            sse_single_connection::open(router, &token, request.version())
        }
        StreamRequest::Stop(token) => sse_single_connection::stop(router, &token, request.uri()),
        StreamRequest::Start(token) => {
            let received = receive_request(router, client, &identity, request).await;
            let ReceivedRequest { head, parsed, accepted } = match received {
                Ok(received) => received,
                Err(response) => return *response,
            };
            let address = client.connection().client();
            match parsed {
                ParsedRequest::One(operation) => {
                    sse_single_connection::start(
                        router,
                        &token,
                        &operation,
                        &head,
                        (identity, address),
                    )
                    .await
                }
                ParsedRequest::Batch(operations) => {
                    let from = (&identity, address);
                    batch::respond(router, &operations, &head.headers, from, accepted.result).await
                }
            }
        }
    }
}
