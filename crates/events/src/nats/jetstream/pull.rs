//! Pulling from a consumer. The reader requests a limited number of messages, so events that it has not read stay at
//! the broker. It does not poll: a request waits at the broker for messages, and the broker confirms that with
//! heartbeats.

use std::time::{Duration, Instant};

use async_nats::{Message, StatusCode, Subscriber};
use futures_util::{FutureExt, StreamExt};
use serde_json::json;
use tokio::time::timeout;

use super::super::client_session::{SUBJECT_QUEUE_MESSAGES, SharedClient};

/// The maximum number of messages that are requested and have not arrived. With a round trip of 10 ms this limits a
/// stream to 25,000 events a second, and keeps the number of messages inside the client library small.
const BATCH_MAX: usize = 256;
const _: () =
    assert!(BATCH_MAX * 2 < SUBJECT_QUEUE_MESSAGES, "the library drops messages that do not fit");

/// The bytes of messages that are requested at a time, in addition to one message of the largest size.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// The maximum size of any message, whatever the broker's settings were when it was stored: NATS allows no more.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The bytes that the broker counts for the subjects of a message, in addition to its payload and headers.
const SUBJECT_BYTES: usize = 16 * 1024;

/// The number of heartbeats during the lifetime of a request. After more than two intervals without a message the
/// broker counts as unavailable.
const HEARTBEATS: u32 = 6;

/// The maximum delay of a heartbeat.
const HEARTBEAT_DELAY_MAX: Duration = Duration::from_secs(1);

/// The time without a wait for messages after which the requests at the broker may be used up: the reader was suspended
/// or did not get the processor, or messages arrive faster than they are read.
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// The result of pulling.
pub(super) enum PullResult {
    /// A message of the stream.
    Message(Message),
    /// No message arrived during the lifetime of a request.
    Idle,
    /// A request waits at the broker, and no message is available. `delivered` is the number of the latest delivery of
    /// the consumer, to any reader.
    Waiting { delivered: Option<u64> },
    /// The consumer cannot be pulled from any more. Another one may be made.
    Broken(String),
}

/// A subscription to an inbox, to which the broker sends the messages of a consumer on request.
pub(super) struct PullSubscription {
    client: SharedClient,
    messages: Subscriber,
    inbox: String,
    /// The subject of the requests.
    subject: String,
    batch: usize,
    /// The number of messages that are requested and have not arrived.
    outstanding: usize,
    bytes_max: usize,
    /// The time for which a request waits for messages at the broker. After it a new request is sent.
    lifetime: Duration,
    /// True if a message arrived since the latest request.
    progress: bool,
    /// The number of requests so far.
    requests: u64,
    /// The end of the latest wait for a message.
    waited_until: Instant,
    /// True if, before the latest request, this subscription was not read for a while, so that perhaps no request
    /// waited at the broker.
    followed_a_pause: bool,
}

impl PullSubscription {
    /// Subscribes to an inbox for the consumer's messages. `queue_events` is the size of the stream's queue, which
    /// limits a batch.
    pub(super) async fn new(
        client: &SharedClient,
        stream: &str,
        consumer: &str,
        queue_events: usize,
        lifetime: Duration,
    ) -> Result<Self, Box<str>> {
        let inbox = client.nats.new_inbox();
        let (_, messages) = client.subscribe(inbox.clone()).await?;
        let largest = client.nats.max_payload().min(MESSAGE_BYTES_MAX);
        Ok(Self {
            client: client.clone(),
            messages,
            inbox,
            subject: format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"),
            batch: queue_events.clamp(1, BATCH_MAX),
            outstanding: 0,
            bytes_max: BATCH_BYTES.max(largest + SUBJECT_BYTES),
            lifetime,
            progress: false,
            requests: 0,
            waited_until: Instant::now(),
            followed_a_pause: false,
        })
    }

    /// Returns the number of requests so far. As long as it is the same, the messages that arrive belong to requests
    /// that the broker had when the number was read before.
    pub(super) fn requests(&self) -> u64 {
        self.requests
    }

    /// True if perhaps no request waited at the broker for a while before the latest one.
    pub(super) fn followed_a_pause(&self) -> bool {
        self.followed_a_pause
    }

    /// Returns the next result that has already arrived.
    pub(super) fn try_next(&mut self) -> Option<PullResult> {
        // While half of a batch is read, the other half is requested.
        while self.outstanding > self.batch / 2 {
            match self.messages.next().now_or_never()? {
                None => return Some(PullResult::Broken("the connection was closed".into())),
                Some(message) => {
                    if let Some(result) = self.interpret(message) {
                        return Some(result);
                    }
                }
            }
        }
        None
    }

    /// Waits for the next result, and requests more messages when few are outstanding. May be dropped while it waits.
    pub(super) async fn next(&mut self) -> PullResult {
        loop {
            if self.outstanding <= self.batch / 2
                && let Err(reason) = self.request_batch().await
            {
                return PullResult::Broken(reason);
            }
            let silence_max = self.lifetime / HEARTBEATS * 2 + HEARTBEAT_DELAY_MAX;
            let arrived = match self.messages.next().now_or_never() {
                Some(arrived) => Ok(arrived),
                None => {
                    let arrived = timeout(silence_max, self.messages.next()).await;
                    self.waited_until = Instant::now();
                    arrived
                }
            };
            match arrived {
                Ok(Some(message)) => {
                    if let Some(result) = self.interpret(message) {
                        return result;
                    }
                }
                Ok(None) => return PullResult::Broken("the connection was closed".into()),
                Err(_) => return PullResult::Broken("the broker is silent".into()),
            }
        }
    }

    async fn request_batch(&mut self) -> Result<(), String> {
        let batch = self.batch - self.outstanding;
        let request = json!({
            "batch": batch,
            "max_bytes": self.bytes_max,
            "expires": nanoseconds(self.lifetime),
            "idle_heartbeat": nanoseconds(self.lifetime / HEARTBEATS),
        });
        // The messages are counted first, because this future may be dropped after it has sent the request. This
        // prevents requesting too many.
        self.followed_a_pause = self.waited_until.elapsed() > PAUSE_MIN;
        self.requests += 1;
        self.outstanding = self.batch;
        self.progress = false;
        self.client
            .nats
            .publish_with_reply(
                self.subject.clone(),
                self.inbox.clone(),
                request.to_string().into(),
            )
            .await
            .map_err(|error| error.to_string())
    }

    /// Interprets a message. Returns `None` if it means nothing to the reader.
    fn interpret(&mut self, message: Message) -> Option<PullResult> {
        let text = message.description.as_deref().unwrap_or_default();
        match message.status {
            None | Some(StatusCode::OK) => {
                self.outstanding = self.outstanding.saturating_sub(1);
                self.progress = true;
                return Some(PullResult::Message(message));
            }
            Some(StatusCode::IDLE_HEARTBEAT) => {
                let delivered = number(&message, "Nats-Last-Consumer");
                return Some(PullResult::Waiting { delivered });
            }
            Some(StatusCode::NOT_FOUND | StatusCode::TIMEOUT) => {}
            Some(StatusCode::REQUEST_TERMINATED) if text.starts_with("Batch Completed") => {}
            Some(StatusCode::REQUEST_TERMINATED) if text.starts_with("Message Size Exceeds") => {
                if !self.progress {
                    if self.bytes_max >= MESSAGE_BYTES_MAX + SUBJECT_BYTES {
                        return Some(PullResult::Broken(text.to_owned()));
                    }
                    self.bytes_max = (self.bytes_max * 2).min(MESSAGE_BYTES_MAX + SUBJECT_BYTES);
                }
            }
            Some(status) => return Some(PullResult::Broken(format!("{status}: {text}"))),
        }
        // A request has ended, so the messages that it did not bring are not outstanding any more.
        let missing = number(&message, "Nats-Pending-Messages");
        let missing = missing.unwrap_or(self.outstanding);
        self.outstanding = self.outstanding.saturating_sub(missing);
        (self.outstanding == 0 && !self.progress).then_some(PullResult::Idle)
    }
}

/// Returns the value of a header that is a number.
fn number<N: std::str::FromStr>(message: &Message, header: &str) -> Option<N> {
    message.headers.as_ref()?.get(header)?.as_str().parse().ok()
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
