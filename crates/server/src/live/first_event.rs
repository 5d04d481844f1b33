//! The URL parameter `once`: the first event of a subscription as a plain response, for scripts and health checks.

use std::sync::Arc;

use execute::{ClientKey, ErrorCode, GraphqlError};
use http::{StatusCode, Uri};

use super::connection_operations::ConnectionOperations;
use super::end_reasons::{shutting_down_error, too_slow};
use super::kept_operations::KeptTotal;
use super::outlet::{ConnectionOutlet, Delivery, NextDelivery};
use crate::error_mapping;
use crate::http::media::ResponseFormat;
use crate::http::response::{self, Response};
use crate::live::metrics::Transport;
use crate::prepared_request::PreparedRequest;
use crate::router::Router;

/// The number of the only operation.
const OPERATION: u32 = 0;

/// True if the URL asks for the first event alone: `once` and `once=true` do, `once=false` does not.
pub(crate) fn is_wanted(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default().as_bytes();
    let mut parameters = url::form_urlencoded::parse(query);
    parameters.any(|(name, value)| name == "once" && value != "false")
}

/// Responds with the first event of a prepared subscription, or with an error after the time limit of an operation
/// (`limits.time`) or when the router shuts down.
pub(crate) async fn respond(
    router: &Arc<Router>,
    ready: PreparedRequest,
    media: ResponseFormat,
    (client, kept): (ClientKey, &Arc<KeptTotal>),
) -> Response {
    let outlet = Arc::new(ConnectionOutlet::new(&router.config.subscriptions, &router.queue_total));
    let _open = router.metrics.subscriptions.open_stream(Transport::once);
    let client = (client, Arc::clone(kept));
    let operations =
        StopOnDrop(ConnectionOperations::new(router, &outlet, Transport::once, client));
    operations.0.start_prepared(OPERATION, ready);
    let time = router.config.limits.time;
    let first = async {
        tokio::select! {
            first = first_delivery(&outlet) => first,
            () = router.wait_for_drain() => FirstDelivery::ShutDown,
        }
    };
    match tokio::time::timeout(time, first).await {
        Ok(FirstDelivery::Event(delivery)) => match delivery {
            Delivery::Next { payload, missed, .. } => {
                response::payload(payload.with_missed(missed), media)
            }
            Delivery::Failed { errors, .. } => response::request_errors(&errors, media, false),
            // The source ended without an event.
            Delivery::Complete { .. } | Delivery::Position { .. } => {
                response::with_type(StatusCode::OK, media.content_type(), r#"{"data":null}"#.into())
            }
        },
        Ok(FirstDelivery::ShutDown) => {
            let error = shutting_down_error();
            response::refused(error_mapping::status(error.code), &[error], media)
        }
        Ok(FirstDelivery::Overflown) => response::request_errors(&[too_slow()], media, false),
        Err(_) => {
            let message = format!("no event came within {time:?} (`limits.time`)");
            let error = GraphqlError::new(ErrorCode::Timeout, message);
            response::refused(StatusCode::GATEWAY_TIMEOUT, &[error], media)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_is_on_unless_it_says_false() {
        for (uri, expected) in [
            ("/graphql?once", true),
            ("/graphql?query=x&once=true", true),
            ("/graphql?once=false", false),
            ("/graphql?query=once", false),
            ("/graphql", false),
        ] {
            assert_eq!(is_wanted(&Uri::from_static(uri)), expected, "{uri}");
        }
    }
}
