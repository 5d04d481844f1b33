//! Publishing to a cluster: one connection to each node, made when the first key of its slots is written.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError};
use redis_connection::{Cluster, RedisAddress, ServerSource};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::dialer::DialerFactory;
use super::publisher;
use crate::connection_state::{ConnectionState, wait_connected};

/// The maximum number of nodes that are connected at a time: the recommended maximum size of a cluster.
const NODES_MAX: usize = 1000;

/// The maximum number of attempts of one command, while its slot moves or another node takes over. With [`RETRY_PAUSE`]
/// and the wait for connections they last some seconds, as a failover does.
const ATTEMPTS_MAX: u32 = 8;

/// The pause before the second attempt. Each further pause is longer by the same time.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The maximum age of the slot map that is used before a node reports a change.
const SLOT_MAP_AGE_MAX: Duration = Duration::from_secs(300);

/// The reason why a command was not executed.
pub(super) enum CommandError {
    /// There is no connection, or no response.
    Unavailable(String),
    /// The broker refused the command.
    Refused(RedisError),
}

/// The connections to the nodes of a cluster.
pub(super) struct ClusterConnections {
    cluster: Arc<Cluster>,
    dialers: DialerFactory,
    runtime: tokio::runtime::Handle,
    connections: Mutex<HashMap<String, watch::Receiver<ConnectionState<MultiplexedConnection>>>>,
}

impl ClusterConnections {
    /// Makes the pool of connections. Must be called inside a Tokio runtime.
    pub(super) fn new(cluster: Arc<Cluster>, dialers: DialerFactory) -> Self {
        let runtime = tokio::runtime::Handle::current();
        Self { cluster, dialers, runtime, connections: Mutex::default() }
    }

    /// Sends `command` to the node that has `slot`, and follows the slot if it moves meanwhile. A command that may have
    /// been executed is not sent again.
    pub(super) async fn send_command(&self, slot: u16, command: &Cmd) -> Result<(), CommandError> {
        let mut since = Instant::now().checked_sub(SLOT_MAP_AGE_MAX).unwrap_or_else(Instant::now);
        let mut ask_node: Option<RedisAddress> = None;
        let mut last =
            CommandError::Unavailable("no node of the cluster accepts the command".into());
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
                // The command for a slot that is being moved goes to its new node, in one pipeline with `ASKING`, so
                // that no other command comes between them.
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
                        Some(node.with_host(host.to_owned(), port.parse().ok()?))
                    });
                }
                Some(
                    "MOVED" | "CLUSTERDOWN" | "TRYAGAIN" | "LOADING" | "READONLY" | "MASTERDOWN",
                ) => {
                    since = Instant::now();
                }
                Some(_) => return Err(CommandError::Refused(error)),
                None => {
                    return Err(CommandError::Unavailable(redis_connection::error_text(&error)));
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
        // No code that can panic runs while the lock is held. Even if it did, the map would be consistent.
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = connections.get(&name) {
            return state.clone();
        }
        if connections.len() >= NODES_MAX {
            // These are nodes of long ago. Commands that wait for one of them keep their connection.
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
