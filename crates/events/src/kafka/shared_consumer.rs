//! The reader that all live streams of a provider share, and the watch over its connections. It lives as long
//! as the provider; its client is made anew only if the library gives up on it.
//!
//! A stream whose queue is full for longer than a moment gets a reader of its own ([`super::single`]), goes on
//! there at its own pace, and comes back when it has caught up: Kafka keeps the events meanwhile.

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
use crate::{ProviderState, ProviderStats, StreamEnd};

/// How long all streams wait for one that has no room: a burst passes in this time, and nobody sees it.
const FULL_STREAM_WAIT: Duration = Duration::from_millis(20);

/// How often they wait like that: a stream that makes room for one event at a time must not set the pace of all.
const FULL_STREAM_WAIT_EVERY: Duration = Duration::from_secs(1);

/// Listeners taken in by one call of the library.
const LISTENERS_AT_ONCE: usize = 256;

pub(super) struct SharedConsumer {
    common: Arc<SharedState>,
    state: watch::Sender<ConnectionState<Arc<ConsumerClient>>>,
    /// For readers of single streams, which give back what has caught up. Weak: they end with the provider.
    give_back: mpsc::WeakSender<Listener>,
    joining: mpsc::Receiver<Listener>,
    /// Resolve to the number of a stream that was dropped.
    dropped: FuturesUnordered<BoxFuture<'static, u64>>,
    /// Of which streams that is waited for.
    watched: HashSet<u64>,
    backoff: Backoff,
    was_connected: bool,
    /// When all streams last waited for one.
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
            waited_at: None,
        }
    }

    /// Until the provider is dropped.
    pub(super) async fn run(mut self) {
        let mut reading: Option<ConsumerLoop> = None;
        loop {
            let broken = match self.common.make_client().await {
                Err(reason) => ClientFailure(reason),
                Ok(client) => {
                    let replaced = match &mut reading {
                        Some(reading) => reading.replace_client(client).await,
                        None => {
                            let mut begun = ConsumerLoop::new(client, &self.common);
                            begun.mark_idle();
                            reading = Some(begun);
                            Ok(())
                        }
                    };
                    let reading = reading.as_mut().expect("made just now, if not before");
                    match replaced {
                        Err(broken) => broken,
                        Ok(()) => match self.serve(reading).await {
                            Ok(()) => {
                                reading.dispatcher.end(&StreamEnd::Closed);
                                return;
                            }
                            Err(broken) => broken,
                        },
                    }
                }
            };
            self.on_disconnected(&broken.0);
            sleep(self.backoff.next_delay()).await;
            if self.joining.is_closed() {
                return;
            }
        }
    }

    /// `Ok`: the provider was dropped.
    async fn serve(&mut self, reading: &mut ConsumerLoop) -> Result<(), ClientFailure> {
        let client = Arc::clone(&reading.client);
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
                        // One that comes back is watched already.
                        if self.watched.insert(listener.id) {
                            let (id, gone) = (listener.id, listener.sender.closed());
                            self.dropped.push(gone.map(move |()| id).boxed());
                        }
                    }
                    reading.add(std::mem::take(&mut joining)).await?;
                }
                Some(id) = self.dropped.next() => {
                    let mut ids = vec![id];
                    while let Some(Some(id)) = self.dropped.next().now_or_never() {
                        ids.push(id);
                    }
                    for id in &ids {
                        self.watched.remove(id);
                    }
                    reading.remove(ids).await?;
                }
                due = reading.next_work() => reading.run(due).await?,
                responds = probed => {
                    if responds {
                        self.on_connected(&client);
                        probe = None;
                    } else {
                        self.on_disconnected(&health.reason());
                        let after = self.backoff.next_delay();
                        probe = Some(probe_after(&client, after));
                    }
                }
                () = health.down.notified(), if is_up => {
                    self.on_disconnected(&health.reason());
                    probe = Some(probe_after(&client, self.backoff.next_delay()));
                }
                message = messages.next() => {
                    let mut received = Some(message);
                    // What is taken from the library is handled: it comes only once.
                    for left in (0..MESSAGES_AT_ONCE).rev() {
                        match received.take() {
                            Some(Some(Ok(message))) => {
                                if let Some(mut waiting) = reading.dispatch(&message) {
                                    for id in std::mem::take(&mut waiting.full) {
                                        self.make_room(reading, id, &mut waiting).await?;
                                    }
                                }
                            }
                            Some(Some(Err(error))) => reading.handle_error(&error)?,
                            Some(None) => return Err(ClientFailure("the library has ended".into())),
                            None => {
                                reading.mark_idle();
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

    /// Waits a moment for a stream that has no room for this event, then gives it a reader of its own. While all single
    /// readers are in use, the stream is not read, and Kafka keeps its events.
    async fn make_room(
        &mut self,
        reading: &mut ConsumerLoop,
        id: u64,
        waiting: &mut WaitingEvent,
    ) -> Result<(), ClientFailure> {
        let may_wait = self.waited_at.is_none_or(|at| at.elapsed() > FULL_STREAM_WAIT_EVERY);
        if let Some(listener) = reading.dispatcher.listener(id).filter(|_| may_wait) {
            self.waited_at = Some(Instant::now());
            let _ = timeout(FULL_STREAM_WAIT, listener.sender.wait_for_capacity(1)).await;
        }
        if reading.redeliver(waiting, id) {
            return Ok(());
        }
        if let Some(listener) = reading.remove(vec![id]).await?.pop() {
            let provider = &self.common.health.provider;
            tracing::debug!(%provider, topics = ?listener.topics, "a stream has fallen behind and is read for by itself");
            let give_back = self.give_back.clone();
            let (common, client) = (Arc::clone(&self.common), Arc::clone(&reading.client));
            tokio::spawn(dedicated_consumer::run_when_permitted(
                common, client, give_back, listener,
            ));
        }
        Ok(())
    }

    fn on_connected(&mut self, client: &Arc<ConsumerClient>) {
        let stats = &self.common.health.stats;
        if self.was_connected {
            ProviderStats::add(&stats.reconnects, 1);
        }
        self.was_connected = true;
        self.backoff.reset();
        stats.set_state(ProviderState::Connected);
        tracing::info!(provider = %self.common.health.provider, "connected");
        self.state.send_replace(ConnectionState::Connected(Arc::clone(client)));
    }

    fn on_disconnected(&mut self, reason: &str) {
        if self.was_connected {
            self.common.health.stats.set_state(ProviderState::Disconnected);
        }
        self.state.send_replace(ConnectionState::Disconnected(reason.into()));
    }
}

/// Asks whether a broker responds.
fn probe_after(client: &Arc<ConsumerClient>, after: Duration) -> BoxFuture<'static, bool> {
    let client = Arc::clone(client);
    async move {
        sleep(after).await;
        spawn_blocking(move || client.has_broker()).await.unwrap_or(false)
    }
    .boxed()
}
