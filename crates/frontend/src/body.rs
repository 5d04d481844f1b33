//! Request bodies, bounded in size and time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;

/// The reason that a body was not read.
#[derive(Debug)]
pub enum BodyError {
    /// The body is over the limit, according to its header or while it was read.
    TooLarge,
    /// The client took too long to send the body.
    TooSlow,
    /// The connection broke, or the framing of the body is wrong.
    Broken(String),
}

/// Reads all of `body`, at most `limit` bytes, in at most `time`.
pub async fn read<B>(body: B, limit: usize, time: Duration) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes>,
    B::Error: std::error::Error,
{
    if body.size_hint().lower() > limit as u64 {
        return Err(BodyError::TooLarge);
    }
    let read = tokio::time::timeout(time, collect(body, limit)).await;
    read.unwrap_or(Err(BodyError::TooSlow))
}

async fn collect<B>(body: B, limit: usize) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes>,
    B::Error: std::error::Error,
{
    let mut body = std::pin::pin!(body);
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| BodyError::Broken(cause(&error)))?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + rest.len() + data.len() > limit {
            return Err(BodyError::TooLarge);
        }
        // Most bodies come in one piece and are not copied.
        if first.is_empty() {
            first = data;
        } else {
            rest.extend_from_slice(&data);
        }
    }
    if rest.is_empty() {
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(first.len() + rest.len());
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&rest);
    Ok(whole.freeze())
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
    use http_body_util::Full;

    const TIME: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_body_over_the_limit_is_refused() {
        let body = || Full::new(Bytes::from_static(b"12345"));
        assert!(matches!(read(body(), 4, TIME).await, Err(BodyError::TooLarge)));
        assert_eq!(read(body(), 5, TIME).await.ok().as_deref(), Some(&b"12345"[..]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_comes_times_out() {
        let (_held, pieces) = tokio::sync::mpsc::channel(1);
        let body = super::super::response::ResponseBody::Stream(pieces);
        assert!(matches!(read(body, 10, TIME).await, Err(BodyError::TooSlow)));
    }
}
