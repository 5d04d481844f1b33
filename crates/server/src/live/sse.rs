//! GraphQL over server-sent events, distinct connections mode: one operation, one response body. By HTTP/1.1 the
//! connection becomes the stream and leaves for a reactor; by HTTP/2 a task feeds the HTTP library.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use execute::{ErrorCode, GraphqlError};
use http::Response;
use http::header::{CACHE_CONTROL, HeaderName, HeaderValue};
use http::request::Parts;
#[cfg(target_os = "linux")]
use http::{
    Version,
    header::{CONNECTION, TRANSFER_ENCODING},
};
use tokio::sync::mpsc;
#[cfg(target_os = "linux")]
use wire::http1::Framing;
use wire::sse::{Config, Sse};

#[cfg(target_os = "linux")]
use super::leaving::{EventStream, Leaving};
use super::outlet::{ConnectionOutlet, Delivery, Taken};
use super::running::{Running, too_slow};
use super::{count_dropped, sleep_until};
use crate::http::answer::{Answer, AnswerBody};
use crate::http::media::AnswerType;
use crate::metrics::Transport;
use crate::operation::Ready;
use crate::router::Router;

/// Events handed to the HTTP library ahead of the socket; more wait in the outlet, where the
/// configured bounds hold.
const AHEAD: usize = 4;

/// The one operation of a stream.
const OPERATION: u32 = 0;

/// Streams the results of `ready`, the operation of a request with this head.
pub(crate) fn answer(router: &Arc<Router>, ready: Ready, request: &Parts) -> Answer {
    #[cfg(target_os = "linux")]
    if request.version < Version::HTTP_2 && router.reactors.are_there() {
        return leaving(ready, request);
    }
    let outlet = Arc::new(ConnectionOutlet::new(&router.config.subscriptions, &router.queue_total));
    let running = Running::new(router, &outlet, 0, Transport::sse);
    running.start_ready(OPERATION, ready);
    let (pieces, body) = mpsc::channel(AHEAD);
    tokio::task::spawn_local(stream(Arc::clone(router), outlet, running, pieces));
    head(AnswerBody::Stream(body))
}

/// The connection becomes the stream: nothing else is answered on it.
#[cfg(target_os = "linux")]
fn leaving(ready: Ready, request: &Parts) -> Answer {
    let framing = match request.version {
        Version::HTTP_11 => Framing::Chunked,
        _ => Framing::UntilClose,
    };
    let leaving = Leaving::EventStream(EventStream { framing, ready });
    let mut answer = head(AnswerBody::Leaving(Box::new(leaving)));
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    if framing == Framing::Chunked {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    answer
}

/// Errors found before anything ran, as the protocol wants them: on an established stream.
pub(crate) fn failed(errors: &[GraphqlError]) -> Answer {
    let mut sse = Sse::new(&Config { heartbeat: None }, Instant::now());
    sse.next(execute::request_error(errors).bytes, None);
    sse.complete();
    let mut body = Vec::new();
    while let Some(chunks) = sse.poll_transmit(Instant::now()) {
        chunks.append_to(&mut body);
    }
    head(AnswerBody::Whole(body.into()))
}

fn head(body: AnswerBody) -> Answer {
    let mut answer = Response::new(body);
    let headers = answer.headers_mut();
    let content_type = HeaderValue::from_static(AnswerType::EventStream.content_type());
    headers.insert(http::header::CONTENT_TYPE, content_type);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    // Tells proxies of the nginx family not to hold events back.
    let unbuffered = HeaderValue::from_static("no");
    headers.insert(HeaderName::from_static("x-accel-buffering"), unbuffered);
    answer
}

async fn stream(
    router: Arc<Router>,
    outlet: Arc<ConnectionOutlet>,
    running: Running,
    pieces: mpsc::Sender<Bytes>,
) {
    let _open = router.metrics.stream(Transport::sse);
    let heartbeat = router.config.subscriptions.heartbeat;
    let config = Config { heartbeat: Some(heartbeat) };
    let mut sse = Sse::new(&config, Instant::now());
    let mut shutdown = router.shutdown.clone();
    let mut shutting_down = false;
    let mut given_up = false;
    // What the HTTP library has no room for. While it waits here, deliveries wait in the outlet.
    let mut piece: Option<Bytes> = None;
    loop {
        piece = piece.or_else(|| sse.poll_transmit(Instant::now()).map(|it| it.to_vec().into()));
        if outlet.is_overflown() && !given_up {
            running.stop_all();
            sse.next(execute::request_error(&[too_slow()]).bytes, None);
            sse.complete();
            count_dropped(&router, outlet.take_dropped());
            // Whether the client reads that or nothing any more: `http::patient` ends the wait.
            given_up = true;
            continue;
        }
        if piece.is_none() {
            if sse.is_finished() {
                break;
            }
            if let Taken::Delivery(delivery) = outlet.take() {
                deliver(&mut sse, delivery);
                continue;
            }
        }
        count_dropped(&router, outlet.take_dropped());
        // A heartbeat would only wait behind the piece.
        let heartbeat = if piece.is_some() { None } else { sse.poll_timeout() };
        tokio::select! {
            room = pieces.reserve(), if piece.is_some() => match (room, piece.take()) {
                (Ok(room), Some(piece)) => room.send(piece),
                _ => break,
            },
            () = outlet.filled.notified() => {}
            () = pieces.closed() => break,
            () = sleep_until(heartbeat.map(tokio::time::Instant::from_std)) => {
                sse.handle_timeout(Instant::now());
            }
            _ = shutdown.wait_for(|stop| *stop), if !shutting_down => {
                shutting_down = true;
                // Without the error `complete` would say that the source has nothing more to tell.
                sse.next(execute::request_error(&[shutting_down_error()]).bytes, None);
                sse.complete();
            }
        }
    }
    count_dropped(&router, outlet.take_dropped());
    running.stop_all();
}

pub(super) fn shutting_down_error() -> GraphqlError {
    let message = "the router is shutting down; connect again, to another instance";
    GraphqlError::new(ErrorCode::ShuttingDown, message)
}

fn deliver(sse: &mut Sse, delivery: Delivery) {
    match delivery {
        Delivery::Next { payload, missed, .. } => sse.next(payload.with_missed(missed).bytes, None),
        Delivery::Complete { .. } => sse.complete(),
        Delivery::Failed { errors, .. } => {
            sse.next(execute::request_error(&errors).bytes, None);
            sse.complete();
        }
    }
}
