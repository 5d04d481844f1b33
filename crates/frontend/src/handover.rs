//! The handover of a connection that leaves HTTP/1.1: its last response is a head, followed by another protocol or by a
//! body without end. The HTTP library never sees such a response. It is stopped while it waits for one and has written
//! all of its earlier data; the head is written here.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use http::header::DATE;
use http::response::Parts;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::response::{Response, ResponseBody};
use super::stream::ClientStream;
use super::takeover::Takeover;

/// The state that the service of a connection and the task that drives the connection share. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Handover(Rc<HandoverState>);

#[derive(Default)]
struct HandoverState {
    response: RefCell<Option<(Parts, Takeover)>>,
    /// True if bytes may wait in the library, or in the carrier of the connection.
    is_writing: Cell<bool>,
}

impl Handover {
    /// Returns the response, unless it hands the connection over: then the method stores the response and never
    /// returns.
    pub(super) async fn intercept(&self, response: Response) -> Response {
        match response.into_parts() {
            (head, ResponseBody::Takeover(takeover)) => {
                *self.0.response.borrow_mut() = Some((head, takeover));
                std::future::pending().await
            }
            (head, body) => http::Response::from_parts(head, body),
        }
    }

    /// True if the connection is to be handed over and all earlier data was written.
    pub(super) fn is_ready(&self) -> bool {
        !self.0.is_writing.get() && self.0.response.borrow().is_some()
    }

    /// Returns the last head of the connection and its takeover.
    pub(super) fn take(&self) -> Option<(Parts, Takeover)> {
        self.0.response.borrow_mut().take()
    }
}

/// The stream of a connection that may be handed over. The library flushes it after each step, but successfully only
/// when it has written everything.
pub(super) struct FlushTrackedStream {
    pub(super) stream: ClientStream,
    pub(super) handover: Handover,
}

impl FlushTrackedStream {
    fn stream(self: Pin<&mut Self>) -> Pin<&mut ClientStream> {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl AsyncRead for FlushTrackedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(context, buffer)
    }
}

impl AsyncWrite for FlushTrackedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.handover.0.is_writing.set(true);
        self.stream().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.handover.0.is_writing.set(true);
        self.stream().poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.as_mut().stream().poll_flush(context);
        self.handover.0.is_writing.set(flushed.is_pending());
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(context)
    }
}

/// Enough bytes for most heads.
const HEAD_BYTES: usize = 512;

/// Returns a response head in the form of HTTP/1.1 (RFC 9112, sections 3 and 4).
pub(super) fn head_text(head: &Parts, now: SystemTime) -> Vec<u8> {
    let status = head.status;
    let mut text = Vec::with_capacity(HEAD_BYTES);
    text.extend_from_slice(b"HTTP/1.1 ");
    text.extend_from_slice(status.as_str().as_bytes());
    text.push(b' ');
    text.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    text.extend_from_slice(b"\r\n");
    // The types of name and value exclude line breaks.
    for (name, value) in &head.headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            text.extend_from_slice(part);
        }
    }
    if !head.headers.contains_key(DATE) {
        let date = format!("date: {}\r\n", httpdate::fmt_http_date(now));
        text.extend_from_slice(date.as_bytes());
    }
    text.extend_from_slice(b"\r\n");
    text
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use http::header::{CONNECTION, HeaderValue, SET_COOKIE};

    use super::*;

    #[test]
    fn a_head_is_written_with_its_date() {
        let mut response = http::Response::new(());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        response.headers_mut().append(SET_COOKIE, HeaderValue::from_static("a=1"));
        response.headers_mut().append(SET_COOKIE, HeaderValue::from_static("b=2"));
        let text = head_text(&response.into_parts().0, SystemTime::UNIX_EPOCH);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nset-cookie: a=1\r\n\
             set-cookie: b=2\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n"
        );
    }
}
