//! Batches: several operations in one request. A JSON array of requests gets a JSON array of responses in the same
//! order. No specification defines them; clients such as Apollo's `BatchHttpLink` send them.

use std::sync::Arc;

use bytes::Bytes;
use execute::{ClientKey, ErrorCode, GraphqlError};
use futures_util::future::join_all;
use http::{HeaderMap, StatusCode};
use plan::OperationKind;
use prepare::OperationRequest;

use super::media::ResponseFormat;
use super::response::{self, Response};
use crate::authentication::Identity;
use crate::forwarding::ClientHeaders::OfMessage;
use crate::operation;
use crate::prepared_request::PreparedRequest;
use crate::router::Router;
use crate::trace::RequestTrace;

/// Runs a batch. The status is always 200: an operation that fails has its errors at its place, and the others run.
pub(crate) async fn respond(
    router: &Arc<Router>,
    requests: &[OperationRequest],
    headers: &HeaderMap,
    from: (&Identity, ClientKey),
    media: ResponseFormat,
) -> Response {
    if media.stream().is_some() {
        let message = "the response to a batch is JSON: ask with `Accept: application/json`";
        let error = GraphqlError::new(ErrorCode::BadRequest, message);
        return response::refused(StatusCode::NOT_ACCEPTABLE, &[error], media);
    }
    router.metrics.http.count_batch(requests.len());
    let ready = join_all(requests.iter().map(|it| prepare(router, it, headers, from))).await;
    let changes = |(ready, _): &PreparedOperation| ready.prepared.kind == OperationKind::Mutation;
    // A client that puts a query behind a mutation expects the query to see the effect of the mutation.
    let responses = if ready.iter().flatten().any(changes) {
        let mut responses = Vec::with_capacity(ready.len());
        for ready in ready {
            responses.push(run(router, ready).await);
        }
        responses
    } else {
        join_all(ready.into_iter().map(|ready| run(router, ready))).await
    };
    // Under `application/graphql-response+json` the body is one response, so a batch cannot have that type.
    response::with_type(StatusCode::OK, ResponseFormat::Json.content_type(), array(&responses))
}

/// An operation that is ready to run, with its trace if the client requested one.
type PreparedOperation = (PreparedRequest, Option<RequestTrace>);

async fn prepare(
    router: &Router,
    request: &OperationRequest,
    headers: &HeaderMap,
    (identity, address): (&Identity, ClientKey),
) -> Result<PreparedOperation, Vec<GraphqlError>> {
    let trace = RequestTrace::wanted(&router.config, headers);
    let (client_headers, identity) = (OfMessage(headers), identity.clone());
    let ready = operation::prepare_for(router, request, client_headers, identity, address).await?;
    Ok((ready, trace))
}

async fn run(router: &Arc<Router>, ready: Result<PreparedOperation, Vec<GraphqlError>>) -> Bytes {
    let outcome = match ready {
        Ok((ready, mut trace)) => {
            if let Some(trace) = &mut trace {
                trace.prepared();
            }
            operation::run(router, ready, trace).await.map(|payload| payload.bytes)
        }
        Err(errors) => Err(errors),
    };
    outcome.unwrap_or_else(|errors| execute::request_error(&errors).bytes)
}

/// Returns a batch response with the same error for each of `count` operations.
pub(super) fn refused(count: usize, error: &GraphqlError) -> Response {
    let response = execute::request_error(std::slice::from_ref(error)).bytes;
    let responses = array(&vec![response; count]);
    response::with_type(StatusCode::OK, ResponseFormat::Json.content_type(), responses)
}

fn array(responses: &[Bytes]) -> Bytes {
    let mut text = Vec::with_capacity(responses.iter().map(|it| it.len() + 1).sum::<usize>() + 1);
    for (index, response) in responses.iter().enumerate() {
        text.push(if index == 0 { b'[' } else { b',' });
        text.extend_from_slice(response);
    }
    text.push(b']');
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_stand_in_an_array_in_their_order() {
        let responses = [Bytes::from_static(b"{\"data\":1}"), Bytes::from_static(b"{\"data\":2}")];
        assert_eq!(array(&responses), "[{\"data\":1},{\"data\":2}]");
        assert_eq!(array(&responses[..1]), "[{\"data\":1}]");
    }
}
