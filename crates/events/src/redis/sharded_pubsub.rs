//! ShardedPubSub Pub/Sub: in a cluster, a channel whose events go through the one node that has its slot, where those of
//! ordinary Pub/Sub go through all nodes. A node has one connection for all its channels.
//!
//! A stream over channels at several nodes is put together of one part for each. When a slot moves or its node
//! fails, the part is opened anew at the node that has it then, and the stream hears of a gap.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use super::address::RedisAddress;
use super::dialer::DialerFactory;
use super::discovery::{Cluster, ServerSource, slot_of};
use super::subscriber::{Subscriber, SubscriberKind};
use super::subscriptions::MOVED;

use crate::backoff::Backoff;
use crate::connection_state::{
    self, COMMANDS_MAX, ConnectionState, SubscribeCommand, wait_connected,
};
use crate::{EventStream, SourceError, SourceMessage, Start, StreamEnd, Wanted};

/// ClusterConnections that are listened to at a time: as many as a cluster is advised to have.
const NODES_MAX: usize = 1000;

/// After a loss, how often it is looked whether another node has taken over.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Messages that wait between the parts and the reader: the parts have queues of their own.
const MESSAGES_MAX: usize = 16;

/// The connection to one node.
#[derive(Clone)]
struct NodeSubscriber {
    state: watch::Receiver<ConnectionState<()>>,
    commands: mpsc::Sender<SubscribeCommand>,
}

/// What the streams of a provider have in common.
pub(super) struct ShardedPubSub {
    cluster: Arc<Cluster>,
    dialers: DialerFactory,
    queue_events: usize,
    runtime: tokio::runtime::Handle,
    nodes: Mutex<HashMap<String, NodeSubscriber>>,
}

/// SubscriptionTable that one node has, and what comes of them.
struct NodeStream {
    topics: Vec<Box<str>>,
    node: String,
    stream: EventStream,
}

impl ShardedPubSub {
    /// Must be called inside a Tokio runtime.
    pub(super) fn new(
        cluster: Arc<Cluster>,
        dialers: DialerFactory,
        queue_events: usize,
    ) -> Arc<Self> {
        let runtime = tokio::runtime::Handle::current();
        Arc::new(Self { cluster, dialers, queue_events, runtime, nodes: Mutex::default() })
    }

    pub(super) async fn open(
        self: &Arc<Self>,
        provider: &str,
        wanted: Wanted,
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

    /// One part for each node that has some of the topics, by what is known of the cluster after `since`.
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
            let wanted = Wanted::new(topics.clone()).starting(start.clone());
            let stream = connection_state::subscribe(&commands, wanted).await?;
            parts.push(NodeStream { topics, node, stream });
        }
        Ok(parts)
    }

    fn subscriber_of(&self, address: &RedisAddress) -> NodeSubscriber {
        let name = address.display_name();
        // No code that can panic runs while the lock is held; if one ever did, the map would still be whole.
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(node) = nodes.get(&name) {
            return node.clone();
        }
        if nodes.len() >= NODES_MAX {
            // ClusterConnections of long ago: their connections end, and streams that still have parts there move on.
            nodes.clear();
        }
        let (state_sender, state) = ConnectionState::channel();
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let subscriber = Subscriber::new(
            SubscriberKind::Sharded,
            self.dialers.provider.clone(),
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

/// Follows the channels of one stream wherever they go.
struct ShardedStream {
    /// The provider may be dropped meanwhile.
    sharded: Weak<ShardedPubSub>,
    sender: mpsc::Sender<SourceMessage>,
    parts: Vec<NodeStream>,
    /// Which part is looked at first, so that a busy one does not silence the others.
    turn: usize,
    /// The latest message was a gap: another would say nothing new.
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
                    SourceMessage::Event(_) | SourceMessage::Passed(_) => {
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

    /// The next message of any part, and the index of the part. A part that has ended without a word was of a
    /// provider that is no more.
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

    /// Opens the topics of a part where they are now. False if nobody wants them any more.
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
                    let provider = &sharded.dialers.provider;
                    tracing::debug!(%provider, reason, "no node has the channels at present");
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

    /// Moves the parts whose node has lost its slots. Is a node away, so that this has to be looked at again?
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

/// Nobody wants the stream any more, or the provider is gone.
struct StreamDropped;
