//! Pulling from a consumer: so many messages are asked for and no more, so what is not read stays at the broker.
//! Nobody polls: a request waits there for messages, and the broker says now and then that it does.

use std::time::Duration;

use async_nats::{Message, StatusCode, Subscriber};
use futures_util::{FutureExt, StreamExt};
use serde_json::json;
use tokio::time::timeout;

use super::super::session::{Line, SUBJECT_QUEUE_MESSAGES};

/// Messages asked for and not here yet, at most. A round trip of 10 ms then bounds a stream at 25,000 events a
/// second, and what waits inside the client library is small.
const BATCH_MAX: usize = 256;
const _: () =
    assert!(BATCH_MAX * 2 < SUBJECT_QUEUE_MESSAGES, "the library drops what does not fit");

/// Bytes of messages asked for at a time, beside one message of the largest size.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// What no message exceeds, whatever the broker's settings were when it was stored: NATS allows no more.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What the broker counts of a message beside payload and headers: subjects.
const SUBJECT_BYTES: usize = 16 * 1024;

/// The broker says so often during the life of a request that it is still waiting: no message for more than two of
/// these times, and nobody is thought to be there.
const HEARTBEATS: u32 = 6;

/// What a heartbeat may be late.
const HEARTBEAT_DELAY_MAX: Duration = Duration::from_secs(1);

/// What pulling brings.
pub(super) enum Pulled {
    /// A message of the stream.
    Message(Message),
    /// Nothing came for the lifetime of a request.
    Idle,
    /// A request waits at the broker, and nothing comes. The broker has given the latest delivery of the consumer this
    /// number, to whichever reader it went.
    Waiting { delivered: Option<u64> },
    /// The consumer cannot be pulled from any more; another may be made.
    Broken(String),
}

pub(super) struct Pull {
    line: Line,
    messages: Subscriber,
    inbox: String,
    /// Where requests go to.
    subject: String,
    batch: usize,
    /// Asked for and not here yet.
    outstanding: usize,
    bytes_max: usize,
    /// How long a request waits for messages at the broker; then it is made anew.
    lifetime: Duration,
    /// Something came since the latest request.
    progress: bool,
}

impl Pull {
    /// `queue_events`: what the reader's sender holds; to ask for more makes no sense.
    pub(super) async fn new(
        line: &Line,
        stream: &str,
        consumer: &str,
        queue_events: usize,
        lifetime: Duration,
    ) -> Result<Self, Box<str>> {
        let inbox = line.client.new_inbox();
        let (_, messages) = line.subscribe(inbox.clone()).await?;
        let largest = line.client.max_payload().min(MESSAGE_BYTES_MAX);
        Ok(Self {
            line: line.clone(),
            messages,
            inbox,
            subject: format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"),
            batch: queue_events.clamp(1, BATCH_MAX),
            outstanding: 0,
            bytes_max: BATCH_BYTES.max(largest + SUBJECT_BYTES),
            lifetime,
            progress: false,
        })
    }

    /// What is here already.
    pub(super) fn ready(&mut self) -> Option<Pulled> {
        // Half of a batch is on its way while the other half is read.
        while self.outstanding > self.batch / 2 {
            match self.messages.next().now_or_never()? {
                None => return Some(Pulled::Broken("the connection was closed".into())),
                Some(message) => {
                    if let Some(pulled) = self.heard(message) {
                        return Some(pulled);
                    }
                }
            }
        }
        None
    }

    /// What comes next; asks for more where little is on its way. May be dropped while it waits.
    pub(super) async fn next(&mut self) -> Pulled {
        loop {
            if self.outstanding <= self.batch / 2
                && let Err(reason) = self.ask().await
            {
                return Pulled::Broken(reason);
            }
            let silence_max = self.lifetime / HEARTBEATS * 2 + HEARTBEAT_DELAY_MAX;
            match timeout(silence_max, self.messages.next()).await {
                Ok(Some(message)) => {
                    if let Some(pulled) = self.heard(message) {
                        return pulled;
                    }
                }
                Ok(None) => return Pulled::Broken("the connection was closed".into()),
                Err(_) => return Pulled::Broken("the broker is silent".into()),
            }
        }
    }

    async fn ask(&mut self) -> Result<(), String> {
        let batch = self.batch - self.outstanding;
        let request = json!({
            "batch": batch,
            "max_bytes": self.bytes_max,
            "expires": nanoseconds(self.lifetime),
            "idle_heartbeat": nanoseconds(self.lifetime / HEARTBEATS),
        });
        // Counted first: whoever drops this future may have sent the request, and one too many is not asked for.
        self.outstanding = self.batch;
        self.progress = false;
        self.line
            .client
            .publish_with_reply(
                self.subject.clone(),
                self.inbox.clone(),
                request.to_string().into(),
            )
            .await
            .map_err(|error| error.to_string())
    }

    /// What a message means; none: nothing to whoever reads.
    fn heard(&mut self, message: Message) -> Option<Pulled> {
        let text = message.description.as_deref().unwrap_or_default();
        match message.status {
            None | Some(StatusCode::OK) => {
                self.outstanding = self.outstanding.saturating_sub(1);
                self.progress = true;
                return Some(Pulled::Message(message));
            }
            Some(StatusCode::IDLE_HEARTBEAT) => {
                let delivered = number(&message, "Nats-Last-Consumer");
                return Some(Pulled::Waiting { delivered });
            }
            Some(StatusCode::NOT_FOUND | StatusCode::TIMEOUT) => {}
            Some(StatusCode::REQUEST_TERMINATED) if text.starts_with("Batch Completed") => {}
            Some(StatusCode::REQUEST_TERMINATED) if text.starts_with("Message Size Exceeds") => {
                if !self.progress {
                    if self.bytes_max >= MESSAGE_BYTES_MAX + SUBJECT_BYTES {
                        return Some(Pulled::Broken(text.to_owned()));
                    }
                    self.bytes_max = (self.bytes_max * 2).min(MESSAGE_BYTES_MAX + SUBJECT_BYTES);
                }
            }
            Some(status) => return Some(Pulled::Broken(format!("{status}: {text}"))),
        }
        // A request has ended: what it did not bring is not on its way any more.
        let missing = number(&message, "Nats-Pending-Messages");
        let missing = missing.unwrap_or(self.outstanding);
        self.outstanding = self.outstanding.saturating_sub(missing);
        (self.outstanding == 0 && !self.progress).then_some(Pulled::Idle)
    }
}

/// The value of a header that is a number.
fn number<N: std::str::FromStr>(message: &Message, header: &str) -> Option<N> {
    message.headers.as_ref()?.get(header)?.as_str().parse().ok()
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
