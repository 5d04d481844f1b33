//! Request bodies, bounded in size, time and memory.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use admission::memory::{CHARGED_BYTES_MIN, MemoryAccount, MemoryCharge, MemoryKind};
use bytes::{Bytes, BytesMut};
use http_body::Body;

use super::body_wakes;

/// The maximum capacity that is reserved for an announced body: a growing buffer is copied, and exists twice meanwhile.
/// A client may announce bytes that it never sends, but memory that is never written to is only reserved, not used.
const BODY_BYTES_AHEAD_MAX: u64 = 16 << 20;

/// The reason that a body was not read.
#[derive(Debug)]
pub enum BodyError {
    /// The body is over the limit, according to its header or while it was read.
    TooLarge,
    /// The client took too long to send the body.
    TooSlow,
    /// The memory budget of the process is used up.
    MemoryUsedUp,
    /// The connection broke, or the framing of the body is wrong.
    Broken(String),
}

/// Reads all of `body`, at most `limit` bytes, in at most `time`.
pub async fn read<B>(body: B, limit: usize, time: Duration) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes>,
    B::Error: std::error::Error,
{
    read_counted(body, limit, time, &MemoryAccount::unlimited()).await
}

/// Reads all of `body` like [`read`], and counts its memory until its last slice is dropped. The announced size is not
/// counted ahead: the client may never send it.
pub async fn read_counted<B>(
    body: B,
    limit: usize,
    time: Duration,
    memory: &Arc<MemoryAccount>,
) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes>,
    B::Error: std::error::Error,
{
    let announced = body.size_hint().lower();
    if announced > limit as u64 {
        return Err(BodyError::TooLarge);
    }
    if announced >= CHARGED_BYTES_MIN as u64 {
        let room = memory.check_room(MemoryKind::RequestBodies, announced);
        room.map_err(|_| BodyError::MemoryUsedUp)?;
    }
    let mut reading = pin!(collect(body, limit, memory));
    // hot path: a short body arrives with the head of its request, and needs no timer.
    if let Poll::Ready(read) = futures_util::poll!(reading.as_mut()) {
        return read;
    }
    tokio::time::timeout(time, reading).await.unwrap_or(Err(BodyError::TooSlow))
}

async fn collect<B>(body: B, limit: usize, memory: &Arc<MemoryAccount>) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes>,
    B::Error: std::error::Error,
{
    let announced = body.size_hint().lower().min(BODY_BYTES_AHEAD_MAX) as usize;
    let mut body = std::pin::pin!(body);
    let mut whole = Bytes::new();
    let mut pieces = BytesMut::new();
    let mut charge = None;
    while let Some(frame) = poll_fn(|context| body_wakes::poll_frame(body.as_mut(), context)).await
    {
        let frame = frame.map_err(|error| BodyError::Broken(cause(&error)))?;
        let Ok(data) = frame.into_data() else { continue };
        let length = whole.len() + pieces.len() + data.len();
        if length > limit {
            return Err(BodyError::TooLarge);
        }
        if length >= CHARGED_BYTES_MIN {
            let charge = charge
                .get_or_insert_with(|| MemoryCharge::empty(memory, MemoryKind::RequestBodies));
            let more = (length as u64).saturating_sub(charge.bytes());
            charge.try_grow(more).map_err(|_| BodyError::MemoryUsedUp)?;
        }
        // Most bodies come in one piece and are not copied.
        if length == data.len() {
            whole = data;
        } else {
            if pieces.is_empty() {
                pieces.reserve(announced.max(length));
                pieces.extend_from_slice(&std::mem::take(&mut whole));
            }
            pieces.extend_from_slice(&data);
        }
    }
    let whole = if pieces.is_empty() { whole } else { pieces.freeze() };
    Ok(match charge {
        None => whole,
        Some(charge) => charge.hold(whole),
    })
}

/// Returns the innermost error; the errors around it only state that a body was read.
fn cause(mut error: &dyn std::error::Error) -> String {
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use http_body::Frame;
    use http_body_util::{BodyExt, Full, StreamBody};

    const TIME: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_body_over_the_limit_is_refused() {
        let body = || Full::new(Bytes::from_static(b"12345"));
        assert!(matches!(read(body(), 4, TIME).await, Err(BodyError::TooLarge)));
        assert_eq!(read(body(), 5, TIME).await.ok().as_deref(), Some(&b"12345"[..]));
    }

    #[tokio::test]
    async fn a_body_counts_as_memory_and_is_refused_if_it_does_not_fit() {
        const SIZE: usize = 4 * CHARGED_BYTES_MIN;
        let pieces = |known_size: bool| {
            let pieces = vec![Bytes::from(vec![b'1'; SIZE / 4]); 4];
            let frames = pieces.into_iter().map(|it| Ok::<_, std::io::Error>(Frame::data(it)));
            let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
            match known_size {
                true => Full::new(Bytes::from(vec![b'1'; SIZE]))
                    .map_err(|it| match it {})
                    .boxed_unsync(),
                false => body,
            }
        };
        for known_size in [true, false] {
            let memory = MemoryAccount::new(2 * SIZE as u64);
            let body =
                read_counted(pieces(known_size), SIZE, TIME, &memory).await.expect("it fits");
            assert_eq!((body.len(), memory.held_total()), (SIZE, SIZE as u64));
            let second = read_counted(pieces(known_size), SIZE, TIME, &memory).await;
            assert!(matches!(second, Err(BodyError::MemoryUsedUp)), "{known_size}");
            assert_eq!(memory.held_total(), SIZE as u64);
            assert_eq!(memory.refused(MemoryKind::RequestBodies), 1);
            drop(body);
            assert_eq!(memory.held_total(), 0);
        }
    }

    #[test]
    fn a_body_that_is_there_needs_no_timer() {
        // A timer would panic outside of a runtime.
        let read = read(Full::new(Bytes::from_static(b"12345")), 5, TIME).now_or_never();
        assert_eq!(read.and_then(Result::ok).as_deref(), Some(&b"12345"[..]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_comes_times_out() {
        let (_held, pieces) = tokio::sync::mpsc::channel(1);
        let body = super::super::response::ResponseBody::Stream(pieces);
        assert!(matches!(read(body, 10, TIME).await, Err(BodyError::TooSlow)));
    }
}
