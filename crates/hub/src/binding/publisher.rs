//! Root fields of event subgraphs that send: one event each, and where it is a request, its answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use events::{Event, PublishError};
use execute::{ErrorCode, EventRequest, GraphqlError, LocalFuture, Publisher};
use graph::EventRole;

use super::{Bindings, Outgoing, trace};

/// What a provider gets beside the time for an answer, so that it is here that the time is up.
const GRACE: Duration = Duration::from_secs(1);

/// Publishes the JSON of a field's arguments to the topic that its directive names. What goes wrong at the
/// broker is logged with its reason; the client of a mutation sees `success: false`.
#[derive(Debug)]
pub struct EventPublisher {
    bindings: Arc<Bindings>,
    timeout: Duration,
    answer_bytes_max: usize,
}

impl EventPublisher {
    /// A publisher for the fields of one supergraph. A broker gets `timeout` to take an event or to answer, where the
    /// directive says nothing else, and no longer than the request has. Larger answers than that are none.
    pub fn new(bindings: Arc<Bindings>, timeout: Duration, answer_bytes_max: usize) -> Self {
        Self { bindings, timeout, answer_bytes_max }
    }

    fn outgoing(
        &self,
        request: &EventRequest<'_>,
        role: EventRole,
    ) -> Result<Outgoing<'_>, GraphqlError> {
        let mut outgoing =
            self.bindings.outgoing(request.field, role, &request.arguments, request.claims)?;
        outgoing.message.headers.extend(trace::of_request(request.headers));
        Ok(outgoing)
    }
}

impl Publisher for EventPublisher {
    fn publish<'a>(
        &'a self,
        request: EventRequest<'a>,
    ) -> LocalFuture<'a, Result<bool, GraphqlError>> {
        Box::pin(async move {
            let outgoing = self.outgoing(&request, EventRole::Publish)?;
            let (provider, topic) = (outgoing.provider, outgoing.message.topic.clone());
            let deadline = request.deadline.min(Instant::now() + self.timeout);
            let publishing = provider.publish(outgoing.message);
            let reason = match tokio::time::timeout_at(deadline.into(), publishing).await {
                Ok(Ok(())) => return Ok(true),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "the broker did not take it in time".to_owned(),
            };
            tracing::warn!(provider = provider.name(), %topic, reason, "an event was not published");
            Ok(false)
        })
    }

    fn request<'a>(
        &'a self,
        request: EventRequest<'a>,
    ) -> LocalFuture<'a, Result<Bytes, GraphqlError>> {
        Box::pin(async move {
            let outgoing = self.outgoing(&request, EventRole::Request)?;
            let (provider, topic) = (outgoing.provider, outgoing.message.topic.clone());
            let timeout = outgoing.timeout.unwrap_or(self.timeout);
            let deadline = request.deadline.min(Instant::now() + timeout);
            let left = deadline.saturating_duration_since(Instant::now());
            let asking = provider.request(outgoing.message, left + GRACE);
            let answer = match tokio::time::timeout_at(deadline.into(), asking).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) => {
                    tracing::warn!(provider = provider.name(), %topic, %error, "a request over a broker failed");
                    return Err(refusal(provider.name(), &error));
                }
                Err(_) => {
                    tracing::warn!(provider = provider.name(), %topic, "a request over a broker was not answered in time");
                    let message = format!("Nobody answered at {} in time.", provider.name());
                    return Err(GraphqlError::new(ErrorCode::Timeout, message));
                }
            };
            let invalid = |problem: String| {
                let message = format!("The answer {problem}.");
                GraphqlError::new(ErrorCode::InvalidEvent, message)
            };
            if answer.len() > self.answer_bytes_max {
                return Err(invalid(format!("is larger than {} bytes", self.answer_bytes_max)));
            }
            match outgoing.payload {
                Some(mapping) => mapping.apply(&Event::new(&*topic, answer)).map_err(invalid),
                None => Ok(answer),
            }
        })
    }
}

/// What clients may know; the log has the rest.
fn refusal(provider: &str, error: &PublishError) -> GraphqlError {
    let (code, message) = match error {
        PublishError::Unavailable { .. } => (
            ErrorCode::ProviderUnavailable,
            format!("The event provider {provider} is not connected at present; try again later."),
        ),
        PublishError::NoResponder { .. } => (
            ErrorCode::NoResponder,
            format!("Nobody answers this field at the event provider {provider}."),
        ),
        PublishError::Refused { .. } => (
            ErrorCode::ProviderUnavailable,
            format!("The event provider {provider} refuses this request."),
        ),
    };
    GraphqlError::new(code, message)
}
