//! The task around a [`Shard`]: streams of providers, resolutions on the cores, commands.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use events::{EventStream, SourceError, SourceMessage};
use execute::Payload;
use futures_util::StreamExt;
use futures_util::future::{AbortHandle, AbortRegistration, Abortable, BoxFuture};
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};

use super::{Effect, Joining, OutletId, Shard, TriggerId};
use crate::settings::{MESSAGES_PER_TURN, OFFERS_PER_TURN};
use crate::stats::{HubStats, TriggerView};
use crate::{Cores, GroupId, LiveOperation, Member, Renewal, Resolve, Source, TriggerEvent};

/// How long a provider may take to open a stream. Providers that wait for their broker give up sooner.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// What the hub asks of a shard.
pub(crate) enum Command {
    Subscribe(Box<Joining>),
    OperationsBefore { generation: u64, reply: oneshot::Sender<Operations> },
    Advance { generation: u64, renewals: Vec<Renewal>, reply: oneshot::Sender<Operations> },
    ShutDown { done: oneshot::Sender<()> },
    Topology { reply: oneshot::Sender<Vec<TriggerView>> },
}

/// Groups and what they run on.
pub(crate) type Operations = Vec<(GroupId, Arc<LiveOperation>)>;

/// Somebody who left.
pub(crate) type Leave = (GroupId, OutletId, Member);

/// Reports that a subscriber left. Unbounded, because dropping a handle cannot wait; its length is bounded
/// by the number of subscribers, each of whom leaves once.
#[derive(Clone, Debug)]
pub(crate) struct Leaver(mpsc::UnboundedSender<Leave>);

impl Leaver {
    pub(crate) fn channel() -> (Self, mpsc::UnboundedReceiver<Leave>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    pub(crate) fn leave(&self, leave: Leave) {
        // A shard that is gone has ended everybody already.
        let _ = self.0.send(leave);
    }
}

type Opening = Abortable<BoxFuture<'static, (TriggerId, Result<EventStream, SourceError>)>>;
type Messages = Abortable<BoxFuture<'static, Received>>;
type Resolving = Abortable<BoxFuture<'static, (GroupId, u64, Option<Payload>)>>;

/// What came from a trigger's stream. No messages: it was dropped without a word.
struct Received {
    trigger: TriggerId,
    stream: EventStream,
    messages: VecDeque<SourceMessage>,
}

pub(crate) struct ShardTask {
    shard: Shard,
    stats: Arc<HubStats>,
    cores: Arc<dyn Cores>,
    commands: mpsc::Receiver<Command>,
    leaves: mpsc::UnboundedReceiver<Leave>,
    opening: FuturesUnordered<Opening>,
    messages: FuturesUnordered<Messages>,
    resolving: FuturesUnordered<Resolving>,
    /// Ends what goes on for a trigger: opening it, or waiting for its next message.
    aborts: HashMap<TriggerId, AbortHandle>,
}

impl ShardTask {
    pub(crate) fn new(
        shard: Shard,
        stats: Arc<HubStats>,
        cores: Arc<dyn Cores>,
        commands: mpsc::Receiver<Command>,
        leaves: mpsc::UnboundedReceiver<Leave>,
    ) -> Self {
        Self {
            shard,
            stats,
            cores,
            commands,
            leaves,
            opening: FuturesUnordered::new(),
            messages: FuturesUnordered::new(),
            resolving: FuturesUnordered::new(),
            aborts: HashMap::new(),
        }
    }

    /// Until the hub is dropped; then everything ends.
    pub(crate) async fn run(mut self) {
        loop {
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.command(command),
                    None => break,
                },
                Some((group, outlet, member)) = self.leaves.recv() => {
                    self.shard.leave(group, outlet, member);
                    for _ in 1..MESSAGES_PER_TURN {
                        let Ok((group, outlet, member)) = self.leaves.try_recv() else { break };
                        self.shard.leave(group, outlet, member);
                    }
                }
                Some(opened) = self.opening.next() => {
                    if let Ok((trigger, result)) = opened {
                        self.opened(trigger, result);
                    }
                }
                Some(received) = self.messages.next() => {
                    if let Ok(received) = received {
                        self.received(received);
                    }
                }
                Some(resolved) = self.resolving.next() => {
                    if let Ok((group, ticket, payload)) = resolved {
                        self.shard.resolved(group, ticket, payload);
                    }
                }
            }
            self.perform();
            // Left-over messages are always ready; others on this thread must get their turn too.
            tokio::task::coop::consume_budget().await;
        }
        self.shard.shut_down();
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Subscribe(joining) => self.shard.subscribe(*joining),
            Command::OperationsBefore { generation, reply } => {
                let _ = reply.send(self.shard.operations_before(generation));
            }
            Command::Advance { generation, renewals, reply } => {
                let _ = reply.send(self.shard.advance(generation, renewals));
            }
            Command::ShutDown { done } => {
                self.shard.shut_down();
                let _ = done.send(());
            }
            Command::Topology { reply } => {
                let _ = reply.send(self.shard.topology());
            }
        }
    }

    fn opened(&mut self, trigger: TriggerId, result: Result<EventStream, SourceError>) {
        self.aborts.remove(&trigger);
        let (stream, result) = match result {
            Ok(stream) => (Some(stream), Ok(())),
            Err(error) => (None, Err(error)),
        };
        let wanted = self.shard.opened(trigger, result);
        if let Some(stream) = stream.filter(|_| wanted) {
            self.listen(trigger, stream, VecDeque::new());
        }
    }

    /// Waits for the next messages of a stream. Those left over from last time come first.
    fn listen(
        &mut self,
        trigger: TriggerId,
        mut stream: EventStream,
        mut messages: VecDeque<SourceMessage>,
    ) {
        let (handle, registration) = AbortHandle::new_pair();
        self.aborts.insert(trigger, handle);
        let next: BoxFuture<'static, Received> = Box::pin(async move {
            if messages.is_empty() {
                let mut taken = Vec::from(messages);
                stream.messages.recv_many(&mut taken, MESSAGES_PER_TURN).await;
                messages = taken.into();
            }
            Received { trigger, stream, messages }
        });
        self.messages.push(Abortable::new(next, registration));
    }

    fn received(&mut self, received: Received) {
        let Received { trigger, stream, mut messages } = received;
        self.aborts.remove(&trigger);
        if messages.is_empty() {
            self.shard.source_message(trigger, None);
            return;
        }
        let mut offers = 0;
        while offers < OFFERS_PER_TURN
            && let Some(message) = messages.pop_front()
        {
            let is_last = matches!(message, SourceMessage::End(_));
            offers += self.shard.source_message(trigger, Some(message)).max(1);
            if is_last {
                return;
            }
        }
        self.listen(trigger, stream, messages);
    }

    fn perform(&mut self) {
        for effect in self.shard.take_effects() {
            match effect {
                Effect::Open { trigger, source } => self.open(trigger, source),
                Effect::Close { trigger } => {
                    if let Some(abort) = self.aborts.remove(&trigger) {
                        abort.abort();
                    }
                }
                Effect::Resolve { group, ticket, event, resolve, abort } => {
                    let answer = place(&*self.cores, event, resolve);
                    self.await_answer(group, ticket, answer, abort);
                }
            }
        }
    }

    fn open(&mut self, trigger: TriggerId, source: Source) {
        let (handle, registration) = AbortHandle::new_pair();
        self.aborts.insert(trigger, handle);
        let open: BoxFuture<'static, _> = Box::pin(async move {
            let provider = source.provider();
            let opening = provider.subscribe(source.wanted().clone());
            let result = match tokio::time::timeout(OPEN_TIMEOUT, opening).await {
                Ok(result) => result,
                Err(_) => Err(SourceError::Unavailable {
                    provider: provider.name().into(),
                    reason: format!("no answer within {OPEN_TIMEOUT:?}"),
                }),
            };
            (trigger, result)
        });
        self.opening.push(Abortable::new(open, registration));
    }

    fn await_answer(
        &mut self,
        group: GroupId,
        ticket: u64,
        answer: oneshot::Receiver<Payload>,
        abort: AbortRegistration,
    ) {
        let (began, stats) = (Instant::now(), Arc::clone(&self.stats));
        let answered: BoxFuture<'static, _> = Box::pin(async move {
            let payload = answer.await.ok();
            stats.resolve_durations.add(began.elapsed());
            (group, ticket, payload)
        });
        self.resolving.push(Abortable::new(answered, abort));
    }
}

/// Resolves on a core. When nobody waits for the answer any more, the resolution is dropped there.
fn place(
    cores: &dyn Cores,
    event: TriggerEvent,
    resolve: Arc<dyn Resolve>,
) -> oneshot::Receiver<Payload> {
    let (mut sender, answer) = oneshot::channel();
    cores.run(Box::new(move || {
        Box::pin(async move {
            let payload = {
                let resolving = resolve.resolve(event);
                tokio::select! {
                    payload = resolving => payload,
                    () = sender.closed() => return,
                }
            };
            // Fails only if it is no longer wanted.
            let _ = sender.send(payload);
        })
    }));
    answer
}
