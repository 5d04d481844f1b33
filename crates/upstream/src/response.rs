//! Reads the response of a subgraph: checks its type and its size, counts its memory, and expands it.

use std::sync::Arc;
use std::time::Duration;

use admission::memory::{CHARGED_BYTES_MIN, MemoryAccount, MemoryCharge, MemoryKind, MemoryUsedUp};
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

/// The ratio of the expanded size of a compressed body to its compressed size for which memory is counted ahead. Usual
/// JSON becomes 5 to 40 times smaller.
const EXPANSION_RATIO: u64 = 8;

/// The expanded size that a response may always have: small ones are not counted.
const SMALL_BYTES: u64 = 64 * 1024;

/// The bounds of the body of a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyBounds<'a> {
    /// The maximum size, compressed and expanded.
    pub(crate) bytes_max: u64,
    /// The memory of the process, which the body is a part of.
    pub(crate) memory: &'a Arc<MemoryAccount>,
    /// True if a response that does not fit into the memory is refused. One to a mutation is not: it was executed, and
    /// the error would say that it may be repeated.
    pub(crate) may_refuse: bool,
}

/// A response or the reason of its absence, and true if the connection has been read to the end of
/// it.
pub(crate) struct ReceivedResponse {
    pub(crate) response: Result<SubgraphResponse, FailedAttempt>,
    pub(crate) is_read_to_end: bool,
}

/// Reads a response. Its body counts as memory until its last slice is dropped.
pub(crate) async fn receive_response<B>(
    response: Response<B>,
    bounds: BodyBounds<'_>,
) -> ReceivedResponse
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
    let mut charge = MemoryCharge::empty(bounds.memory, MemoryKind::SubgraphResponses);
    let body = match read_counted_body(body, announced, bounds, &mut charge).await {
        Ok(body) => body,
        Err(error) => {
            return ReceivedResponse { response: Err(error.into()), is_read_to_end: false };
        }
    };
    let body = match codings.is_empty() {
        true => Ok(body),
        false => expand_counted_body(body, codings, bounds, &mut charge).await,
    };
    let response::Parts { status, headers, .. } = head;
    let response = body.map(|body| SubgraphResponse {
        status,
        headers,
        body: charge.hold(body),
        policy: None,
        hedge: None,
    });
    ReceivedResponse { response: response.map_err(FailedAttempt::from), is_read_to_end: true }
}

/// Reads a body and counts its memory: an announced size ahead, because it is read in one piece, and otherwise what has
/// arrived.
async fn read_counted_body<B>(
    body: B,
    announced: Option<u64>,
    bounds: BodyBounds<'_>,
    charge: &mut MemoryCharge,
) -> Result<Bytes, FetchError>
where
    B: Body<Data = Bytes, Error = FetchError> + Unpin,
{
    let limit = bounds.bytes_max;
    if announced.is_some_and(|it| it > limit) {
        return Err(FetchError::TooLarge { limit });
    }
    if let Some(bytes) = announced.filter(|it| *it >= CHARGED_BYTES_MIN as u64 && bounds.may_refuse)
    {
        charge.try_promise(bytes).map_err(used_up)?;
    }
    let counting = Some((&mut *charge, bounds.may_refuse));
    let body = read_body(body, announced, limit, counting).await?;
    charge.take_promised();
    Ok(body)
}

/// Expands a compressed body, and counts the expanded one beside it.
async fn expand_counted_body(
    body: Bytes,
    codings: Vec<coding::Coding>,
    bounds: BodyBounds<'_>,
    charge: &mut MemoryCharge,
) -> Result<Bytes, FetchError> {
    let ahead = (body.len() as u64).saturating_mul(EXPANSION_RATIO).min(bounds.bytes_max);
    if !bounds.may_refuse {
        return decode::expand(body, codings, bounds.bytes_max).await;
    }
    if ahead >= CHARGED_BYTES_MIN as u64 {
        charge.try_promise(ahead).map_err(used_up)?;
    }
    let limit = bounds.bytes_max.min(bounds.memory.room().saturating_add(ahead.max(SMALL_BYTES)));
    match decode::expand(body, codings, limit).await {
        Err(FetchError::TooLarge { .. }) if limit < bounds.bytes_max => {
            bounds.memory.count_refused(MemoryKind::SubgraphResponses);
            Err(FetchError::MemoryUsedUp)
        }
        expanded => expanded,
    }
}

fn used_up(_: MemoryUsedUp) -> FetchError {
    FetchError::MemoryUsedUp
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
    let reading = read_body(body, announced, UNWANTED_BODY_BYTES_MAX, None);
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

/// Reads a body of at most `limit` bytes. What the charge of `counting` does not count already is counted as it arrives,
/// and refused if it does not fit and the flag beside the charge is set.
async fn read_body<B>(
    mut body: B,
    announced: Option<u64>,
    limit: u64,
    mut counting: Option<(&mut MemoryCharge, bool)>,
) -> Result<Bytes, FetchError>
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
        if let Some((charge, may_refuse)) = &mut counting {
            if length > charge.bytes().max(CHARGED_BYTES_MIN as u64) {
                let more = length - charge.bytes();
                match may_refuse {
                    true => charge.try_grow(more).map_err(used_up)?,
                    false => charge.grow(more),
                }
            }
            charge.set_taken(length);
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
