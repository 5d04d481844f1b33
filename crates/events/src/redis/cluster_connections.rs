//! What is written to a cluster: to each node through a connection of its own, made when the first key of its slots
//! is written to.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::address::Address;
use super::dialer::Dialing;
use super::targets::{Cluster, Targets};
use super::{Link, publisher, soon};

/// Nodes that are connected to at a time: as many as a cluster is advised to have.
const NODES_MAX: usize = 1000;

/// How often one command follows a slot that moves, or waits for a node that takes over; with [`PAUSE`] and the wait
/// for connections some seconds, which is what a failover takes.
const ATTEMPTS_MAX: u32 = 8;

/// Before the second attempt; as much longer with each.
const PAUSE: Duration = Duration::from_millis(50);

/// A map of the cluster as old as that is good enough until a node says otherwise.
const MAP_AGE_MAX: Duration = Duration::from_secs(300);

/// Why a command was not done.
pub(super) enum NotDone {
    /// No connection, or no answer.
    Unavailable(String),
    /// The broker's refusal.
    Refused(RedisError),
}

/// Connections to the nodes of a cluster.
pub(super) struct Nodes {
    cluster: Arc<Cluster>,
    dialing: Dialing,
    runtime: tokio::runtime::Handle,
    links: Mutex<HashMap<String, watch::Receiver<Link<MultiplexedConnection>>>>,
}

impl Nodes {
    /// Must be called inside a Tokio runtime.
    pub(super) fn new(cluster: Arc<Cluster>, dialing: Dialing) -> Self {
        let runtime = tokio::runtime::Handle::current();
        Self { cluster, dialing, runtime, links: Mutex::default() }
    }

    /// Says `command` to the node that has `slot`, wherever that goes meanwhile. What may have been done once is
    /// not said again.
    pub(super) async fn say(&self, slot: u16, command: &Cmd) -> Result<(), NotDone> {
        let mut since = Instant::now().checked_sub(MAP_AGE_MAX).unwrap_or_else(Instant::now);
        let mut ask_at: Option<Address> = None;
        let mut last = NotDone::Unavailable("no node of the cluster takes it".into());
        for attempt in 0..ATTEMPTS_MAX {
            sleep(PAUSE * attempt).await;
            let asking = ask_at.take();
            let owner = match &asking {
                Some(node) => Ok(node.clone()),
                None => self.cluster.owner(slot, since).await,
            };
            let connected = match owner {
                Ok(node) => soon(&self.link(&node)).await.map(|connection| (node, connection)),
                Err(reason) => Err(reason.to_string()),
            };
            let (node, mut connection) = match connected {
                Ok(connected) => connected,
                Err(reason) => {
                    (last, since) = (NotDone::Unavailable(reason), Instant::now());
                    continue;
                }
            };
            let said = if asking.is_some() {
                // A slot that is on its way is asked for where it goes to; in one go, so that nobody comes between.
                let mut commands = redis::pipe();
                commands.cmd("ASKING").ignore().add_command(command.clone()).ignore();
                commands.exec_async(&mut connection).await
            } else {
                command.exec_async(&mut connection).await
            };
            let Err(error) = said else { return Ok(()) };
            match error.code() {
                Some("ASK") => {
                    let place = error.redirect_node().and_then(|(place, _)| place.rsplit_once(':'));
                    ask_at = place.and_then(|(host, port)| {
                        Some(node.relative(host.to_owned(), port.parse().ok()?))
                    });
                }
                Some(
                    "MOVED" | "CLUSTERDOWN" | "TRYAGAIN" | "LOADING" | "READONLY" | "MASTERDOWN",
                ) => {
                    since = Instant::now();
                }
                Some(_) => return Err(NotDone::Refused(error)),
                None => return Err(NotDone::Unavailable(super::session::said(&error))),
            }
            last = NotDone::Refused(error);
        }
        Err(last)
    }

    fn link(&self, node: &Address) -> watch::Receiver<Link<MultiplexedConnection>> {
        let name = node.for_logs();
        // No code that can panic runs while the lock is held; if one ever did, the map would still be whole.
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(link) = links.get(&name) {
            return link.clone();
        }
        if links.len() >= NODES_MAX {
            // Nodes of long ago. Who waits for one of them still has it.
            links.clear();
        }
        let (sender, link) = watch::channel(Link::Away("not connected yet".into()));
        let dialer = self.dialing.dialer_to("publishing", Targets::Any([node.clone()].into()));
        self.runtime.spawn(publisher::run(dialer, sender));
        links.insert(name, link.clone());
        link
    }
}
