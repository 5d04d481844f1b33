//! Root fields of event subgraphs that send: each sends one event, and a request also returns the response.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use events::{Event, Message, Provider, PublishError, SchemaTopic};
use execute::{ErrorCode, EventRequest, GraphqlError, LocalFuture, Publisher};
use graph::EventRole;
use telemetry::spans::MessageDestination;

use crate::bindings::OutgoingMessage;
use crate::{Bindings, trace_context};

/// The additional time that a provider gets beyond the request's timeout, so that the timeout of this module ends
/// first.
const GRACE: Duration = Duration::from_secs(1);

/// Publishes the JSON of a field's arguments to the topic that its directive names. An error at the broker is logged
/// with its reason; the client of a mutation gets `success: false`.
#[derive(Debug)]
pub struct EventPublisher {
    bindings: Arc<Bindings>,
    timeout: Duration,
    response_bytes_max: usize,
}

impl EventPublisher {
    /// Creates a publisher for the fields of one supergraph. `timeout` limits how long a broker may take to accept an
    /// event or to respond, unless the directive says otherwise; the deadline of the request limits it too. A response
    /// with more than `response_bytes_max` bytes is an error.
    pub fn new(bindings: Arc<Bindings>, timeout: Duration, response_bytes_max: usize) -> Self {
        Self { bindings, timeout, response_bytes_max }
    }

    fn outgoing(
        &self,
        request: &EventRequest<'_>,
        role: EventRole,
    ) -> Result<OutgoingMessage<'_>, GraphqlError> {
        let mut outgoing =
            self.bindings.outgoing(request.field, role, &request.arguments, request.claims)?;
        outgoing.message.headers.extend(trace_context::message_context(request));
        if let Some(span) = request.span {
            let Message { topic, schema_topic, .. } = &outgoing.message;
            let template = schema_topic.as_ref().filter(|it| it.has_placeholders);
            span.note_destination(MessageDestination {
                provider: outgoing.provider.name().into(),
                is_template: template.is_some(),
                topic: template.map_or(topic, |it| &it.name).clone(),
            });
        }
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
            let (provider, topic) = (outgoing.provider, SentTopic::of(&outgoing.message));
            let deadline = request.deadline.min(Instant::now() + self.timeout);
            let publishing = provider.publish(outgoing.message);
            let reason = match tokio::time::timeout_at(deadline.into(), publishing).await {
                Ok(Ok(())) => return Ok(true),
                Ok(Err(error)) => error.reason_without_topic(),
                Err(_) => "the broker did not accept it in time".to_owned(),
            };
            log_failure(&**provider, &topic, &reason, "an event was not published");
            Ok(false)
        })
    }

    fn request<'a>(
        &'a self,
        request: EventRequest<'a>,
    ) -> LocalFuture<'a, Result<Bytes, GraphqlError>> {
        Box::pin(async move {
            let outgoing = self.outgoing(&request, EventRole::Request)?;
            let (provider, topic) = (outgoing.provider, SentTopic::of(&outgoing.message));
            let timeout = outgoing.timeout.unwrap_or(self.timeout);
            let deadline = request.deadline.min(Instant::now() + timeout);
            let left = deadline.saturating_duration_since(Instant::now());
            let asking = provider.request(outgoing.message, left + GRACE);
            let response = match tokio::time::timeout_at(deadline.into(), asking).await {
                Ok(Ok(response)) => response,
                Ok(Err(error)) => {
                    let (reason, problem) =
                        (error.reason_without_topic(), "a request over a broker failed");
                    log_failure(&**provider, &topic, &reason, problem);
                    return Err(client_error(provider.name(), &error));
                }
                Err(_) => {
                    let reason = "there was no response in time";
                    log_failure(&**provider, &topic, reason, "a request over a broker failed");
                    let message = format!("{} delivered no response in time.", provider.name());
                    return Err(GraphqlError::new(ErrorCode::Timeout, message));
                }
            };
            let invalid = |problem: String| {
                let message = format!("The response {problem}.");
                GraphqlError::new(ErrorCode::InvalidEvent, message)
            };
            if response.len() > self.response_bytes_max {
                return Err(invalid(format!("is larger than {} bytes", self.response_bytes_max)));
            }
            match outgoing.payload {
                Some(mapping) => {
                    mapping.apply(&Event::new(&*topic.rendered, response)).map_err(invalid)
                }
                None => Ok(response),
            }
        })
    }
}

/// The topic of a message that was passed to a provider.
struct SentTopic {
    /// The topic, which may contain values of clients.
    rendered: Box<str>,
    /// The topic as the schema names it.
    name: Option<Arc<SchemaTopic>>,
}

impl SentTopic {
    fn of(message: &Message) -> Self {
        Self { rendered: message.topic.clone(), name: message.schema_topic.clone() }
    }
}

/// Logs that a message was not sent or got no response. Clients can cause many of these, so there is one warning per
/// interval for each provider. The topic may contain values of clients, so the warning has the topic of the schema, and
/// the debug line the masked one.
fn log_failure(provider: &dyn Provider, topic: &SentTopic, reason: &str, problem: &'static str) {
    if let Some(suppressed) = provider.stats().publication_log.admit(Instant::now()) {
        let topic = topic.name.as_ref().map(|it| &*it.name);
        tracing::warn!(provider = provider.name(), topic, reason, suppressed, "{problem}");
    }
    let (name, stats) = (provider.name(), provider.stats());
    tracing::debug!(
        provider = name,
        topic = stats.masked_topic(&topic.rendered),
        reason,
        "{problem}"
    );
}

/// Returns the error that clients get. The log has the details.
fn client_error(provider: &str, error: &PublishError) -> GraphqlError {
    let (code, message) = match error {
        PublishError::Unavailable { .. } => (
            ErrorCode::ProviderUnavailable,
            format!("The event provider {provider} is not connected at present; try again later."),
        ),
        PublishError::NoResponder { .. } => (
            ErrorCode::NoResponder,
            format!("No service responds to this field at the event provider {provider}."),
        ),
        PublishError::Refused { .. } => (
            ErrorCode::ProviderUnavailable,
            format!("The event provider {provider} refuses this request."),
        ),
    };
    GraphqlError::new(code, message)
}
