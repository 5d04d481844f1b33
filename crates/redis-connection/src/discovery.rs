//! Discovery of the server for a connection: one of a list, the master that sentinels name, or the node of a cluster
//! that has a slot.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::address::{RedisAddress, RedisAuthentication};
use crate::connection::{NO_PUSHES, RESPONSE_TIMEOUT, RedisConnection, error_text};

/// The number of slots of a cluster, by its specification.
const SLOTS: u16 = 16_384;

/// The minimum interval between reads of the slot map. A failover takes seconds.
const SLOT_MAP_AGE_MIN: Duration = Duration::from_millis(50);

/// The first slot, the last slot, and the node that has them.
pub type SlotRange = (u16, u16, RedisAddress);

/// The way in which the server for a connection is found.
#[derive(Clone)]
pub enum ServerSource {
    /// Any of these servers, in turn.
    Any(Arc<[RedisAddress]>),
    /// The master that sentinels name.
    Master(Arc<Sentinel>),
    /// The node that has that slot.
    Slot(Arc<Cluster>, u16),
}

impl ServerSource {
    /// Returns the server for attempt number `attempt`. Knowledge from before `since` is not used.
    ///
    /// # Errors
    /// The reason why no server is known, without credentials.
    pub async fn find_server(
        &self,
        attempt: usize,
        since: Instant,
    ) -> Result<RedisAddress, Box<str>> {
        match self {
            Self::Any(addresses) => Ok(addresses[attempt % addresses.len()].clone()),
            Self::Master(sentinel) => sentinel.find_master().await,
            Self::Slot(cluster, slot) => cluster.find_owner(*slot, since).await,
        }
    }

    /// True if the server must confirm that it is a master.
    pub fn is_master(&self) -> bool {
        matches!(self, Self::Master(_))
    }
}

/// Sentinels, which watch a master and know its address.
pub struct Sentinel {
    /// The name of the master, as the sentinels know it.
    pub master: Box<str>,
    /// One or more addresses of sentinels.
    pub sentinels: Vec<RedisAddress>,
    /// The credentials for the master.
    pub authentication: Option<RedisAuthentication>,
}

impl Sentinel {
    /// Returns the master from the first sentinel that knows it.
    async fn find_master(&self) -> Result<RedisAddress, Box<str>> {
        let mut reason: Box<str> = "no sentinel knows the master".into();
        for sentinel in &self.sentinels {
            let mut command = redis::cmd("SENTINEL");
            command.arg("GET-MASTER-ADDR-BY-NAME").arg(&*self.master);
            match query(sentinel, &command).await {
                Ok(Value::Array(parts)) => {
                    if let Some((host, port)) = read_host_and_port(&parts) {
                        return Ok(sentinel.with_host_and_credentials(
                            host,
                            port,
                            self.authentication.as_ref(),
                        ));
                    }
                }
                Ok(_) => reason = "the sentinels know no master of that name".into(),
                Err(error) => reason = format!("sentinel: {error}").into(),
            }
        }
        Err(reason)
    }
}

/// A cluster, with the slots of its nodes.
pub struct Cluster {
    /// Addresses of one or more of its nodes.
    seeds: Vec<RedisAddress>,
    map: Mutex<SlotMap>,
}

/// The nodes of the slots, as read at some time.
#[derive(Default)]
struct SlotMap {
    read_at: Option<Instant>,
    /// The ranges are in the order of slots.
    ranges: Vec<SlotRange>,
}

impl Cluster {
    /// Creates a cluster of which these nodes are known.
    pub fn new(seeds: Vec<RedisAddress>) -> Self {
        Self { seeds, map: Mutex::default() }
    }

    /// Returns the node that has that slot, from a map that was read after `since`.
    ///
    /// # Errors
    /// No node responds, or none has the slot.
    pub async fn find_owner(&self, slot: u16, since: Instant) -> Result<RedisAddress, Box<str>> {
        // Callers that need a newer map wait here for the one that reads it.
        let mut map = self.map.lock().await;
        let is_known = map.read_at.is_some_and(|at| at >= since || at.elapsed() < SLOT_MAP_AGE_MIN);
        if !is_known {
            let nodes = map.ranges.iter().map(|(_, _, node)| node);
            let ranges = read_slot_map(nodes.chain(&self.seeds)).await?;
            *map = SlotMap { read_at: Some(Instant::now()), ranges };
        }
        let at = map.ranges.partition_point(|(_, last, _)| *last < slot);
        match map.ranges.get(at) {
            Some((first, _, node)) if *first <= slot => Ok(node.clone()),
            _ => Err("no node of the cluster has that key's slot".into()),
        }
    }
}

/// Queries one node after the other until one returns the map of slots. The ranges are in the order of slots.
///
/// # Errors
/// No node responds with a map.
pub async fn read_slot_map<'a>(
    nodes: impl Iterator<Item = &'a RedisAddress>,
) -> Result<Vec<SlotRange>, Box<str>> {
    let mut tried: Vec<String> = Vec::new();
    let mut reason: Box<str> = "no node of the cluster responds".into();
    for node in nodes {
        let name = node.display_name();
        if tried.contains(&name) {
            continue;
        }
        tried.push(name);
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        match query(node, &command).await {
            Ok(Value::Array(ranges)) => {
                let mut ranges: Vec<_> =
                    ranges.into_iter().filter_map(|range| read_slot_range(node, range)).collect();
                ranges.sort_by_key(|(first, _, _)| *first);
                return Ok(ranges);
            }
            Ok(_) => reason = "the server does not report the map of slots".into(),
            Err(error) => reason = error,
        }
    }
    Err(reason)
}

/// Reads `[first, last, [host, port, …], replicas…]` from the response of `node`.
fn read_slot_range(node: &RedisAddress, range: Value) -> Option<SlotRange> {
    let Value::Array(parts) = range else { return None };
    let slot = |value: &Value| match value {
        Value::Int(slot) => u16::try_from(*slot).ok(),
        _ => None,
    };
    let (first, last) = (slot(parts.first()?)?, slot(parts.get(1)?)?);
    let Value::Array(owner) = parts.get(2)? else { return None };
    let owner = match read_host_and_port(owner) {
        Some((host, port)) => node.with_host(host, port),
        // A node may not know its own name. Its host is then the one that was queried.
        None => match owner.get(1)? {
            Value::Int(port) => node.with_host(String::new(), u16::try_from(*port).ok()?),
            _ => return None,
        },
    };
    Some((first, last, owner))
}

/// Reads `[host, port, …]`.
fn read_host_and_port(parts: &[Value]) -> Option<(String, u16)> {
    let text = |value: &Value| match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    };
    Some((text(parts.first()?)?, text(parts.get(1)?)?.parse().ok()?))
}

/// Sends one command on a connection of its own.
async fn query(server: &RedisAddress, command: &redis::Cmd) -> Result<Value, Box<str>> {
    let mut connection = RedisConnection::open(server, NO_PUSHES, RESPONSE_TIMEOUT).await?;
    let response = connection.multiplexed.send_packed_command(command).await;
    connection.close().await;
    match response {
        Ok(Value::ServerError(error)) => Err(error_text(&error.into()).into()),
        Ok(value) => Ok(value),
        Err(error) => Err(error_text(&error).into()),
    }
}

/// Returns the slot of a key. Only the text in its first non-empty braces counts, if there is any, so `{a}.1` and
/// `{a}.2` have the same slot.
pub fn slot_of(key: &str) -> u16 {
    let key = key.as_bytes();
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// Returns the CRC-16/XMODEM, which the specification of Redis Cluster requires.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(url: &str) -> RedisAddress {
        RedisAddress::parse_list(&[url.to_owned()], None, None).unwrap().remove(0)
    }

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        // These values are from `CLUSTER KEYSLOT`.
        for (key, slot) in [("foo", 12182), ("somekey", 11058), ("foo{hash_tag}", 2515)] {
            assert_eq!(slot_of(key), slot, "{key}");
        }
        assert_eq!(slot_of("{user1000}.following"), slot_of("{user1000}.followers"));
        assert_eq!(slot_of("foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS, "an empty tag is none");
        assert_eq!(slot_of("foo{{bar}}zap"), slot_of("{bar"));
        assert_eq!(slot_of("foo{bar}{zap}"), slot_of("bar"));
    }

    #[test]
    fn a_slot_map_names_nodes_and_a_node_without_a_name_has_the_queried_host() {
        let asked = node("redis://me:s3cret@seed:7000");
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let range = |host: Value| {
            let owner = Value::Array(vec![host, Value::Int(7001), bulk("id")]);
            let range = Value::Array(vec![Value::Int(0), Value::Int(5460), owner]);
            read_slot_range(&asked, range)
                .map(|(first, last, node)| (first, last, node.display_name()))
        };
        assert_eq!(range(bulk("10.0.0.7")), Some((0, 5460, "10.0.0.7:7001".into())));
        for unnamed in [Value::Nil, bulk("")] {
            assert_eq!(range(unnamed), Some((0, 5460, "seed:7001".into())));
        }
        assert!(read_slot_range(&asked, Value::Array(vec![Value::Int(-1)])).is_none());
    }
}
