//! Batches: several operations in one request. A JSON array of requests gets a JSON array of responses in the same
//! order. No specification defines them; clients such as Apollo's `BatchHttpLink` send them.

use bytes::Bytes;
use execute::{ErrorCode, GraphqlError};
use http::StatusCode;

use super::media::ResponseFormat;
use super::metrics::HttpMetrics;
use super::response::{self, Response};
use super::service::{GraphqlBatch, GraphqlService};

/// Runs a batch. Its status is 200 unless it is refused as a whole: an operation that fails has its errors at its
/// place, and the others run.
pub(super) async fn respond(
    service: &dyn GraphqlService,
    metrics: &HttpMetrics,
    batch: GraphqlBatch<'_>,
    media: ResponseFormat,
) -> Response {
    if media.stream().is_some() {
        let message = "the response to a batch is JSON: ask with `Accept: application/json`";
        let error = GraphqlError::new(ErrorCode::BadRequest, message);
        return response::refused(StatusCode::NOT_ACCEPTABLE, &[error], media);
    }
    metrics.count_batch(batch.operations.len());
    let responses = match service.execute_batch(batch).await {
        Ok(responses) => responses,
        Err(refusal) => return response::refuse(refusal, media),
    };
    // Under `application/graphql-response+json` the body is one response, so a batch cannot have that type.
    response::with_type(StatusCode::OK, ResponseFormat::Json.content_type(), array(&responses))
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
