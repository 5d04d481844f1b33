//! The hub as the server sees it: subscribe, end, look.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use execute::{ErrorCode, GraphqlError};
use tokio::sync::{mpsc, oneshot};

use crate::settings::COMMANDS_MAX;
use crate::shard::task::{Command, Leaver, ShardTask};
use crate::shard::{Joining, Shard, SubscriberId, shutting_down};
use crate::stats::{self, HubStats, Seat, TriggerView};
use crate::{Cores, GroupId, GroupKey, HubSettings, Member, Outlet, Resolve, Source};

/// Connects subscribers with sources. Cheap to share by `Arc`; lives across generations. When it is dropped, all
/// subscriptions end.
#[derive(Debug)]
pub struct Hub {
    settings: HubSettings,
    stats: Arc<HubStats>,
    shards: Vec<mpsc::Sender<Command>>,
    /// Decides which shard a source belongs to.
    placement: RandomState,
}

/// Somebody wants a source's events, resolved in a certain way.
pub struct SubscribeRequest {
    /// What to listen to; see [`crate::Bindings::source`].
    pub source: Source,
    /// With whom to share.
    pub group: GroupKey,
    /// How to resolve. The first member of a group brings the one that is used for all of them.
    pub resolve: Arc<dyn Resolve>,
    /// Through what to reach the subscriber. Outlets are told apart by the address of the `Arc`: one outlet, one `Arc`.
    pub outlet: Arc<dyn Outlet>,
    /// Who it is there. The outlet must know it already, since its `Join` may come before
    /// [`Hub::subscribe`] returns.
    pub member: Member,
}

/// A live subscription. Dropping it ends it; the outlet then gets its `End`, unless it had one already.
#[derive(Debug)]
pub struct Subscription {
    group: GroupId,
    subscriber: SubscriberId,
    /// `None`: there is nothing to report.
    leaver: Option<Leaver>,
}

impl Hub {
    /// Starts the hub's shards on the present Tokio runtime, which must have timers. Events are resolved on `cores`.
    pub fn new(settings: HubSettings, cores: Arc<dyn Cores>) -> Self {
        let settings = HubSettings { shards: settings.shards.max(1), ..settings };
        let stats = Arc::new(HubStats::default());
        let shards = (0..settings.shards)
            .map(|number| {
                let (commands, command_receiver) = mpsc::channel(COMMANDS_MAX);
                let (leaver, leaves) = Leaver::channel();
                let shard = Shard::new(number, settings, Arc::clone(&stats), leaver);
                let task = ShardTask::new(shard, Arc::clone(&cores), command_receiver, leaves);
                tokio::spawn(task.run());
                commands
            })
            .collect();
        Self { settings, stats, shards, placement: RandomState::new() }
    }

    /// Subscribes. Returns when the source is open: every event from then on reaches the outlet, or its loss
    /// is announced. Dropping the future gives up without a trace.
    ///
    /// The outlet gets `Join`, then any number of `Deliver`, then exactly one `End`.
    ///
    /// # Errors
    /// `PROVIDER_UNAVAILABLE`, `OVERLOADED`, `SHUTTING_DOWN`, or the error of
    /// [`Hub::end_generation`]. The outlet has heard nothing then.
    pub async fn subscribe(&self, request: SubscribeRequest) -> Result<Subscription, GraphqlError> {
        let Some(seat) = Seat::take(&self.stats, self.settings.subscribers_max) else {
            stats::add(&self.stats.refused_overload, 1);
            let message = "There are too many subscriptions at present; try again later.";
            return Err(GraphqlError::new(ErrorCode::Overloaded, message));
        };
        let SubscribeRequest { source, group: key, resolve, outlet, member } = request;
        let shard = &self.shards[self.shard_of(&source)];
        let (reply, answer) = oneshot::channel();
        let joining = Joining { source, key, resolve, outlet, member, seat, reply };
        let sent = shard.send(Command::Subscribe(Box::new(joining))).await;
        sent.map_err(|_| shutting_down())?;
        answer.await.map_err(|_| shutting_down())?
    }

    fn shard_of(&self, source: &Source) -> usize {
        // The remainder is below the number of shards, so it fits.
        (self.placement.hash_one(source) % self.shards.len() as u64) as usize
    }

    /// Ends every subscription of the generation with that number, for `reason`. Returns when all outlets were told.
    pub async fn end_generation(&self, number: u64, reason: GraphqlError) {
        let reason = Box::new(reason);
        self.ask_all(|done| Command::EndGeneration {
            generation: number,
            error: reason.clone(),
            done,
        })
        .await;
    }

    /// Ends everything and refuses whoever comes later. Returns when all outlets were told.
    pub async fn shutdown(&self) {
        self.ask_all(|done| Command::ShutDown { done }).await;
    }

    /// The live topology: triggers and their groups, as they are now.
    pub async fn topology(&self) -> Vec<TriggerView> {
        self.ask_all(|reply| Command::Topology { reply }).await.into_iter().flatten().collect()
    }

    /// Counters.
    pub fn stats(&self) -> &HubStats {
        &self.stats
    }

    /// Asks all shards at once; those that are gone give no answer.
    async fn ask_all<T>(&self, command: impl Fn(oneshot::Sender<T>) -> Command) -> Vec<T> {
        let mut answers = Vec::with_capacity(self.shards.len());
        for shard in &self.shards {
            let (reply, answer) = oneshot::channel();
            if shard.send(command(reply)).await.is_ok() {
                answers.push(answer);
            }
        }
        futures_util::future::join_all(answers).await.into_iter().flatten().collect()
    }
}

impl Subscription {
    pub(crate) fn new(group: GroupId, subscriber: SubscriberId, leaver: Leaver) -> Self {
        Self { group, subscriber, leaver: Some(leaver) }
    }

    /// The group it is in.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Ends it.
    pub fn unsubscribe(self) {
        drop(self);
    }

    /// Nobody ever joined with it.
    pub(crate) fn forget(mut self) {
        self.leaver = None;
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(leaver) = self.leaver.take() {
            leaver.leave(self.group, self.subscriber);
        }
    }
}
