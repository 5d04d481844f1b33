//! The task around a [`Shard`]: streams of providers, resolutions here and on the cores, commands.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bindings::Source;
use events::{EventStream, SourceError, SourceMessage, StreamRequest};
use futures_util::future::{AbortHandle, AbortRegistration, Abortable, Aborted, BoxFuture};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, oneshot};

use super::leave_sender::Leave;
use super::local_resolutions::{self, OWN_PER_TURN, OwnResolution, WorkerBatch};
use super::{
    Effect, PendingSubscriber, ReaderStep, ResolutionOutcome, ResolutionWork, Shard, TriggerId,
};
use crate::event_spans::{EventSpans, EventTracer};
use crate::settings::{MESSAGES_PER_TURN, OFFERS_PER_TURN};
use crate::stats::{HubStats, TriggerView};
use crate::{GroupId, HubSettings, LiveOperation, OperationUpdate, Resolve, Workers};

/// The maximum time for opening a stream. Providers that wait for their broker give up sooner.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// The number of streams, or of resolutions, that are handled in one turn if they are ready.
const READY_PER_TURN: usize = 16;

/// The interval between two polls of subscribers that do not keep up with catching up: about the time in which a socket
/// passes some of 64 KiB to a network.
const BACKPRESSURE_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The interval between two polls of subscribers that wait for others to come, and of side readers.
const READER_POLL_INTERVAL: Duration = Duration::from_millis(25);

/// The part of the interval in which all subscribers get their positions: clients may respond, and the clients of a
/// hundred thousand groups must not do so at the same moment.
const ROUND_PART: u32 = 4;

/// A command of the hub to a shard.
pub(crate) enum Command {
    /// Subscribers that come together.
    Subscribe(Vec<PendingSubscriber>),
    OperationsBefore {
        generation: u64,
        reply: oneshot::Sender<Operations>,
    },
    Advance {
        generation: u64,
        renewals: Vec<OperationUpdate>,
        reply: oneshot::Sender<Operations>,
    },
    ShutDown {
        done: oneshot::Sender<()>,
    },
    Topology {
        reply: oneshot::Sender<Vec<TriggerView>>,
    },
    Operation {
        group: GroupId,
        reply: oneshot::Sender<Option<Arc<LiveOperation>>>,
    },
}

/// Groups and their operations.
pub(crate) type Operations = Vec<(GroupId, Arc<LiveOperation>)>;

/// The owner of a stream: a trigger, or a side reader of it with the number of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum StreamOwner {
    Trigger(TriggerId),
    Reader(TriggerId, u64),
}

/// The stream of a source that is wanted.
enum WantedStream {
    /// The stream for new subscribers.
    New,
    /// The same for groups that move to the source.
    Move,
    /// Another stream over its topics.
    Reader(StreamRequest),
}

type Opening = Abortable<BoxFuture<'static, (StreamOwner, Result<EventStream, SourceError>)>>;
type Messages = Abortable<BoxFuture<'static, Received>>;
type Resolving = Abortable<BoxFuture<'static, ResolvedGroup>>;

/// A group, the ticket of its resolution, and the outcome.
type ResolvedGroup = (GroupId, u64, ResolutionOutcome);

/// Messages from a stream. If there are none, the stream was dropped without an end.
struct Received {
    of: StreamOwner,
    stream: EventStream,
    messages: VecDeque<SourceMessage>,
}

/// The task of one shard: it feeds the shard with commands and messages, and performs its effects.
pub(crate) struct ShardTask {
    shard: Shard,
    stats: Arc<HubStats>,
    cores: Arc<dyn Workers>,
    /// See [`HubSettings::own_resolving_max`].
    own_resolving_max: Duration,
    /// Records the traces of events and initial states, if any are exported.
    tracer: Option<EventTracer>,
    commands: mpsc::Receiver<Command>,
    leaves: mpsc::UnboundedReceiver<Leave>,
    opening: FuturesUnordered<Opening>,
    messages: FuturesUnordered<Messages>,
    resolving: FuturesUnordered<Resolving>,
    /// Aborts the pending work for a stream: opening it, or waiting for its next message.
    aborts: HashMap<StreamOwner, AbortHandle>,
    /// Paused streams of side readers, and the messages that were already taken out of them.
    paused: HashMap<StreamOwner, (EventStream, VecDeque<SourceMessage>)>,
    /// The time of the next poll of groups with subscribers that do not keep up.
    backpressure_poll_at: Option<tokio::time::Instant>,
    /// The time of the next poll of side readers and of subscribers that wait for others.
    readers_poll_at: Option<tokio::time::Instant>,
    position_schedule: PositionSchedule,
}

/// The schedule of the rounds that send positions.
struct PositionSchedule {
    /// The time from the start of one round to the start of the next.
    interval: Option<Duration>,
    /// The time to begin a round, or to continue it. `None` if no group may need a position.
    next: Option<tokio::time::Instant>,
    /// The start of the round in progress.
    began: Option<tokio::time::Instant>,
}

impl ShardTask {
    pub(crate) fn new(
        mut shard: Shard,
        stats: Arc<HubStats>,
        cores: Arc<dyn Workers>,
        (commands, leaves): (mpsc::Receiver<Command>, mpsc::UnboundedReceiver<Leave>),
        settings: HubSettings,
        tracer: Option<EventTracer>,
    ) -> Self {
        if let Some(tracer) = &tracer {
            shard.set_tracer(tracer.clone());
        }
        Self {
            position_schedule: PositionSchedule {
                interval: settings.position_interval,
                next: None,
                began: None,
            },
            shard,
            stats,
            cores,
            own_resolving_max: settings.own_resolving_max,
            tracer,
            commands,
            leaves,
            opening: FuturesUnordered::new(),
            messages: FuturesUnordered::new(),
            resolving: FuturesUnordered::new(),
            aborts: HashMap::new(),
            paused: HashMap::new(),
            backpressure_poll_at: None,
            readers_poll_at: None,
        }
    }

    /// Runs until the hub is dropped; then everything ends.
    pub(crate) async fn run(mut self) {
        loop {
            let (backpressure_poll_at, readers_poll_at) =
                (self.backpressure_poll_at, self.readers_poll_at);
            let send_at = self.position_schedule.next;
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.execute_command(command),
                    None => break,
                },
                Some((group, outlet, member)) = self.leaves.recv() => {
                    self.shard.remove_subscriber(group, outlet, member);
                    for _ in 1..MESSAGES_PER_TURN {
                        let Ok((group, outlet, member)) = self.leaves.try_recv() else { break };
                        self.shard.remove_subscriber(group, outlet, member);
                    }
                }
                Some(opened) = self.opening.next() => {
                    if let Ok((of, result)) = opened {
                        self.on_stream_opened(of, result);
                    }
                }
                Some(received) = self.messages.next() => self.on_ready_messages(received),
                Some(resolved) = self.resolving.next() => self.on_ready_outcomes(resolved),
                () = sleep_until(backpressure_poll_at) => {
                    self.backpressure_poll_at = None;
                    self.set_trace_time();
                    self.shard.poll_backpressured();
                }
                () = sleep_until(readers_poll_at) => {
                    self.readers_poll_at = None;
                    self.shard.poll_readers();
                }
                () = sleep_until(send_at) => self.send_positions(),
            }
            let resolved = self.perform_effects();
            // Results that were released here may have to be polled for.
            self.schedule_polls();
            // Left-over messages are always ready, so other tasks of this thread need a chance to run. An event that is
            // resolved here takes as long as a few other steps.
            for _ in 0..=resolved {
                tokio::task::coop::consume_budget().await;
            }
        }
        self.shard.shut_down();
    }

    /// Schedules the polls that the shard needs.
    fn schedule_polls(&mut self) {
        let needed = self.shard.needed_polls();
        let in_time = |interval| tokio::time::Instant::now() + interval;
        let PositionSchedule { interval, next, .. } = &mut self.position_schedule;
        if needed.positions && next.is_none() {
            *next = interval.map(in_time);
        }
        if needed.readers && self.readers_poll_at.is_none() {
            self.readers_poll_at = Some(in_time(READER_POLL_INTERVAL));
        }
        if needed.backpressure && self.backpressure_poll_at.is_none() {
            self.backpressure_poll_at = Some(in_time(BACKPRESSURE_POLL_INTERVAL));
        }
    }

    /// Continues a round of positions, or begins one.
    fn send_positions(&mut self) {
        let PositionSchedule { interval: Some(interval), began, next } =
            &mut self.position_schedule
        else {
            return;
        };
        let now = tokio::time::Instant::now();
        let round_began = *began.get_or_insert(now);
        *next = if let Some(steps) = self.shard.send_positions() {
            let steps = u32::try_from(steps).unwrap_or(u32::MAX);
            Some(now + *interval / ROUND_PART / steps)
        } else {
            *began = None;
            self.shard.needed_polls().positions.then(|| round_began + *interval)
        };
    }

    fn execute_command(&mut self, command: Command) {
        match command {
            Command::Subscribe(together) => {
                for mut pending in together {
                    pending.spans = self.begin_state(&pending);
                    self.shard.subscribe(pending);
                }
            }
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
            Command::Operation { group, reply } => {
                let _ = reply.send(self.shard.operation_of(group));
            }
        }
    }

    /// Begins the trace of the initial state of a new subscriber, if it gets one and states have traces.
    fn begin_state(&self, pending: &PendingSubscriber) -> Option<Arc<EventSpans>> {
        let tracer = self.tracer.as_ref()?;
        let LiveOperation { source, resolve, .. } = &pending.operation;
        // The states of live queries come from executions, which have traces of their own.
        let has_trace = pending.resume.is_none() && !source.has_states() && resolve.has_state();
        has_trace.then(|| EventSpans::begin_state(tracer, resolve.cause()))
    }

    fn on_stream_opened(&mut self, of: StreamOwner, result: Result<EventStream, SourceError>) {
        self.aborts.remove(&of);
        let (stream, result) = match result {
            Ok(stream) => (Some(stream), Ok(())),
            Err(error) => (None, Err(error)),
        };
        let wanted = match of {
            StreamOwner::Trigger(trigger) => self.shard.on_opened(trigger, result),
            StreamOwner::Reader(trigger, stream_id) => {
                self.shard.on_reader_opened(trigger, stream_id, result)
            }
        };
        if let Some(mut stream) = stream.filter(|_| wanted) {
            let messages = self.handle_first_positions(of, &mut stream);
            self.await_messages(of, stream, messages);
        }
    }

    /// Handles the positions with which the stream of a trigger begins, as far as they have arrived. Without that the
    /// initial state of a new subscriber could be resolved before the position is known, and then has no cursor.
    /// Returns the message after them.
    fn handle_first_positions(
        &mut self,
        of: StreamOwner,
        stream: &mut EventStream,
    ) -> VecDeque<SourceMessage> {
        let StreamOwner::Trigger(trigger) = of else { return VecDeque::new() };
        while let Ok(message) = stream.messages.try_recv() {
            if !matches!(message, SourceMessage::Progress(_)) {
                return VecDeque::from([message]);
            }
            self.shard.on_source_message(trigger, Some(message));
        }
        VecDeque::new()
    }

    /// Waits for the next messages of a stream. Left-over messages are handled first.
    fn await_messages(
        &mut self,
        of: StreamOwner,
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

    /// Handles the messages of one stream, and those of others that have some already: their events are resolved
    /// together, see [`local_resolutions`].
    fn on_ready_messages(&mut self, first: Result<Received, Aborted>) {
        let (mut received, mut offers, mut handled) = (first, 0, 0);
        loop {
            if let Ok(received) = received {
                offers += self.on_messages(received);
            }
            handled += 1;
            if handled == READY_PER_TURN || offers >= OFFERS_PER_TURN {
                return;
            }
            match self.messages.next().now_or_never().flatten() {
                Some(next) => received = next,
                None => return,
            }
        }
    }

    /// Handles one resolution that has ended, and others that have ended already.
    fn on_ready_outcomes(&mut self, first: Result<ResolvedGroup, Aborted>) {
        let (mut resolved, mut handled) = (first, 0);
        loop {
            if let Ok((group, ticket, outcome)) = resolved {
                self.set_trace_time();
                self.shard.on_resolved(group, ticket, outcome);
            }
            handled += 1;
            if handled == READY_PER_TURN {
                return;
            }
            match self.resolving.next().now_or_never().flatten() {
                Some(next) => resolved = next,
                None => return,
            }
        }
    }

    /// Handles messages of a stream. Returns the number of groups that its events were offered to.
    fn on_messages(&mut self, received: Received) -> usize {
        let Received { of, stream, messages } = received;
        self.aborts.remove(&of);
        match of {
            StreamOwner::Trigger(trigger) => self.on_trigger_messages(trigger, stream, messages),
            StreamOwner::Reader(trigger, stream_id) => {
                self.on_reader_messages(trigger, stream_id, stream, messages);
                1
            }
        }
    }

    fn on_trigger_messages(
        &mut self,
        trigger: TriggerId,
        stream: EventStream,
        mut messages: VecDeque<SourceMessage>,
    ) -> usize {
        if messages.is_empty() {
            self.shard.on_source_message(trigger, None);
            return 1;
        }
        let mut offers = 0;
        while offers < OFFERS_PER_TURN
            && let Some(message) = messages.pop_front()
        {
            let is_last = matches!(message, SourceMessage::End(_));
            offers += self.on_trigger_message(trigger, message).max(1);
            if is_last {
                return offers;
            }
        }
        self.await_messages(StreamOwner::Trigger(trigger), stream, messages);
        offers
    }

    /// Handles one message of a trigger's stream. Returns the number of groups that an event was offered to.
    fn on_trigger_message(&mut self, trigger: TriggerId, message: SourceMessage) -> usize {
        match (message, &self.tracer) {
            (SourceMessage::Event(event), Some(tracer)) => {
                let spans = EventSpans::begin(tracer, &event);
                let offers = self.shard.on_traced_event(trigger, event, &spans);
                spans.note_offered(Instant::now(), offers);
                offers
            }
            (message, _) => self.shard.on_source_message(trigger, Some(message)),
        }
    }

    /// Tells the shard the time of its next input, if events have traces.
    fn set_trace_time(&mut self) {
        if self.tracer.is_some() {
            self.shard.set_time(Instant::now());
        }
    }

    /// Handles messages of a side reader. Messages after its end are dropped with the stream.
    fn on_reader_messages(
        &mut self,
        trigger: TriggerId,
        stream_id: u64,
        stream: EventStream,
        mut messages: VecDeque<SourceMessage>,
    ) {
        if messages.is_empty() {
            self.shard.on_reader_message(trigger, stream_id, None);
            return;
        }
        while let Some(message) = messages.pop_front() {
            match self.shard.on_reader_message(trigger, stream_id, Some(message)) {
                ReaderStep::Continue => {}
                ReaderStep::Close => return,
                ReaderStep::Pause => {
                    self.paused.insert(StreamOwner::Reader(trigger, stream_id), (stream, messages));
                    return;
                }
            }
        }
        self.await_messages(StreamOwner::Reader(trigger, stream_id), stream, messages);
    }

    /// Performs the effects of the shard, and those of the resolutions that it does itself. Returns the number of these
    /// resolutions.
    fn perform_effects(&mut self) -> usize {
        let (mut resolved, mut left) = (0, OWN_PER_TURN);
        let ends_at = Instant::now() + self.own_resolving_max;
        loop {
            let own = self.perform_once(left);
            if own.is_empty() {
                return resolved;
            }
            let count = own.len();
            let in_time = self.resolve_here(own, ends_at);
            resolved += in_time;
            left = if in_time == count { left - count } else { 0 };
        }
    }

    /// Performs the effects of the shard. Returns the resolutions to do here, `own_max` at most.
    fn perform_once(&mut self, own_max: usize) -> Vec<OwnResolution> {
        let (mut own, mut batch) = (Vec::new(), WorkerBatch::default());
        for effect in self.shard.take_effects() {
            match effect {
                Effect::Open { trigger, source, is_move } => {
                    let of = StreamOwner::Trigger(trigger);
                    let wanted = if is_move { WantedStream::Move } else { WantedStream::New };
                    self.open_stream(of, source, wanted);
                }
                Effect::Close { trigger } => self.close_stream(StreamOwner::Trigger(trigger)),
                Effect::OpenReader { trigger, stream_id, source, wanted } => {
                    let of = StreamOwner::Reader(trigger, stream_id);
                    self.open_stream(of, source, WantedStream::Reader(wanted));
                }
                Effect::ResumeReader { trigger, stream_id } => {
                    let of = StreamOwner::Reader(trigger, stream_id);
                    if let Some((stream, messages)) = self.paused.remove(&of) {
                        self.await_messages(of, stream, messages);
                    }
                }
                Effect::CloseReader { trigger, stream_id } => {
                    self.close_stream(StreamOwner::Reader(trigger, stream_id));
                }
                Effect::Resolve { group, ticket, work, resolve, abort } => {
                    let response = match work {
                        ResolutionWork::Event(event)
                            if local_resolutions::is_local(&event, &*resolve) =>
                        {
                            if own.len() < own_max {
                                own.push(OwnResolution { group, ticket, event, resolve, abort });
                                continue;
                            }
                            batch.add(event, resolve)
                        }
                        work => spawn_resolution(&*self.cores, work, resolve),
                    };
                    self.await_outcome(group, ticket, response, abort);
                    batch.spawn_if_full(&*self.cores);
                }
            }
        }
        batch.spawn(&*self.cores);
        own
    }

    /// Does resolutions on this thread, and passes their outcomes to the shard. Those that have not begun at `ends_at`
    /// go to workers. Returns the number of the others.
    fn resolve_here(&mut self, own: Vec<OwnResolution>, ends_at: Instant) -> usize {
        let mut outcomes = Vec::with_capacity(own.len());
        let mut late = WorkerBatch::default();
        let (mut began, mut count) = (Instant::now(), 0);
        for resolution in own {
            if count > 0 && began >= ends_at {
                let OwnResolution { group, ticket, event, resolve, abort } = resolution;
                let response = late.add(event, resolve);
                self.await_outcome(group, ticket, response, abort);
                late.spawn_if_full(&*self.cores);
                continue;
            }
            count += 1;
            let outcome = resolution.resolve_now();
            let ended = Instant::now();
            let OwnResolution { group, ticket, event, resolve, abort } = resolution;
            match outcome {
                Some(outcome) => {
                    self.stats.resolve_durations.add(ended.duration_since(began));
                    outcomes.push((group, ticket, outcome));
                }
                None => {
                    let work = ResolutionWork::Event(event);
                    let response = spawn_resolution(&*self.cores, work, resolve);
                    self.await_outcome(group, ticket, response, abort);
                }
            }
            began = ended;
        }
        late.spawn(&*self.cores);
        self.set_trace_time();
        // One after the other, so that a reactor wakes once for many of them.
        for (group, ticket, outcome) in outcomes {
            self.shard.on_resolved(group, ticket, outcome);
        }
        count
    }

    fn close_stream(&mut self, of: StreamOwner) {
        self.paused.remove(&of);
        if let Some(abort) = self.aborts.remove(&of) {
            abort.abort();
        }
    }

    /// Opens a stream of a source.
    fn open_stream(&mut self, of: StreamOwner, source: Source, wanted: WantedStream) {
        let (handle, registration) = AbortHandle::new_pair();
        self.aborts.insert(of, handle);
        let open: BoxFuture<'static, _> = Box::pin(async move {
            let opening = async {
                match wanted {
                    WantedStream::New => source.open().await,
                    WantedStream::Move => source.open_for_move().await,
                    WantedStream::Reader(wanted) => source.open_reader(wanted).await,
                }
            };
            let result = open_within_timeout(&source, opening).await;
            if let (StreamOwner::Trigger(_), Err(error)) = (&of, &result) {
                log_refusal(&source, error);
            }
            (of, result)
        });
        self.opening.push(Abortable::new(open, registration));
    }

    fn await_outcome(
        &mut self,
        group: GroupId,
        ticket: u64,
        response: oneshot::Receiver<ResolutionOutcome>,
        abort: AbortRegistration,
    ) {
        let (began, stats) = (Instant::now(), Arc::clone(&self.stats));
        let outcome_received: BoxFuture<'static, _> = Box::pin(async move {
            let outcome = response.await.unwrap_or(ResolutionOutcome::BrokeOff);
            stats.resolve_durations.add(began.elapsed());
            (group, ticket, outcome)
        });
        self.resolving.push(Abortable::new(outcome_received, abort));
    }
}

/// Waits for a provider to open a stream, within its time limit.
async fn open_within_timeout(
    source: &Source,
    opening: impl Future<Output = Result<EventStream, SourceError>>,
) -> Result<EventStream, SourceError> {
    if source.is_of_subgraph() || source.has_states() {
        // It has limits of its own for each step, which the configuration sets.
        return opening.await;
    }
    tokio::time::timeout(OPEN_TIMEOUT, opening).await.unwrap_or_else(|_| {
        Err(SourceError::Unavailable {
            provider: source.name().into(),
            reason: format!("no response within {OPEN_TIMEOUT:?}"),
        })
    })
}

/// Logs that a stream could not be opened. Clients choose the topics, so there is one warning per interval for each
/// provider. Masked topics are in debug lines only.
fn log_refusal(source: &Source, error: &SourceError) {
    let provider = source.name();
    let reason = error.reason_without_topics(source.topics());
    let admitted = source.refused_stream_log().and_then(|limit| limit.admit(Instant::now()));
    if let Some(suppressed) = admitted {
        tracing::warn!(provider, reason, suppressed, "a subscription could not be opened");
    }
    let problem = "a subscription could not be opened";
    tracing::debug!(provider, topics = ?source.masked_topics(), reason, "{problem}");
}

/// Sleeps until `instant`, or for ever without one.
async fn sleep_until(instant: Option<tokio::time::Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// Schedules a resolution on a core. The resolution is dropped there when its result is no longer needed.
fn spawn_resolution(
    cores: &dyn Workers,
    work: ResolutionWork,
    resolve: Arc<dyn Resolve>,
) -> oneshot::Receiver<ResolutionOutcome> {
    let (mut sender, response) = oneshot::channel();
    cores.run(Box::new(move || {
        Box::pin(async move {
            let outcome = {
                let resolving = async {
                    match work {
                        ResolutionWork::Event(event) => {
                            ResolutionOutcome::Payload(resolve.resolve(event).await)
                        }
                        ResolutionWork::Batch(events) => {
                            ResolutionOutcome::Batch(resolve.resolve_batch(events).await)
                        }
                        ResolutionWork::State { known, spans } => resolve
                            .state(known, spans)
                            .await
                            .map_or(ResolutionOutcome::Nothing, ResolutionOutcome::Payload),
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
    response
}
