//! Mutations of event subgraphs: one event each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use events::Message;
use execute::{GraphqlError, LocalFuture, Publisher};
use graph::FieldId;

use super::Bindings;

/// Publishes the JSON of a mutation field's arguments to the topic that its directive names. What goes wrong at the
/// broker is logged with its reason; the client sees `success: false`.
#[derive(Debug)]
pub struct EventPublisher {
    bindings: Arc<Bindings>,
    timeout: Duration,
}

impl EventPublisher {
    /// A publisher for the fields of one supergraph. A broker gets `timeout` to take an event, and no
    /// longer than the request has.
    pub fn new(bindings: Arc<Bindings>, timeout: Duration) -> Self {
        Self { bindings, timeout }
    }
}

impl Publisher for EventPublisher {
    fn publish<'a>(
        &'a self,
        field: FieldId,
        arguments: Bytes,
        deadline: Instant,
    ) -> LocalFuture<'a, Result<bool, GraphqlError>> {
        Box::pin(async move {
            let (provider, topic) = self.bindings.target(field, &arguments)?;
            let deadline = deadline.min(Instant::now() + self.timeout);
            let publishing = provider.publish(Message::new(&*topic, arguments));
            let reason = match tokio::time::timeout_at(deadline.into(), publishing).await {
                Ok(Ok(())) => return Ok(true),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "the broker did not take it in time".to_owned(),
            };
            tracing::warn!(provider = provider.name(), %topic, reason, "an event was not published");
            Ok(false)
        })
    }
}
