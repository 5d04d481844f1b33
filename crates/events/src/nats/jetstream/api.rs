//! Questions to JetStream and its answers: JSON over request and reply. Which question comes when is the business
//! of the reader.

use std::time::Duration;

use async_nats::jetstream::{consumer, response::Response, stream};
use async_nats::{Client, RequestErrorKind};
use serde_json::{Value, json};

/// How long JetStream may take to answer; it does so in milliseconds, and in seconds while a cluster elects a leader.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Streams that may have one subject: more than are worth a message that names them.
const STREAMS_NAMED_MAX: usize = 8;

/// The broker's numbers for what is not there.
const STREAM_NOT_FOUND: u64 = 10059;
const CONSUMER_NOT_FOUND: u64 = 10014;
const MESSAGE_NOT_FOUND: u64 = 10037;

/// Why there is no answer of use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ApiError {
    /// It did not come; asking again may help.
    Unanswered(String),
    /// There is no such stream.
    NoStream,
    /// There is no such consumer.
    NoConsumer,
    /// There is no such message.
    NoMessage,
    /// Any other refusal, in the broker's words.
    Refused(String),
}

/// What a client asks.
pub(super) struct Api<'a>(pub(super) &'a Client);

impl Api<'_> {
    /// The names of streams that have (some of) the subjects.
    pub(super) async fn streams_of(&self, subject: &str) -> Result<Vec<String>, ApiError> {
        let answer: Value = self.ask("STREAM.NAMES", json!({ "subject": subject })).await?;
        let names = answer.get("streams").and_then(Value::as_array);
        Ok(names
            .into_iter()
            .flatten()
            .filter_map(|name| Some(name.as_str()?.to_owned()))
            .take(STREAMS_NAMED_MAX)
            .collect())
    }

    pub(super) async fn stream(&self, name: &str) -> Result<stream::Info, ApiError> {
        self.ask(&format!("STREAM.INFO.{name}"), json!({})).await
    }

    /// The number of the latest message of a subject; none: there is none.
    pub(super) async fn last_of(
        &self,
        stream: &str,
        subject: &str,
    ) -> Result<Option<u64>, ApiError> {
        let question = json!({ "last_by_subj": subject });
        match self.ask::<Value>(&format!("STREAM.MSG.GET.{stream}"), question).await {
            Ok(answer) => Ok(answer.pointer("/message/seq").and_then(Value::as_u64)),
            Err(ApiError::NoMessage) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn consumer(
        &self,
        stream: &str,
        consumer: &str,
    ) -> Result<consumer::Info, ApiError> {
        self.ask(&format!("CONSUMER.INFO.{stream}.{consumer}"), json!({})).await
    }

    pub(super) async fn create_consumer(
        &self,
        stream: &str,
        config: &consumer::Config,
    ) -> Result<consumer::Info, ApiError> {
        // Name and filter stand in the subject, so that permissions can depend on them.
        let subject = match &config.durable_name {
            None => format!("CONSUMER.CREATE.{stream}"),
            Some(name) if config.filter_subject.is_empty() => {
                format!("CONSUMER.CREATE.{stream}.{name}")
            }
            Some(name) => format!("CONSUMER.CREATE.{stream}.{name}.{}", config.filter_subject),
        };
        self.ask(&subject, json!({ "stream_name": stream, "config": config })).await
    }

    /// Deletes a consumer, if it is there.
    pub(super) async fn delete_consumer(
        &self,
        stream: &str,
        consumer: &str,
    ) -> Result<(), ApiError> {
        match self.ask::<Value>(&format!("CONSUMER.DELETE.{stream}.{consumer}"), json!({})).await {
            Ok(_) | Err(ApiError::NoConsumer) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Asks that a consumer goes, without waiting for it: one that stays goes by itself after a while.
    pub(super) async fn forget_consumer(&self, stream: &str, consumer: &str) {
        let subject = format!("$JS.API.CONSUMER.DELETE.{stream}.{consumer}");
        let sending = self.0.publish_with_reply(subject, self.0.new_inbox(), bytes::Bytes::new());
        let _ = tokio::time::timeout(ANSWER_TIMEOUT, sending).await;
    }

    async fn ask<V: serde::de::DeserializeOwned>(
        &self,
        subject: &str,
        question: Value,
    ) -> Result<V, ApiError> {
        let unanswered = |reason: &str| ApiError::Unanswered(format!("JetStream: {reason}"));
        let request = async_nats::Request::new()
            .payload(question.to_string().into())
            .timeout(Some(ANSWER_TIMEOUT));
        let answer = self.0.send_request(format!("$JS.API.{subject}"), request).await;
        let answer = answer.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders => {
                unanswered("the broker has none for this user, or it is not ready yet")
            }
            RequestErrorKind::TimedOut => unanswered(
                "no answer within 5 s; it may be electing a leader, or the user lacks permission for $JS.API.>",
            ),
            _ => unanswered("the connection was lost"),
        })?;
        match serde_json::from_slice(&answer.payload) {
            Ok(Response::Ok(value)) => Ok(value),
            Ok(Response::Err { error }) => Err(match error.error_code().0 {
                STREAM_NOT_FOUND => ApiError::NoStream,
                CONSUMER_NOT_FOUND => ApiError::NoConsumer,
                MESSAGE_NOT_FOUND => ApiError::NoMessage,
                // The broker's own trouble: a cluster without a leader, a restart.
                _ if error.code() >= 500 => unanswered(&error.to_string()),
                _ => ApiError::Refused(error.to_string()),
            }),
            Err(error) => {
                Err(ApiError::Refused(format!("an answer that is not understood: {error}")))
            }
        }
    }
}

/// Did a stream store what was published? `Err` has the broker's words.
pub(in crate::nats) fn acknowledged(answer: &[u8]) -> Result<(), String> {
    let answer: Value = serde_json::from_slice(answer)
        .map_err(|_| "somebody other than JetStream answered".to_owned())?;
    match (answer.get("error"), answer.get("seq")) {
        (Some(error), _) => Err(error
            .get("description")
            .and_then(Value::as_str)
            .unwrap_or("JetStream refused without a word")
            .to_owned()),
        (None, Some(_)) => Ok(()),
        (None, None) => Err("somebody other than JetStream answered".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_of_jetstream_is_an_acknowledgement() {
        let cases = [
            (r#"{"stream":"ORDERS","seq":7}"#, Ok(())),
            (r#"{"error":{"code":503,"description":"no space"}}"#, Err("no space")),
            (r#"{"ok":true}"#, Err("somebody other than JetStream answered")),
            ("thanks", Err("somebody other than JetStream answered")),
        ];
        for (answer, expected) in cases {
            assert_eq!(
                acknowledged(answer.as_bytes()),
                expected.map_err(str::to_owned),
                "{answer}"
            );
        }
    }
}
