//! The way to a shard. Subscribers that come together are passed on together: the thread of a shard has a higher
//! priority than a worker, so it would otherwise interrupt the worker for each of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use super::PendingSubscriber;
use super::task::Command;
use crate::settings::COMMANDS_MAX;

/// The maximum number of subscribers in one command: other commands have their turns in between.
const TOGETHER_MAX: usize = 64;

/// Sends commands to a shard. Clones send to the same one.
#[derive(Clone, Debug)]
pub(crate) struct ShardInput {
    commands: mpsc::Sender<Command>,
    subscribing: Arc<Subscribing>,
}

/// The subscribers that wait to be passed to the shard.
#[derive(Default)]
struct Subscribing(Mutex<SubscribingList>);

#[derive(Default)]
struct SubscribingList {
    waiting: Vec<PendingSubscriber>,
    /// True while a caller is about to pass on all that wait.
    is_passed_on: bool,
}

/// The shard has ended.
#[derive(Debug)]
pub(crate) struct ShardEnded;

impl ShardInput {
    /// Makes the way to a shard, and its other end.
    pub(crate) fn channel() -> (Self, mpsc::Receiver<Command>) {
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        (Self { commands, subscribing: Arc::default() }, receiver)
    }

    /// Sends a command. Waits while too many wait for the shard.
    pub(crate) async fn send(&self, command: Command) -> Result<(), ShardEnded> {
        self.commands.send(command).await.map_err(|_| ShardEnded)
    }

    /// Sends a subscriber, together with those of the other tasks of this thread that are ready now. One of the callers
    /// does that for all; dropping its future does not drop the subscribers of others. If the shard has ended, the
    /// subscriber is dropped.
    pub(crate) async fn subscribe(&self, pending: PendingSubscriber) {
        if self.subscribing.push(pending) {
            let passing = PassingOn { input: self, is_done: false };
            tokio::task::yield_now().await;
            passing.finish().await;
        }
    }

    /// Sends all subscribers that wait, and drops them if the shard has ended.
    async fn pass_on(&self) {
        loop {
            let place = self.commands.reserve().await;
            let together = self.subscribing.take();
            if together.is_empty() {
                return;
            }
            if let Ok(place) = place {
                place.send(Command::Subscribe(together));
            }
        }
    }
}

/// The duty to pass on what waits, which another task gets if this is dropped before it is done.
struct PassingOn<'a> {
    input: &'a ShardInput,
    is_done: bool,
}

impl PassingOn<'_> {
    async fn finish(mut self) {
        self.input.pass_on().await;
        self.is_done = true;
    }
}

impl Drop for PassingOn<'_> {
    fn drop(&mut self) {
        // Without a runtime, the router serves nothing any more.
        if !self.is_done
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let input = self.input.clone();
            runtime.spawn(async move { input.pass_on().await });
        }
    }
}

impl Subscribing {
    /// Adds a subscriber. Returns true if the caller must pass on all that wait.
    fn push(&self, pending: PendingSubscriber) -> bool {
        let mut list = self.lock();
        list.waiting.push(pending);
        !std::mem::replace(&mut list.is_passed_on, true)
    }

    /// Takes the first ones. If there are none, the next caller has to pass on.
    fn take(&self) -> Vec<PendingSubscriber> {
        let mut list = self.lock();
        let count = list.waiting.len().min(TOGETHER_MAX);
        list.is_passed_on = count > 0;
        if count == list.waiting.len() {
            return std::mem::take(&mut list.waiting);
        }
        list.waiting.drain(..count).collect()
    }

    fn lock(&self) -> MutexGuard<'_, SubscribingList> {
        // No code panics half way under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Subscribing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscribing").field("waiting", &self.lock().waiting.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use futures_util::FutureExt;

    use super::super::scripted_stage::{ScriptedOutlet, Stage, SubscribeReply, member};
    use super::*;
    use crate::HubSettings;

    /// Returns a call that subscribes, and the reply to it.
    fn subscribe(
        input: &ShardInput,
        stage: &Stage,
    ) -> (impl Future<Output = ()> + use<>, SubscribeReply) {
        let outlet = Arc::<ScriptedOutlet>::default();
        let operation = stage.operation("a", 1, 1);
        let (pending, reply) = stage.pending_subscriber(&outlet, member(1), operation, None);
        let input = input.clone();
        (async move { input.subscribe(pending).await }, reply)
    }

    #[tokio::test]
    async fn subscribers_of_ready_tasks_are_sent_together() {
        let (input, mut commands) = ShardInput::channel();
        let stage = Stage::new(HubSettings::default());
        let calls: Vec<_> = (0..TOGETHER_MAX + 3).map(|_| subscribe(&input, &stage)).collect();
        let (calls, _replies): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
        futures_util::future::join_all(calls).await;
        let mut sizes = Vec::new();
        while let Ok(Command::Subscribe(together)) = commands.try_recv() {
            sizes.push(together.len());
        }
        assert_eq!(sizes, [TOGETHER_MAX, 3]);
    }

    #[tokio::test]
    async fn subscribers_of_a_shard_that_has_ended_are_dropped() {
        let (input, commands) = ShardInput::channel();
        drop(commands);
        let stage = Stage::new(HubSettings::default());
        for _ in 0..2 {
            let (call, reply) = subscribe(&input, &stage);
            call.await;
            assert!(matches!(reply.now_or_never(), Some(Err(_))), "nobody replies any more");
        }
    }
}
