//! Requests to JetStream and its responses: JSON over request and reply. The reader decides which request to send.

use std::time::Duration;

use async_nats::jetstream::{consumer, response::Response, stream};
use async_nats::{Client, RequestErrorKind};
use serde_json::{Value, json};

use crate::Verdict;

/// The maximum time for a response. JetStream responds in milliseconds, and in seconds while a cluster elects a leader.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of streams that are read for one subject: more than are useful in an error message.
const STREAMS_NAMED_MAX: usize = 8;

/// The broker's error codes for missing objects.
const STREAM_NOT_FOUND: u64 = 10059;
const CONSUMER_NOT_FOUND: u64 = 10014;
const MESSAGE_NOT_FOUND: u64 = 10037;

/// The reason why a request has no usable response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ApiError {
    /// There was no response. Another request may succeed.
    Unanswered(String),
    /// The stream does not exist.
    NoStream,
    /// The consumer does not exist.
    NoConsumer,
    /// The message does not exist.
    NoMessage,
    /// The broker refused for another reason, in its words.
    Refused(String),
}

/// The API of JetStream, through one client.
pub(super) struct JetStreamApi<'a>(pub(super) &'a Client);

impl JetStreamApi<'_> {
    /// Returns the names of streams that have the subject or subjects that match it.
    pub(super) async fn find_streams(&self, subject: &str) -> Result<Vec<String>, ApiError> {
        let response: Value = self.request("STREAM.NAMES", json!({ "subject": subject })).await?;
        let names = response.get("streams").and_then(Value::as_array);
        Ok(names
            .into_iter()
            .flatten()
            .filter_map(|name| Some(name.as_str()?.to_owned()))
            .take(STREAMS_NAMED_MAX)
            .collect())
    }

    /// Returns the configuration and state of a stream.
    pub(super) async fn stream_info(&self, name: &str) -> Result<stream::Info, ApiError> {
        self.request(&format!("STREAM.INFO.{name}"), json!({})).await
    }

    /// Returns the sequence of the latest message of a subject, or `None` if there is none.
    pub(super) async fn last_sequence_of(
        &self,
        stream: &str,
        subject: &str,
    ) -> Result<Option<u64>, ApiError> {
        let body = json!({ "last_by_subj": subject });
        match self.request::<Value>(&format!("STREAM.MSG.GET.{stream}"), body).await {
            Ok(response) => Ok(response.pointer("/message/seq").and_then(Value::as_u64)),
            Err(ApiError::NoMessage) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the configuration and state of a consumer.
    pub(super) async fn consumer_info(
        &self,
        stream: &str,
        consumer: &str,
    ) -> Result<consumer::Info, ApiError> {
        self.request(&format!("CONSUMER.INFO.{stream}.{consumer}"), json!({})).await
    }

    /// Creates a consumer.
    pub(super) async fn create_consumer(
        &self,
        stream: &str,
        config: &consumer::Config,
    ) -> Result<consumer::Info, ApiError> {
        // The name and the filter are part of the subject, so that permissions can depend on them.
        let subject = match &config.durable_name {
            None => format!("CONSUMER.CREATE.{stream}"),
            Some(name) if config.filter_subject.is_empty() => {
                format!("CONSUMER.CREATE.{stream}.{name}")
            }
            Some(name) => format!("CONSUMER.CREATE.{stream}.{name}.{}", config.filter_subject),
        };
        self.request(&subject, json!({ "stream_name": stream, "config": config })).await
    }

    /// Deletes a consumer. A missing consumer is no error.
    pub(super) async fn delete_consumer(
        &self,
        stream: &str,
        consumer: &str,
    ) -> Result<(), ApiError> {
        match self
            .request::<Value>(&format!("CONSUMER.DELETE.{stream}.{consumer}"), json!({}))
            .await
        {
            Ok(_) | Err(ApiError::NoConsumer) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Requests the deletion of a consumer without waiting for the response. If it fails, the broker deletes the
    /// consumer after a while.
    pub(super) async fn forget_consumer(&self, stream: &str, consumer: &str) {
        let subject = format!("$JS.API.CONSUMER.DELETE.{stream}.{consumer}");
        let inbox = self.0.new_inbox();
        let sending = async {
            let _ = self.0.publish_with_reply(subject, inbox, bytes::Bytes::new()).await;
            // If the flush fails, the connection is gone, and the broker deletes the consumer after a while.
            let _ = self.0.flush().await;
        };
        let _ = tokio::time::timeout(RESPONSE_TIMEOUT, sending).await;
    }

    async fn request<V: serde::de::DeserializeOwned>(
        &self,
        subject: &str,
        body: Value,
    ) -> Result<V, ApiError> {
        let unanswered = |reason: &str| ApiError::Unanswered(format!("JetStream: {reason}"));
        let request = async_nats::Request::new()
            .payload(body.to_string().into())
            .timeout(Some(RESPONSE_TIMEOUT));
        let response = self.0.send_request(format!("$JS.API.{subject}"), request).await;
        let response = response.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders => {
                unanswered("the broker has no JetStream for this user, or it is not ready yet")
            }
            RequestErrorKind::TimedOut => unanswered(
                "no response within 5 s; it may be electing a leader, or the user lacks permission for $JS.API.>",
            ),
            _ => unanswered("the connection was lost"),
        })?;
        match serde_json::from_slice(&response.payload) {
            Ok(Response::Ok(value)) => Ok(value),
            Ok(Response::Err { error }) => Err(match error.error_code().0 {
                STREAM_NOT_FOUND => ApiError::NoStream,
                CONSUMER_NOT_FOUND => ApiError::NoConsumer,
                MESSAGE_NOT_FOUND => ApiError::NoMessage,
                // These are temporary failures of the broker: a cluster without a leader, or a restart.
                _ if error.code() >= 500 => unanswered(&error.to_string()),
                _ => ApiError::Refused(error.to_string()),
            }),
            Err(error) => {
                Err(ApiError::Refused(format!("a response that is not understood: {error}")))
            }
        }
    }
}

/// Checks that a stream has that subject, so that published events are stored. Returns `None` if one has.
pub(in crate::nats) async fn check_is_stored(client: &Client, subject: &str) -> Option<Verdict> {
    match JetStreamApi(client).find_streams(subject).await {
        Ok(streams) if streams.is_empty() => {
            let reason = "no stream of JetStream has that subject, and `jetstream.publish_ack` waits for one";
            Some(Verdict::Fails(reason.into()))
        }
        Ok(_) => None,
        Err(error) => Some(Verdict::Unknown(format!(
            "JetStream does not report whether it stores the subject: {error:?}"
        ))),
    }
}

/// Checks that a stream stored a published event. The error contains the broker's words.
pub(in crate::nats) fn check_acknowledgement(response: &[u8]) -> Result<(), String> {
    let response: Value = serde_json::from_slice(response)
        .map_err(|_| "the response is not from JetStream".to_owned())?;
    match (response.get("error"), response.get("seq")) {
        (Some(error), _) => Err(error
            .get("description")
            .and_then(Value::as_str)
            .unwrap_or("JetStream refused without a reason")
            .to_owned()),
        (None, Some(_)) => Ok(()),
        (None, None) => Err("the response is not from JetStream".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_response_of_jetstream_is_an_acknowledgement() {
        let cases = [
            (r#"{"stream":"ORDERS","seq":7}"#, Ok(())),
            (r#"{"error":{"code":503,"description":"no space"}}"#, Err("no space")),
            (r#"{"ok":true}"#, Err("the response is not from JetStream")),
            ("thanks", Err("the response is not from JetStream")),
        ];
        for (response, expected) in cases {
            assert_eq!(
                check_acknowledgement(response.as_bytes()),
                expected.map_err(str::to_owned),
                "{response}"
            );
        }
    }
}
