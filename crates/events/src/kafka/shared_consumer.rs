//! The consumer that all live streams of a provider share. It also watches the provider's connections. It lives as long
//! as the provider; its client is made again only if the library gives it up.
//!
//! A stream whose queue is full for longer than a moment moves to a consumer of its own
//! ([`super::dedicated_consumer`]), reads there at its own pace, and returns when it has caught up. Kafka keeps the
//! events meanwhile.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio::task::{spawn_blocking, yield_now};
use tokio::time::{Instant, sleep, timeout};

use super::client::ConsumerClient;
use super::consumer_loop::{ClientFailure, ConsumerLoop, WaitingEvent};
use super::dedicated_consumer;
use super::dispatch::Listener;
use super::shared_state::{MESSAGES_AT_ONCE, SharedState};
use crate::backoff::Backoff;
use crate::connection_state::ConnectionState;
use crate::provider_log::LoggedConnection;
use crate::{ProviderState, ProviderStats, StreamEnd};

/// The time for which all streams wait for a full one. A burst passes in this time without being noticed.
const FULL_STREAM_WAIT: Duration = Duration::from_millis(20);

/// The minimum interval between such waits: a stream that makes room for one event at a time must not set the pace of
/// all.
const FULL_STREAM_WAIT_EVERY: Duration = Duration::from_secs(1);

/// The reason that is reported if no broker responds and the library reports no failure.
const NO_RESPONSE: &str = "no broker responds";

/// The number of listeners that are added by one call of the library.
const LISTENERS_AT_ONCE: usize = 256;

/// The task that reads for all live streams of a provider.
pub(super) struct SharedConsumer {
    common: Arc<SharedState>,
    state: watch::Sender<ConnectionState<Arc<ConsumerClient>>>,
    /// Given to dedicated consumers, which return streams that have caught up. It is weak, so they end with the
    /// provider.
    give_back: mpsc::WeakSender<Listener>,
    joining: mpsc::Receiver<Listener>,
    /// Futures that resolve to the id of a stream that was dropped.
    dropped: FuturesUnordered<BoxFuture<'static, u64>>,
    /// The ids of the streams with such a future.
    watched: HashSet<u64>,
    backoff: Backoff,
    was_connected: bool,
    /// True while a broker responds, as far as is known.
    is_up: bool,
    /// The time when all streams last waited for a full one.
    waited_at: Option<Instant>,
}

impl SharedConsumer {
    pub(super) fn new(
        common: Arc<SharedState>,
        state: watch::Sender<ConnectionState<Arc<ConsumerClient>>>,
        give_back: mpsc::WeakSender<Listener>,
        joining: mpsc::Receiver<Listener>,
    ) -> Self {
        let backoff = Backoff::new(common.settings.retry);
        Self {
            common,
            state,
            give_back,
            joining,
            dropped: FuturesUnordered::new(),
            watched: HashSet::new(),
            backoff,
            was_connected: false,
            is_up: false,
            waited_at: None,
        }
    }

    /// Runs until the provider is dropped.
    pub(super) async fn run(mut self) {
        let mut consumer: Option<ConsumerLoop> = None;
        loop {
            let broken = match self.common.make_client().await {
                Err(reason) => ClientFailure(reason),
                Ok(client) => {
                    let replaced = match &mut consumer {
                        Some(consumer) => consumer.replace_client(client).await,
                        None => {
                            let mut begun = ConsumerLoop::new(client, &self.common);
                            begun.mark_idle();
                            consumer = Some(begun);
                            Ok(())
                        }
                    };
                    let consumer = consumer.as_mut().expect("it was made just now, if not before");
                    match replaced {
                        Err(broken) => broken,
                        Ok(()) => match self.serve(consumer).await {
                            Ok(()) => {
                                consumer.dispatcher.end(&StreamEnd::Closed);
                                return;
                            }
                            Err(broken) => broken,
                        },
                    }
                }
            };
            self.on_disconnected(Some(&broken.0));
            sleep(self.backoff.next_delay()).await;
            if self.joining.is_closed() {
                return;
            }
        }
    }

    /// Serves one client. Returns `Ok` if the provider was dropped.
    async fn serve(&mut self, consumer: &mut ConsumerLoop) -> Result<(), ClientFailure> {
        let client = Arc::clone(&consumer.client);
        let mut messages = client.consumer().stream();
        let mut joining = Vec::new();
        let mut probe = Some(probe_after(&client, Duration::ZERO));
        let health = Arc::clone(&self.common.health);
        loop {
            let is_up = probe.is_none();
            let probed = async {
                match &mut probe {
                    Some(probe) => probe.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                count = self.joining.recv_many(&mut joining, LISTENERS_AT_ONCE) => {
                    if count == 0 {
                        return Ok(());
                    }
                    for listener in &joining {
                        // A stream that returns is already watched.
                        if self.watched.insert(listener.id) {
                            let (id, gone) = (listener.id, listener.sender.closed());
                            self.dropped.push(gone.map(move |()| id).boxed());
                        }
                    }
                    consumer.add(std::mem::take(&mut joining)).await?;
                }
                Some(id) = self.dropped.next() => {
                    let mut ids = vec![id];
                    while let Some(Some(id)) = self.dropped.next().now_or_never() {
                        ids.push(id);
                    }
                    for id in &ids {
                        self.watched.remove(id);
                    }
                    consumer.remove(ids).await?;
                }
                due = consumer.next_work() => consumer.run(due).await?,
                responds = probed => {
                    if responds {
                        self.on_connected(&client);
                        probe = None;
                    } else {
                        self.on_disconnected(None);
                        let after = self.backoff.next_delay();
                        probe = Some(probe_after(&client, after));
                    }
                }
                () = health.down.notified(), if is_up => {
                    self.on_disconnected(None);
                    probe = Some(probe_after(&client, self.backoff.next_delay()));
                }
                message = messages.next() => {
                    let mut received = Some(message);
                    // Messages that were taken from the library are all handled, because it delivers each only once.
                    for left in (0..MESSAGES_AT_ONCE).rev() {
                        match received.take() {
                            Some(Some(Ok(message))) => {
                                if let Some(mut waiting) = consumer.dispatch(&message) {
                                    for id in std::mem::take(&mut waiting.full) {
                                        self.make_room(consumer, id, &mut waiting).await?;
                                    }
                                }
                            }
                            Some(Some(Err(error))) => consumer.handle_error(&error)?,
                            Some(None) => return Err(ClientFailure("the library has ended".into())),
                            None => {
                                consumer.mark_idle();
                                break;
                            }
                        }
                        if left > 0 {
                            received = messages.next().now_or_never();
                        }
                    }
                    yield_now().await;
                }
            }
        }
    }

    /// Waits a moment for a stream that has no room for this event, then moves it to a dedicated consumer. While all
    /// permits for these are taken, the stream is not read, and Kafka keeps its events.
    async fn make_room(
        &mut self,
        consumer: &mut ConsumerLoop,
        id: u64,
        waiting: &mut WaitingEvent,
    ) -> Result<(), ClientFailure> {
        let may_wait = self.waited_at.is_none_or(|at| at.elapsed() > FULL_STREAM_WAIT_EVERY);
        if let Some(listener) = consumer.dispatcher.listener(id).filter(|_| may_wait) {
            self.waited_at = Some(Instant::now());
            let _ = timeout(FULL_STREAM_WAIT, listener.sender.wait_for_capacity(1)).await;
        }
        if consumer.redeliver(waiting, id) {
            return Ok(());
        }
        if let Some(listener) = consumer.remove(vec![id]).await?.pop() {
            let (provider, stats) = (self.common.health.log.provider(), &self.common.health.stats);
            let topics: Vec<_> = listener.topics.iter().map(|it| stats.masked_topic(it)).collect();
            tracing::debug!(
                provider,
                ?topics,
                "a stream has fallen behind and gets a consumer of its own"
            );
            let give_back = self.give_back.clone();
            let (common, client) = (Arc::clone(&self.common), Arc::clone(&consumer.client));
            tokio::spawn(dedicated_consumer::run_when_permitted(
                common, client, give_back, listener,
            ));
        }
        Ok(())
    }

    fn on_connected(&mut self, client: &Arc<ConsumerClient>) {
        let health = &self.common.health;
        let stats = &health.stats;
        if self.was_connected {
            ProviderStats::add(&stats.reconnects, 1);
        }
        self.was_connected = true;
        self.backoff.reset();
        stats.set_state(ProviderState::Connected);
        self.is_up = true;
        health.forget_failures();
        // The library chooses the broker.
        health.log.log_connected(LoggedConnection { purpose: None, server: &self.servers() });
        self.state.send_replace(ConnectionState::Connected(Arc::clone(client)));
    }

    /// Handles that no broker responds, or that the client has failed for a reason of its own.
    fn on_disconnected(&mut self, reason: Option<&str>) {
        let health = &self.common.health;
        if self.was_connected {
            health.stats.set_state(ProviderState::Disconnected);
        }
        let failure = health.latest_failure();
        // The callbacks have logged such a failure.
        let is_logged = reason.is_none() && failure.is_some();
        let server = match &failure {
            Some(failure) if !failure.server.is_empty() => failure.server.to_string(),
            _ => self.servers(),
        };
        let reason: Box<str> = match (reason, failure) {
            (Some(reason), _) => reason.into(),
            (None, Some(failure)) => failure.reason,
            (None, None) => NO_RESPONSE.into(),
        };
        let connection = LoggedConnection { purpose: None, server: &server };
        if std::mem::take(&mut self.is_up) {
            health.log.log_lost(connection, &reason, Some(self.watched.len()));
        } else if !is_logged {
            health.log.log_failed_attempt(connection, &reason);
        }
        self.state.send_replace(ConnectionState::Disconnected(reason));
    }

    /// Returns the configured brokers, for log lines.
    fn servers(&self) -> String {
        self.common.settings.brokers.join(",")
    }
}

/// Checks after a delay whether a broker responds.
fn probe_after(client: &Arc<ConsumerClient>, after: Duration) -> BoxFuture<'static, bool> {
    let client = Arc::clone(client);
    async move {
        sleep(after).await;
        spawn_blocking(move || client.has_broker()).await.unwrap_or(false)
    }
    .boxed()
}
