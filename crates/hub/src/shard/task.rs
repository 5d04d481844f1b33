//! The task around a [`Shard`]: streams of providers, resolutions on the cores, commands.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use events::{EventStream, SourceError, SourceMessage, Wanted};
use futures_util::StreamExt;
use futures_util::future::{AbortHandle, AbortRegistration, Abortable, BoxFuture};
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};

use super::{Effect, Joining, Outcome, OutletId, Reading, Shard, TriggerId, Work};
use crate::settings::{MESSAGES_PER_TURN, OFFERS_PER_TURN};
use crate::stats::{HubStats, TriggerView};
use crate::{Cores, GroupId, LiveOperation, Member, Renewal, Resolve, Source};

/// The maximum time for opening a stream. Providers that wait for their broker give up sooner.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// The interval between two polls of subscribers that do not keep up with catching up: about the time in which a socket
/// passes some of 64 KiB to a network.
const HELD_PAUSE: Duration = Duration::from_millis(5);

/// The interval between two polls of subscribers that wait for others to come, and of side readers.
const GATHER_PAUSE: Duration = Duration::from_millis(25);

/// The part of the interval in which all subscribers get their positions: clients may respond, and the clients of a
/// hundred thousand groups must not do so at the same moment.
const TOLD_PART: u32 = 4;

/// A command of the hub to a shard.
pub(crate) enum Command {
    Subscribe(Box<Joining>),
    OperationsBefore { generation: u64, reply: oneshot::Sender<Operations> },
    Advance { generation: u64, renewals: Vec<Renewal>, reply: oneshot::Sender<Operations> },
    ShutDown { done: oneshot::Sender<()> },
    Topology { reply: oneshot::Sender<Vec<TriggerView>> },
}

/// Groups and their operations.
pub(crate) type Operations = Vec<(GroupId, Arc<LiveOperation>)>;

/// A subscriber that left.
pub(crate) type Leave = (GroupId, OutletId, Member);

/// Reports that a subscriber left. Unbounded, because dropping a handle cannot wait; its length is bounded by the
/// number of subscribers, each of which leaves once.
#[derive(Clone, Debug)]
pub(crate) struct Leaver(mpsc::UnboundedSender<Leave>);

impl Leaver {
    pub(crate) fn channel() -> (Self, mpsc::UnboundedReceiver<Leave>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    pub(crate) fn leave(&self, leave: Leave) {
        // A stopped shard has ended all subscribers already.
        let _ = self.0.send(leave);
    }
}

/// The owner of a stream: a trigger, or a side reader of it with the number of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum StreamOf {
    Trigger(TriggerId),
    Reader(TriggerId, u64),
}

type Opening = Abortable<BoxFuture<'static, (StreamOf, Result<EventStream, SourceError>)>>;
type Messages = Abortable<BoxFuture<'static, Received>>;
type Resolving = Abortable<BoxFuture<'static, (GroupId, u64, Outcome)>>;

/// Messages from a stream. If there are none, the stream was dropped without an end.
struct Received {
    of: StreamOf,
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
    /// Aborts the pending work for a stream: opening it, or waiting for its next message.
    aborts: HashMap<StreamOf, AbortHandle>,
    /// Paused streams of side readers, and the messages that were already taken out of them.
    paused: HashMap<StreamOf, (EventStream, VecDeque<SourceMessage>)>,
    /// The time of the next poll of groups with subscribers that do not keep up.
    look_after_held: Option<tokio::time::Instant>,
    /// The time of the next poll of side readers and of subscribers that wait for others.
    look_after_gathered: Option<tokio::time::Instant>,
    telling: Telling,
}

/// The schedule of the rounds that send positions.
struct Telling {
    /// The time from the start of one round to the start of the next.
    interval: Option<Duration>,
    /// The time to begin a round, or to continue it. `None` if no group may need a position.
    next: Option<tokio::time::Instant>,
    /// The start of the round in progress.
    began: Option<tokio::time::Instant>,
}

impl ShardTask {
    pub(crate) fn new(
        shard: Shard,
        stats: Arc<HubStats>,
        cores: Arc<dyn Cores>,
        commands: mpsc::Receiver<Command>,
        leaves: mpsc::UnboundedReceiver<Leave>,
        position_interval: Option<Duration>,
    ) -> Self {
        Self {
            telling: Telling { interval: position_interval, next: None, began: None },
            shard,
            stats,
            cores,
            commands,
            leaves,
            opening: FuturesUnordered::new(),
            messages: FuturesUnordered::new(),
            resolving: FuturesUnordered::new(),
            aborts: HashMap::new(),
            paused: HashMap::new(),
            look_after_held: None,
            look_after_gathered: None,
        }
    }

    /// Runs until the hub is dropped; then everything ends.
    pub(crate) async fn run(mut self) {
        loop {
            let (held, gathered) = (self.look_after_held, self.look_after_gathered);
            let tell = self.telling.next;
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
                    if let Ok((of, result)) = opened {
                        self.opened(of, result);
                    }
                }
                Some(received) = self.messages.next() => {
                    if let Ok(received) = received {
                        self.received(received);
                    }
                }
                Some(resolved) = self.resolving.next() => {
                    if let Ok((group, ticket, outcome)) = resolved {
                        self.shard.resolved(group, ticket, outcome);
                    }
                }
                () = sleep_until(held) => {
                    self.look_after_held = None;
                    self.shard.look_after_held();
                }
                () = sleep_until(gathered) => {
                    self.look_after_gathered = None;
                    self.shard.look_after_gathered();
                }
                () = sleep_until(tell) => self.tell_positions(),
            }
            if self.telling.next.is_none() && self.shard.has_positions() {
                let now = tokio::time::Instant::now();
                self.telling.next = self.telling.interval.map(|interval| now + interval);
            }
            if self.shard.is_gathering() && self.look_after_gathered.is_none() {
                self.look_after_gathered = Some(tokio::time::Instant::now() + GATHER_PAUSE);
            }
            if self.shard.is_holding() && self.look_after_held.is_none() {
                self.look_after_held = Some(tokio::time::Instant::now() + HELD_PAUSE);
            }
            self.perform();
            // Left-over messages are always ready, so other tasks of this thread need a chance to run.
            tokio::task::coop::consume_budget().await;
        }
        self.shard.shut_down();
    }

    /// Continues a round of positions, or begins one.
    fn tell_positions(&mut self) {
        let Telling { interval: Some(interval), began, next } = &mut self.telling else { return };
        let now = tokio::time::Instant::now();
        let round_began = *began.get_or_insert(now);
        *next = if self.shard.tell_positions() {
            let turns = u32::try_from(self.shard.turns_of_round()).unwrap_or(u32::MAX);
            Some(now + *interval / TOLD_PART / turns)
        } else {
            *began = None;
            self.shard.has_positions().then(|| round_began + *interval)
        };
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

    fn opened(&mut self, of: StreamOf, result: Result<EventStream, SourceError>) {
        self.aborts.remove(&of);
        let (stream, result) = match result {
            Ok(stream) => (Some(stream), Ok(())),
            Err(error) => (None, Err(error)),
        };
        let wanted = match of {
            StreamOf::Trigger(trigger) => self.shard.opened(trigger, result),
            StreamOf::Reader(trigger, pass) => self.shard.reader_opened(trigger, pass, result),
        };
        if let Some(stream) = stream.filter(|_| wanted) {
            self.listen(of, stream, VecDeque::new());
        }
    }

    /// Waits for the next messages of a stream. Left-over messages are handled first.
    fn listen(
        &mut self,
        of: StreamOf,
        mut stream: EventStream,
        mut messages: VecDeque<SourceMessage>,
    ) {
        let (handle, registration) = AbortHandle::new_pair();
        self.aborts.insert(of, handle);
        let next: BoxFuture<'static, Received> = Box::pin(async move {
            if messages.is_empty() {
                let mut taken = Vec::from(messages);
                stream.messages.recv_many(&mut taken, MESSAGES_PER_TURN).await;
                messages = taken.into();
            }
            Received { of, stream, messages }
        });
        self.messages.push(Abortable::new(next, registration));
    }

    fn received(&mut self, received: Received) {
        let Received { of, stream, messages } = received;
        self.aborts.remove(&of);
        match of {
            StreamOf::Trigger(trigger) => self.received_by_trigger(trigger, stream, messages),
            StreamOf::Reader(trigger, pass) => {
                self.received_by_reader(trigger, pass, stream, messages);
            }
        }
    }

    fn received_by_trigger(
        &mut self,
        trigger: TriggerId,
        stream: EventStream,
        mut messages: VecDeque<SourceMessage>,
    ) {
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
        self.listen(StreamOf::Trigger(trigger), stream, messages);
    }

    /// Handles messages of a side reader. Messages after its end are dropped with the stream.
    fn received_by_reader(
        &mut self,
        trigger: TriggerId,
        pass: u64,
        stream: EventStream,
        mut messages: VecDeque<SourceMessage>,
    ) {
        if messages.is_empty() {
            self.shard.reader_message(trigger, pass, None);
            return;
        }
        while let Some(message) = messages.pop_front() {
            match self.shard.reader_message(trigger, pass, Some(message)) {
                Reading::On => {}
                Reading::Over => return,
                Reading::Pause => {
                    self.paused.insert(StreamOf::Reader(trigger, pass), (stream, messages));
                    return;
                }
            }
        }
        self.listen(StreamOf::Reader(trigger, pass), stream, messages);
    }

    fn perform(&mut self) {
        for effect in self.shard.take_effects() {
            match effect {
                Effect::Open { trigger, source } => {
                    let wanted = source.wanted().clone();
                    self.open(StreamOf::Trigger(trigger), source, wanted);
                }
                Effect::Close { trigger } => self.close(StreamOf::Trigger(trigger)),
                Effect::OpenReader { trigger, pass, source, wanted } => {
                    self.open(StreamOf::Reader(trigger, pass), source, wanted);
                }
                Effect::ReadOn { trigger, pass } => {
                    let of = StreamOf::Reader(trigger, pass);
                    if let Some((stream, messages)) = self.paused.remove(&of) {
                        self.listen(of, stream, messages);
                    }
                }
                Effect::CloseReader { trigger, pass } => {
                    self.close(StreamOf::Reader(trigger, pass));
                }
                Effect::Resolve { group, ticket, work, resolve, abort } => {
                    let answer = place(&*self.cores, work, resolve);
                    self.await_answer(group, ticket, answer, abort);
                }
            }
        }
    }

    fn close(&mut self, of: StreamOf) {
        self.paused.remove(&of);
        if let Some(abort) = self.aborts.remove(&of) {
            abort.abort();
        }
    }

    fn open(&mut self, of: StreamOf, source: Source, wanted: Wanted) {
        let (handle, registration) = AbortHandle::new_pair();
        self.aborts.insert(of, handle);
        let open: BoxFuture<'static, _> = Box::pin(async move {
            let provider = source.provider();
            let opening = provider.subscribe(wanted);
            let result = match tokio::time::timeout(OPEN_TIMEOUT, opening).await {
                Ok(result) => result,
                Err(_) => Err(SourceError::Unavailable {
                    provider: provider.name().into(),
                    reason: format!("no response within {OPEN_TIMEOUT:?}"),
                }),
            };
            (of, result)
        });
        self.opening.push(Abortable::new(open, registration));
    }

    fn await_answer(
        &mut self,
        group: GroupId,
        ticket: u64,
        answer: oneshot::Receiver<Outcome>,
        abort: AbortRegistration,
    ) {
        let (began, stats) = (Instant::now(), Arc::clone(&self.stats));
        let answered: BoxFuture<'static, _> = Box::pin(async move {
            let outcome = answer.await.unwrap_or(Outcome::BrokeOff);
            stats.resolve_durations.add(began.elapsed());
            (group, ticket, outcome)
        });
        self.resolving.push(Abortable::new(answered, abort));
    }
}

/// Sleeps until `instant`, or for ever without one.
async fn sleep_until(instant: Option<tokio::time::Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// Schedules a resolution on a core. The resolution is dropped there when its result is no longer needed.
fn place(cores: &dyn Cores, work: Work, resolve: Arc<dyn Resolve>) -> oneshot::Receiver<Outcome> {
    let (mut sender, answer) = oneshot::channel();
    cores.run(Box::new(move || {
        Box::pin(async move {
            let outcome = {
                let resolving = async {
                    match work {
                        Work::Event(event) => Outcome::Payload(resolve.resolve(event).await),
                        Work::Batch(events) => Outcome::Batch(resolve.resolve_batch(events).await),
                        Work::State => {
                            resolve.state().await.map_or(Outcome::Nothing, Outcome::Payload)
                        }
                    }
                };
                tokio::select! {
                    outcome = resolving => outcome,
                    () = sender.closed() => return,
                }
            };
            // Fails only if the result is no longer needed.
            let _ = sender.send(outcome);
        })
    }));
    answer
}
