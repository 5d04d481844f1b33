//! Open streams: a reactor writes them over HTTP/1.1, a task over HTTP/2.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::mpsc;
use wire::sse::{Sse, SseConfig};

use super::stream::SharedStream;
use crate::live::dropped_events::count_dropped;
use crate::live::end_reasons::{shutting_down_error, too_slow};
use crate::live::metrics::OpenGauge;
use crate::live::outlet::NextDelivery;
use crate::live::timer::sleep_until;
use crate::router::Router;

/// An open stream. Dropping it removes the stream and ends its operations.
pub(crate) struct OpenStream {
    router: Arc<Router>,
    token: Box<str>,
    stream: Arc<SharedStream>,
}

/// The outcome of [`OpenStream::flush_one`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FlushStep {
    /// Something was written: the caller continues if the socket still has room.
    Written,
    /// There was nothing to write.
    Idle,
}

impl OpenStream {
    /// Makes an open stream from its token and its shared state.
    pub(super) fn new(router: &Arc<Router>, token: &str, stream: Arc<SharedStream>) -> Self {
        Self { router: Arc::clone(router), token: token.into(), stream }
    }
}

impl OpenStream {
    /// Sets a callback that is called when there is output. The caller must look for earlier output at once.
    pub(crate) fn set_callback(&self, callback: Box<dyn Fn() + Send + Sync>) {
        self.stream.outlet.output_ready.set_callback(callback);
    }

    /// Moves the oldest delivery into `sse`, if the socket `has_room` for it. The error of a client that reads too
    /// slowly needs no room.
    pub(crate) fn flush_one(&self, sse: &mut Sse, has_room: bool) -> FlushStep {
        let Self { router, stream, .. } = self;
        let outlet = &stream.outlet;
        outlet.output_ready.acknowledge();
        if sse.is_finished() {
            return FlushStep::Idle;
        }
        let step = if outlet.is_overflown() {
            stream.end_with(sse, &too_slow());
            FlushStep::Written
        } else {
            match has_room.then(|| outlet.next_delivery()) {
                Some(NextDelivery::Delivery(delivery)) => {
                    stream.write_delivery(sse, delivery);
                    FlushStep::Written
                }
                _ => FlushStep::Idle,
            }
        };
        count_dropped(router, outlet.take_dropped());
        step
    }

    /// Ends the stream because the router shuts down.
    pub(crate) fn shut_down(&self, sse: &mut Sse) {
        self.stream.end_with(sse, &shutting_down_error());
    }
}

impl std::fmt::Debug for OpenStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Omits the token, which gives access to the stream.
        f.debug_struct("OpenStream").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.router.streams.remove(&self.token);
        self.stream.end();
    }
}

/// Writes the stream as the body of a response over HTTP/2, until either ends.
pub(super) async fn write_stream(
    opened: OpenStream,
    pieces: mpsc::Sender<Bytes>,
    _open: OpenGauge,
) {
    let OpenStream { router, stream, .. } = &opened;
    let heartbeat = Some(router.config.subscriptions.heartbeat);
    let mut sse = Sse::new(&SseConfig { heartbeat }, Instant::now());
    let mut wait_for_drain = pin!(router.wait_for_drain());
    // A piece for which the HTTP library has no room. While it waits here, deliveries wait in the outlet.
    let mut piece: Option<Bytes> = None;
    loop {
        piece = piece.or_else(|| sse.poll_transmit(Instant::now()).map(|it| it.to_vec().into()));
        if stream.outlet.is_overflown() && !sse.is_finished() {
            // If the client does not read the error either, `http::write_timeout` ends the wait.
            stream.end_with(&mut sse, &too_slow());
            continue;
        }
        if piece.is_none() {
            if sse.is_finished() {
                break;
            }
            if let NextDelivery::Delivery(delivery) = stream.outlet.next_delivery() {
                stream.write_delivery(&mut sse, delivery);
                continue;
            }
        }
        count_dropped(router, stream.outlet.take_dropped());
        // A heartbeat would only wait behind the piece.
        let heartbeat = if piece.is_some() { None } else { sse.poll_timeout() };
        tokio::select! {
            room = pieces.reserve(), if piece.is_some() => match (room, piece.take()) {
                (Ok(room), Some(piece)) => room.send(piece),
                _ => break,
            },
            () = stream.outlet.output_ready.notified() => {}
            () = pieces.closed() => break,
            () = sleep_until(heartbeat.map(tokio::time::Instant::from_std)) => {
                sse.handle_timeout(Instant::now());
            }
            () = &mut wait_for_drain, if !sse.is_finished() => {
                stream.end_with(&mut sse, &shutting_down_error());
            }
        }
    }
    count_dropped(router, stream.outlet.take_dropped());
}
