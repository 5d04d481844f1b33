//! Test events, and the end of subscriptions to a topic.

use std::sync::Arc;

use bytes::Bytes;
use events::{Message, Provider};
use frontend::body;
use frontend::response::{self, Response};
use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use hyper::body::Incoming;

use super::requests::{BODY_TIME_MAX, parameter, refuse};
use super::state::Admin;

/// The maximum size of a test event.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// The content type of a body in which each line is an event: <https://github.com/ndjson/ndjson-spec>.
const EVENTS_BY_LINE: &str = "application/x-ndjson";

/// Handles `POST /admin/publish?provider=kind/id&topic=T`: the body is the event. With the content type
/// `application/x-ndjson`, each of its lines is an event, so that a client that publishes many of them does not measure
/// HTTP.
pub(crate) async fn publish(admin: &Admin, request: Request<Incoming>) -> Response {
    let (provider, topic) = match provider_and_topic(admin, &request) {
        Ok(found) => found,
        Err(answer) => return *answer,
    };
    let has_lines = request.headers().get(CONTENT_TYPE).is_some_and(|it| it == EVENTS_BY_LINE);
    let body: Bytes = match body::read(request.into_body(), EVENT_BYTES_MAX, BODY_TIME_MAX).await {
        Ok(body) => body,
        Err(body::BodyError::TooLarge) => {
            let text = format!("a test event may have at most {EVENT_BYTES_MAX} bytes");
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, text);
        }
        Err(_) => return refuse(StatusCode::BAD_REQUEST, "the body is incomplete".to_owned()),
    };
    let events: Vec<Bytes> = match has_lines {
        true => body
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| body.slice_ref(line))
            .collect(),
        false => vec![body],
    };
    let limit = admin.publish_timeout;
    let count = events.len();
    for (place, event) in events.into_iter().enumerate() {
        let (status, problem) =
            match tokio::time::timeout(limit, provider.publish(Message::new(&*topic, event))).await
            {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => (StatusCode::BAD_GATEWAY, error.to_string()),
                Err(_) => {
                    let text =
                        format!("{} did not accept the event within {limit:?}", provider.name());
                    (StatusCode::GATEWAY_TIMEOUT, text)
                }
            };
        return match has_lines {
            true => refuse(status, format!("{place} of {count} events are published: {problem}")),
            false => refuse(status, problem),
        };
    }
    response::text(StatusCode::OK, "published\n")
}

/// Returns the provider and the topic that the URL names: `?provider=kind/id&topic=T`.
///
/// # Errors
/// Returns a response that names the missing or unknown parameter.
fn provider_and_topic<'a, B>(
    admin: &'a Admin,
    request: &Request<B>,
) -> Result<(&'a Arc<dyn Provider>, String), Box<Response>> {
    let provider = parameter(request, "provider").unwrap_or_else(|| "memory/default".to_owned());
    let Some(topic) = parameter(request, "topic").filter(|topic| !topic.is_empty()) else {
        let text = "the topic is missing: add ?topic=T".to_owned();
        return Err(Box::new(refuse(StatusCode::BAD_REQUEST, text)));
    };
    let provider = admin.providers.resolve(&provider);
    let provider = provider.map_err(|error| refuse(StatusCode::NOT_FOUND, error.to_string()))?;
    Ok((provider, topic))
}

/// Handles `POST /admin/complete?provider=memory/id&topic=T`: ends the streams that listen to the topic, and so
/// completes their subscriptions, for tests of clients.
pub(super) fn complete<B>(admin: &Admin, request: &Request<B>) -> Response {
    let (provider, topic) = match provider_and_topic(admin, request) {
        Ok(found) => found,
        Err(answer) => return *answer,
    };
    match provider.complete(&topic) {
        Ok(streams) => response::text(StatusCode::OK, format!("ended {streams} streams\n")),
        Err(reason) => refuse(StatusCode::BAD_REQUEST, format!("{}: {reason}", provider.name())),
    }
}
