//! Sharded Pub/Sub: in a cluster, a channel whose events go through the one node that has its slot, where those of
//! ordinary Pub/Sub go through all nodes. A node has one connection for all its channels.
//!
//! A stream over channels at several nodes is put together of one part for each. When a slot moves or its node
//! fails, the part is opened anew at the node that has it then, and the stream hears of a gap.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};

use super::address::Address;
use super::channels::MOVED;
use super::dialer::Dialing;
use super::subscriber::{Command, Kind, Subscriber};
use super::targets::{Cluster, Targets, slot_of};
use super::{COMMANDS_MAX, Link, soon};
use crate::backoff::Backoff;
use crate::{EventStream, SourceError, SourceMessage, Start, StreamEnd, Wanted};

/// Nodes that are listened to at a time: as many as a cluster is advised to have.
const NODES_MAX: usize = 1000;

/// After a loss, how often it is looked whether another node has taken over.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Messages that wait between the parts and the reader: the parts have queues of their own.
const MESSAGES_MAX: usize = 16;

/// The connection to one node.
#[derive(Clone)]
struct Node {
    link: watch::Receiver<Link<()>>,
    commands: mpsc::Sender<Command>,
}

/// What the streams of a provider have in common.
pub(super) struct Sharded {
    cluster: Arc<Cluster>,
    dialing: Dialing,
    queue_events: usize,
    runtime: tokio::runtime::Handle,
    nodes: Mutex<HashMap<String, Node>>,
}

/// Channels that one node has, and what comes of them.
struct Part {
    topics: Vec<Box<str>>,
    node: String,
    stream: EventStream,
}

impl Sharded {
    /// Must be called inside a Tokio runtime.
    pub(super) fn new(cluster: Arc<Cluster>, dialing: Dialing, queue_events: usize) -> Arc<Self> {
        let runtime = tokio::runtime::Handle::current();
        Arc::new(Self { cluster, dialing, queue_events, runtime, nodes: Mutex::default() })
    }

    pub(super) async fn open(
        self: &Arc<Self>,
        provider: &str,
        wanted: Wanted,
    ) -> Result<EventStream, SourceError> {
        let parts = self.parts(&wanted.topics, &wanted.start, Instant::now()).await;
        let parts = parts
            .map_err(|reason| SourceError::Unavailable { provider: provider.into(), reason })?;
        let (sender, messages) = mpsc::channel(MESSAGES_MAX);
        let following =
            Following { sharded: Arc::downgrade(self), sender, parts, turn: 0, told: false };
        self.runtime.spawn(following.run());
        Ok(EventStream { messages })
    }

    /// One part for each node that has some of the topics, by what is known of the cluster after `since`.
    async fn parts(
        &self,
        topics: &[Box<str>],
        start: &Start,
        since: Instant,
    ) -> Result<Vec<Part>, String> {
        let mut by_node: BTreeMap<String, (Address, Vec<Box<str>>)> = BTreeMap::new();
        for topic in topics {
            let owner = self.cluster.owner(slot_of(topic), since).await?;
            let name = owner.for_logs();
            by_node.entry(name).or_insert_with(|| (owner, Vec::new())).1.push(topic.clone());
        }
        let mut parts = Vec::with_capacity(by_node.len());
        for (node, (address, topics)) in by_node {
            let Node { link, commands } = self.node(&address);
            soon(&link).await?;
            let (reply, answer) = oneshot::channel();
            let wanted = Wanted::new(topics.clone()).starting(start.clone());
            let closed = || "the provider was closed".to_owned();
            commands.send(Command::Subscribe { wanted, reply }).await.map_err(|_| closed())?;
            let stream = answer.await.map_err(|_| closed())??;
            parts.push(Part { topics, node, stream });
        }
        Ok(parts)
    }

    fn node(&self, address: &Address) -> Node {
        let name = address.for_logs();
        // No code that can panic runs while the lock is held; if one ever did, the map would still be whole.
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(node) = nodes.get(&name) {
            return node.clone();
        }
        if nodes.len() >= NODES_MAX {
            // Nodes of long ago: their connections end, and streams that still have parts there move on.
            nodes.clear();
        }
        let (link_sender, link) = watch::channel(Link::Away("not connected yet".into()));
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let subscriber = Subscriber::new(
            Kind::Sharded,
            self.dialing.provider.clone(),
            self.dialing.dialer_to("sharded channels", Targets::Any([address.clone()].into())),
            self.queue_events,
            Arc::clone(&self.dialing.stats),
            link_sender,
            receiver,
        );
        self.runtime.spawn(subscriber.run());
        let node = Node { link, commands };
        nodes.insert(name, node.clone());
        node
    }
}

/// Follows the channels of one stream wherever they go.
struct Following {
    /// The provider may be dropped meanwhile.
    sharded: Weak<Sharded>,
    sender: mpsc::Sender<SourceMessage>,
    parts: Vec<Part>,
    /// Which part is looked at first, so that a busy one does not silence the others.
    turn: usize,
    /// The latest message was a gap: another would say nothing new.
    told: bool,
}

impl Following {
    async fn run(mut self) {
        let mut look_at: Option<Instant> = None;
        let closed = self.sender.clone();
        loop {
            let look = async {
                match look_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = closed.closed() => return,
                (part, message) = self.message() => match message {
                    SourceMessage::Gap => {
                        look_at = Some(Instant::now() + LOOK_AGAIN);
                        self.gap().await;
                    }
                    SourceMessage::End(StreamEnd::Refused(reason)) if reason.starts_with(MOVED) => {
                        if !self.move_on(part).await {
                            return;
                        }
                    }
                    SourceMessage::End(_) => {
                        let _ = self.sender.send(message).await;
                        return;
                    }
                    SourceMessage::Event(_) | SourceMessage::Passed(_) => {
                        self.told = false;
                        let _ = self.sender.send(message).await;
                    }
                },
                () = look => {
                    look_at = match self.look().await {
                        Ok(is_away) => is_away.then(|| Instant::now() + LOOK_AGAIN),
                        Err(Dropped) => return,
                    };
                }
            }
        }
    }

    /// The next message of any part, and the index of the part. A part that has ended without a word was of a
    /// provider that is no more.
    async fn message(&mut self) -> (usize, SourceMessage) {
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

    async fn gap(&mut self) {
        if !std::mem::replace(&mut self.told, true) {
            let _ = self.sender.send(SourceMessage::Gap).await;
        }
    }

    /// Opens the topics of a part where they are now. False if nobody wants them any more.
    async fn move_on(&mut self, part: usize) -> bool {
        let Part { topics, .. } = self.parts.swap_remove(part);
        self.gap().await;
        let mut backoff = None;
        loop {
            let Some(sharded) = self.sharded.upgrade() else { return false };
            let retry = sharded.dialing.retry;
            match sharded.parts(&topics, &Start::New, Instant::now()).await {
                Ok(parts) => {
                    self.parts.extend(parts);
                    return true;
                }
                Err(reason) => {
                    let provider = &sharded.dialing.provider;
                    tracing::debug!(%provider, reason, "no node has the channels at present");
                }
            }
            drop(sharded);
            let wait = backoff.get_or_insert_with(|| Backoff::new(retry)).next();
            tokio::select! {
                () = self.sender.closed() => return false,
                () = sleep(wait) => {}
            }
        }
    }

    /// Moves the parts whose node has lost its slots. Is a node away, so that this has to be looked at again?
    async fn look(&mut self) -> Result<bool, Dropped> {
        let since = Instant::now();
        let mut is_away = false;
        let mut part = 0;
        while part < self.parts.len() {
            let sharded = self.sharded.upgrade().ok_or(Dropped)?;
            let Part { topics, node, .. } = &self.parts[part];
            let mut has_moved = false;
            for topic in topics {
                match sharded.cluster.owner(slot_of(topic), since).await {
                    Ok(owner) if owner.for_logs() != *node => has_moved = true,
                    Ok(owner) => {
                        is_away |= !matches!(&*sharded.node(&owner).link.borrow(), Link::Up(()));
                    }
                    Err(_) => is_away = true,
                }
            }
            drop(sharded);
            if !has_moved {
                part += 1;
            } else if !self.move_on(part).await {
                return Err(Dropped);
            }
        }
        Ok(is_away)
    }
}

/// Nobody wants the stream any more, or the provider is gone.
struct Dropped;
