//! A reader for one stream: one that starts in the past, or one that has fallen behind. It goes at the stream's
//! pace and drops nothing. When the stream has caught up, the shared reader takes it over; since each stream
//! keeps its own offsets, that can happen anywhere, only the less is read twice the better.

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

/// A stream that has no more than this before it joins the others. They skip what they have had, which costs
/// them microseconds for each.
pub(super) const EVENTS_BEHIND_MAX: u64 = 500;

/// No message for so long: there is nothing more now. (The ends of partitions cannot be compared alone, since
/// the markers of transactions have offsets and are no messages.)
const SILENCE: Duration = Duration::from_millis(300);

/// How often a stream that is full looks whether its provider is still there.
const PROVIDER_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How often a broken client is replaced in a row, without an event in between, before the stream ends.
const FAILURES_MAX: u32 = 5;

pub(super) struct DedicatedConsumer {
    common: Arc<SharedState>,
    /// The shared reader's client, to ask where partitions end.
    shared: Arc<ConsumerClient>,
    give_back: mpsc::WeakSender<Listener>,
    _permit: OwnedSemaphorePermit,
}

/// Why reading has stopped.
enum StopReason {
    CaughtUp,
    /// Nobody listens any more.
    Dropped,
    /// The provider was dropped.
    Closed,
    /// The dispatcher has ended the stream.
    Ended,
}

/// Reads for a stream that has fallen behind, as soon as the provider has a permit for another single reader. Until
/// then nothing is read: the listener knows its offsets, and Kafka keeps the events behind them. Readers give their
/// permits back when the provider is dropped, so streams that wait end then, too.
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

    /// Until the stream has caught up or nobody listens.
    pub(super) async fn run(self, listener: Listener) {
        let mut failures = 0;
        let mut listener = listener;
        let id = listener.id;
        loop {
            let broken = match self.common.make_client().await {
                Err(reason) => ClientFailure(reason),
                Ok(client) => {
                    let mut reading = ConsumerLoop::new(client, &self.common);
                    let had: u64 = listener.next.values().sum();
                    let stop = self.read(&mut reading, listener).await;
                    let Some((back, _)) = reading.dispatcher.remove(id) else { return };
                    listener = back;
                    if listener.next.values().sum::<u64>() > had {
                        failures = 0;
                    }
                    match stop {
                        Ok(StopReason::CaughtUp) => {
                            // The others are behind no more than that; they are told later.
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
                let provider = &self.common.health.provider;
                tracing::warn!(%provider, reason = broken.0, "a reader has failed; its stream ends");
                return listener.sender.end(StreamEnd::Refused(broken.0));
            }
        }
    }

    async fn read(
        &self,
        reading: &mut ConsumerLoop,
        listener: Listener,
    ) -> Result<StopReason, ClientFailure> {
        let id = listener.id;
        let gone = listener.sender.closed();
        tokio::pin!(gone);
        let half_of_the_queue = self.common.settings.queue_events / 2;
        let client = Arc::clone(&reading.client);
        let mut messages = client.consumer().stream();
        reading.add(vec![listener]).await?;
        let mut ends = self.query_ends(reading, id).await;
        let mut received_at_once = 0;
        loop {
            if reading.dispatcher.listener(id).is_none() {
                return Ok(StopReason::Ended);
            }
            if self.give_back.strong_count() == 0 {
                return Ok(StopReason::Closed);
            }
            let mut caught_up = false;
            tokio::select! {
                () = &mut gone => return Ok(StopReason::Dropped),
                due = reading.next_work() => reading.run(due).await?,
                message = timeout(SILENCE, messages.next()) => match message {
                    Err(_) => caught_up = true,
                    Ok(None) => return Err(ClientFailure("the library has ended".into())),
                    Ok(Some(Err(error))) => reading.handle_error(&error)?,
                    Ok(Some(Ok(received))) => {
                        received_at_once += 1;
                        if received_at_once == MESSAGES_AT_ONCE {
                            received_at_once = 0;
                            yield_now().await;
                        }
                        if let Some(mut waiting) = reading.dispatch(&received) {
                            while !reading.redeliver(&mut waiting, id) {
                                let Some(listener) = reading.dispatcher.listener(id) else { break };
                                let room = listener.sender.wait_for_capacity(1);
                                // It is told how far the stream is behind also while that grows.
                                tokio::select! {
                                    _ = timeout(PROVIDER_CHECK_INTERVAL, room) => {}
                                    due = reading.next_work() => reading.run(due).await?,
                                }
                                if self.give_back.strong_count() == 0 {
                                    return Ok(StopReason::Closed);
                                }
                            }
                        }
                        caught_up = reading
                            .dispatcher
                            .listener(id)
                            .is_some_and(|listener| events_behind(listener, &ends) == 0);
                    }
                },
            }
            if !caught_up {
                continue;
            }
            // A full queue would only be full again among the others.
            if let Some(listener) = reading.dispatcher.listener(id) {
                tokio::select! {
                    () = &mut gone => return Ok(StopReason::Dropped),
                    _ = timeout(PROVIDER_CHECK_INTERVAL, listener.sender.wait_for_capacity(half_of_the_queue)) => {}
                }
            }
            ends = self.query_ends(reading, id).await;
            let Some(listener) = reading.dispatcher.listener(id) else {
                return Ok(StopReason::Ended);
            };
            if events_behind(listener, &ends) <= EVENTS_BEHIND_MAX {
                return Ok(StopReason::CaughtUp);
            }
        }
    }

    /// Where the stream's numbers end now; empty where nobody can tell.
    async fn query_ends(&self, reading: &ConsumerLoop, id: u64) -> BTreeMap<u32, u64> {
        let Some(listener) = reading.dispatcher.listener(id) else { return BTreeMap::new() };
        let number = |topic: &Arc<str>| listener.topics.iter().position(|it| it == topic);
        let (mut partitions, mut numbers) = (Vec::new(), Vec::new());
        for ((topic, partition), _) in reading.dispatcher.partitions() {
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

/// How many events a stream is away from these ends at most. Without any, as far as can be: nobody could tell.
fn events_behind(listener: &Listener, ends: &BTreeMap<u32, u64>) -> u64 {
    if ends.is_empty() {
        return u64::MAX;
    }
    let next = |number: &u32| listener.next.get(number).copied().unwrap_or(0);
    ends.iter().fold(0, |sum, (number, end)| sum.saturating_add(end.saturating_sub(next(number))))
}
