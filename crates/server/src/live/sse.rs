//! GraphQL over server-sent events, distinct connections mode: one operation, one response body.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use execute::{ErrorCode, GraphqlError};
use http::header::{CACHE_CONTROL, HeaderName, HeaderValue};
use http::{HeaderMap, Response};
use tokio::sync::mpsc;
use wire::sse::{Config, Sse};

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

/// Streams the results of `ready`.
pub(crate) fn answer(router: &Arc<Router>, ready: Ready, headers: &HeaderMap) -> Answer {
    let outlet = Arc::new(ConnectionOutlet::new(&router.config.subscriptions));
    let running = Running::new(router, &outlet, headers.clone(), 0, Transport::sse);
    running.start_ready(OPERATION, ready);
    let (pieces, body) = mpsc::channel(AHEAD);
    tokio::task::spawn_local(stream(Arc::clone(router), outlet, running, pieces));
    head(AnswerBody::Stream(body))
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
    loop {
        // One piece at a time: while the socket is full, deliveries wait in the outlet.
        while let Some(chunks) = sse.poll_transmit(Instant::now()) {
            tokio::select! {
                sent = pieces.send(chunks.to_vec().into()) => if sent.is_err() { break },
                () = pieces.closed() => break,
            }
        }
        if sse.is_finished() || pieces.is_closed() {
            break;
        }
        match outlet.take() {
            Taken::Delivery(delivery) => {
                deliver(&mut sse, delivery);
                continue;
            }
            Taken::Overflown => {
                sse.next(execute::request_error(&[too_slow()]).bytes, None);
                sse.complete();
                count_dropped(&router, &outlet);
                continue;
            }
            Taken::Nothing => count_dropped(&router, &outlet),
        }
        let until = sse.poll_timeout().map(tokio::time::Instant::from_std);
        tokio::select! {
            () = outlet.filled.notified() => {}
            () = pieces.closed() => break,
            () = sleep_until(until) => sse.handle_timeout(Instant::now()),
            _ = shutdown.wait_for(|stop| *stop), if !shutting_down => {
                shutting_down = true;
                // Without the error `complete` would say that the source has nothing more to tell.
                sse.next(execute::request_error(&[shutting_down_error()]).bytes, None);
                sse.complete();
            }
        }
    }
    count_dropped(&router, &outlet);
    running.stop_all();
}

fn shutting_down_error() -> GraphqlError {
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
