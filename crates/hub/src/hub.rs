//! The public interface of the hub: subscribe, move groups to a new graph, shut down, and view the topology.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use bindings::Source;
use execute::{ErrorCode, FetchCacheBudget, GraphqlError};
use tokio::sync::oneshot;

use crate::cursor::{CursorError, Cursors, Resume};
use crate::event_spans::EventTracer;
use crate::shard::shard_input::ShardInput;
use crate::shard::task::{Command, Operations, ShardTask};
use crate::shard::{
    ConcurrencyLimit, GROUP_NUMBER_BITS, LeaveSender, PendingSubscriber, RingRoom, Shard, Shared,
    shutting_down,
};
use crate::stats::{self, HubStats, SubscriptionSlot, TriggerView};
use crate::{
    GroupId, HubSettings, LiveOperation, OperationUpdate, Outlet, Subscriber, Subscription,
    TransportId, Workers,
};

/// Connects subscribers with sources. Cheap to share by `Arc`; lives across generations. Dropping it ends all
/// subscriptions.
#[derive(Debug)]
pub struct Hub {
    settings: HubSettings,
    stats: Arc<HubStats>,
    memo_room: Arc<FetchCacheBudget>,
    ring_room: Arc<RingRoom>,
    cursors: Option<Arc<Cursors>>,
    shards: Vec<ShardInput>,
    /// The hash that assigns a source to a shard.
    placement: RandomState,
}

/// A request for the events of a source, resolved by an operation.
#[derive(Clone)]
pub struct SubscribeRequest {
    /// The source, the key of the group that shares resolutions, and the code that resolves events.
    pub operation: LiveOperation,
    /// The outlet of the subscriber. Outlets are identified by the address of the `Arc`: one outlet, one `Arc`.
    pub outlet: Arc<dyn Outlet>,
    /// The subscriber behind the outlet. The outlet must know it already, since its `Join` may come before
    /// [`Hub::subscribe`] returns.
    pub member: Subscriber,
    /// The transport of the subscriber.
    pub transport: TransportId,
    /// The cursor that the subscriber resumes from: it gets the events that follow. `None`: it gets the events from now
    /// on.
    pub resume: Option<Box<str>>,
}

impl Hub {
    /// Starts the shards of the hub on the current Tokio runtime, which must have timers. Events are resolved on
    /// `cores`, or by the shard if that waits for nothing.
    pub fn new(settings: HubSettings, cores: Arc<dyn Workers>) -> Self {
        Self::with_cursors(settings, cores, None)
    }

    /// Does the same as [`Hub::new`], and adds cursors to payloads of sources that can be read again. The cursors have
    /// the name of the hub's graph.
    pub fn with_cursors(
        settings: HubSettings,
        cores: Arc<dyn Workers>,
        cursors: Option<Cursors>,
    ) -> Self {
        Self::with_traces(settings, cores, cursors, None)
    }

    /// Does the same as [`Hub::with_cursors`], and records the traces of events and initial states.
    pub fn with_traces(
        settings: HubSettings,
        cores: Arc<dyn Workers>,
        cursors: Option<Cursors>,
        tracer: Option<EventTracer>,
    ) -> Self {
        let settings = HubSettings { shards: settings.shards.max(1), ..settings };
        let stats = Arc::new(HubStats::default());
        let permits =
            Arc::new(ConcurrencyLimit::new(settings.resolutions_in_flight, settings.shards));
        let memo_room = Arc::new(FetchCacheBudget::new(settings.memo_bytes));
        let ring_room = Arc::new(RingRoom::new(settings.ring_bytes_total));
        let cursors = cursors.map(Arc::new);
        let shared = Shared {
            stats: Arc::clone(&stats),
            memo_room: Arc::clone(&memo_room),
            ring_room: Arc::clone(&ring_room),
            permits,
            cursors: cursors.clone(),
        };
        let shards = (0..settings.shards)
            .map(|number| {
                let (input, commands) = ShardInput::channel();
                let (leave_sender, leaves) = LeaveSender::channel();
                let shard = Shard::new(number, settings, shared.clone(), leave_sender);
                let stats = Arc::clone(&stats);
                let (cores, tracer) = (Arc::clone(&cores), tracer.clone());
                let inputs = (commands, leaves);
                let task = ShardTask::new(shard, stats, cores, inputs, settings, tracer);
                tokio::spawn(task.run());
                input
            })
            .collect();
        let placement = RandomState::new();
        Self { settings, stats, memo_room, ring_room, cursors, shards, placement }
    }

    /// Adds a subscriber. Returns when the source is open: every event from then on reaches the outlet, or its loss is
    /// announced. Dropping the future cancels the request; if that crosses the reply, the outlet gets `Join` and
    /// `Leave`.
    ///
    /// The outlet gets `Join` before this returns, then any number of `Deliver` and `Position`, then exactly one of
    /// `Leave` and `End`.
    ///
    /// # Errors
    /// `CURSOR_INVALID`, `CURSOR_FOREIGN`, `CURSOR_EXPIRED`, `PROVIDER_UNAVAILABLE`, `OVERLOADED`, `SHUTTING_DOWN`, or
    /// `GRAPH_RELOADED` for an operation of a graph older than the last one passed to [`Hub::advance`]. The outlet has
    /// received no command in these cases.
    pub async fn subscribe(&self, request: SubscribeRequest) -> Result<Subscription, GraphqlError> {
        let Some(slot) = SubscriptionSlot::acquire(&self.stats, self.settings.subscribers_max)
        else {
            stats::add(&self.stats.refused_overload, 1);
            let message = "There are too many subscriptions at present; try again later.";
            return Err(GraphqlError::no_room(message));
        };
        let SubscribeRequest { operation, outlet, member, transport, resume } = request;
        let resume = resume.map(|cursor| self.decode_cursor(&cursor, &operation)).transpose()?;
        let shard = &self.shards[self.shard_of(&operation.source)];
        let (reply, response) = oneshot::channel();
        let pending = PendingSubscriber {
            operation,
            outlet,
            member,
            transport,
            resume,
            slot,
            reply,
            // The task of the shard begins them.
            spans: None,
        };
        shard.subscribe(pending).await;
        response.await.map_err(|_| shutting_down())?
    }

    fn decode_cursor(
        &self,
        cursor: &str,
        operation: &LiveOperation,
    ) -> Result<Resume, GraphqlError> {
        let LiveOperation { field, source, bound_to, .. } = operation;
        let read = match &self.cursors {
            Some(cursors) => cursors.decode(cursor, cursors.scope(field, source, bound_to)),
            None => Err(CursorError::Invalid),
        };
        read.map_err(|error| match error {
            CursorError::Invalid => {
                stats::add(&self.stats.cursors_invalid, 1);
                let message = "This router cannot verify the cursor; subscribe without it.";
                GraphqlError::new(ErrorCode::CursorInvalid, message)
            }
            CursorError::Foreign => {
                stats::add(&self.stats.cursors_foreign, 1);
                let message =
                    "The cursor belongs to another subscription, other arguments or another client; subscribe without it.";
                GraphqlError::new(ErrorCode::CursorForeign, message)
            }
        })
    }

    fn shard_of(&self, source: &Source) -> usize {
        // The remainder is below the number of shards, so it fits.
        (self.placement.hash_one(source) % self.shards.len() as u64) as usize
    }

    /// Returns the operation of a subscription's group; `None` if the group has ended.
    pub async fn operation_of(&self, group: GroupId) -> Option<Arc<LiveOperation>> {
        // The value is below the number of shards, so it fits.
        let shard = self.shards.get((group.0 >> GROUP_NUMBER_BITS) as usize)?;
        let (reply, response) = oneshot::channel();
        shard.send(Command::Operation { group, reply }).await.ok()?;
        response.await.ok()?
    }

    /// True if payloads of this source have cursors, so that a subscriber can resume.
    pub fn has_cursors(&self, source: &Source) -> bool {
        self.cursors.as_ref().is_some_and(|it| it.are_for(source))
    }

    /// Returns the groups that run on a graph before `generation`. Their operations must be prepared again.
    pub async fn operations_before(&self, generation: u64) -> Vec<(GroupId, Arc<LiveOperation>)> {
        let replies = self.request_all(|reply| Command::OperationsBefore { generation, reply });
        replies.await.into_iter().flatten().collect()
    }

    /// Moves the hub to the graph `generation`. Each group in `renewals` uses its new operation from its next event on,
    /// at the same position: no event is lost, repeated or out of order. If the new operation listens to another
    /// source, the group moves when that source is open, and announces a gap. Groups with an error as renewal end with
    /// it.
    ///
    /// From now on [`Hub::subscribe`] accepts operations of this graph and later ones only. Returns the groups of older
    /// graphs without a renewal (they began while it was prepared): they continue unchanged until another call renews
    /// them.
    pub async fn advance(
        &self,
        generation: u64,
        renewals: Vec<OperationUpdate>,
    ) -> Vec<(GroupId, Arc<LiveOperation>)> {
        let mut of_shards: Vec<Vec<OperationUpdate>> =
            self.shards.iter().map(|_| Vec::new()).collect();
        for renewal in renewals {
            // The value is below the number of shards, so it fits.
            if let Some(of_shard) = of_shards.get_mut((renewal.0.0 >> GROUP_NUMBER_BITS) as usize) {
                of_shard.push(renewal);
            }
        }
        let mut of_shards = of_shards.into_iter();
        let replies = self.request_all::<Operations>(|reply| Command::Advance {
            generation,
            renewals: of_shards.next().unwrap_or_default(),
            reply,
        });
        replies.await.into_iter().flatten().collect()
    }

    /// Ends all groups and refuses later subscribers. Returns when all outlets have their commands.
    pub async fn shutdown(&self) {
        self.request_all(|done| Command::ShutDown { done }).await;
    }

    /// Returns the live topology: triggers and their groups, as they are now. Above the limits only the oldest triggers
    /// and the largest groups are included.
    pub async fn topology(&self) -> Vec<TriggerView> {
        self.request_all(|reply| Command::Topology { reply }).await.into_iter().flatten().collect()
    }

    /// Returns the number of bytes of subgraph responses that are kept while their events are resolved.
    pub fn memo_bytes(&self) -> usize {
        self.memo_room.used()
    }

    /// Returns the number of bytes of events that triggers keep for subscribers that resume.
    pub fn ring_bytes(&self) -> usize {
        self.ring_room.used()
    }

    /// Returns the counters.
    pub fn stats(&self) -> &HubStats {
        &self.stats
    }

    /// Sends a command to all shards at once and collects the replies. A shard that has stopped gives no reply.
    async fn request_all<T>(
        &self,
        mut command: impl FnMut(oneshot::Sender<T>) -> Command,
    ) -> Vec<T> {
        let mut replies = Vec::with_capacity(self.shards.len());
        for shard in &self.shards {
            let (reply, response) = oneshot::channel();
            if shard.send(command(reply)).await.is_ok() {
                replies.push(response);
            }
        }
        futures_util::future::join_all(replies).await.into_iter().flatten().collect()
    }
}
