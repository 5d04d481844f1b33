//! Checks of the topics that a schema uses, made before the schema is served. They publish nothing and leave nothing
//! behind at the broker. This module has the check that works for every provider; providers add their own.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use crate::event_stream::{
    Durable, EventStream, SourceError, SourceMessage, StreamEnd, StreamRequest,
};
use crate::topic::TopicUsage;

/// One topic as a schema uses it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicUse {
    /// A name, or a pattern to subscribe to.
    pub topic: Box<str>,
    /// Whether the topic is read or written.
    pub usage: TopicUsage,
    /// The settings for events that the broker stores, if those are read or written.
    pub durable: Option<Arc<Durable>>,
}

/// The result of checking a topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The use will work.
    Works,
    /// The use will fail, for this reason. It contains no credentials.
    Fails(String),
    /// The check cannot know the result without doing it, for this reason.
    Unknown(String),
}

/// The maximum time that a broker may take to open a stream.
const OPENING_TIME_MAX: Duration = Duration::from_secs(10);

/// The time after which a subscription counts as accepted. Brokers that do not confirm subscriptions report an error
/// one round trip later.
const COMPLAINT_TIME_MAX: Duration = Duration::from_millis(500);

impl From<TopicUse> for StreamRequest {
    /// Requests the stream that a check opens. The request names no durable consumer, because the broker would keep it.
    fn from(wanted: TopicUse) -> Self {
        let without_consumer = |durable: Arc<Durable>| {
            Arc::new(Durable { consumer: None, ..Durable::clone(&durable) })
        };
        Self { durable: wanted.durable.map(without_consumer), ..Self::new(vec![wanted.topic]) }
    }
}

/// Judges a subscription by opening a stream, which is dropped a moment later.
pub(crate) async fn judge_stream(
    opening: impl Future<Output = Result<EventStream, SourceError>>,
) -> Verdict {
    let mut stream = match timeout(OPENING_TIME_MAX, opening).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Verdict::Fails(error.to_string()),
        Err(_) => return Verdict::Fails("the broker did not respond within 10 s".into()),
    };
    let deadline = Instant::now() + COMPLAINT_TIME_MAX;
    loop {
        match timeout_at(deadline, stream.messages.recv()).await {
            Err(_) => return Verdict::Works,
            Ok(Some(SourceMessage::End(StreamEnd::Closed)) | None) => {
                return Verdict::Fails("the connection was closed".into());
            }
            Ok(Some(SourceMessage::End(end))) => return Verdict::Fails(end.to_string()),
            Ok(Some(_)) => {}
        }
    }
}
