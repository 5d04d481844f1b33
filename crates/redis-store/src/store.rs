//! One store: the bounds of its commands, and their way to servers and back.
//!
//! A run goes in rounds. In the first, all commands are sent, those for one server in one piece. Commands that a server
//! could not execute for a reason that the router can settle are sent once more: a script that the server does not know
//! goes as text, and a key that has moved goes to its new server. All rounds together have one deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use redis::{Pipeline, RedisError, Value};
use redis_connection::{
    RedisAddress, RedisAuthentication, RedisSettingsError, Sentinel, ServerSource,
};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::blocking::BlockingConnection;
use crate::cluster::{ClusterLinks, MapReader};
use crate::command::Command;
use crate::reply::{ConnectionLoss, Reply, StoreError};
use crate::server_link::{LateHandler, LinkSettings, ServerLink, StoreLog};
use crate::settings::{StoreSentinel, StoreSettings};
use crate::stats::StoreStats;

/// The maximum number of rounds: a script may be unknown at the server to which its keys have moved.
const ROUNDS_MAX: usize = 3;

/// A store. Dropping it closes its connections.
pub struct Store {
    id: Box<str>,
    namespace: Box<str>,
    timeout: Duration,
    in_flight: AtomicUsize,
    in_flight_max: usize,
    servers: Servers,
    stats: Arc<StoreStats>,
}

enum Servers {
    Single(Arc<ServerLink>),
    Cluster(
        Arc<ClusterLinks>,
        #[expect(dead_code, reason = "ends the task when dropped")] MapReader,
    ),
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The permission for commands in flight, returned when it is dropped.
struct InFlight<'a>(&'a Store, usize);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(self.1, Ordering::Relaxed);
        self.0.stats.in_flight.fetch_sub(self.1 as u64, Ordering::Relaxed);
    }
}

/// A command that waits for its reply.
struct Pending {
    /// The index among the commands of the run.
    index: usize,
    server: Arc<ServerLink>,
    /// True if a script is sent as text.
    with_text: bool,
    /// True if the server gets the slot of the key at present, and executes commands for it only after `ASKING`.
    is_asking: bool,
}

/// The way on after the reply to a command.
enum Outcome {
    Done(Result<Reply, StoreError>),
    /// The command has to be sent again.
    Again(Pending),
}

impl Store {
    /// Starts connecting in the background. Must be called inside a Tokio runtime with time and I/O, which then runs
    /// the connections.
    ///
    /// # Errors
    /// The settings can never work.
    pub fn start(settings: StoreSettings) -> Result<Self, RedisSettingsError> {
        let StoreSettings { urls, authentication, tls, .. } = &settings;
        let parse =
            |own: Option<&RedisAuthentication>| RedisAddress::parse_list(urls, own, tls.as_ref());
        let stats = Arc::<StoreStats>::default();
        let link_settings = Arc::new(LinkSettings {
            timeout: settings.timeout,
            retry_initial: settings.retry_initial,
            retry_max: settings.retry_max,
            stats: Arc::clone(&stats),
            on_lost: Notify::new(),
            log: StoreLog::new(settings.id.clone()),
        });
        let runtime = Handle::current();
        let single =
            |source| Servers::Single(Arc::new(ServerLink::start(source, &link_settings, &runtime)));
        let servers = match &settings.sentinel {
            Some(StoreSentinel { master, authentication: own }) => {
                single(ServerSource::Master(Arc::new(Sentinel {
                    master: master.clone(),
                    sentinels: parse(own.as_ref())?,
                    authentication: authentication.clone(),
                })))
            }
            None if settings.is_cluster => {
                let seeds = parse(authentication.as_ref())?;
                let settings = Arc::clone(&link_settings);
                let (links, reader) = ClusterLinks::start(seeds, settings, runtime.clone());
                Servers::Cluster(links, reader)
            }
            None => single(ServerSource::Any(parse(authentication.as_ref())?.into())),
        };
        Ok(Self {
            id: settings.id,
            namespace: settings.namespace,
            timeout: settings.timeout,
            in_flight: AtomicUsize::new(0),
            in_flight_max: settings.in_flight_max,
            servers,
            stats,
        })
    }

    /// Returns the name of the store.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// True if keys of different slots may be at different servers, so that no command may name both.
    pub fn is_cluster(&self) -> bool {
        matches!(self.servers, Servers::Cluster(..))
    }

    /// True if commands can be sent to all servers that the router knows.
    pub fn is_connected(&self) -> bool {
        let (servers, open) = self.server_counts();
        servers > 0 && open == 0
    }

    /// Returns the counters.
    pub fn stats(&self) -> &StoreStats {
        &self.stats
    }

    /// Returns the number of known servers, and of those without a usable connection.
    pub(crate) fn server_counts(&self) -> (u64, u64) {
        match &self.servers {
            Servers::Single(link) => (1, (!link.is_connected()).into()),
            Servers::Cluster(links, _) => links.counts(),
        }
    }

    /// Returns the beginning of every key.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the time limit of one run of commands.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Opens a connection for commands that wait at the server, to the server that has `key` at present.
    ///
    /// # Errors
    /// That server is not connected, or refuses another connection.
    pub async fn open_blocking(&self, key: &str) -> Result<BlockingConnection, StoreError> {
        let server = self.server_of(&Command::new("EXISTS").key(key))?.server()?;
        BlockingConnection::open(&server, &self.namespace).await
    }

    /// Sends one command, as [`Store::run`] does.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn run_one(&self, command: Command) -> Result<Reply, StoreError> {
        // A run returns one reply for each command.
        self.run(vec![command]).await.pop().unwrap_or(Err(StoreError::UnexpectedReply))
    }

    /// Sends one command, as [`Store::run`] does. A reply that comes within a second after the time limit is passed to
    /// `on_late`, on the runtime of the store. That is not certain: at most a thousand are awaited for each server.
    ///
    /// # Errors
    /// See [`StoreError`]. After [`StoreError::Timeout`] the reply may still come.
    pub async fn run_one_or_late(
        &self,
        command: Command,
        on_late: impl Fn(&Reply) + Send + Sync + 'static,
    ) -> Result<Reply, StoreError> {
        let on_late: LateHandler = Arc::new(move |mut values: Vec<Value>| {
            // The reply to `ASKING` is before that to the command. An error of the server is no reply.
            if let Some(Ok(reply)) = values.pop().map(Reply::from_value) {
                on_late(&reply);
            }
        });
        let mut replies = self.run_within_limit(vec![command], Some(&on_late)).await;
        // A run returns one reply for each command.
        replies.pop().unwrap_or(Err(StoreError::UnexpectedReply))
    }

    /// Sends commands, those for one server in one piece and in their order, and returns the reply of each, in their
    /// order. It takes at most the time limit of the store, whatever the servers do. May be called on any runtime with
    /// time. If the future is dropped, commands that were sent may be executed.
    pub async fn run(&self, commands: Vec<Command>) -> Vec<Result<Reply, StoreError>> {
        self.run_within_limit(commands, None).await
    }

    async fn run_within_limit(
        &self,
        commands: Vec<Command>,
        on_late: Option<&LateHandler>,
    ) -> Vec<Result<Reply, StoreError>> {
        let started = Instant::now();
        self.stats.commands.fetch_add(commands.len() as u64, Ordering::Relaxed);
        let replies = match self.acquire(commands.len()) {
            Some(_in_flight) => self.run_rounds(&commands, started + self.timeout, on_late).await,
            None => commands.iter().map(|_| Err(StoreError::Overloaded)).collect(),
        };
        self.stats.durations.add(started.elapsed());
        for error in replies.iter().filter_map(|it| it.as_ref().err()) {
            self.stats.failures.count(error);
        }
        replies
    }

    fn acquire(&self, count: usize) -> Option<InFlight<'_>> {
        let before = self.in_flight.fetch_add(count, Ordering::Relaxed);
        self.stats.in_flight.fetch_add(count as u64, Ordering::Relaxed);
        let in_flight = InFlight(self, count);
        (before + count <= self.in_flight_max).then_some(in_flight)
    }

    async fn run_rounds(
        &self,
        commands: &[Command],
        deadline: Instant,
        on_late: Option<&LateHandler>,
    ) -> Vec<Result<Reply, StoreError>> {
        let mut replies: Vec<_> =
            commands.iter().map(|_| Err(StoreError::UnexpectedReply)).collect();
        let mut pending = Vec::with_capacity(commands.len());
        for (index, command) in commands.iter().enumerate() {
            match self.server_of(command) {
                Ok(server) => {
                    pending.push(Pending { index, server, with_text: false, is_asking: false });
                }
                Err(error) => replies[index] = Err(error),
            }
        }
        for round in 1..=ROUNDS_MAX {
            if pending.is_empty() {
                break;
            }
            let batches = batches(std::mem::take(&mut pending));
            let send = |batch| self.send(commands, batch, deadline, on_late);
            let sent = batches.into_iter().map(send);
            for (index, outcome) in join_all(sent).await.into_iter().flatten() {
                match outcome {
                    Outcome::Done(reply) => replies[index] = reply,
                    Outcome::Again(_) if round == ROUNDS_MAX => {
                        replies[index] = Err(StoreError::Refused("MOVED".into()));
                    }
                    Outcome::Again(again) => pending.push(again),
                }
            }
        }
        replies
    }

    /// Returns the server for a command.
    fn server_of(&self, command: &Command) -> Result<Arc<ServerLink>, StoreError> {
        match &self.servers {
            Servers::Single(link) => Ok(Arc::clone(link)),
            Servers::Cluster(links, _) => {
                let slot = command.slot(&self.namespace).map_err(|_| StoreError::DifferentSlots)?;
                let server = match slot {
                    Some(slot) => links.server_of(slot),
                    None => links.any_server(),
                };
                server.ok_or_else(|| {
                    links.request_map();
                    let reason = "no known server of the cluster has the slot";
                    StoreError::Disconnected(ConnectionLoss::other(reason))
                })
            }
        }
    }

    /// Sends the commands of one server.
    async fn send(
        &self,
        commands: &[Command],
        batch: Vec<Pending>,
        deadline: Instant,
        on_late: Option<&LateHandler>,
    ) -> Vec<(usize, Outcome)> {
        let mut pipeline = Pipeline::with_capacity(batch.len());
        for pending in &batch {
            if pending.is_asking {
                pipeline.cmd("ASKING");
            }
            pipeline
                .add_command(commands[pending.index].encode(&self.namespace, pending.with_text));
        }
        // A batch is never empty.
        let server = Arc::clone(&batch[0].server);
        let count = pipeline.len();
        let mut values = match server.send(pipeline, count, deadline, on_late).await {
            Ok(values) => values.into_iter(),
            Err(error) => {
                let failed = |it: Pending| (it.index, Outcome::Done(Err(error.clone())));
                return batch.into_iter().map(failed).collect();
            }
        };
        let outcomes = batch.into_iter().map(|pending| {
            if pending.is_asking {
                values.next();
            }
            let index = pending.index;
            let outcome = match values.next() {
                Some(Value::ServerError(error)) => self.settle(pending, &error.into()),
                Some(value) => Outcome::Done(Reply::from_value(value)),
                None => Outcome::Done(Err(StoreError::UnexpectedReply)),
            };
            (index, outcome)
        });
        outcomes.collect()
    }

    /// Decides what follows from an error of a server.
    fn settle(&self, pending: Pending, error: &RedisError) -> Outcome {
        let code = error.code().unwrap_or("ERR");
        if code == "NOSCRIPT" && !pending.with_text {
            return Outcome::Again(Pending { with_text: true, ..pending });
        }
        if matches!(code, "MOVED" | "ASK")
            && let Servers::Cluster(links, _) = &self.servers
            && let Some((place, _)) = error.redirect_node()
            && let Some(server) = links.redirected(place)
        {
            return Outcome::Again(Pending { server, is_asking: code == "ASK", ..pending });
        }
        Outcome::Done(Err(StoreError::Refused(code.into())))
    }
}

/// Divides commands by their server, in their order.
fn batches(pending: Vec<Pending>) -> Vec<Vec<Pending>> {
    let mut batches: Vec<Vec<Pending>> = Vec::new();
    for command in pending {
        let of_server = batches.iter_mut().find(|it| Arc::ptr_eq(&it[0].server, &command.server));
        match of_server {
            Some(batch) => batch.push(command),
            None => batches.push(vec![command]),
        }
    }
    batches
}
