//! Streams of one operation as one response body: server-sent events in distinct connections mode, or parts of a
//! multipart response. Over HTTP/1.1 a reactor takes the connection over; over HTTP/2 a task feeds the HTTP library.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use execute::{ClientKey, GraphqlError};
use http::Version;
use http::header::{CACHE_CONTROL, HeaderName, HeaderValue};
use http::header::{CONNECTION, TRANSFER_ENCODING};
use tokio::sync::mpsc;
use wire::http1::Framing;
use wire::result_stream::{ResultStream, StreamFormat};

use super::connection_operations::ConnectionOperations;
use super::dropped_events::count_dropped;
use super::end_reasons::{shutting_down_error, too_slow};
use super::kept_operations::KeptTotal;
use super::outlet::{ConnectionOutlet, Delivery, NextDelivery};
use super::takeover::{AcceptedStream, LiveConnection};
use super::timer::sleep_until;
use crate::http::media::ResponseFormat;
use crate::http::response::{Response, ResponseBody};
use crate::live::metrics::{OpenGauge, Transport};
use crate::prepared_request::PreparedRequest;
use crate::router::Router;

/// The number of events passed to the HTTP library ahead of the socket; more wait in the outlet, to which the
/// configured limits apply.
const AHEAD: usize = 4;

/// The number of the only operation of a stream.
const OPERATION: u32 = 0;

/// Responds with a stream of the results of `ready`, the operation of a request over that `version` of HTTP. `client`
/// is the client's key and the sum of the live subscriptions of its connection.
pub(crate) fn respond(
    router: &Arc<Router>,
    ready: PreparedRequest,
    kind: StreamFormat,
    version: Version,
    client: (ClientKey, &Arc<KeptTotal>),
) -> Response {
    if version < Version::HTTP_2 {
        return hand_over(router, ready, kind, version);
    }
    let outlet = Arc::new(ConnectionOutlet::new(&router.config.subscriptions, &router.queue_total));
    let transport = Transport::of(kind);
    let client = (client.0, Arc::clone(client.1));
    let operations = ConnectionOperations::new(router, &outlet, transport, client);
    operations.start_prepared(OPERATION, ready);
    let (pieces, body) = mpsc::channel(AHEAD);
    let heartbeat = Some(router.config.subscriptions.heartbeat);
    let results = ResultStream::new(kind, heartbeat, Instant::now());
    let open = router.metrics.subscriptions.open_stream(transport);
    tokio::task::spawn_local(write_results(
        Arc::clone(router),
        outlet,
        operations,
        results,
        pieces,
        open,
    ));
    head(ResponseFormat::of(kind), ResponseBody::Stream(body))
}

/// Hands the connection to a reactor. It serves no other request.
fn hand_over(
    router: &Arc<Router>,
    ready: PreparedRequest,
    kind: StreamFormat,
    version: Version,
) -> Response {
    let streamed = |framing| LiveConnection::ResultStream(AcceptedStream { framing, kind, ready });
    hand_over_as(router, ResponseFormat::of(kind), version, streamed)
}

/// Returns the head of a response over HTTP/1.1 or 1.0, after which a reactor takes the connection over. `connection`
/// makes what the reactor gets.
pub(super) fn hand_over_as(
    router: &Arc<Router>,
    media: ResponseFormat,
    version: Version,
    connection: impl FnOnce(Framing) -> LiveConnection,
) -> Response {
    let framing = match version {
        Version::HTTP_11 => Framing::Chunked,
        _ => Framing::UntilClose,
    };
    let mut answer = head(media, connection(framing).into_body(router));
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    if framing == Framing::Chunked {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    answer
}

/// Responds with errors that occurred before execution, in the form of the protocol: on an established stream.
pub(crate) fn failed(errors: &[GraphqlError]) -> Response {
    let mut results = ResultStream::new(StreamFormat::EventStream, None, Instant::now());
    results.fail(execute::request_error(errors).bytes);
    let mut body = Vec::new();
    while let Some(chunks) = results.poll_transmit(Instant::now()) {
        chunks.append_to(&mut body);
    }
    head(ResponseFormat::EventStream, ResponseBody::Whole(body.into()))
}

/// Returns the head of a response with a stream as its body.
pub(super) fn head(media: ResponseFormat, body: ResponseBody) -> Response {
    let mut answer = http::Response::new(body);
    let headers = answer.headers_mut();
    let content_type = HeaderValue::from_static(media.content_type());
    headers.insert(http::header::CONTENT_TYPE, content_type);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    // Tells proxies of the nginx family not to buffer events.
    let unbuffered = HeaderValue::from_static("no");
    headers.insert(HeaderName::from_static("x-accel-buffering"), unbuffered);
    answer
}

async fn write_results(
    router: Arc<Router>,
    outlet: Arc<ConnectionOutlet>,
    operations: ConnectionOperations,
    mut results: ResultStream,
    pieces: mpsc::Sender<Bytes>,
    _open: OpenGauge,
) {
    let mut wait_for_drain = pin!(router.wait_for_drain());
    let mut shutting_down = false;
    let mut is_given_up = false;
    let account = Arc::clone(operations.work().account());
    let mut evicted = pin!(account.evicted());
    // A piece for which the HTTP library has no room. While it waits here, deliveries wait in the outlet.
    let mut piece: Option<Bytes> = None;
    loop {
        piece =
            piece.or_else(|| results.poll_transmit(Instant::now()).map(|it| it.to_vec().into()));
        if outlet.is_overflown() && !is_given_up {
            operations.stop_all();
            results.fail(execute::request_error(&[too_slow()]).bytes);
            count_dropped(&router, outlet.take_dropped());
            // If the client does not read the error either, `http::write_timeout` ends the wait.
            is_given_up = true;
            continue;
        }
        if piece.is_none() {
            if results.is_finished() {
                break;
            }
            if let NextDelivery::Delivery(delivery) = outlet.next_delivery() {
                write_delivery(&mut results, delivery);
                continue;
            }
        }
        count_dropped(&router, outlet.take_dropped());
        // A heartbeat would only wait behind the piece.
        let heartbeat = if piece.is_some() { None } else { results.poll_timeout() };
        tokio::select! {
            room = pieces.reserve(), if piece.is_some() => match (room, piece.take()) {
                (Ok(room), Some(piece)) => {
                    account.note_progress();
                    room.send(piece);
                }
                _ => break,
            },
            // The client would not read an error either.
            () = evicted.as_mut() => break,
            () = outlet.output_ready.notified() => {}
            () = pieces.closed() => break,
            () = sleep_until(heartbeat.map(tokio::time::Instant::from_std)) => {
                results.handle_timeout(Instant::now());
            }
            () = &mut wait_for_drain, if !shutting_down => {
                shutting_down = true;
                // Without the error, `complete` would mean that the source has ended.
                results.fail(execute::request_error(&[shutting_down_error()]).bytes);
            }
        }
    }
    count_dropped(&router, outlet.take_dropped());
    operations.stop_all();
}

fn write_delivery(results: &mut ResultStream, delivery: Delivery) {
    match delivery {
        Delivery::Next { payload, missed, .. } => {
            let payload = payload.with_missed(missed);
            results.next(payload.bytes.clone(), payload.cursor());
        }
        Delivery::Position { cursor, .. } => results.position(cursor),
        Delivery::Complete { .. } => results.complete(),
        Delivery::Failed { errors, .. } => results.fail(execute::request_error(&errors).bytes),
    }
}
