//! A consumer for one stream that starts in the past or has fallen behind. It reads at the stream's pace and drops
//! nothing. When the stream has caught up, the shared consumer takes it over. Each stream keeps its own offsets, so
//! that can happen at any offset; the fewer events are read twice, the better.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use rdkafka::Offset;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::{spawn_blocking, yield_now};
use tokio::time::timeout;

use super::client::ConsumerClient;
use super::consumer_loop::{ClientFailure, ConsumerLoop};
use super::dispatch::{Listener, partition_number};
use super::shared_state::{MESSAGES_AT_ONCE, SharedState};
use crate::StreamEnd;

/// The maximum number of events that a stream may be behind when it joins the others. They skip events that they have
/// received, which costs them microseconds for each.
pub(super) const EVENTS_BEHIND_MAX: u64 = 500;

/// The time without messages after which a stream has caught up. Comparing offsets with the ends of partitions is not
/// enough, because the markers of transactions have offsets and are not messages.
const SILENCE: Duration = Duration::from_millis(300);

/// The interval at which a full stream checks whether its provider still exists.
const PROVIDER_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The number of times in a row, without an event in between, that a broken client is replaced before the stream ends.
const FAILURES_MAX: u32 = 5;

/// A consumer that reads for one stream.
pub(super) struct DedicatedConsumer {
    common: Arc<SharedState>,
    /// The client of the shared consumer, for queries for the ends of partitions.
    shared: Arc<ConsumerClient>,
    give_back: mpsc::WeakSender<Listener>,
    _permit: OwnedSemaphorePermit,
}

/// The reason why consumer has stopped.
enum StopReason {
    CaughtUp,
    /// The stream was dropped.
    Dropped,
    /// The provider was dropped.
    Closed,
    /// The dispatcher has ended the stream.
    Ended,
}

/// Reads for a stream that has fallen behind, as soon as the provider has a permit for another dedicated consumer.
/// Until then nothing is read: the listener keeps its offsets, and Kafka keeps the events behind them. Consumers return
/// their permits when the provider is dropped, so waiting streams end then, too.
pub(super) async fn run_when_permitted(
    common: Arc<SharedState>,
    shared: Arc<ConsumerClient>,
    give_back: mpsc::WeakSender<Listener>,
    listener: Listener,
) {
    let permit = tokio::select! {
        () = listener.sender.closed() => return,
        permit = Arc::clone(&common.dedicated_permits).acquire_owned() => permit,
    };
    match permit {
        Ok(permit) if give_back.strong_count() > 0 => {
            DedicatedConsumer::new(&common, shared, give_back, permit).run(listener).await;
        }
        _ => listener.sender.end(StreamEnd::Closed),
    }
}

impl DedicatedConsumer {
    pub(super) fn new(
        common: &Arc<SharedState>,
        shared: Arc<ConsumerClient>,
        give_back: mpsc::WeakSender<Listener>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self { common: Arc::clone(common), shared, give_back, _permit: permit }
    }

    /// Runs until the stream has caught up or was dropped.
    pub(super) async fn run(self, listener: Listener) {
        let mut failures = 0;
        let mut listener = listener;
        let id = listener.id;
        loop {
            let broken = match self.common.make_client().await {
                Err(reason) => ClientFailure(reason),
                Ok(client) => {
                    let mut consumer = ConsumerLoop::new(client, &self.common);
                    let had: u64 = listener.next.values().sum();
                    let stop = self.read(&mut consumer, listener).await;
                    let Some((back, _)) = consumer.dispatcher.remove(id) else { return };
                    listener = back;
                    if listener.next.values().sum::<u64>() > had {
                        failures = 0;
                    }
                    match stop {
                        Ok(StopReason::CaughtUp) => {
                            // The stream is at most that far behind. The shared consumer reports the lag later.
                            for topic in listener.topics.iter() {
                                listener.sender.counts().set_topic_lag(topic, Some(0), None);
                            }
                            match self.give_back.upgrade() {
                                Some(shared) => {
                                    if let Err(refused) = shared.send(listener).await {
                                        refused.0.sender.end(StreamEnd::Closed);
                                    }
                                }
                                None => listener.sender.end(StreamEnd::Closed),
                            }
                            return;
                        }
                        Ok(StopReason::Closed) => return listener.sender.end(StreamEnd::Closed),
                        Ok(StopReason::Dropped | StopReason::Ended) => return,
                        Err(broken) => broken,
                    }
                }
            };
            failures += 1;
            if failures == FAILURES_MAX {
                let problem = "a consumer has failed; its stream ends";
                self.common.health.log.log_refusal("", &broken.0, problem);
                return listener.sender.end(StreamEnd::Refused(broken.0));
            }
        }
    }

    async fn read(
        &self,
        consumer: &mut ConsumerLoop,
        listener: Listener,
    ) -> Result<StopReason, ClientFailure> {
        let id = listener.id;
        let gone = listener.sender.closed();
        tokio::pin!(gone);
        let half_of_the_queue = self.common.settings.queue_events / 2;
        let client = Arc::clone(&consumer.client);
        let mut messages = client.consumer().stream();
        consumer.add(vec![listener]).await?;
        let mut ends = self.query_ends(consumer, id).await;
        let mut received_at_once = 0;
        loop {
            if consumer.dispatcher.listener(id).is_none() {
                return Ok(StopReason::Ended);
            }
            if self.give_back.strong_count() == 0 {
                return Ok(StopReason::Closed);
            }
            let mut caught_up = false;
            tokio::select! {
                () = &mut gone => return Ok(StopReason::Dropped),
                due = consumer.next_work() => consumer.run(due).await?,
                message = timeout(SILENCE, messages.next()) => match message {
                    Err(_) => caught_up = true,
                    Ok(None) => return Err(ClientFailure("the library has ended".into())),
                    Ok(Some(Err(error))) => consumer.handle_error(&error)?,
                    Ok(Some(Ok(received))) => {
                        received_at_once += 1;
                        if received_at_once == MESSAGES_AT_ONCE {
                            received_at_once = 0;
                            yield_now().await;
                        }
                        if let Some(mut waiting) = consumer.dispatch(&received) {
                            while !consumer.redeliver(&mut waiting, id) {
                                let Some(listener) = consumer.dispatcher.listener(id) else { break };
                                let room = listener.sender.wait_for_capacity(1);
                                // The lag is also reported while it grows.
                                tokio::select! {
                                    _ = timeout(PROVIDER_CHECK_INTERVAL, room) => {}
                                    due = consumer.next_work() => consumer.run(due).await?,
                                }
                                if self.give_back.strong_count() == 0 {
                                    return Ok(StopReason::Closed);
                                }
                            }
                        }
                        caught_up = consumer
                            .dispatcher
                            .listener(id)
                            .is_some_and(|listener| events_behind(listener, &ends) == 0);
                    }
                },
            }
            if !caught_up {
                continue;
            }
            // A full queue would fill up again at once in the shared consumer.
            if let Some(listener) = consumer.dispatcher.listener(id) {
                tokio::select! {
                    () = &mut gone => return Ok(StopReason::Dropped),
                    _ = timeout(PROVIDER_CHECK_INTERVAL, listener.sender.wait_for_capacity(half_of_the_queue)) => {}
                }
            }
            ends = self.query_ends(consumer, id).await;
            let Some(listener) = consumer.dispatcher.listener(id) else {
                return Ok(StopReason::Ended);
            };
            if events_behind(listener, &ends) <= EVENTS_BEHIND_MAX {
                return Ok(StopReason::CaughtUp);
            }
        }
    }

    /// Returns the ends of the stream's partitions, or nothing if the query failed.
    async fn query_ends(&self, consumer: &ConsumerLoop, id: u64) -> BTreeMap<u32, u64> {
        let Some(listener) = consumer.dispatcher.listener(id) else { return BTreeMap::new() };
        let number = |topic: &Arc<str>| listener.topics.iter().position(|it| it == topic);
        let (mut partitions, mut numbers) = (Vec::new(), Vec::new());
        for ((topic, partition), _) in consumer.dispatcher.partitions() {
            let number = number(&topic).and_then(|number| u16::try_from(number).ok());
            if let (Some(number), Ok(part)) = (number, u16::try_from(partition)) {
                numbers.push(partition_number(number, part));
                partitions.push((topic, partition));
            }
        }
        let shared = Arc::clone(&self.shared);
        let ends = spawn_blocking(move || shared.query_offsets(&partitions, Offset::End)).await;
        match ends {
            Ok(Ok(ends)) => numbers.into_iter().zip(ends).collect(),
            _ => BTreeMap::new(),
        }
    }
}

/// Returns the maximum number of events between the stream and these ends. Returns the largest number if the ends are
/// unknown.
fn events_behind(listener: &Listener, ends: &BTreeMap<u32, u64>) -> u64 {
    if ends.is_empty() {
        return u64::MAX;
    }
    let next = |number: &u32| listener.next.get(number).copied().unwrap_or(0);
    ends.iter().fold(0, |sum, (number, end)| sum.saturating_add(end.saturating_sub(next(number))))
}
