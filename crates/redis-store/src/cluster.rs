//! The servers of a cluster: their links, and the server of each slot. A task reads the map of slots at the start, at
//! intervals, and when a server is lost or says that a slot has moved.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use redis_connection::{RedisAddress, ServerSource, read_slot_map};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::server_link::{LinkSettings, ServerLink};

/// The maximum number of servers that are connected at a time: the recommended maximum size of a cluster.
const SERVERS_MAX: usize = 1000;

/// The interval at which the map of slots is read although no server has reported a change.
const MAP_AGE_MAX: Duration = Duration::from_secs(60);

/// The pause after each reading, so that many redirections lead to few readings.
const MAP_PAUSE: Duration = Duration::from_millis(100);

/// The servers of a cluster.
pub(crate) struct ClusterLinks {
    slots: ArcSwap<Vec<LinkedRange>>,
    links: Mutex<HashMap<String, (RedisAddress, Arc<ServerLink>)>>,
    settings: Arc<LinkSettings>,
    runtime: Handle,
    stale: Notify,
}

/// The first slot, the last slot, and the server that has them.
type LinkedRange = (u16, u16, Arc<ServerLink>);

/// The task that reads the map of slots. It ends with this struct.
pub(crate) struct MapReader(AbortHandle);

impl Drop for MapReader {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ClusterLinks {
    /// Starts reading the map of slots from one of these servers.
    pub(crate) fn start(
        seeds: Vec<RedisAddress>,
        settings: Arc<LinkSettings>,
        runtime: Handle,
    ) -> (Arc<Self>, MapReader) {
        let links = Arc::new(Self {
            slots: ArcSwap::default(),
            links: Mutex::default(),
            settings,
            runtime: runtime.clone(),
            stale: Notify::new(),
        });
        let reader = runtime.spawn(follow_map(Arc::clone(&links), seeds)).abort_handle();
        (links, MapReader(reader))
    }

    /// Returns the server that has a slot; `None` if the map is not known, or no server has it.
    pub(crate) fn server_of(&self, slot: u16) -> Option<Arc<ServerLink>> {
        let slots = self.slots.load();
        let at = slots.partition_point(|(_, last, _)| *last < slot);
        slots.get(at).filter(|(first, ..)| *first <= slot).map(|(_, _, link)| Arc::clone(link))
    }

    /// Returns any server that is connected, for commands without a key.
    pub(crate) fn any_server(&self) -> Option<Arc<ServerLink>> {
        let slots = self.slots.load();
        slots.iter().map(|(_, _, link)| link).find(|it| it.is_connected()).cloned()
    }

    /// Returns the server that a redirection names (`host:port`), and has the map read again. An empty host is that of
    /// the server that redirects, of which only the map knows the address: `None`.
    pub(crate) fn redirected(&self, place: &str) -> Option<Arc<ServerLink>> {
        self.stale.notify_one();
        let (host, port) = place.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let mut links = self.links();
        let (known, _) = links.values().next()?;
        let address = (!host.is_empty()).then(|| known.with_host(host.to_owned(), port))?;
        self.link(&mut links, address)
    }

    /// Has the map of slots read again.
    pub(crate) fn request_map(&self) {
        self.stale.notify_one();
    }

    /// Returns the number of servers, and of those without a connection.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let links = self.links();
        let open = links.values().filter(|(_, link)| !link.is_connected()).count();
        (links.len() as u64, open as u64)
    }

    fn link(
        &self,
        links: &mut HashMap<String, (RedisAddress, Arc<ServerLink>)>,
        address: RedisAddress,
    ) -> Option<Arc<ServerLink>> {
        let name = address.display_name();
        if let Some((_, link)) = links.get(&name) {
            return Some(Arc::clone(link));
        }
        if links.len() >= SERVERS_MAX {
            return None;
        }
        let source = ServerSource::Any([address.clone()].into());
        let link = Arc::new(ServerLink::start(source, &self.settings, &self.runtime));
        links.insert(name, (address, Arc::clone(&link)));
        Some(link)
    }

    /// Locks the links. No code panics under this lock, so a poisoned lock holds valid links.
    fn links(&self) -> MutexGuard<'_, HashMap<String, (RedisAddress, Arc<ServerLink>)>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a map of slots into use. Servers that are not in it are disconnected.
    fn replace(&self, map: Vec<(u16, u16, RedisAddress)>) {
        let mut links = self.links();
        let names: Vec<_> = map.iter().map(|(_, _, node)| node.display_name()).collect();
        links.retain(|name, _| names.contains(name));
        let map = map
            .into_iter()
            .filter_map(|(first, last, node)| Some((first, last, self.link(&mut links, node)?)));
        self.slots.store(Arc::new(map.collect()));
    }

    /// Returns the servers to ask for the map: first those that respond, last the configured ones.
    fn known_servers(&self, seeds: &[RedisAddress]) -> Vec<RedisAddress> {
        let links = self.links();
        let mut known: Vec<_> = links.values().collect();
        known.sort_by_key(|(_, link)| !link.is_connected());
        known.into_iter().map(|(address, _)| address).chain(seeds).cloned().collect()
    }
}

/// Reads the map of slots, again and again.
async fn follow_map(cluster: Arc<ClusterLinks>, seeds: Vec<RedisAddress>) {
    let mut failures = 0_u32;
    // Nodes of a cluster have no other database.
    let seeds: Vec<_> = seeds.iter().map(|it| it.with_database(0)).collect();
    loop {
        let servers = cluster.known_servers(&seeds);
        match read_slot_map(servers.iter()).await {
            Ok(map) if !map.is_empty() => {
                failures = 0;
                cluster.replace(map);
            }
            outcome => {
                let reason = outcome.err().unwrap_or_else(|| "the map is empty".into());
                let names = servers.iter().map(RedisAddress::display_name);
                let names = names.collect::<Vec<_>>().join(", ");
                let problem = "no server of the cluster has a map of slots; trying again";
                cluster.settings.log.log_failure(&names, &reason, problem);
                failures = failures.saturating_add(1);
            }
        }
        let pause = MAP_PAUSE
            .saturating_mul(2_u32.saturating_pow(failures))
            .min(cluster.settings.retry_max);
        sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        if failures == 0 {
            let stale = async {
                tokio::select! {
                    () = cluster.stale.notified() => {}
                    () = cluster.settings.on_lost.notified() => {}
                }
            };
            // The map is read again in either case.
            let _ = timeout(MAP_AGE_MAX, stale).await;
        }
    }
}
