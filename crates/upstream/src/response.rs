//! Reads the response of a subgraph: checks its type and its size, and expands it.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use execute::{FetchError, SubgraphResponse};
use http::header::{HeaderMap, RETRY_AFTER};
use http::{Response, response};
use http_body_util::BodyExt;
use hyper::body::Body;

use crate::retry::{FailedAttempt, SentState};
use crate::{content_type, decode};

/// Maximum size of an unneeded body that is read so that the connection can be used again. Reading
/// more costs more than a new connection.
const UNWANTED_BODY_BYTES_MAX: u64 = 64 * 1024;

/// Time for reading an unneeded body.
const UNWANTED_BODY_TIME_MAX: Duration = Duration::from_millis(100);

/// Time for the body of a failed response that may hold GraphQL errors.
const FAILURE_BODY_TIME_MAX: Duration = Duration::from_secs(1);

/// Memory reserved for a body of announced length. A server may announce bytes that it never sends.
const BODY_ROOM_BYTES_MAX: u64 = 1024 * 1024;

/// A response or the reason of its absence, and true if the connection has been read to the end of
/// it.
pub(crate) struct ReceivedResponse {
    pub(crate) response: Result<SubgraphResponse, FailedAttempt>,
    pub(crate) is_read_to_end: bool,
}

/// Reads a response. Its body may have at most `limit` bytes, compressed and expanded.
pub(crate) async fn receive_response<B>(response: Response<B>, limit: u64) -> ReceivedResponse
where
    B: Body<Data = Bytes, Error = FetchError> + Unpin,
{
    let (head, body) = response.into_parts();
    let announced = body.size_hint().exact();
    let checked = content_type::check_content_type(head.status, &head.headers)
        .and_then(|()| decode::read_codings(&head.headers));
    let codings = match checked {
        Ok(codings) => codings,
        Err(error) => {
            let is_json = content_type::is_json(&head.headers);
            let time = if is_json { FAILURE_BODY_TIME_MAX } else { UNWANTED_BODY_TIME_MAX };
            let body = drain_body(body, announced, time).await;
            let is_read_to_end = body.is_some();
            let body = if is_json { body } else { None };
            let error = with_body(error, body, &head.headers).await;
            let asks_for_a_pause = asks_for_a_pause(&head.headers);
            let failure = FailedAttempt { error, sent: SentState::ResponseBegun, asks_for_a_pause };
            return ReceivedResponse { response: Err(failure), is_read_to_end };
        }
    };
    if announced.is_some_and(|it| it > limit) {
        let error = FetchError::TooLarge { limit };
        return ReceivedResponse { response: Err(error.into()), is_read_to_end: false };
    }
    let body = match read_body(body, announced, limit).await {
        Ok(body) => body,
        Err(error) => {
            return ReceivedResponse { response: Err(error.into()), is_read_to_end: false };
        }
    };
    let body = match codings.is_empty() {
        true => Ok(body),
        false => decode::expand(body, codings, limit).await,
    };
    let response::Parts { status, headers, .. } = head;
    let response = body.map(|body| SubgraphResponse { status, headers, body, policy: None });
    ReceivedResponse { response: response.map_err(FailedAttempt::from), is_read_to_end: true }
}

/// True if the server asks for a pause. `retry-after: 0` does not. A time of day counts as a pause:
/// it is too far away to wait for.
fn asks_for_a_pause(headers: &HeaderMap) -> bool {
    headers.get(RETRY_AFTER).is_some_and(|value| value.as_bytes() != b"0")
}

/// Reads the body of a failed response. `None` if it is too long, or does not end in time.
async fn drain_body<B>(body: B, announced: Option<u64>, time: Duration) -> Option<Bytes>
where
    B: Body<Data = Bytes, Error = FetchError> + Unpin,
{
    if announced.is_some_and(|it| it > UNWANTED_BODY_BYTES_MAX) {
        return None;
    }
    let reading = read_body(body, announced, UNWANTED_BODY_BYTES_MAX);
    tokio::time::timeout(time, reading).await.ok()?.ok()
}

/// Adds the expanded body to an error about a status.
async fn with_body(error: FetchError, body: Option<Bytes>, headers: &HeaderMap) -> FetchError {
    let FetchError::Status { status, content_type, .. } = error else { return error };
    let expanded = match (body, decode::read_codings(headers)) {
        (Some(body), Ok(codings)) if codings.is_empty() => Some(body),
        (Some(body), Ok(codings)) => {
            decode::expand(body, codings, UNWANTED_BODY_BYTES_MAX).await.ok()
        }
        _ => None,
    };
    FetchError::Status { status, content_type, body: expanded.filter(|it| !it.is_empty()) }
}

/// Reads a body of at most `limit` bytes.
async fn read_body<B>(mut body: B, announced: Option<u64>, limit: u64) -> Result<Bytes, FetchError>
where
    B: Body<Data = Bytes, Error = FetchError> + Unpin,
{
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    let mut length = 0u64;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        length += data.len() as u64;
        if length > limit {
            return Err(FetchError::TooLarge { limit });
        }
        // Most responses come in one piece and are never copied.
        if first.is_empty() && rest.is_empty() {
            if body.is_end_stream() {
                return Ok(data);
            }
            first = data;
        } else {
            if rest.is_empty() {
                let room = announced.unwrap_or_default().min(BODY_ROOM_BYTES_MAX) as usize;
                rest.reserve(room.max(first.len() + data.len()));
                rest.extend_from_slice(&first);
                first = Bytes::new();
            }
            rest.extend_from_slice(&data);
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}
