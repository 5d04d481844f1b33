//! Sharded Pub/Sub. In a cluster, the events of a sharded channel go through the one node that has its slot, whereas
//! those of ordinary Pub/Sub go through all nodes. There is one connection to each node for all its channels.
//!
//! A stream over channels at several nodes consists of one part for each node. When a slot moves or its node fails, the
//! part is opened again at the node that has the slot then, and the stream receives a gap.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use redis_connection::{Cluster, RedisAddress, ServerSource, slot_of};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use super::dialer::DialerFactory;
use super::subscriber::{Subscriber, SubscriberKind};
use super::subscriptions::MOVED;

use crate::backoff::Backoff;
use crate::connection_state::{
    self, COMMANDS_MAX, ConnectionState, SubscribeCommand, wait_connected,
};
use crate::{EventStream, SourceError, SourceMessage, Start, StreamEnd, StreamRequest};

/// The maximum number of nodes that are connected at a time: the recommended maximum size of a cluster.
const NODES_MAX: usize = 1000;

/// The interval at which, after a loss, the owner of the slots is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The number of messages that wait between the parts and the reader. The parts have queues of their own.
const MESSAGES_MAX: usize = 16;

/// The connection to one node.
#[derive(Clone)]
struct NodeSubscriber {
    state: watch::Receiver<ConnectionState<()>>,
    commands: mpsc::Sender<SubscribeCommand>,
}

/// The state that the sharded streams of a provider share.
pub(super) struct ShardedPubSub {
    cluster: Arc<Cluster>,
    dialers: DialerFactory,
    queue_events: usize,
    runtime: tokio::runtime::Handle,
    nodes: Mutex<HashMap<String, NodeSubscriber>>,
}

/// A part of a stream: the channels that one node has, and their events.
struct NodeStream {
    topics: Vec<Box<str>>,
    node: String,
    stream: EventStream,
}

impl ShardedPubSub {
    /// Makes the state. Must be called inside a Tokio runtime.
    pub(super) fn new(
        cluster: Arc<Cluster>,
        dialers: DialerFactory,
        queue_events: usize,
    ) -> Arc<Self> {
        let runtime = tokio::runtime::Handle::current();
        Arc::new(Self { cluster, dialers, queue_events, runtime, nodes: Mutex::default() })
    }

    /// Opens a stream. It is in force when this returns.
    pub(super) async fn open(
        self: &Arc<Self>,
        provider: &str,
        wanted: StreamRequest,
    ) -> Result<EventStream, SourceError> {
        let parts = self.open_parts(&wanted.topics, &wanted.start, Instant::now()).await;
        let parts = parts
            .map_err(|reason| SourceError::Unavailable { provider: provider.into(), reason })?;
        let (sender, messages) = mpsc::channel(MESSAGES_MAX);
        let stream = ShardedStream {
            sharded: Arc::downgrade(self),
            sender,
            parts,
            turn: 0,
            gap_sent: false,
        };
        self.runtime.spawn(stream.run());
        Ok(EventStream { messages })
    }

    /// Opens one part for each node that has some of the topics, by a slot map that was read after `since`.
    async fn open_parts(
        &self,
        topics: &[Box<str>],
        start: &Start,
        since: Instant,
    ) -> Result<Vec<NodeStream>, String> {
        let mut by_node: BTreeMap<String, (RedisAddress, Vec<Box<str>>)> = BTreeMap::new();
        for topic in topics {
            let owner = self.cluster.find_owner(slot_of(topic), since).await?;
            let name = owner.display_name();
            by_node.entry(name).or_insert_with(|| (owner, Vec::new())).1.push(topic.clone());
        }
        let mut parts = Vec::with_capacity(by_node.len());
        for (node, (address, topics)) in by_node {
            let NodeSubscriber { state, commands } = self.subscriber_of(&address);
            wait_connected(&state).await?;
            let wanted = StreamRequest::new(topics.clone()).with_start(start.clone());
            let stream = connection_state::subscribe(&commands, wanted).await?;
            parts.push(NodeStream { topics, node, stream });
        }
        Ok(parts)
    }

    fn subscriber_of(&self, address: &RedisAddress) -> NodeSubscriber {
        let name = address.display_name();
        // No code that can panic runs while the lock is held. Even if it did, the map would be consistent.
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(node) = nodes.get(&name) {
            return node.clone();
        }
        if nodes.len() >= NODES_MAX {
            // These are nodes of long ago. Their connections end, and streams that still have parts there reopen them.
            nodes.clear();
        }
        let (state_sender, state) = ConnectionState::channel();
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let subscriber = Subscriber::new(
            SubscriberKind::Sharded,
            Arc::clone(&self.dialers.log),
            self.dialers
                .dialer_for("sharded channels", ServerSource::Any([address.clone()].into())),
            self.queue_events,
            Arc::clone(&self.dialers.stats),
            state_sender,
            receiver,
        );
        self.runtime.spawn(subscriber.run());
        let node = NodeSubscriber { state, commands };
        nodes.insert(name, node.clone());
        node
    }
}

/// The task of one stream. It reopens the parts whose channels move to other nodes.
struct ShardedStream {
    /// A weak reference, because the provider may be dropped meanwhile.
    sharded: Weak<ShardedPubSub>,
    sender: mpsc::Sender<SourceMessage>,
    parts: Vec<NodeStream>,
    /// The part that is polled first. It changes each time, so that a busy part does not silence the others.
    turn: usize,
    /// True if the latest message was a gap, so that another one would say nothing new.
    gap_sent: bool,
}

impl ShardedStream {
    async fn run(mut self) {
        let mut check_at: Option<Instant> = None;
        let closed = self.sender.clone();
        loop {
            let check = async {
                match check_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = closed.closed() => return,
                (part, message) = self.next_message() => match message {
                    SourceMessage::Gap => {
                        check_at = Some(Instant::now() + CHECK_INTERVAL);
                        self.announce_gap().await;
                    }
                    SourceMessage::End(StreamEnd::Refused(reason)) if reason.starts_with(MOVED) => {
                        if !self.reopen_part(part).await {
                            return;
                        }
                    }
                    SourceMessage::End(_) => {
                        let _ = self.sender.send(message).await;
                        return;
                    }
                    SourceMessage::Event(_) | SourceMessage::Progress(_) => {
                        self.gap_sent = false;
                        let _ = self.sender.send(message).await;
                    }
                },
                () = check => {
                    check_at = match self.check_owners().await {
                        Ok(is_away) => is_away.then(|| Instant::now() + CHECK_INTERVAL),
                        Err(StreamDropped) => return,
                    };
                }
            }
        }
    }

    /// Returns the next message of any part, and the index of the part. A part that has ended without a message
    /// belonged to a provider that was dropped.
    async fn next_message(&mut self) -> (usize, SourceMessage) {
        std::future::poll_fn(|context| {
            let parts = self.parts.len();
            self.turn = self.turn.wrapping_add(1);
            for step in 0..parts {
                let part = self.turn.wrapping_add(step) % parts;
                if let Poll::Ready(message) = self.parts[part].stream.messages.poll_recv(context) {
                    let message = message.unwrap_or(SourceMessage::End(StreamEnd::Closed));
                    return Poll::Ready((part, message));
                }
            }
            Poll::Pending
        })
        .await
    }

    async fn announce_gap(&mut self) {
        if !std::mem::replace(&mut self.gap_sent, true) {
            let _ = self.sender.send(SourceMessage::Gap).await;
        }
    }

    /// Opens the topics of a part at their current nodes. Returns false if the stream or the provider was dropped.
    async fn reopen_part(&mut self, part: usize) -> bool {
        let NodeStream { topics, .. } = self.parts.swap_remove(part);
        self.announce_gap().await;
        let mut backoff = None;
        loop {
            let Some(sharded) = self.sharded.upgrade() else { return false };
            let retry = sharded.dialers.retry;
            match sharded.open_parts(&topics, &Start::New, Instant::now()).await {
                Ok(parts) => {
                    self.parts.extend(parts);
                    return true;
                }
                Err(reason) => {
                    let provider = sharded.dialers.log.provider();
                    tracing::debug!(provider, reason, "no node has the channels at present");
                }
            }
            drop(sharded);
            let wait = backoff.get_or_insert_with(|| Backoff::new(retry)).next_delay();
            tokio::select! {
                () = self.sender.closed() => return false,
                () = sleep(wait) => {}
            }
        }
    }

    /// Reopens the parts whose node has lost its slots. Returns true if a node is unavailable, so that the check must
    /// be repeated.
    async fn check_owners(&mut self) -> Result<bool, StreamDropped> {
        let since = Instant::now();
        let mut is_away = false;
        let mut part = 0;
        while part < self.parts.len() {
            let sharded = self.sharded.upgrade().ok_or(StreamDropped)?;
            let NodeStream { topics, node, .. } = &self.parts[part];
            let mut has_moved = false;
            for topic in topics {
                match sharded.cluster.find_owner(slot_of(topic), since).await {
                    Ok(owner) if owner.display_name() != *node => has_moved = true,
                    Ok(owner) => {
                        is_away |= !sharded.subscriber_of(&owner).state.borrow().is_connected();
                    }
                    Err(_) => is_away = true,
                }
            }
            drop(sharded);
            if !has_moved {
                part += 1;
            } else if !self.reopen_part(part).await {
                return Err(StreamDropped);
            }
        }
        Ok(is_away)
    }
}

/// The stream or the provider was dropped.
struct StreamDropped;
