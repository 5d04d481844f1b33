//! The first event of a subscription as a plain response, for scripts and health checks (the URL parameter `once`).

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use clients::client_deadline::ClientDeadline;
use clients::kept_operations::KeptTotal;
use clients::refusal::Refusal;
use execute::{ClientKey, ErrorCode, GraphqlError, Payload};
use http::StatusCode;
use serving::prepared_request::PreparedRequest;

use super::connection_operations::ConnectionOperations;
use super::end_reasons::{shutting_down_error, too_slow};
use super::live_server::LiveServer;
use super::outlet::{ConnectionOutlet, Delivery, NextDelivery};
use crate::metrics::Transport;

/// The number of the only operation.
const OPERATION: u32 = 0;

/// The reason that there is no first event.
#[derive(Debug)]
pub enum NoFirstEvent {
    /// The operation ended with errors.
    Failed(Vec<GraphqlError>),
    /// The event did not come in time, or the router shuts down.
    Refused(Refusal),
}

/// Waits for the first event of a prepared subscription, for the time limit of an operation (`limits.time`), for
/// the time that its client names if that is shorter, or until the router shuts down.
///
/// # Errors
/// See [`NoFirstEvent`].
pub async fn wait_for_first_event(
    live: &LiveServer,
    ready: PreparedRequest,
    (client, kept): (ClientKey, &Arc<KeptTotal>),
) -> Result<Payload, NoFirstEvent> {
    let runner = live.runner();
    let outlet = runner.limits.make_outlet(Transport::Once);
    let _open = runner.metrics.open_stream(Transport::Once);
    let client = (client, Arc::clone(kept));
    let operations =
        StopOnDrop(ConnectionOperations::new(runner, &outlet, Transport::Once, client));
    let time_max = runner.serving.time_max;
    let client_time = ready
        .client_deadline
        .map(|ClientDeadline(deadline)| deadline.saturating_duration_since(Instant::now()))
        .filter(|time| *time < time_max);
    operations.0.start_prepared(OPERATION, ready);
    let first = async {
        tokio::select! {
            first = first_delivery(&outlet) => first,
            () = live.shutdown.wait_for_drain() => FirstDelivery::ShutDown,
        }
    };
    match tokio::time::timeout(client_time.unwrap_or(time_max), first).await {
        Ok(FirstDelivery::Event(delivery)) => match delivery {
            Delivery::Next { payload, missed, .. } => {
                operations.0.count_event(OPERATION);
                Ok(payload.with_missed(missed))
            }
            Delivery::Failed { errors, .. } => Err(NoFirstEvent::Failed(errors)),
            // The source ended without an event.
            Delivery::Complete { .. } | Delivery::Position { .. } => Ok(Payload {
                bytes: Bytes::from_static(br#"{"data":null}"#),
                splice: 0,
                has_data: true,
                errors: 0,
                first_error: None,
                subgraph_requests: 0,
                headers: None,
                cost: None,
                caching: None,
                revision: None,
            }),
        },
        Ok(FirstDelivery::ShutDown) => {
            let errors = vec![shutting_down_error()];
            Err(NoFirstEvent::Refused(Refusal::of_errors(errors)))
        }
        Ok(FirstDelivery::Overflown) => Err(NoFirstEvent::Failed(vec![too_slow()])),
        Err(_) => {
            let message = match client_time {
                None => format!("no event came within {time_max:?} (`limits.time`)"),
                Some(_) => "no event came within the time that the request names".to_owned(),
            };
            let error = GraphqlError::new(ErrorCode::Timeout, message);
            Err(NoFirstEvent::Refused(Refusal::new(StatusCode::GATEWAY_TIMEOUT, error)))
        }
    }
}

enum FirstDelivery {
    Event(Delivery),
    Overflown,
    /// The router shuts down.
    ShutDown,
}

async fn first_delivery(outlet: &ConnectionOutlet) -> FirstDelivery {
    loop {
        match outlet.next_delivery() {
            // A position is no event.
            NextDelivery::Delivery(Delivery::Position { .. }) => {}
            NextDelivery::Delivery(delivery) => return FirstDelivery::Event(delivery),
            NextDelivery::Overflown => return FirstDelivery::Overflown,
            NextDelivery::Nothing => outlet.output_ready.notified().await,
        }
    }
}

/// Operations that stop when dropped: a client that disconnects while it waits drops the future and with it the
/// subscription.
struct StopOnDrop(ConnectionOperations);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop_all();
    }
}
