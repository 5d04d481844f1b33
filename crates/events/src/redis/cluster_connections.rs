//! What is written to a cluster: to each node through a connection of its own, made when the first key of its slots
//! is written to.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::address::RedisAddress;
use super::dialer::DialerFactory;
use super::discovery::{Cluster, ServerSource};
use super::publisher;
use crate::connection_state::{ConnectionState, wait_connected};

/// ClusterConnections that are connected to at a time: as many as a cluster is advised to have.
const NODES_MAX: usize = 1000;

/// How often one command follows a slot that moves, or waits for a node that takes over; with [`RETRY_PAUSE`] and the wait
/// for connections some seconds, which is what a failover takes.
const ATTEMPTS_MAX: u32 = 8;

/// Before the second attempt; as much longer with each.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// A map of the cluster as old as that is good enough until a node says otherwise.
const SLOT_MAP_AGE_MAX: Duration = Duration::from_secs(300);

/// Why a command was not done.
pub(super) enum CommandError {
    /// No connection, or no answer.
    Unavailable(String),
    /// The broker's refusal.
    Refused(RedisError),
}

/// Connections to the nodes of a cluster.
pub(super) struct ClusterConnections {
    cluster: Arc<Cluster>,
    dialers: DialerFactory,
    runtime: tokio::runtime::Handle,
    connections: Mutex<HashMap<String, watch::Receiver<ConnectionState<MultiplexedConnection>>>>,
}

impl ClusterConnections {
    /// Must be called inside a Tokio runtime.
    pub(super) fn new(cluster: Arc<Cluster>, dialers: DialerFactory) -> Self {
        let runtime = tokio::runtime::Handle::current();
        Self { cluster, dialers, runtime, connections: Mutex::default() }
    }

    /// Says `command` to the node that has `slot`, wherever that goes meanwhile. What may have been done once is
    /// not said again.
    pub(super) async fn send_command(&self, slot: u16, command: &Cmd) -> Result<(), CommandError> {
        let mut since = Instant::now().checked_sub(SLOT_MAP_AGE_MAX).unwrap_or_else(Instant::now);
        let mut ask_node: Option<RedisAddress> = None;
        let mut last = CommandError::Unavailable("no node of the cluster takes it".into());
        for attempt in 0..ATTEMPTS_MAX {
            sleep(RETRY_PAUSE * attempt).await;
            let asked_node = ask_node.take();
            let owner = match &asked_node {
                Some(node) => Ok(node.clone()),
                None => self.cluster.find_owner(slot, since).await,
            };
            let connected = match owner {
                Ok(node) => wait_connected(&self.connection_to(&node))
                    .await
                    .map(|connection| (node, connection)),
                Err(reason) => Err(reason.to_string()),
            };
            let (node, mut connection) = match connected {
                Ok(connected) => connected,
                Err(reason) => {
                    (last, since) = (CommandError::Unavailable(reason), Instant::now());
                    continue;
                }
            };
            let result = if asked_node.is_some() {
                // A slot that is on its way is asked for where it goes to; in one go, so that nobody comes between.
                let mut commands = redis::pipe();
                commands.cmd("ASKING").ignore().add_command(command.clone()).ignore();
                commands.exec_async(&mut connection).await
            } else {
                command.exec_async(&mut connection).await
            };
            let Err(error) = result else { return Ok(()) };
            match error.code() {
                Some("ASK") => {
                    let place = error.redirect_node().and_then(|(place, _)| place.rsplit_once(':'));
                    ask_node = place.and_then(|(host, port)| {
                        Some(node.relative(host.to_owned(), port.parse().ok()?))
                    });
                }
                Some(
                    "MOVED" | "CLUSTERDOWN" | "TRYAGAIN" | "LOADING" | "READONLY" | "MASTERDOWN",
                ) => {
                    since = Instant::now();
                }
                Some(_) => return Err(CommandError::Refused(error)),
                None => {
                    return Err(CommandError::Unavailable(super::connection::error_text(&error)));
                }
            }
            last = CommandError::Refused(error);
        }
        Err(last)
    }

    fn connection_to(
        &self,
        node: &RedisAddress,
    ) -> watch::Receiver<ConnectionState<MultiplexedConnection>> {
        let name = node.display_name();
        // No code that can panic runs while the lock is held; if one ever did, the map would still be whole.
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = connections.get(&name) {
            return state.clone();
        }
        if connections.len() >= NODES_MAX {
            // ClusterConnections of long ago. Who waits for one of them still has it.
            connections.clear();
        }
        let (sender, state) = ConnectionState::channel();
        let dialer =
            self.dialers.dialer_for("publishing", ServerSource::Any([node.clone()].into()));
        self.runtime.spawn(publisher::run(dialer, sender));
        connections.insert(name, state.clone());
        state
    }
}
