//! What a schema wants of a broker, tried before it is served: nothing is published, and nothing stays behind. Each
//! provider knows best how; here is what works for all of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use crate::{Durable, Provider, SourceMessage, StreamEnd, TopicUsage, Wanted};

/// One topic as a schema uses it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicUse {
    /// A name, or a pattern to subscribe to.
    pub topic: Box<str>,
    /// What for.
    pub usage: TopicUsage,
    /// What the broker stores is read, or written.
    pub durable: Option<Arc<Durable>>,
}

/// What came of trying it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It will work.
    Works,
    /// It will not, for this reason (no credentials in it).
    Fails(String),
    /// That cannot be found out without doing it.
    Unknown(String),
}

/// How long a broker may take to open a stream.
const OPENING_TIME_MAX: Duration = Duration::from_secs(10);

/// Brokers that confirm no subscription complain of it a round trip later.
const COMPLAINT_TIME_MAX: Duration = Duration::from_millis(500);

/// Subscribes for a moment. A consumer's name is left out, or it would stay at the broker.
pub(crate) async fn by_subscribing<P: Provider + ?Sized>(
    provider: &P,
    wanted: &TopicUse,
) -> Verdict {
    let durable = wanted
        .durable
        .as_ref()
        .map(|durable| Arc::new(Durable { consumer: None, ..Durable::clone(durable) }));
    let wanted = Wanted { durable, ..Wanted::new(vec![wanted.topic.clone()]) };
    let mut stream = match timeout(OPENING_TIME_MAX, provider.subscribe(wanted)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Verdict::Fails(error.to_string()),
        Err(_) => return Verdict::Fails("the broker did not answer within 10 s".into()),
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
