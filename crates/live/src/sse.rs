//! Streams of one operation as one response body: server-sent events in distinct connections mode, or parts of a
//! multipart response. Over HTTP/1.1 a reactor takes the connection over; over HTTP/2 a task feeds the HTTP library.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use clients::kept_operations::KeptTotal;
use clients::shutdown::Shutdown;
use execute::{ClientKey, ErrorCode};
use http::Version;
use serving::prepared_request::PreparedRequest;
use tokio::sync::mpsc;
use wire::BodyMachine;
use wire::result_stream::{ResultStream, StreamFormat};

use super::connection_operations::ConnectionOperations;
use super::end_reasons::{shutting_down_error, too_slow};
use super::live_server::LiveServer;
use super::operation_runner::OperationRunner;
use super::outlet::{ConnectionOutlet, Delivery, NextDelivery};
use super::takeover::{AcceptedStream, LiveBody, LiveConnection, framing_of};
use super::timer::sleep_until;
use crate::metrics::{OpenGauge, Transport};

/// The number of events passed to the HTTP library ahead of the socket; more wait in the outlet, to which the
/// configured limits apply.
pub(super) const AHEAD: usize = 4;

/// The number of the only operation of a stream.
const OPERATION: u32 = 0;

/// Opens a stream of the results of `ready`, the operation of a request over that `version` of HTTP. `client` is the
/// client's key and the sum of the live subscriptions of its connection.
pub fn open_result_stream(
    live: &LiveServer,
    ready: PreparedRequest,
    kind: StreamFormat,
    version: Version,
    (client, kept): (ClientKey, &Arc<KeptTotal>),
) -> LiveBody {
    if let Some(framing) = framing_of(version) {
        // The connection serves no other request.
        let stream = AcceptedStream { framing, kind, ready };
        return LiveBody::Connection(framing, LiveConnection::ResultStream(Box::new(stream)));
    }
    let runner = live.runner();
    let transport = Transport::of(kind);
    let outlet = runner.limits.make_outlet(transport);
    let client = (client, Arc::clone(kept));
    let operations = ConnectionOperations::new(runner, &outlet, transport, client);
    operations.start_prepared(OPERATION, ready);
    let (pieces, body) = mpsc::channel(AHEAD);
    let heartbeat = Some(runner.limits.settings.heartbeat);
    let results = ResultStream::new(kind, heartbeat, Instant::now());
    let open = runner.metrics.open_stream(transport);
    let writer = ResultWriter {
        runner: Arc::clone(runner),
        shutdown: Arc::clone(&live.shutdown),
        outlet,
        operations,
    };
    tokio::task::spawn_local(write_results(writer, results, pieces, open));
    LiveBody::Pieces(body)
}

/// The parts that the task of a stream over HTTP/2 works with.
struct ResultWriter {
    runner: Arc<OperationRunner>,
    shutdown: Arc<Shutdown>,
    outlet: Arc<ConnectionOutlet>,
    operations: ConnectionOperations,
}

async fn write_results(
    writer: ResultWriter,
    mut results: ResultStream,
    pieces: mpsc::Sender<Bytes>,
    _open: OpenGauge,
) {
    let ResultWriter { runner, shutdown, outlet, operations } = writer;
    let mut wait_for_drain = pin!(shutdown.wait_for_drain());
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
            operations.note_end(OPERATION, ErrorCode::SlowSubscriber.as_str());
            operations.stop_all();
            results.fail(execute::request_error(&[too_slow()]).bytes);
            runner.count_dropped(outlet.take_dropped());
            // If the client does not read the error either, `http::write_timeout` ends the wait.
            is_given_up = true;
            continue;
        }
        if piece.is_none() {
            if results.is_finished() {
                break;
            }
            if let NextDelivery::Delivery(delivery) = outlet.next_delivery() {
                if matches!(delivery, Delivery::Complete { .. } | Delivery::Failed { .. }) {
                    operations.note_end(OPERATION, delivery.reason());
                }
                if matches!(delivery, Delivery::Next { .. }) {
                    operations.count_event(OPERATION);
                }
                write_delivery(&mut results, delivery);
                continue;
            }
        }
        runner.count_dropped(outlet.take_dropped());
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
            () = evicted.as_mut() => {
                operations.note_end(OPERATION, ErrorCode::SlowSubscriber.as_str());
                break;
            }
            () = outlet.output_ready.notified() => {}
            () = pieces.closed() => break,
            () = sleep_until(heartbeat.map(tokio::time::Instant::from_std)) => {
                results.handle_timeout(Instant::now());
            }
            () = &mut wait_for_drain, if !shutting_down => {
                shutting_down = true;
                operations.note_end(OPERATION, ErrorCode::ShuttingDown.as_str());
                // Without the error, `complete` would mean that the source has ended.
                results.fail(execute::request_error(&[shutting_down_error()]).bytes);
            }
        }
    }
    runner.count_dropped(outlet.take_dropped());
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
